#!/usr/bin/env python3
"""Random models of every family against a float64 forward pass in Python.

    families_test.py BINARY [--only NAME,...] [--seed S] [--device D,...] [--parts PART,...]
                     [--mutations N] [--json FILE] [--jobs N]

PARTS are scores, recipes and mutations. --only takes beginnings of names. --json writes a line per
family: what passed on which device. docs/data/families.jsonl is such a file.
"""

import argparse
import concurrent.futures
import json
import os
import sys
import tempfile
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import knapsack  # noqa: E402
from families.cases import FAMILIES  # noqa: E402
from families.cases_common import COMMON, QUANTISED  # noqa: E402
from families.known import MODELS, REAL  # noqa: E402
from families.mutations import check_mutations  # noqa: E402
from families.recipes import check_family  # noqa: E402
from families.report import Report  # noqa: E402
from families.scores import check_scores  # noqa: E402

CASES = {**FAMILIES, **COMMON, **QUANTISED}
PARTS = ("scores", "recipes", "mutations")


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("binary")
    p.add_argument("--only", default="")
    p.add_argument("--seed", default="1")
    p.add_argument("--device", default="")
    p.add_argument("--parts", default=",".join(PARTS))
    p.add_argument("--mutations", type=int, default=24)
    p.add_argument("--json", default="")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    return p.parse_args()


def devices():
    """The reference, the CPU and every GPU."""
    found = [d["id"] for d in knapsack("devices", "--json").json()]
    return ["reference", "cpu", *(d for d in found if d.startswith(("vulkan", "cuda")))]


def work(job):
    """One part of one case, in a worker."""
    part, name, args, targets = job
    report, spec = Report(f"{name}, {part}"), CASES[name]()
    report.arch = spec.arch
    with tempfile.TemporaryDirectory() as folder:
        try:
            if part == "scores":
                check_scores(report, folder, name, spec, args.seed, targets, name in QUANTISED)
            elif part == "recipes":
                check_family(report, folder, name, spec, args.seed, ["cpu"])
            else:
                check_mutations(report, folder, name, spec, args.seed, args.mutations)
        except Exception:
            report.check(False, traceback.format_exc())
    return part, name, report


def jobs(args, targets):
    """The longest first. Only families have the parts other than scores."""
    chosen = [n for n in CASES if n.startswith(tuple(args.only.split(",")))]
    for part in reversed(PARTS):
        if part in args.parts.split(","):
            for name in chosen:
                if part == "scores" or name in FAMILIES:
                    yield part, name, args, targets


def families(reports):
    """A line per architecture: for each test and device whether all of its cases passed."""
    lines = {}
    for part, name, report in reports:
        known = {"models": MODELS[report.arch], "real": REAL.get(report.arch, "")}
        line = lines.setdefault(report.arch, {"family": report.arch, **known, "cases": 0})
        line["cases"] += part == "scores"
        for test, found in report.facts.items():
            if test in PARTS + ("sessions",):
                for device, good in found.items():
                    passed = line.setdefault(test, {})
                    passed[device] = passed.get(device, True) and good
    order = [make().arch for make in CASES.values()]
    return [lines[a] for a in dict.fromkeys(order) if a in lines]


def print_largest(reports):
    """The largest difference of each device, and the case that has it."""
    found = {}
    for _, name, report in reports:
        for device, off in report.facts.get("largest", {}).items():
            key = "quantised weights" if name in QUANTISED else "F32 weights"
            found[device, key] = max(found.get((device, key), (0, "")), (off, name))
    for (device, key), (off, name) in found.items():
        print(f"{device}, {key}: at most {off:.1e} of the largest logit, {name}")


def main():
    args = arguments()
    targets = args.device.split(",") if args.device else devices()
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        reports = list(pool.map(work, jobs(args, targets)))
    n = sum(report.checks for _, _, report in reports)
    failures = [f for _, _, report in reports for f in report.failures]
    for failure in failures:
        print(f"FAILED: {failure}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(line) + "\n" for line in families(reports))
    print_largest(reports)
    print(f"{n - len(failures)} of {n} checks held: {len(reports)} tests on {', '.join(targets)}")
    sys.exit(1 if failures or not n else 0)


if __name__ == "__main__":
    main()
