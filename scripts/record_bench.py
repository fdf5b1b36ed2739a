#!/usr/bin/env python3
"""Appends the results of `bench --versus` to a file, with the date, the commit and the machine.

    m=models/smollm2.gguf
    build/knapsack bench -m $m -d 0,4096 --versus "llama-bench -m $m -o json" --json |
        scripts/record_bench.py docs/data/speed.jsonl --peer 'llama.cpp b4567'

The commit is that of the working tree, so build the program from it. The commit ends with -dirty if
sources are changed.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys


def git(*args):
    return subprocess.run(
        ["git", *args],
        cwd=os.path.dirname(os.path.abspath(__file__)),
        capture_output=True,
        text=True,
    ).stdout.strip()


def commit():
    """The commit of the working tree, with -dirty if sources are changed."""
    dirty = git("status", "--porcelain", "--", ":/", ":!/docs", ":!/*.md")
    return git("rev-parse", "--short", "HEAD") + ("-dirty" if dirty else "")


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("file")
    ap.add_argument("--peer", required=True, help="name and version of the other program")
    ap.add_argument("--machine", help="default: the device name in the results")
    ap.add_argument("--model", help="default: the file's name without .gguf")
    args = ap.parse_args()
    try:
        rows = json.load(sys.stdin)
        if not isinstance(rows, list) or not rows or not all("versus" in row for row in rows):
            raise ValueError("no tests with a peer")
    except ValueError as e:
        sys.exit(
            "record_bench.py: expected the JSON of `knapsack bench --versus ... --json` "
            f"on standard input: {e}"
        )
    of_tree = commit()
    lines = [
        {
            "date": datetime.date.today().isoformat(),
            "commit": of_tree,
            "machine": args.machine or row["device_name"],
            "peer": args.peer,
            "model": args.model or row["model"].removesuffix(".gguf"),
            "test": f"{row['test']}{row['n']}",
            "depth": row["depth"],
            "ours": round(row["tokens_per_second"]["median"], 1),
            "peer_tokens_per_second": round(row["versus"]["tokens_per_second"]["median"], 1),
            "ratio": round(row["versus"]["ratio"]["median"], 2),
            "runs": row["repetitions"],
        }
        for row in rows
    ]
    with open(args.file, "a", encoding="utf-8") as f:
        f.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


if __name__ == "__main__":
    main()
