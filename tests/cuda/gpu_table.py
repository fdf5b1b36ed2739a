#!/usr/bin/env python3
"""Converts the outputs of tools/gpu_check.sh's programs to JSON lines, or prints a table of them.

gpu_table.py bench|llama|select|none SHAPE RECIPE PEAK COMMIT DEVICE DEPTH <OUTPUT
gpu_table.py print FILE
"""

import json
import re
import sys


def bench(text):
    for row in json.loads(text):
        yield {
            "test": row["test"],
            "n": row["n"],
            "depth": row["depth"],
            "tokens_per_second": row["tokens_per_second"],
            "gb_per_second": row["gb_per_second"],
            "peak_bytes": row["peak_bytes"],
        }


def llama(text):
    for row in map(json.loads, text.splitlines()):
        test, n = ("pp", row["n_prompt"]) if row["n_prompt"] else ("tg", row["n_gen"])
        speed = {
            "median": row["avg_ts"],
            "min": row["avg_ts"] - row["stddev_ts"],
            "max": row["avg_ts"] + row["stddev_ts"],
        }
        yield {"test": test, "n": n, "depth": row.get("n_depth", 0), "tokens_per_second": speed}


def select(text):
    """Lines of test_kv's 'perf: select': microseconds of a step that reads all slots, then of steps
    with a selector.
    """
    rows = re.findall(r"(\d+) slots: all +([\d.]+)((?:, \S+ +[\d.]+)+)", text)
    if not rows:
        sys.exit("gpu_table.py: expected lines with slots, found none")
    for slots, everything, others in rows:
        for recipe, time in [("all", everything), *re.findall(r", (\S+) +([\d.]+)", others)]:
            yield {
                "recipe": recipe,
                "test": "step",
                "n": 1,
                "depth": int(slots),
                "microseconds": float(time),
                "times_all": float(everything) / float(time),
            }


def none(text):
    yield {"none": text.strip()}


def add(how, shape, recipe, peak, commit, device, depth):
    for row in how(sys.stdin.read()):
        line = {
            "shape": shape,
            "recipe": recipe,
            **({"depth": int(depth)} if depth else {}),
            **row,
            "peak_gb_per_second": float(peak),
        }
        if "gb_per_second" in row:
            line["share_of_peak"] = row["gb_per_second"] / float(peak)
        print(json.dumps({**line, "commit": commit, "device": device}))


def show(path):
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    measured = [row for row in rows if "tokens_per_second" in row]
    key = lambda row: (row["shape"], row["test"], row["n"], row["depth"])
    speeds = lambda recipe: {
        key(row): row["tokens_per_second"]["median"] for row in measured if row["recipe"] == recipe
    }
    theirs, exact = speeds("llama.cpp"), speeds("exact")
    exact_on_vulkan = {**exact, **speeds("vulkan exact")}
    if rows:
        peak = rows[0]["peak_gb_per_second"]
        print(f"{rows[0]['device']}, {peak:.1f} GB/s, commit {rows[0]['commit']}\n")
    print(
        f"{'shape':8} {'recipe':34} {'test':>6} {'depth':>8} {'tokens/s':>10} {'GB/s':>8}"
        f" {'of peak':>8} {'of exact':>8} {'of llama.cpp':>12}"
    )
    for row in rows:
        head = f"{row['shape']:8} {row['recipe']:34}"
        if "none" in row:
            print(f"{head} {'':>6} {row['depth']:8} {row['none']}")
        elif "tokens_per_second" in row:
            speed = row["tokens_per_second"]["median"]
            rate = (
                f"{row['gb_per_second']:8.1f} {100 * row['share_of_peak']:7.1f}%"
                if "share_of_peak" in row
                else f"{'':17}"
            )
            ratio = lambda of, name, width: (
                f"{speed / of[key(row)]:{width}.2f}"
                if key(row) in of and not row["recipe"].endswith(name)
                else " " * width
            )
            on_vulkan = row["recipe"].startswith("vulkan")
            ratios = (
                ratio(exact_on_vulkan if on_vulkan else exact, "exact", 8)
                + " "
                + ratio(theirs, "llama.cpp", 12)
            )
            test = row["test"] + str(row["n"])
            print(f"{head} {test:>6} {row['depth']:8} {speed:10.1f} {rate} {ratios}".rstrip())
    steps = [row for row in rows if "microseconds" in row]
    if steps:
        print(f"\n{'a layer, reading':34} {'slots':>8} {'us':>10} {'times all':>10}")
    for row in steps:
        print(
            f"{row['recipe']:34} {row['depth']:8} {row['microseconds']:10.0f}"
            f" {row['times_all']:10.2f}"
        )


WAYS = {f.__name__: f for f in (bench, llama, select, none)}
if len(sys.argv) == 3 and sys.argv[1] == "print":
    show(sys.argv[2])
elif len(sys.argv) == 8 and sys.argv[1] in WAYS:
    add(WAYS[sys.argv[1]], *sys.argv[2:])
else:
    sys.exit(__doc__)
