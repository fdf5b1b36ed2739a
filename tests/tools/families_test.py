#!/usr/bin/env python3
"""Random models of every family against a float64 forward pass in Python.

    families_test.py BINARY [--only NAME,...] [--seed S] [--device D,...] [--parts PART,...]
                     [--mutations N] [--replay PROGRAM] [--json FILE] [--jobs N]

PARTS are scores, recipes and mutations. Without --device, Vulkan runs only VULKAN_CASES. If there
is no CUDA device but BINARY_shim, CUDA kernels run on the processor. --only takes beginnings of
names. --replay, or KS_TEST_REPLAY, gives damaged files to fuzz_gguf instead, of a build with
sanitizers for instance. --json writes a line per family: what passed on which device.
docs/data/families.jsonl has the lines of all devices.
"""

import argparse
import concurrent.futures
import json
import math
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
from families.recipes import CODED, check_family  # noqa: E402
from families.report import SHIM, SHIM_BINARY, Report  # noqa: E402
from families.scores import check_scores  # noqa: E402

CASES = {**FAMILIES, **COMMON, **QUANTISED}
# Every op of the families, in few models: Vulkan compiles shaders for seconds.
VULKAN_CASES = (
    "mistral3",
    "olmo3",
    "hunyuan-dense",
    "gemma2",
    "apertus",
    "jais2",
    "stablelm QK norm",
    "spark2_5",
    "bitnet",
    "deci",
    "lfm2",
    "qwen35",
    "nemotron_h",
    "C2 fused QKV, separate biases",
    "C6 arrays",
    "qwen2moe",
    "gpt-oss",
    "bailingmoe2",
    "deepseek2",
    "Q8_0 glm4",
    "gemma4 shared KV",
)
SHIM_RECIPES = ("mistral3", "gemma2", "stablelm QK norm", "deci", "gemma4 shared KV", "qwen35")
PARTS = ("scores", "recipes", "mutations")


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("binary")
    p.add_argument("--only", default="")
    p.add_argument("--seed", default="1")
    p.add_argument("--device", default="")
    p.add_argument("--parts", default=",".join(PARTS))
    p.add_argument("--mutations", type=int, default=24)
    p.add_argument("--replay", default=os.environ.get("KS_TEST_REPLAY", ""))
    p.add_argument("--json", default="")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    return p.parse_args()


def devices():
    """The reference, the CPU, and every GPU or its emulation."""
    found = [d["id"] for d in knapsack("devices", "--json").json()]
    gpus = [d for d in found if d.startswith(("vulkan", "cuda"))]
    if os.path.exists(SHIM_BINARY) and not any(d.startswith("cuda") for d in gpus):
        gpus.append(SHIM)
    return ["reference", "cpu", *gpus]


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
                check_family(report, folder, name, spec, args.seed, targets)
            else:
                check_mutations(report, folder, name, spec, args.seed, args.mutations, args.replay)
        except Exception:
            report.check(False, traceback.format_exc())
    return part, name, report


def jobs(args, targets):
    """The longest first. Only families have the parts other than scores."""
    chosen = [n for n in CASES if n.startswith(tuple(args.only.split(",")))]
    everywhere = chosen if args.device else [n for n in chosen if n in VULKAN_CASES]
    others = [n for n in chosen if n not in everywhere]
    few = [d for d in targets if not d.startswith("vulkan")]
    found = [("scores", n, args, targets) for n in everywhere]
    for n in (n for n in chosen if n in FAMILIES):
        emulated = [d for d in targets if d == SHIM and (args.device or n in SHIM_RECIPES)]
        found.append(("recipes", n, args, ["cpu", *emulated]))
    found += [("scores", n, args, few) for n in others]
    found += [("mutations", n, args, targets) for n in chosen if n in FAMILIES]
    return [job for job in found if job[0] in args.parts.split(",")]


def families(reports):
    """A line per architecture: for each test and device whether all of its cases passed."""
    lines = {}
    for part, _, report in reports:
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
            if off < math.inf:  # infinite: it did not run
                found[device, key] = max(found.get((device, key), (0, "")), (off, name))
    for (device, key), (off, name) in found.items():
        print(f"{device}, {key}: at most {off:.1e} of the largest logit, {name}")


def print_coded(reports):
    found = [(off, name) for _, name, r in reports for off in r.facts.get(CODED, {}).values()]
    if found:
        print("{}: at most {:.3f} off exact, {}".format(CODED, *max(found)))


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
    print_coded(reports)
    print(f"{n - len(failures)} of {n} checks held: {len(reports)} tests on {', '.join(targets)}")
    sys.exit(1 if failures or not n else 0)


if __name__ == "__main__":
    main()
