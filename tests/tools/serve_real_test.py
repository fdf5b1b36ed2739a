#!/usr/bin/env python3
"""The cases of the server with a real model, if models/smollm2.gguf exists."""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join("models", "smollm2.gguf")
PARTS = (
    "access",
    "wire",
    "chat",
    "fields",
    "tools",
    "native",
    "formats",
    "conversations",
    "queue",
)
if not os.path.exists(MODEL):
    print(f"skipped: {MODEL} is not there, `tools/fetch_model.sh smollm2` fetches it")
    sys.exit(77)
sys.path.insert(0, os.path.join(HERE, "lib"))
from server import SANITIZED  # noqa: E402

if SANITIZED:
    print("skipped: a real model takes too long under a sanitizer")
    sys.exit(77)
codes = [
    subprocess.run(
        [sys.executable, os.path.join(HERE, f"serve_{part}_test.py"), sys.argv[1], MODEL]
    ).returncode
    for part in PARTS
]
sys.exit(77 if 77 in codes else max(codes, key=abs))
