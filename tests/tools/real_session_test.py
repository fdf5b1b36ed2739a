#!/usr/bin/env python3
"""Saved sessions of a real model, if models/smollm2.gguf exists."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import run_tests  # noqa: E402
from resume import check_resumed  # noqa: E402

MODEL = os.path.join("models", "smollm2.gguf")
if not os.path.exists(MODEL):
    print(f"skipped: {MODEL} is not there, `tools/fetch_model.sh smollm2` fetches it")
    sys.exit(77)


def test(folder):
    check_resumed(folder, MODEL, "192MiB", 40000, 300, ["exact", "mix,slots=128"])


run_tests(test)
