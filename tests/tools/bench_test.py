#!/usr/bin/env python3
"""bench: its output formats, and --versus with a stand-in for llama-bench and with Knapsack."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import (
    BINARY,
    CLEAN,
    check,
    check_refused,
    knapsack,
    run_tests,
    tiny_model,
)  # noqa: E402

# Prints results in llama-bench's format and records each call. The speeds of a list alternate.
PEER = """
import json, os, sys, time
folder = {folder!r}
args = sys.argv[1:]
def last(flag):
    return int(args[len(args) - 1 - args[::-1].index(flag) + 1])
tests = {{flag: last(flag) for flag in ("-p", "-n", "-d", "-r")}}
with open(os.path.join(folder, "calls"), "a") as f:
    f.write(json.dumps([tests, sys.stdin.read()]) + "\\n")
n_calls = len(open(os.path.join(folder, "calls")).readlines())
speed = [100.0, 200.0, 400.0][n_calls % 3]
row = {{"build_commit": "8cf427ff", "model_filename": "a \\"}}], [{{.gguf", "devices": "auto",
       "use_mmap": True, "n_prompt": tests["-p"], "n_gen": tests["-n"], "n_depth": tests["-d"],
       "test_time": "2025-04-24T11:58:50Z", "avg_ns": 72135640, "avg_ts": speed, "stddev_ts": 0.0,
       "samples_ns": [72135640], "samples_ts": [speed]}}
{code}
"""
JSON = """print('load_backend: loaded [CPU] from {somewhere}')
print(json.dumps([{**row, 'n_prompt': 7, 'n_gen': 3}, row], indent=2))"""
JSONL = "print(json.dumps({**row, 'n_depth': 7}))\nprint(json.dumps(row))"
BASE = "-p 16 -n 4 -d 0,32 -r 3".split()
TESTS = [("pp", 16, 0), ("tg", 4, 0), ("pp", 16, 32), ("tg", 4, 32)]


class Peer:
    def __init__(self, folder, code):
        self.calls_file = os.path.join(folder, "calls")
        if os.path.exists(self.calls_file):
            os.remove(self.calls_file)
        path = os.path.join(folder, "peer.py")
        with open(path, "w") as f:
            f.write(PEER.format(folder=folder, code=code))
        self.command = f"{sys.executable} '{path}' -m M -o json -p 128"

    def calls(self):
        return [json.loads(line) for line in open(self.calls_file)]


def median(values):
    values = sorted(values)
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def near(a, b):
    return abs(a / b - 1) < 1e-6


def test_versus(folder, model):
    peer = Peer(folder, JSON)
    rows = knapsack("bench", "-m", model, *BASE, "--versus", peer.command, "--json").json()
    check([(x["test"], x["n"], x["depth"]) for x in rows] == TESTS, f"the tests: {rows}")
    wanted = [
        [{"-p": n if t == "pp" else 0, "-n": n if t == "tg" else 0, "-d": d, "-r": 1}, ""]
        for t, n, d in TESTS
        for _ in range(3)
    ]
    check(peer.calls() == wanted, f"what the peer was asked: {peer.calls()}")
    for x in rows:
        v, ratios = x["versus"], [a / b for a, b in zip(x["samples"], x["versus_samples"])]
        check(
            x["repetitions"] == 3 == len(ratios)
            and x["versus_samples"] == [200.0, 400.0, 100.0]
            and v["command"] == peer.command,
            f"the runs: {x}",
        )
        check(
            v["tokens_per_second"] == {"median": 200.0, "min": 100.0, "max": 400.0},
            f"the peer's spread: {v}",
        )
        check(
            near(v["ratio"]["median"], median(ratios))
            and near(v["ratio"]["min"], min(ratios))
            and near(v["ratio"]["max"], max(ratios)),
            f"ratios of pairs: {v} {ratios}",
        )
        check(near(x["tokens_per_second"]["median"], median(x["samples"])), f"our median: {x}")
    text = knapsack(
        "bench", "-m", model, *BASE, "--versus", Peer(folder, JSONL).command
    ).out.decode()
    check(
        "alternating with: " in text
        and re.search(
            r"\n  tg4@32 +[\d.]+ +200\.0 +100\.0 to 400\.0 +[\d.]+ +[\d.]+ to [\d.]+\n", text
        ),
        f"the table: {text}",
    )
    check(
        "theirs" not in knapsack("bench", "-m", model, "-p", 8, "-n", 0, "-r", 1).out.decode(),
        "no peer, no columns for one",
    )


def test_turns(folder, model):
    """The order of the two programs changes with each repetition.

    The peer records the CPU time that Knapsack has used so far.
    """
    log = os.path.join(folder, "log")
    code = JSON + f"""
pid = os.getppid()
while open(f"/proc/{{pid}}/cmdline").read().split("\\0")[0] != {BINARY!r}:
    pid = int(open(f"/proc/{{pid}}/stat").read().rsplit(") ", 1)[1].split()[1])
times = open(f"/proc/{{pid}}/stat").read().rsplit(") ", 1)[1].split()[11:13]
print(sum(map(int, times)), file=open({log!r}, "a"))
"""
    r = knapsack(
        "bench",
        "-m",
        model,
        "-p",
        0,
        "-n",
        250,
        "-r",
        4,
        "--device",
        "reference",
        "-t",
        1,
        "--versus",
        Peer(folder, code).command,
    )
    times = [int(line) for line in open(log)]
    steps = [b - a for a, b in zip(times, times[1:])]
    # peer, ours; ours, peer; peer, ours; ours, peer
    check(
        r.code == 0 and len(steps) == 3 and 2 * steps[1] < min(steps[0], steps[2]),
        f"turns: {r.err}, ticks of ours between theirs {steps}",
    )


def test_ourselves(model):
    for form in ("--json", "-o jsonl"):
        rows = knapsack(
            "bench",
            "-m",
            model,
            "-p",
            16,
            "-n",
            4,
            "-d",
            32,
            "-r",
            1,
            "--versus",
            f"'{BINARY}' bench -m '{model}' -p 64 {form}",
            "--json",
        ).json()
        check(
            len(rows) == 2 and all(0.001 < x["versus"]["ratio"]["median"] < 1000 for x in rows),
            f"beside ourselves: {rows}",
        )


def test_warm_up_and_eviction(folder, model):
    """A repetition in an evicting cache has the last logits of a single run."""
    base = [
        "bench",
        "-m",
        model,
        "-p",
        64,
        "-n",
        4,
        "--kv",
        "snapkv,slots=48,sink=2,recent=8,observe=8",
        "--json",
    ]
    once = knapsack(*base, "-r", 1).json()
    again = knapsack(*base, "-r", 2, "--versus", Peer(folder, JSON).command).json()
    check(
        [x["logits_hash"] for x in again] == [x["logits_hash"] for x in once],
        f"each run begins alike: {again} {once}",
    )


def test_refusals(folder, model):
    def refused(code, command, *words):
        r = knapsack("bench", "-m", model, "-p", 16, "-n", 0, "-d", 8, "-r", 1, "--versus", command)
        check_refused(r, code, "--versus: '", *words)
        check(not r.out, f"nothing on standard output: {r.out}")

    def shows(code, found):
        refused(
            1,
            Peer(folder, code).command,
            f"expected one result of pp16@8, found {found}",
        )

    check_refused(knapsack("bench", "-m", model, "--versus", ""), 1, "--versus", "command")
    refused(6, "no-such-program", "-p 16 -n 0 -d 8 -r 1", "127", "not found")
    refused(6, "kill -9 $$;", "signal 9")
    refused(
        6,
        Peer(
            folder, "sys.stderr.write('first\\n\\x1b[1mmodel missing\\n\\n'); sys.exit(3)"
        ).command,
        "exit code 3",
        "last error line: '\\x1b[1mmodel missing'",
    )
    refused(6, f"'{BINARY}' bench -m '{folder}/none.gguf' --json", "exit code 2", "none.gguf")
    refused(6, "yes '[' #", "more than")
    refused(1, "echo '| model | t/s |'", "expected results as JSON", "-o json", "| model | t/s |")
    refused(1, Peer(folder, "print(json.dumps([row])[:-20])").command, "expected results as JSON")
    others = (
        "{**row, 'n_prompt': 512}, {**row, 'n_gen': 4}, {**row, 'n_depth': 0}, "
        "{**row, 'avg_ts': 0}, {'other': [row]}, "
        "{'test': 'tg', 'n': 16, 'depth': 8, 'tokens_per_second': {'median': 5}}"
    )
    shows(
        f"print(json.dumps([{others}]))",
        "0 among 6",
    )
    shows(
        "print(json.dumps([row, row])[:-1])", "2 among 2"
    )  # truncated JSON; no result counts twice
    for hostile in (
        "print('[' * 300000)",
        "print('[' * 300000 + ']' * 300000)",
        "print('[1e999]')",
    ):
        refused(1, Peer(folder, hostile).command, "expected results as JSON")
    for wrong in (
        "{**row, 'avg_ts': '5'}",
        "{**row, 'avg_ts': [5]}",
        "{**row, 'n_prompt': None}",
        "{**row, 'n_prompt': 10 ** 30}",
        "{'test': 'pp', 'n': 16, 'depth': 8, 'tokens_per_second': 5}",
    ):
        shows(f"print(json.dumps({wrong}))", "0 among 1")
    shows(
        "print('{\\\"a\\\":' * 70 + '1' + '}' * 70)", "0 among 1"
    )  # of what is nested too deep the inner part
    old = "del row['n_depth']; print(json.dumps([row]))"  # an old llama-bench without -d
    shows(old, "0 among 1")
    check(
        knapsack(
            "bench", "-m", model, "-p", 16, "-n", 0, "-r", 1, "--versus", Peer(folder, old).command
        ).code
        == 0,
        "no n_depth is depth 0",
    )


def test_interrupt(folder, model):
    mark = os.path.join(folder, "mark")
    p = subprocess.Popen(
        [
            BINARY,
            "bench",
            "-m",
            model,
            "-p",
            "16",
            "-n",
            "0",
            "--versus",
            f"touch '{mark}'; exec sleep 60 #",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=CLEAN,
    )
    while not os.path.exists(mark) and p.poll() is None:
        time.sleep(0.02)
    time.sleep(0.1)
    begin = time.time()
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=30)
    check(
        p.returncode == 130 and not out and b"interrupted" in err and time.time() - begin < 20,
        f"interrupted while the peer runs: exit {p.returncode}, {err}",
    )


def flat(members, prefix=""):
    for name, value in members.items():
        if isinstance(value, dict):
            yield from flat(value, prefix + name + "_")
        elif not isinstance(value, list):
            yield prefix + name, value


def test_forms(folder, model):
    base, versus = ["bench", "-m", model, *BASE], [
        "--versus",
        Peer(folder, JSON).command + " '\"a|b\", c'",
    ]
    array = knapsack(
        *base, *versus, "-o", "csv", "--json"
    ).json()  # the last of the two options wins
    lines = [
        json.loads(line) for line in knapsack(*base, "--output", "jsonl").out.decode().splitlines()
    ]
    check(
        all([(x["test"], x["n"], x["depth"]) for x in rows] == TESTS for rows in (array, lines)),
        "json and jsonl have the tests",
    )
    check(
        all(x.keys() == y.keys() - {"versus", "versus_samples"} for x, y in zip(lines, array)),
        "json and jsonl have the same members",
    )
    table = list(
        csv.DictReader(io.StringIO(knapsack(*base, *versus, "--json", "-o", "csv").out.decode()))
    )
    check(
        [(x["test"], int(x["n"]), int(x["depth"])) for x in table] == TESTS,
        f"csv has the tests: {table}",
    )
    for x, y in zip(table, map(dict, map(flat, array))):
        check(list(x) == list(y), f"csv has json's members: {list(x)} {list(y)}")
        check(
            all(
                x[k] == str(y[k])
                for k in (
                    "recipe",
                    "device_name",
                    "model",
                    "logits_hash",
                    "peak_bytes",
                    "versus_command",
                )
            ),
            f"csv's texts and bytes: {x} {y}",
        )
        check(
            0
            < float(x["tokens_per_second_min"])
            <= float(x["tokens_per_second_median"])
            <= float(x["tokens_per_second_max"]),
            f"csv's spread: {x}",
        )
    named = tiny_model(folder, name="a|b.gguf")  # a bar in a name is escaped
    for command, columns in (([*base, *versus], 14), (["bench", "-m", named, *BASE], 10)):
        text = knapsack(*command, "-o", "md").out.decode()
        rows = [re.split(r"(?<!\\)\|", line) for line in text.splitlines() if line.startswith("|")]
        check(
            len(rows) == 6
            and {len(row) for row in rows} == {columns}
            and [row[3].strip() for row in rows[2:]] == ["pp16", "tg4", "pp16@32", "tg4@32"],
            f"md: {text}",
        )
        check(("ratio" in text) == (columns == 14) and "budget of" in text, f"md: {text}")
    check("| a\\|b.gguf |" in text, f"md: {text}")
    check_refused(
        knapsack("bench", "-m", model, "-o", "xml"), 1, "-o", "md, json, jsonl or csv", "xml"
    )


def check_kernels(row):
    """Times by a GPU's clock: an op is the sum of its kernels, and at most the elapsed time."""
    for op in row["ops"]:
        sum_of_kernels = sum(k["microseconds_per_token"] for k in op["kernels"])
        check(
            abs(op["microseconds_per_token"] - sum_of_kernels) <= 1e-6 * sum_of_kernels,
            f"an op is the sum of its kernels: {op}",
        )
        check(
            all(k["kernel"] and k["dispatches_per_token"] > 0 for k in op["kernels"]),
            f"kernels have names: {op}",
        )
    kernels = {k["kernel"].split()[0] for op in row["ops"] for k in op["kernels"]}
    check(
        {"embed", "attention_combine"} <= kernels and any(k.startswith("matmul") for k in kernels),
        f"the kernels of a token: {kernels}",
    )
    check(
        0 < sum(op["share"] for op in row["ops"]) <= 1.001,
        f"the device works no longer than the test takes: {row['ops']}",
    )


def test_ops(model):
    base = ["bench", "-m", model, "-p", 8, "-n", 3, "-r", 1]
    for x, call in zip(knapsack(*base, "--ops", "--json").json(), ("8 tokens, ", "1 token, ")):
        check(
            x["ops_clock"] == "host" and not any("kernels" in op for op in x["ops"]),
            f"the processor's ops are timed by the host: {x}",
        )
        check(
            len(x["attention"]) == 1
            and x["attention"][0]["call"].startswith(call)
            and ": " in x["attention"][0]["kernel"],
            f"which attention ran, and why: {x['attention']}",
        )
    text = knapsack(*base, "--ops", "--device", "cpu").out.decode()
    check(
        re.search(r"\n  attention of 1 token, .*: attention_split \w+: decode, ", text),
        f"which attention ran, and why: {text}",
    )
    gpus = [d["id"] for d in knapsack("devices", "--json").json() if d["backend"] == "vulkan"]
    if not gpus:
        return
    gpu = ["--device", gpus[0]]
    plain, timed = (
        knapsack(*base, *gpu, "--json").json(),
        knapsack(*base, *gpu, "--ops", "--json").json(),
    )
    check(
        [x["logits_hash"] for x in timed] == [x["logits_hash"] for x in plain],
        "timing changes no bit",
    )
    for x in timed:
        check(x["ops_clock"] == "device", f"a GPU's ops are timed by its clock: {x}")
        check_kernels(x)
        chosen = x["attention"][0]["kernel"].split(":")[0].split()[0]
        check(
            any(
                k["kernel"].split()[0] == chosen
                for op in x["ops"]
                if op["op"] == "attention"
                for k in op["kernels"]
            ),
            f"the chosen kernel ran: {x}",
        )
    text = knapsack(*base, *gpu, "--ops").out.decode()
    check(
        "the device, in total" in text and "the host while the device was idle" in text,
        f"the device beside the host: {text}",
    )
    r = knapsack(*base, *gpu, "--ops", "--json", env={"KNAPSACK_VULKAN_LIMITS": "no_clock"})
    check(
        r.code == 0
        and "--ops: vulkan" in r.err
        and "no timestamps" in r.err
        and "ops" not in r.json()[0],
        f"a device without a clock: {r.err}",
    )


def test(folder):
    model = tiny_model(folder)
    test_ops(model)
    test_versus(folder, model)
    test_turns(folder, model)
    test_ourselves(model)
    test_warm_up_and_eviction(folder, model)
    test_refusals(folder, model)
    test_interrupt(folder, model)
    test_forms(folder, model)


run_tests(test)
