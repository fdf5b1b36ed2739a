#!/usr/bin/env python3
"""Measures decoding with each weight format, on models whose weights do not fit into the caches.

    scripts/bench_formats.py build/knapsack [-t 1,2] [--formats q4_k,q6_k] [--record FILE]
        [--versus 'llama-bench -m MODEL -t THREADS -o json' --peer 'llama.cpp b4567']

A model has Llama 3.2 1B's width, random weights in one format, and layers for --size bytes.
Default: 3 times the largest cache, at least 512 MiB. GB/s counts weights and cache. The share is
of reading memory with as many threads. In COMMAND, MODEL and THREADS are replaced. --record
appends a line of JSON for each measurement."""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile

from random_model import FORMATS, SHAPES, block_bytes, layout, write_model
from record_bench import commit


def cache_bytes():
    """Size of the largest cache; 0: unknown."""
    folder = "/sys/devices/system/cpu/cpu0/cache"
    largest = 0
    for index in os.listdir(folder) if os.path.isdir(folder) else ():
        try:
            with open(f"{folder}/{index}/size", encoding="ascii") as f:
                largest = max(largest, int(f.read().strip().removesuffix("K")) << 10)
        except (OSError, ValueError):
            pass
    return largest


def shape_of(name, n_bytes):
    """The 1b shape with a small vocabulary and layers for n_bytes of weights."""

    def size(shape):
        values = sum(dims[0] * dims[1] for _, *dims in layout(shape) if len(dims) == 2)
        return values // FORMATS[name].block * block_bytes(name)

    one = SHAPES["1b"]._replace(layers=1, vocab=8192, format=name)
    per_layer = size(one._replace(layers=2)) - size(one)
    return one._replace(layers=max(1, -(-n_bytes // per_layer)))


def bench(args, model, threads):
    command = [args.binary, "bench", "-m", model, "-t", threads, "-p", "0", "-n", "16", "--json"]
    command += ["-r", str(args.repetitions), "-c", "256", "--device", "cpu"]
    if args.versus:
        command += ["--versus", args.versus.replace("MODEL", model).replace("THREADS", threads)]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"bench_formats.py: bench exited with {ran.returncode}: {ran.stderr.strip()}")
    return json.loads(ran.stdout)[0]


def line_of(args, of_tree, name, threads, row):
    line = {
        "date": datetime.date.today().isoformat(),
        "commit": of_tree,
        "machine": args.machine or row["device_name"],
        "kernels": row["device_name"].split(", ")[-1].rstrip(")"),
        "format": name,
        "threads": int(threads),
        "tokens_per_second": round(row["tokens_per_second"]["median"], 1),
        "gb_per_second": round(row["gb_per_second"], 1),
        "machine_gb_per_second": round(row["machine_gb_per_second"], 1),
        "share": round(row["bandwidth_share"], 2),
        "runs": row["repetitions"],
    }
    if args.versus:
        line["peer"] = args.peer
        line["ratio"] = round(row["versus"]["ratio"]["median"], 2)
    return line


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("binary")
    ap.add_argument("-t", "--threads", default="1,2")
    ap.add_argument("-r", "--repetitions", type=int, default=5)
    ap.add_argument("--formats", default=",".join(FORMATS))
    ap.add_argument("--size", type=int, default=max(512 << 20, 3 * cache_bytes()))
    ap.add_argument("--versus", metavar="COMMAND")
    ap.add_argument("--peer", help="name and version of the other program")
    ap.add_argument("--machine", help="default: the device name in the results")
    ap.add_argument("--record", metavar="FILE")
    args = ap.parse_args()
    formats = args.formats.split(",")
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        ap.error(f"unknown format {unknown[0]}; the formats are {', '.join(FORMATS)}")
    if bool(args.versus) != bool(args.peer):
        ap.error("--versus and --peer need each other")
    print("format threads tokens/s  GB/s    reading  share" + ("  ratio" if args.peer else ""))
    of_tree = commit()
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model.gguf")
        for name in formats:
            write_model(model, shape_of(name, args.size))
            for threads in args.threads.split(","):
                line = line_of(args, of_tree, name, threads, bench(args, model, threads))
                print(
                    f"{name:6} {threads:>7} {line['tokens_per_second']:8} "
                    f"{line['gb_per_second']:5} {line['machine_gb_per_second']:10} "
                    f"{line['share']:6}" + (f" {line['ratio']:6}" if args.peer else ""),
                    flush=True,
                )
                if args.record:
                    with open(args.record, "a", encoding="utf-8") as f:
                        f.write(json.dumps(line, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
