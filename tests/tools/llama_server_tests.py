#!/usr/bin/env python3
"""Runs llama-server's own tests against serve.

    llama_server_tests.py KNAPSACK SUITE [--model FILE] [--least N] [--only TEXT]

SUITE is the folder tools/server/tests of llama.cpp's sources, which this repository has no copy
of. lib/llama_tests.py says which tests do not apply and why. Exits with 1 if less than N (120)
tests pass. Python needs pytest, requests and openai; KNAPSACK_CLIENTS names another Python."""

import argparse
import collections
import json
import os
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))


def python_with_packages():
    other = os.environ.get("KNAPSACK_CLIENTS", "")
    for python in (sys.executable, other):
        code = "import pytest, requests, openai, prometheus_client, filelock"
        if (
            os.path.exists(python)
            and not subprocess.run([python, "-c", code], stderr=subprocess.DEVNULL).returncode
        ):
            return python
    return None


def run_suite(args, python, folder):
    """Runs the suite and returns {name: [outcome, reason]}."""
    from http_client import free_port

    binary = os.path.join(folder, "llama-server")
    command = [sys.executable, os.path.join(HERE, "lib", "llama_server.py")]
    command += [os.path.abspath(args.knapsack), os.path.abspath(args.model)]
    with open(binary, "w") as f:
        f.write(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    os.chmod(binary, 0o755)
    with open(os.path.join(folder, "wget.py"), "w") as f:
        f.write("def download(url, out=None):\n    raise RuntimeError(url)\n")
    outcomes = os.path.join(folder, "outcomes.json")
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([folder, args.suite, os.path.join(HERE, "lib")]),
        "LLAMA_SERVER_BIN_PATH": binary,
        "KNAPSACK_OUTCOMES": outcomes,
        "PORT": str(free_port()),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    files = sorted(
        os.path.join("unit", f)
        for f in os.listdir(os.path.join(args.suite, "unit"))
        if f.startswith("test_")
    )
    only = ["-k", args.only] if args.only else []
    with open(args.log or os.path.join(folder, "log"), "w") as log:
        subprocess.run(
            [
                python,
                "-m",
                "pytest",
                "--noconftest",
                "-p",
                "llama_plugin",
                "-q",
                "-p",
                "no:cacheprovider",
                *only,
                *files,
            ],
            cwd=args.suite,
            env=env,
            stdout=log,
            stderr=log,
        )
    with open(outcomes) as f:
        return json.load(f)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("knapsack")
    p.add_argument("suite", nargs="?")
    p.add_argument("--model", default=os.path.join("models", "smollm2.gguf"))
    p.add_argument("--least", type=int, default=120)
    p.add_argument("--only")
    p.add_argument("--log", help="file for what pytest prints")
    args = p.parse_args()
    python = python_with_packages()
    if not args.suite or not os.path.exists(args.model) or python is None:
        print(
            "skipped: needs the folder of llama-server's tests, models/smollm2.gguf, pytest, "
            "requests and openai"
        )
        sys.exit(77)
    args.suite = os.path.abspath(args.suite)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run_suite(args, python, folder)
    by = collections.defaultdict(list)
    for name, (outcome, reason) in sorted(outcomes.items()):
        by[outcome].append((name, reason))
    for name, reason in by["failed"]:
        print(f"FAILED: {name}: {' '.join(reason.split())[:250]}")
    from llama_tests import CHANGES

    texts = sum(
        any(c.text and name.startswith(c.test) for c in CHANGES) for name, _ in by["passed"]
    )
    reasons = collections.Counter(reason for _, reason in by["skipped"])
    for reason, n in reasons.most_common():
        print(f"{n} {reason.removeprefix('Skipped: ')}")
    print(
        f"{len(by['passed'])} passed, {texts} of them with any text for that of another model; "
        f"{len(by['failed'])} failed, {len(by['skipped'])} not applicable"
    )
    sys.exit(0 if len(by["passed"]) >= args.least else 1)


main()
