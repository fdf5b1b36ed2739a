#!/usr/bin/env python3
"""Two conversations on one model, whose weights are there once.

    two_conversations.py MODEL MIB QUESTION QUESTION [TOKENS]

Each step reads the next token of both answers together.
"""

import ctypes
import os
import sys
from ctypes import byref, c_uint32, c_void_p

from knapsack import KS_OK, ModelOptions, StepInput, load_library, piece


class KnapsackError(Exception):
    pass


class Conversation:
    """A question and its answer, in a session of the model."""

    def __init__(self, ks, model, question):
        self.ks, self.model, self.question = ks, model, question
        self.session, self.token, self.answer = c_void_p(), c_uint32(), b""
        error = ctypes.create_string_buffer(400)
        if ks.ks_session_open(model, byref(self.session), error, len(error)) != KS_OK:
            raise KnapsackError(error.value.decode())
        self.check(ks.ks_feed_turn(self.session, None, question))

    def check(self, code):
        if code != KS_OK:
            raise KnapsackError(self.ks.ks_error(self.session).decode())

    def choose(self):
        """Chooses the next token. Returns False at the end of the answer."""
        self.check(self.ks.ks_sample(self.session, byref(self.token)))
        if self.ks.ks_is_end(self.model, self.token):
            return False
        self.answer += piece(self.ks, self.model, self.token)
        return True


def talk(ks, model, questions, n_tokens):
    """Writes all answers together and returns the conversations."""
    all_of_them = [Conversation(ks, model, question) for question in questions]
    going, error = all_of_them, ctypes.create_string_buffer(400)
    for _ in range(n_tokens):
        going = [c for c in going if c.choose()]
        if not going:
            break
        inputs = (StepInput * len(going))(
            *(StepInput(c.session, ctypes.pointer(c.token), 1) for c in going)
        )
        if ks.ks_step(model, inputs, len(going), error, len(error)) != KS_OK:
            raise KnapsackError(error.value.decode())
        for conversation, read in zip(going, inputs):
            conversation.check(read.code)
    return all_of_them


def main():
    if len(sys.argv) not in (5, 6):
        sys.exit("usage: two_conversations.py MODEL MIB QUESTION QUESTION [TOKENS]")
    path, mib, *questions = map(os.fsencode, sys.argv[1:5])
    ks = load_library()
    error, model = ctypes.create_string_buffer(400), c_void_p()
    options = ModelOptions(model_path=path, memory_bytes=int(mib) << 20, n_sessions=len(questions))
    code = ks.ks_model_open(byref(options), byref(model), error, len(error))
    if code != KS_OK:
        print(f"two_conversations: {error.value.decode()}", file=sys.stderr)
        return code
    try:
        talked = talk(ks, model, questions, int(sys.argv[5]) if len(sys.argv) == 6 else 32)
    except KnapsackError as reason:
        sys.exit(f"two_conversations: {reason}")
    for conversation in talked:
        sys.stdout.buffer.write(conversation.question + b"\n" + conversation.answer + b"\n")
        ks.ks_session_close(conversation.session)
    ks.ks_model_close(model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
