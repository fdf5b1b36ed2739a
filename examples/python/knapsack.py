"""The C interface for Python: structs and functions of knapsack.h. Needs only ctypes.

KNAPSACK_LIBRARY names the shared library; else the system finds it.
"""

import ctypes
import ctypes.util
import os
import sys
from ctypes import (
    POINTER,
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


class StepInput(ctypes.Structure):
    _fields_ = [
        ("session", c_void_p),
        ("ids", POINTER(c_uint32)),
        ("n", c_size_t),
        ("n_read", c_size_t),
        ("code", c_int),
    ]


def load_library():
    path = os.environ.get("KNAPSACK_LIBRARY") or ctypes.util.find_library("knapsack")
    if not path:
        sys.exit("libknapsack was not found; set KNAPSACK_LIBRARY to its file")
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
        ("ks_step", c_int, model, POINTER(StepInput), c_size_t, c_char_p, c_size_t),
        ("ks_feed_turn", c_int, session, c_char_p, c_char_p),
        ("ks_rewind", c_int, session, c_uint32),
        ("ks_logits", POINTER(c_float), session),
        ("ks_set_sampling", c_int, session, POINTER(Sampling)),
        ("ks_sample", c_int, session, ids),
    ):
        function = getattr(ks, name)
        function.restype, function.argtypes = result, arguments
    return ks


def piece(ks, model, token):
    """The text of a token, in bytes: it may end inside a character."""
    text = ctypes.create_string_buffer(1024)
    n_bytes = ks.ks_piece(model, token, text, len(text))
    return text.raw[:n_bytes]
