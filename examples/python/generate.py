#!/usr/bin/env python3
"""Continues a text through the shared library. Nothing is built.

    generate.py MODEL MIB TEXT [TOKENS [SEED]]

With a seed tokens are sampled; else each one is the most probable.
"""

import ctypes
import os
import sys
from ctypes import byref, c_uint32, c_void_p

from knapsack import KS_OK, Log, ModelOptions, Sampling, Stats, load_library, piece


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
    for _ in range(n_tokens):
        if code == KS_OK:
            code = ks.ks_sample(session, byref(token))
        if code != KS_OK or ks.ks_is_end(model, token):
            break
        sys.stdout.buffer.write(piece(ks, model, token))
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
