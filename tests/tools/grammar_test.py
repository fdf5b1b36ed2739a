#!/usr/bin/env python3
"""Answers constrained by JSON schemas and grammars, on a tiny model with random weights."""

import json
import os
import random
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import check, check_refused, knapsack, run_tests, tiny_model  # noqa: E402
from random_schema import is_valid, random_schema, with_recursion  # noqa: E402

ROUNDS = 60


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def test_schemas(folder, base):
    draw = random.Random(5)
    ended = 0
    for i in range(ROUNDS):
        schema = with_recursion(draw) if i % 5 == 0 else random_schema(draw)
        path = write(folder, "schema.json", json.dumps(schema))
        result = knapsack(*base, "--json-schema", path, "-n", 240, "-s", i, "--json")
        if result.code != 0:
            check(False, f"{schema}: {result.err}")
            continue
        answer = result.json()
        check(answer["host_allocations"] in (0, None), f"allocations: {answer}")
        if answer["stop"] != "eos":
            continue
        ended += 1
        try:
            fits = is_valid(json.loads(answer["text"]), schema, schema)
        except ValueError:
            fits = False
        check(fits, f"{schema}: {answer['text']}")
    check(ended >= ROUNDS / 2, f"{ended} of {ROUNDS} answers ended")


def test_grammars(folder, base):
    grammar = write(folder, "list.gbnf", 'root ::= ("- " [a-z]{1,8} "\\n"){2,3}\n')
    for seed in range(5):
        text = knapsack(*base, "--grammar", grammar, "-n", 99, "-s", seed, "--json").json()["text"]
        check(re.fullmatch(r"(- [a-z]{1,8}\n){2,3}", text), f"a list: {text!r}")
    runs = [
        knapsack(*base, "--grammar", grammar, "-n", 99, "-s", 3, "-t", t, "--json").json()["ids"]
        for t in (1, 2)
    ]
    check(runs[0] == runs[1], f"equal answers with one thread and with two: {runs}")
    fixed = write(folder, "fixed.gbnf", 'root ::= "yes" | "no"')
    for more in ((), ("--ignore-eos",)):
        answer = knapsack(*base, "--grammar", fixed, "-n", 99, *more, "--json").json()
        check(
            answer["text"] in ("yes", "no") and answer["stop"] == "eos",
            f"an answer ends where nothing may follow: {answer}",
        )
    plan = knapsack("plan", *base[1:3], *base[5:], "--grammar", fixed, "--json").json()
    check(plan["total_bytes"] == answer["plan_bytes"], "plan has the bytes of the grammar")
    free = write(folder, "free.gbnf", "root ::= [^\\x00]*")
    plain = knapsack(*base, "-n", 30, "-s", 1, "--json").json()["ids"]
    check(plain == knapsack(*base, "-n", 30, "-s", 1, "--json").json()["ids"], "a seed repeats")
    loose = knapsack(*base, "-n", 30, "-s", 1, "--grammar", free, "--json").json()["text"]
    check("\0" not in loose, f"a grammar of any text: {loose!r}")


def test_forced(folder, base):
    """Text without a choice is fed at once, and is cut as other text is."""
    forced = write(folder, "forced.gbnf", 'root ::= "{\\"name\\": true, \\"note\\": [" [0-9] "]}"')
    base = [*base, "--temp", "0"]

    def answer(*more):
        return knapsack(*base, "--grammar", forced, "--json", *more).json()

    whole = answer("-n", 99)
    check(
        re.fullmatch(r'\{"name": true, "note": \[\d\]\}', whole["text"])
        and whole["stop"] == "eos"
        and whole["host_allocations"] in (0, None),
        f"forced text: {whole}",
    )
    saved, ids = os.path.join(folder, "forced session"), os.path.join(folder, "ids")
    cut = answer("-n", 5, "--session", saved)
    check(
        cut["ids"] == whole["ids"][:5] and cut["stop"] == "length", f"-n cuts forced text: {cut}"
    )
    stopped = answer("-n", 99, "--stop", "note")
    check(
        stopped["text"] == '{"name": true, "' and stopped["stop"] == "string",
        f"--stop cuts forced text: {stopped}",
    )
    prompt = knapsack("tokenize", *base[1:3], stdin=b"hello").out.decode().split()
    with open(ids, "w") as f:
        f.write(" ".join([*prompt, *map(str, cut["ids"])]))
    more = [*base[:3], *base[5:], "-n", 4, "--json"]
    resumed = knapsack(*more, "--session", saved).json()["ids"]
    check(
        resumed == knapsack(*more, "--ids", ids).json()["ids"],
        f"a session has the forced tokens: {resumed}",
    )


def test_refusals(folder, base):
    broken = write(folder, "broken.gbnf", 'root ::= "a"\nroot ::= "b"')
    check_refused(knapsack(*base, "--grammar", broken), 2, "grammar: line 2:")
    schema = write(folder, "not.json", '{"items": {"not": {}}}')
    check_refused(knapsack(*base, "--json-schema", schema), 2, "#/items", "'not'")
    check_refused(
        knapsack(*base, "--json-schema", schema, "--grammar", broken), 1, "only one of them"
    )
    check_refused(knapsack(*base, "--grammar", os.path.join(folder, "none")), 6, "none")


def test(folder):
    model = tiny_model(folder)
    base = ["run", "-m", model, "-p", "hello", "--memory", "64MiB", "--device", "cpu"]
    test_schemas(folder, base)
    test_grammars(folder, base)
    test_forced(folder, base)
    test_refusals(folder, base)
    chat = ["chat", "-m", model, "--chat-template", "chatml", "--memory", "64MiB", "--no-stats"]
    fixed = write(folder, "fixed.gbnf", 'root ::= "yes" | "no"')
    said = knapsack(*chat, "--grammar", fixed, stdin=b"hello\nagain\n").out.split()
    check(len(said) == 2 and set(said) <= {b"yes", b"no"}, f"two turns of a chat: {said}")


run_tests(test)
