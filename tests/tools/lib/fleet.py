"""Workers behind a balancer, and conversations that count what was cached."""

import contextlib
import os

from scripted_model import TEMPLATE
from serve_cases import TINY_CONTEXT, WORDS
from server import chat_body, text_of
from tiny_model import write_model


def use_word_model(t):
    """A random model whose answers have no white space at their ends, which servers may drop."""
    path = os.path.join(t.folder, "words.gguf")
    if not t.real and t.model != path:
        words = [word.strip() + "," for word in WORDS]
        write_model(path, template=TEMPLATE, context=TINY_CONTEXT, words=words)
        t.model, t.alias = path, "words"


@contextlib.contextmanager
def workers_of(t, *options, conversations, memory, real, queue=16, n=2):
    """Workers of a case's model."""
    use_word_model(t)
    budget = real if t.real else memory
    with contextlib.ExitStack() as stack:
        more = ["--threads", 1, "-c", 1024, *options]
        yield [
            stack.enter_context(
                t.start(*more, conversations=conversations, queue=queue, memory=budget)
            )
            for _ in range(n)
        ]


@contextlib.contextmanager
def two_workers(t, *options, conversations=4, queue=16):
    with workers_of(
        t, *options, conversations=conversations, memory="64MiB", real="256MiB", queue=queue
    ) as workers:
        yield workers


def seat_of(worker, name):
    """The seat of a conversation, None if the worker does not have it."""
    return next((seat for seat in worker.seats() if seat["conversation"] == name), None)


def worker_of(workers, name):
    """The worker that has a conversation, None if none has."""
    return next((worker for worker in workers if seat_of(worker, name)), None)


class Talk:
    """A conversation with its history. named: its name is sent."""

    def __init__(self, name, named):
        self.name, self.named = name, named
        self.messages = []
        self.n_text = self.n_known = self.n_cached = 0

    def turn(self, server, stream=False, **fields):
        """One turn. n_known counts the tokens of the text before it, n_cached those not read."""
        ask = f"{self.name}: question {len(self.messages) // 2 + 1}, please answer it."
        self.messages.append({"role": "user", "content": ask})
        headers = {"X-Conversation-Id": self.name} if self.named else {}
        if stream:
            fields.update(stream=True, stream_options={"include_usage": True})
        body = chat_body(self.messages, **{"max_tokens": 16, **fields})
        r = server.post("/v1/chat/completions", body, headers=headers)
        if r.status != 200:
            self.messages.pop()
            return r
        last = [d["usage"] for d in r.datas() if d.get("usage")] if stream else [r.json()["usage"]]
        self.messages.append({"role": "assistant", "content": text_of(r)})
        self.n_known += self.n_text
        self.n_cached += last[-1]["prompt_tokens_details"]["cached_tokens"]
        self.n_text = last[-1]["total_tokens"]
        return r
