#!/usr/bin/env python3
"""bench's rows on a tiny model: speeds, shares of the machine's limits, and the times of ops."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import check, check_refused, knapsack, run_tests, tiny_model  # noqa: E402


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


def test(folder):
    model = tiny_model(folder)
    test_bench(model)
    test_bench_ops(model)


run_tests(test)
