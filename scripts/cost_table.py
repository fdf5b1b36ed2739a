#!/usr/bin/env python3
"""Measures the cost of a decoded token by layers, by context and by vocabulary with `bench --ops`.

    scripts/cost_table.py build/knapsack [--record FILE] [-t THREADS]

The models have random weights: Q4_K, with Q6_K for the vocabulary and V, width 1024, 16 heads over
4 KV heads. --record appends a line of JSON for each measurement. Needs 350 MB in the temporary
folder."""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile

from random_model import Shape, write_model
from record_bench import commit

LAYERS, CONTEXT, VOCABULARY = 8, 0, 32768  # fixed values while another one varies
CONTEXT_LAYERS = 4  # while the context varies, because reading 16K tokens takes long
SWEEPS = {
    "layers": [4, 8, 16, 32],
    "context": [0, 1024, 4096, 16384],
    "vocabulary": [8192, 32768, 131072],
}
GROUPS = {
    "layers": ("matmul qkv", "matmul output", "matmul gate, up", "matmul down"),
    "vocabulary": ("matmul vocabulary",),
    "attention": ("attention",),
}


def write(path, layers, vocabulary):
    write_model(
        path,
        Shape(
            dim=1024,
            layers=layers,
            heads=16,
            kv_heads=4,
            head=64,
            ffn=3072,
            vocab=vocabulary,
            context=32768,
        ),
    )


def measure(args, model, depths):
    """One row of bench per depth."""
    command = [
        args.program,
        "bench",
        "-m",
        model,
        "-p",
        "0",
        "-n",
        str(args.tokens),
        "-d",
        ",".join(map(str, depths)),
        "-r",
        "7",
        "--ops",
        "--json",
        "--kv",
        "exact",
    ]
    out = subprocess.run(
        command + (["-t", str(args.threads)] if args.threads else []),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    ).stdout
    return json.loads(out)


def row_of(row, **shape):
    shares = {op["op"]: op["share"] for op in row["ops"]}
    return {
        **shape,
        "tokens_per_second": round(row["tokens_per_second"]["median"], 1),
        "ms_per_token": round(1e3 / row["tokens_per_second"]["median"], 3),
        "gb_per_second": round(row["gb_per_second"], 2),
        "limit": row["limit"],
        "limit_share": round(row["limit_share"], 3),
        "shares": {name: round(share, 4) for name, share in shares.items()},
        "device": row["device_name"],
    }


def sweep(args, by, folder):
    path = os.path.join(folder, "model.gguf")
    shape = {"layers": LAYERS, "context": CONTEXT, "vocabulary": VOCABULARY}
    values = getattr(args, by)
    if by == "context":
        shape["layers"] = CONTEXT_LAYERS
        write(path, CONTEXT_LAYERS, VOCABULARY)
        return [
            row_of(row, **{**shape, by: n}) for n, row in zip(values, measure(args, path, values))
        ]
    rows = []
    for n in values:
        shape[by] = n
        write(path, shape["layers"], shape["vocabulary"])
        rows.append(row_of(measure(args, path, [CONTEXT])[0], **shape))
    return rows


def print_sweep(by, rows):
    print(
        f"\n{by:>10} {'ms/token':>9} {'GB/s':>7} {'of limit':>9}"
        + "".join(f" {g:>11}" for g in GROUPS)
        + f" {'the rest':>11}"
    )
    for r in rows:
        parts = [sum(r["shares"].get(op, 0) for op in ops) for ops in GROUPS.values()]
        print(
            f"{r[by]:>10} {r['ms_per_token']:9.2f} {r['gb_per_second']:7.1f}"
            f" {r['limit_share']:9.0%}"
            + "".join(f" {p:11.1%}" for p in [*parts, 1 - sum(parts)])
        )
    if len(rows) > 1:
        step = (rows[-1]["ms_per_token"] - rows[0]["ms_per_token"]) / (rows[-1][by] - rows[0][by])
        unit, times = ("a layer", 1) if by == "layers" else (f"1024 of {by}", 1024)
        print(f"{'':>10} {step * times:9.3f} ms for {unit}")


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("program")
    ap.add_argument("--record", metavar="FILE")
    ap.add_argument("-t", "--threads", type=int, default=0)
    ap.add_argument("-n", "--tokens", type=int, default=32)
    for by, values in SWEEPS.items():
        ap.add_argument(
            "--" + by,
            type=lambda s: [int(n) for n in s.split(",") if n],
            default=values,
            metavar="N,...",
        )
    args = ap.parse_args()
    of_tree = commit()
    with tempfile.TemporaryDirectory() as folder:
        for by in SWEEPS:
            rows = sweep(args, by, folder) if getattr(args, by) else []
            if rows:
                print_sweep(by, rows)
            with open(args.record or os.devnull, "a", encoding="utf-8") as f:
                for r in rows:
                    f.write(
                        json.dumps(
                            {
                                "date": datetime.date.today().isoformat(),
                                "commit": of_tree,
                                "sweep": by,
                                **r,
                            },
                            separators=(",", ":"),
                        )
                        + "\n"
                    )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
