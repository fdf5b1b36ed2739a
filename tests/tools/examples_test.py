#!/usr/bin/env python3
"""The examples on a tiny model: they write the program's text and report too small a budget."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import BINARY, CLEAN, check, knapsack, run_tests, tiny_model  # noqa: E402

GREEDY = ["--temp", "0", "--memory", "64MiB"]


def example(name, *args, stdin=b""):
    program = os.path.join(os.path.dirname(BINARY), "example_" + name)
    return subprocess.run(
        [program, *map(str, args)], input=stdin, capture_output=True, env=CLEAN, timeout=300
    )


def test_minimal(model):
    r = example("minimal", model, 64, "hello world")
    same = knapsack("run", "-m", model, "-p", "hello world", "-n", 32, *GREEDY)
    check(
        r.returncode == 0
        and len(r.stdout) > 20
        and r.stdout.rstrip(b"\n") == same.out.rstrip(b"\n"),
        f"minimal: {r.stdout!r} is not {same.out!r}: {r.stderr!r}",
    )
    check(example("minimal", model, 1, "hello").returncode == 4, "minimal: too small a budget")
    check(example("minimal", model).returncode == 1, "minimal: its usage")


def test_chat(model):
    lines = b"hello\nhello hello world\n and again\n"
    recipe = "sink,slots=64,recent=16"
    r = example("chat", model, 64, recipe, stdin=lines)
    same = knapsack("chat", "-m", model, *GREEDY, "--kv", recipe, stdin=lines)
    check(
        r.returncode == 0 and len(r.stdout) > 100 and r.stdout == same.out,
        f"chat: {r.stdout!r} is not {same.out!r}: {r.stderr!r}",
    )
    check(
        r.stderr.endswith(b"sink=4,recent=16,slots=64\n") and b"reading prompt 100%" in r.stderr,
        f"chat: {r.stderr!r}",
    )
    # Recipes whose result depends on pinned tokens and on the chat template's tokens.
    for kept in ("mix,slots=48,recent=8,delta=4", "h2o,slots=40,victims=merge"):
        r, same = example("chat", model, 64, kept, stdin=b"hello\n"), knapsack(
            "chat", "-m", model, *GREEDY, "--kv", kept, stdin=b"hello\n"
        )
        check(
            r.returncode == 0 and r.stdout == same.out,
            f"chat with {kept}: {r.stdout!r} is not {same.out!r}: {r.stderr!r}",
        )
    drawn = [example("chat", model, 64, recipe, seed, stdin=lines).stdout for seed in (1, 1, 2)]
    check(drawn[0] == drawn[1] != drawn[2], "chat: the seed decides")
    full = example("chat", model, 64, "exact", stdin=b"hello\n" * 3)
    check(
        full.returncode == 0 and b"new conversation" in full.stderr,
        f"chat: a full context: {full.stderr!r}",
    )
    check(example("chat", model + ".none", 64).returncode == 2, "chat: no such model")


def test_two_conversations(model):
    questions = "hello world", "hello hello hello"
    r = example("two_conversations", model, 64, *questions)
    answers = [
        knapsack("chat", "-m", model, *GREEDY, "-n", 32, stdin=q.encode()).out for q in questions
    ]
    expected = b"".join(q.encode() + b"\n" + a for q, a in zip(questions, answers))
    check(
        r.returncode == 0 and len(expected) > 60 and r.stdout == expected,
        f"two conversations: {r.stdout!r} is not {expected!r}: {r.stderr!r}",
    )
    r = example("two_conversations", model, 1, *questions)
    check(
        r.returncode == 4 and b"2 sessions" in r.stderr and not r.stdout,
        f"two conversations: too small a budget: {r.stderr!r}",
    )
    check(example("two_conversations", model, 64).returncode == 1, "two conversations: the usage")


def test_budget(model):
    r = example("budget", model, 64, 200, "hello world")
    same = knapsack("run", "-m", model, "-p", "hello world", "-n", 32, *GREEDY)
    check(
        r.returncode == 0 and b"taken: exact\n" in r.stderr and r.stderr.endswith(b"as planned\n"),
        f"budget: {r.stderr!r}",
    )
    check(
        r.stdout.rstrip(b"\n") == same.out.rstrip(b"\n"),
        f"budget: {r.stdout!r} is not {same.out!r}",
    )
    r = example("budget", model, 5, 20000, "hello world")
    rows = {line.split()[0]: line for line in r.stderr.decode().splitlines() if "MiB" in line}
    slots = {
        recipe: knapsack(
            "plan", "-m", model, "--memory", "5MiB", "-c", 20000, "--kv", recipe, "--json"
        ).json()["slots"]
        for recipe in rows
    }
    check(
        len(rows) == 4 and all(str(slots[recipe]) in row for recipe, row in rows.items()),
        f"budget's plans are the program's: {slots} in {rows}",
    )
    check(
        r.returncode == 0 and b"taken: turbo2\n" in r.stderr and r.stderr.endswith(b"as planned\n"),
        f"budget: the recipe with most slots is taken: {r.stderr!r}",
    )
    r = example("budget", model, 1, 200, "hello world")
    check(
        r.returncode == 4 and b"nothing fits" in r.stderr and not r.stdout,
        f"budget: too small a budget: {r.stderr!r}",
    )


def test(folder):
    model = tiny_model(folder)
    test_minimal(model)
    test_chat(model)
    test_two_conversations(model)
    test_budget(model)


run_tests(test)
