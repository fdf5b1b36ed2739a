"""Runs the program for the tests. The first argument of every test is the program's path."""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from tiny_model import write_model  # noqa: E402

BINARY = os.path.abspath(sys.argv[1])
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("KNAPSACK_")}
checks = failures = 0


class Result:
    def __init__(self, args, stdin, env, binary=None):
        p = subprocess.run(
            [binary or BINARY, *map(str, args)],
            input=stdin,
            capture_output=True,
            env={**CLEAN, "KNAPSACK_PEAK_SECONDS": "0.1", **env},
            timeout=300,
        )
        self.code, self.out, self.err = p.returncode, p.stdout, p.stderr.decode(errors="replace")
        self.sentences = [line for line in self.err.split("\n") if line.startswith("knapsack: ")]

    def json(self):
        return json.loads(self.out.decode())  # strict: invalid UTF-8 fails


def knapsack(*args, stdin=b"", env=None):
    return Result(args, stdin, env or {})


def check(condition, what):
    global checks, failures
    checks += 1
    if not condition:
        failures += 1
        print(f"FAILED: {what}")


def check_refused(result, code, *words):
    """Checks the exit code, and that the only message is one readable sentence with the words."""
    fine = (
        result.code == code
        and len(result.sentences) == 1
        and len(result.sentences[0]) <= 400
        and result.sentences[0].isascii()
        and result.sentences[0].isprintable()
    )
    check(
        fine and all(w in result.sentences[0] for w in words),
        f"expected exit {code} with {words}, found exit {result.code}: {result.err!r}",
    )


def tiny_model(folder, **kw):
    path = os.path.join(folder, kw.pop("name", "tiny.gguf"))
    write_model(path, **kw)
    return path


def run_tests(test):
    """Calls test(folder) with a temporary folder, and exits with 1 if a check failed."""
    with tempfile.TemporaryDirectory() as folder:
        test(folder)
    print(f"{checks - failures} of {checks} checks held")
    sys.exit(1 if failures else 0)
