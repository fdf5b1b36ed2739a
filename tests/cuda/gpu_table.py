#!/usr/bin/env python3
"""What tools/gpu_check.sh measured: bench's JSON to lines, lines to a table.
    gpu_table.py add|add-llama SHAPE RECIPE PEAK COMMIT DEVICE <bench's output     gpu_table.py print FILE"""
import json
import sys


def add(shape, recipe, peak, commit, device):
    for row in json.load(sys.stdin):
        line = {"shape": shape, "recipe": recipe, "test": row["test"], "n": row["n"], "depth": row["depth"], "tokens_per_second": row["tokens_per_second"],
                "gb_per_second": row["gb_per_second"], "peak_gb_per_second": float(peak), "share_of_peak": row["gb_per_second"] / float(peak),
                "peak_bytes": row["peak_bytes"], "commit": commit, "device": device}
        print(json.dumps(line))


def add_llama(shape, recipe, peak, commit, device):
    for row in map(json.loads, sys.stdin):
        test, n = ("pp", row["n_prompt"]) if row["n_prompt"] else ("tg", row["n_gen"])
        speed = {"median": row["avg_ts"], "min": row["avg_ts"] - row["stddev_ts"], "max": row["avg_ts"] + row["stddev_ts"]}
        print(json.dumps({"shape": shape, "recipe": recipe, "test": test, "n": n, "depth": row.get("n_depth", 0), "tokens_per_second": speed,
                          "peak_gb_per_second": float(peak), "commit": commit, "device": device}))


def show(path):
    print(f"{'shape':6} {'recipe':12} {'test':>6} {'depth':>8} {'tokens/s':>10} {'GB/s':>8} {'of peak':>8}")
    with open(path, encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            rate = f"{row['gb_per_second']:8.1f} {100 * row['share_of_peak']:7.1f}%" if "share_of_peak" in row else ""
            print(f"{row['shape']:6} {row['recipe']:12} {row['test'] + str(row['n']):>6} {row['depth']:8} {row['tokens_per_second']['median']:10.1f} {rate}")


if len(sys.argv) == 3 and sys.argv[1] == "print":
    show(sys.argv[2])
elif len(sys.argv) == 7 and sys.argv[1] in ("add", "add-llama"):
    (add if sys.argv[1] == "add" else add_llama)(*sys.argv[2:])
else:
    sys.exit(__doc__)
