#!/usr/bin/env python3
"""A real model inside a budget, if models/smollm2.gguf exists: answers, memory, time."""

import os
import resource
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import BINARY, CLEAN, check, check_refused, knapsack, run_tests  # noqa: E402

MODEL = os.path.join("models", "smollm2.gguf")
BUDGET, OVERHEAD = 192 << 20, 24 << 20
if not os.path.exists(MODEL):
    print(f"skipped: {MODEL} is not there, `tools/fetch_model.sh smollm2` fetches it")
    sys.exit(77)


def test(folder):
    base = ["-m", MODEL, "--memory", BUDGET]
    plan = knapsack("plan", "--json", *base).json()
    check(
        plan["fits"] and plan["total_bytes"] <= BUDGET and plan["context"] > 2000,
        f"the plan: {plan}",
    )
    j = knapsack(
        "run",
        *base,
        "-p",
        "The capital of France is",
        "-n",
        40,
        "--temp",
        "0",
        "--ignore-eos",
        "--json",
    ).json()
    check(j["text"].startswith(" Paris"), f"the capital of France: {j['text']!r}")
    check(
        j["plan_bytes"] == j["peak_bytes"] == plan["total_bytes"]
        and j["host_allocations"] in (0, None),
        f"bytes: {j}",
    )

    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    begin = time.monotonic()
    subprocess.run(
        [BINARY, "run", *map(str, base), "-p", "Hello", "-n", "1", "--temp", "0"],
        check=True,
        capture_output=True,
        env=CLEAN,
    )
    print(f"start to first token: {time.monotonic() - begin:.2f} s")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    check(
        before * 1024 <= BUDGET + OVERHEAD and peak <= BUDGET + OVERHEAD,
        f"resident {peak} bytes, budget {BUDGET}",
    )

    # The end of an answer depends on the last bits of the sums, so only words are checked. With 4
    # bits the answer is a different one.
    for recipe, begins, words in (
        ("q8", "The sky is blue because", ["Rayleigh"]),
        ("auto", "The sky", ["Rayleigh", "atmosphere"]),
    ):
        chat = knapsack(
            "chat",
            *base,
            "--kv",
            recipe,
            "--temp",
            "0",
            "-n",
            40,
            stdin=b"Why is the sky blue? Answer in one sentence.\nThank you!\n",
        )
        answers = chat.out.decode()
        first = answers.split("\n")[0]
        check(
            chat.code == 0
            and first.startswith(begins)
            and any(w in first for w in words)
            and len(answers.split("\n")) >= 2,
            f"a chat of two turns: {answers!r}",
        )
    small = plan["smallest_bytes"]
    check(
        knapsack("run", "-m", MODEL, "-p", "Hello", "-n", 4, "--temp", "0", "--memory", small).code
        == 0,
        "the smallest budget works",
    )
    check_refused(
        knapsack("run", "-m", MODEL, "-p", "Hello", "-n", 4, "--memory", small - 1), 4, str(small)
    )


run_tests(test)
