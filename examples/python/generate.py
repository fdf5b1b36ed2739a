#!/usr/bin/env python3
"""Continues a text through the shared library. Needs only ctypes; nothing is built.

    generate.py MODEL MIB TEXT [TOKENS [SEED]]

With a seed tokens are sampled; else each one is the most probable.
KNAPSACK_LIBRARY names the library; else the system finds it.
"""

import ctypes
import ctypes.util
import os
import sys
from ctypes import (
    POINTER,
    byref,
    c_char,
    c_char_p,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)

KS_OK = 0
Progress = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_uint64, c_uint64)
Log = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)


class Struct(ctypes.Structure):
    """A struct of the header. Its first field is its own size."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


class ModelOptions(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("model_path", c_char_p),
        ("device", c_char_p),
        ("recipe", c_char_p),
        ("memory_bytes", c_uint64),
        ("kv_memory_bytes", c_uint64),
        ("context", c_int64),
        ("n_threads", c_int32),
        ("n_sessions", c_uint32),
        ("fixed_shares", c_uint32),
        ("constrained", c_uint32),
        ("memory", c_void_p),
        ("memory_size", c_size_t),
        ("progress", Progress),
        ("log", Log),
        ("user", c_void_p),
    ]


class Stats(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("budget_bytes", c_uint64),
        ("plan_bytes", c_uint64),
        ("peak_bytes", c_uint64),
        ("smallest_bytes", c_uint64),
        ("bytes_per_token", c_uint64),
        ("bytes_per_session", c_uint64),
        ("n_sessions", c_uint32),
        ("fits", c_uint32),
        ("context", c_uint32),
        ("slots", c_uint32),
        ("n_tokens", c_uint32),
        ("n_vocab", c_uint32),
        ("evicted", c_uint64),
        ("merged", c_uint64),
        ("device", c_char * 32),
        ("recipe", c_char * 256),
    ]


class Bias(ctypes.Structure):
    _fields_ = [("id", c_uint32), ("bias", c_float)]


class Sampling(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("temperature", c_float),
        ("top_k", c_uint32),
        ("top_p", c_float),
        ("min_p", c_float),
        ("typical_p", c_float),
        ("repeat_penalty", c_float),
        ("presence_penalty", c_float),
        ("frequency_penalty", c_float),
        ("repeat_last_n", c_uint32),
        ("seed", c_uint64),
        ("biases", POINTER(Bias)),
        ("n_biases", c_size_t),
    ]


def load_library():
    path = os.environ.get("KNAPSACK_LIBRARY") or ctypes.util.find_library("knapsack")
    if not path:
        sys.exit("generate: libknapsack was not found; set KNAPSACK_LIBRARY to its file")
    ks = ctypes.CDLL(path)
    model, session, ids = c_void_p, c_void_p, POINTER(c_uint32)
    for name, result, *arguments in (
        ("ks_version", c_char_p),
        ("ks_plan", c_int, POINTER(ModelOptions), POINTER(Stats), c_char_p, c_size_t),
        ("ks_model_open", c_int, POINTER(ModelOptions), POINTER(model), c_char_p, c_size_t),
        ("ks_model_close", None, model),
        ("ks_session_open", c_int, model, POINTER(session), c_char_p, c_size_t),
        ("ks_session_close", None, session),
        ("ks_error", c_char_p, session),
        ("ks_get_stats", None, session, POINTER(Stats)),
        ("ks_tokenize", c_size_t, model, c_char_p, c_size_t, c_uint32, ids, c_size_t),
        ("ks_piece", c_size_t, model, c_uint32, c_char_p, c_size_t),
        ("ks_is_end", c_int, model, c_uint32),
        ("ks_feed", c_int, session, ids, c_size_t),
        ("ks_feed_turn", c_int, session, c_char_p, c_char_p),
        ("ks_rewind", c_int, session, c_uint32),
        ("ks_logits", POINTER(c_float), session),
        ("ks_set_sampling", c_int, session, POINTER(Sampling)),
        ("ks_sample", c_int, session, ids),
    ):
        function = getattr(ks, name)
        function.restype, function.argtypes = result, arguments
    return ks


def main():
    if len(sys.argv) not in (4, 5, 6):
        sys.exit("usage: generate.py MODEL MIB TEXT [TOKENS [SEED]]")
    path, mib, text, n_tokens = *map(os.fsencode, sys.argv[1:4]), (
        int(sys.argv[4]) if len(sys.argv) > 4 else 32
    )
    ks = load_library()
    error, model, session = ctypes.create_string_buffer(400), c_void_p(), c_void_p()
    # The callback object must live as long as the model: ctypes holds no reference.
    log = Log(lambda user, sentence: print(sentence.decode(), file=sys.stderr))
    options = ModelOptions(model_path=path, memory_bytes=int(mib) << 20, log=log)
    code = ks.ks_model_open(byref(options), byref(model), error, len(error))
    if code == KS_OK:
        code = ks.ks_session_open(model, byref(session), error, len(error))
    if code != KS_OK:
        print(f"generate: {error.value.decode()}", file=sys.stderr)
        return code

    n = ks.ks_tokenize(model, text, len(text), 0, None, 0)
    ids = (c_uint32 * n)()
    ks.ks_tokenize(model, text, len(text), 0, ids, n)
    code, token = ks.ks_feed(session, ids, n), c_uint32()
    if code == KS_OK and len(sys.argv) == 6:
        code = ks.ks_set_sampling(
            session, byref(Sampling(temperature=0.8, top_k=40, seed=int(sys.argv[5])))
        )
    piece = ctypes.create_string_buffer(1024)
    for _ in range(n_tokens):
        if code == KS_OK:
            code = ks.ks_sample(session, byref(token))
        if code != KS_OK or ks.ks_is_end(model, token):
            break
        n_bytes = ks.ks_piece(model, token, piece, len(piece))
        sys.stdout.buffer.write(piece.raw[:n_bytes])
        sys.stdout.buffer.flush()
        code = ks.ks_feed(session, byref(token), 1)
    print()
    if code != KS_OK:
        print(f"generate: {ks.ks_error(session).decode()}", file=sys.stderr)
    stats = Stats()
    ks.ks_get_stats(session, byref(stats))
    print(
        f"knapsack {ks.ks_version().decode()}: {stats.n_tokens} tokens, "
        f"{stats.peak_bytes} bytes held of {stats.budget_bytes}",
        file=sys.stderr,
    )
    ks.ks_session_close(session)
    ks.ks_model_close(model)
    return code


if __name__ == "__main__":
    sys.exit(main())
