#!/usr/bin/env python3
"""bench's rows on a tiny model: speeds, shares of the machine's limits, and the times of ops."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import BINARY, check, check_refused, knapsack, run_tests, tiny_model  # noqa: E402


def test_bench(model):
    base = ["bench", "-m", model, "-p", "16", "-n", "4", "-d", "0,32", "-r", "2"]
    rows = knapsack(*base, "--json").json()
    check(
        [(r["test"], r["n"], r["depth"]) for r in rows]
        == [("pp", 16, 0), ("tg", 4, 0), ("pp", 16, 32), ("tg", 4, 32)],
        "bench's tests",
    )
    for r in rows:
        t = r["tokens_per_second"]
        check(
            0 < t["min"] <= t["median"] <= t["max"]
            and r["gb_per_second"] > 0
            and r["bandwidth_share"] > 0
            and r["peak_bytes"] > 0
            and r["device"]
            and r["recipe"],
            f"bench row {r}",
        )
        shares = {"bandwidth": r["bandwidth_share"], "int8": r["int8_share"]}
        check(
            r["limit_share"] == max(shares.values()) == shares[r["limit"]]
            and r["machine_gb_per_second"] > 0
            and r["machine_gigaops_per_second"] > 0,
            f"bench's limit {r}",
        )
        # Q, K and V, the attention output, three feed-forward matrices. The vocabulary matrix
        # counts once per prompt.
        layers, vocabulary = 2 * (64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 96), 64 * 264
        work = 2 * (layers + (vocabulary if r["test"] == "tg" else vocabulary / 16))
        check(
            abs(r["gigaops_per_second"] / (work * t["median"] * 1e-9) - 1) < 1e-6
            and "ops" not in r,
            f"bench's operations {r}",
        )
    check_refused(
        knapsack("bench", "-m", model, "-p", "16", "-n", "0", "-d", "32", "-c", "40"), 4, "48", "40"
    )
    text = knapsack("bench", "-m", model, "-p", "8", "-n", "2", "-r", "1").out
    check(b"of limit" in text and b"between ops" not in text, "bench for a person")


def test_bench_ops(model):
    plain = knapsack("bench", "-m", model, "-p", "16", "-n", "4", "-r", "3", "--json").json()
    rows = knapsack(
        "bench", "-m", model, "-p", "16", "-n", "4", "-r", "3", "--json", "--ops"
    ).json()
    check(
        [r["logits_hash"] for r in rows] == [r["logits_hash"] for r in plain],
        "timing changes no bit",
    )
    # Calls for one token through two layers. A prompt of 16 tokens is one chunk.
    calls = {
        "matmul qkv": 2,
        "matmul output": 2,
        "matmul gate, up": 2,
        "matmul down": 2,
        "matmul vocabulary": 1,
        "attention": 2,
        "kv_write": 2,
        "embed": 1,
        "norm": 5,
        "rope": 2,
        "glu": 2,
    }
    for r, n in zip(rows, (16, 1)):
        ops = {o["op"]: o for o in r["ops"]}
        check(
            {k: round(o["calls_per_token"] * n) for k, o in ops.items() if k != "copies"} == calls,
            f"the ops of a token: {ops}",
        )
        check(
            0 < sum(o["share"] for o in r["ops"]) <= 1
            and all(o["microseconds_per_token"] > 0 for o in r["ops"]),
            f"the ops' times: {ops}",
        )
    text = knapsack("bench", "-m", model, "-p", "0", "-n", "4", "-r", "1", "--ops").out
    check(b"matmul vocabulary" in text and b"between ops" in text, "bench --ops for a person")
    bounded = knapsack(
        "bench",
        "-m",
        model,
        "-p",
        "64",
        "-n",
        "4",
        "-r",
        "1",
        "--ops",
        "--json",
        "--kv",
        "snapkv,slots=48,sink=2,recent=8,observe=8",
    ).json()
    check(
        "kv_score" in {o["op"] for o in bounded[0]["ops"]},
        f"scores are an op of their own: {bounded}",
    )


def test_bench_sessions(model):
    base = ["bench", "-m", model, "-n", "6", "-r", "3"]
    rows = knapsack(*base, "-d", "0,20", "--sessions", "1,2,4", "--json").json()
    check(
        [(r["test"], r["n"], r["depth"], r["sessions"]) for r in rows]
        == [("tg", 6, d, s) for s in (1, 2, 4) for d in (0, 20)],
        f"a row for each number of sessions: {rows}",
    )
    for r in rows:
        n, speed = r["sessions"], r["tokens_per_second"]
        check(
            abs(r["tokens_per_second_each"] * n / speed["median"] - 1) < 1e-6
            and 0 < r["step_ms"]
            # The slowest repetition has at least one step of this length.
            and n / (r["step_ms"] * 1e-3) > speed["min"] / 2
            and len(r["samples"]) == 3
            and r["peak_bytes"] == r["plan_bytes"],
            f"a row of sessions: {r}",
        )
    plans = [
        knapsack("plan", "-m", model, "-c", 26, "--kv", "exact", "--sessions", s, "--json").json()
        for s in (1, 2, 4)
    ]
    check(
        [r["plan_bytes"] for r in rows[::2]] == [p["total_bytes"] for p in plans]
        and [r["bytes_per_session"] for r in rows[::2]] == [p["bytes_per_session"] for p in plans],
        "bench opens what plan says",
    )
    # The first session reads the same tokens alone and in company.
    alone = knapsack(*base, "-p", "0", "-d", "0,20", "--json").json()
    check(
        all(r["logits_hash"] == a["logits_hash"] for r, a in zip(rows, alone * 3)),
        "company changes no bit",
    )
    check([r["sessions"] for r in alone] == [1, 1], "one session by default")
    prompts = knapsack(*base, "-p", "40", "--sessions", "3", "--json").json()
    alone = knapsack(*base, "-p", "40", "--json").json()
    check(
        [(r["test"], r["n"], r["sessions"]) for r in prompts] == [("pp", 40, 3), ("tg", 6, 3)]
        and [r["logits_hash"] for r in prompts] == [r["logits_hash"] for r in alone],
        f"prompts side by side: {prompts}",
    )
    # 3 prompts share the reading of the weights with as many steps as their rows need.
    check(0 < prompts[0]["gb_per_second"] and prompts[0]["step_ms"] > 0, "the work of prompts")
    ops = knapsack(*base, "--sessions", "4", "--ops", "--json").json()[0]["ops"]
    calls = {o["op"]: round(o["calls_per_token"] * 4, 2) for o in ops}
    check(
        calls["matmul vocabulary"] == 1 and calls["matmul down"] == 2 and calls["attention"] == 8,
        f"a step multiplies once for all: {calls}",
    )
    table = knapsack(*base, "--sessions", "1,2").out.decode()
    check(
        "tg6 x2 " in table and "for each" in table and "step ms" in table,
        f"sessions for a person: {table}",
    )
    marks = knapsack(*base, "--sessions", "1,2", "-o", "md").out.decode().split("\n")
    check(
        "| sessions | for each | step ms |" in marks[0]
        and len({line.count("|") for line in marks[:4]}) == 1,
        f"sessions in Markdown: {marks}",
    )
    lines = knapsack(*base, "--sessions", "1,2", "-o", "csv").out.decode().split("\n")
    names = lines[0].split(",")
    check(
        {"sessions", "step_ms", "tokens_per_second_each", "bytes_per_session"} <= set(names)
        and [line.split(",")[names.index("sessions")] for line in lines[1:3]] == ["1", "2"],
        f"sessions in CSV: {lines}",
    )
    # Another build is asked for as many sessions.
    own = f"'{BINARY}' bench -m '{model}' --json"
    versus = knapsack(*base, "--sessions", "2", "--versus", own, "--json").json()
    check(
        versus[0]["versus"]["tokens_per_second"]["min"] > 0 and len(versus) == 1,
        f"--versus with sessions: {versus}",
    )
    check_refused(knapsack(*base, "--sessions", "0"), 1, "--sessions")
    check_refused(knapsack(*base, "--sessions", "64", "--memory", "2MiB"), 4, "--memory")


def test(folder):
    model = tiny_model(folder)
    test_bench_sessions(model)
    test_bench(model)
    test_bench_ops(model)


run_tests(test)
