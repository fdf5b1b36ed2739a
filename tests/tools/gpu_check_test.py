#!/usr/bin/env python3
"""Runs tools/gpu_check.sh with stand-ins for the GPU, the toolkit, the build and llama.cpp.

Knapsack on the CPU gives the numbers.
"""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import BINARY, check, run_tests  # noqa: E402

SHAPE = "135m,layers=1,vocab=300,ffn=64"
# The stand-in for knapsack: depth 4,096 becomes 64, other depths do not fit, and turbo4 works only
# with KIND=passes.
PROGRAM = """#!/bin/bash
if [ "$1" = devices ]; then
    [ "$2" = --json ] || {{ echo '   vulkan:0  stands in'; exit; }}
    echo '[{{"id": "cpu", "backend": "cpu"}}, {{"id": "cuda:0", "backend": "cuda"}},
        {{"id": "vulkan:0", "backend": "vulkan", "name": "Stand-in"}}]'
    exit
fi
args=("$@")
for i in "${{!args[@]}}"; do
    next=${{args[i + 1]:-}}
    case "${{args[i]}} $next" in
        "--device cuda:0" | "--device vulkan:0") args[i + 1]=cpu ;;
        "-d 0" | "-r 3") args[i + 1]=$((next / 3)) ;;
        "-d 4096") args[i + 1]=64 ;;
        "-d "*) echo "knapsack: does not fit" >&2; exit 4 ;;
        "-p 512" | "-n 64" | "-n 128") args[i + 1]=4 ;;
        "--kv turbo4") [ "$KIND" = passes ] || {{ echo "error: no turbo" >&2; exit 5; }} ;;
    esac
done
exec {binary} "${{args[@]}}"
"""
SELECT = """#!/bin/sh
[ "$KS_PERF $KS_TEST_BACKEND" = "1 cuda" ] &&
    echo "microseconds of a layer's step; reading 1,024 slots and nothing else: 7"
echo "1048576 slots: all   5000, tokenselect,reuse=1  1000, quest   250"
"""
TESTS = """#!/bin/sh
case "$KS_TEST_BACKEND $1" in
    'cuda -tc=attention*' | 'vulkan -tc=attention: few*,attention: tables*') echo attention ;;
    *) exit 1 ;;
esac
"""
LLAMA = """#!/bin/sh
case "$*" in *-d\\ 0,4096*) echo "error: invalid parameter for argument: -d" >&2; exit 1 ;; esac
echo '{"n_prompt": 4, "n_gen": 0, "avg_ts": 100.0, "stddev_ts": 1.0}'
echo '{"n_prompt": 0, "n_gen": 4, "avg_ts": 0.5, "stddev_ts": 0.0}'
"""


def holds(condition, what, found):
    check(condition, f"{what}, found {str(found)[:3000]}")


def run(folder, kind, *shapes, gpu=True, **more):
    build = os.path.join(folder, kind)
    programs = {
        "nvcc": f"#!/bin/sh\nprintf '#!/bin/sh\\necho 123.4\\n' >{build}/peak\n"
        f"chmod +x {build}/peak\n",
        "cmake": "#!/bin/sh\n",
        "llama-bench": LLAMA,
        "ctest": "#!/bin/sh\n[ \"$KIND $KS_TEST_BACKEND\" != 'fails vulkan' ]\n",
        "nvpmodel": "#!/bin/sh\necho 'NV Power Mode: MAXN'\n",
        "compute-sanitizer": "#!/bin/sh\n[ \"$KIND $2\" != 'fails racecheck' ]\n",
        "knapsack": PROGRAM.format(binary=BINARY),
        "test_kv": SELECT,
        "test_backends": TESTS,
    }
    if gpu:
        programs["nvidia-smi"] = (
            "#!/bin/sh\n[ \"$1\" = -L ] && echo 'GPU 0: Stand-in' || echo Stand-in\n"
        )
    for name, text in programs.items():
        path = os.path.join(
            (
                build
                if name in ("knapsack", "test_kv", "test_backends")
                else os.path.join(build, "bin")
            ),
            name,
        )
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, 0o755)
    env = {
        **os.environ,
        "KNAPSACK_PEAK_SECONDS": "0.1",
        "PATH": f"{build}/bin:/usr/bin:/bin",
        "KS_GPU_BUILD": build,
        "KIND": kind,
        **more,
    }
    env.pop("LLAMA_BENCH", None)
    r = subprocess.run(
        ["tools/gpu_check.sh", *shapes],
        capture_output=True,
        text=True,
        env=env,
        stdin=subprocess.DEVNULL,
    )
    lines = os.path.join(build, "gpu_check.jsonl")
    return r, [json.loads(line) for line in open(lines)] if os.path.exists(lines) else []


def test_passes(folder):
    r, rows = run(folder, "passes", SHAPE)
    holds(r.returncode == 0, "it passes", r.stderr)
    holds(
        all(
            row["device"] == "Stand-in, power mode MAXN"
            and row["peak_gb_per_second"] == 123.4
            and row["commit"]
            for row in rows
        ),
        "who measured",
        rows,
    )
    ours = [row for row in rows if row["recipe"] in ("exact", "turbo4")]
    holds(
        [(row["recipe"], row.get("test"), row["depth"]) for row in ours]
        == [
            (recipe, test, depth)
            for recipe in ("exact", "turbo4")
            for test, depth in (("pp", 0), ("tg", 0), ("pp", 64), ("tg", 64), (None, 32768))
        ],
        "every depth, and where it ends",
        ours,
    )
    for row in ours:
        holds(
            "none" in row or abs(row["share_of_peak"] - row["gb_per_second"] / 123.4) < 1e-12,
            "share of the peak",
            row,
        )
    holds(
        [row["depth"] for row in rows if row["recipe"] == "tokenselect"] == [64, 64, 131072],
        "selection, too",
        rows,
    )
    holds(
        [row["recipe"] for row in rows if row["recipe"].startswith("h2o")]
        == ["h2o,slots=8192,k=turbo4,v=turbo4"],
        "and eviction",
        rows,
    )
    holds(
        [row["recipe"] for row in rows if row["recipe"].startswith("vulkan")]
        == [
            f"vulkan {way}"
            for way in ("all", "pi5", "int8_dot", "f16", "matrices", "subgroup_reduce")
            for _ in range(4)
        ],
        "each way of Vulkan, at two depths",
        rows,
    )
    holds(
        [
            (row["test"], row["depth"], row["tokens_per_second"]["median"])
            for row in rows
            if row["recipe"] == "llama.cpp"
        ]
        == [("pp", 0, 100), ("tg", 0, 0.5)],
        "an older llama.cpp without depths",
        rows,
    )
    holds(
        [
            (row["recipe"], row["depth"], row["times_all"])
            for row in rows
            if row["test" if "test" in row else "none"] == "step"
        ]
        == [("all", 1048576, 1), ("tokenselect,reuse=1", 1048576, 5), ("quest", 1048576, 20)],
        "selected attention beside all",
        rows,
    )
    table = r.stdout.splitlines()
    holds(
        table[0].startswith("Stand-in, power mode MAXN, 123.4 GB/s")
        and len(table) == 2 + 1 + len(rows) - 3 + 2 + 3,
        "every line is in the table",
        r.stdout,
    )
    holds(table[-1].split() == ["quest", "1048576", "250", "20.00"], "which comes last", r.stdout)
    ratio = [line.split()[-1] for line in table if " exact " in line and " tg4 " in line]
    holds(
        len(ratio) == 2 and float(ratio[0]) > 1 and ratio[1].endswith("%"),
        "llama.cpp's speed is compared at its depth",
        ratio,
    )


def test_fails(folder):
    r, rows = run(folder, "fails", SHAPE)
    holds(r.returncode == 1, "it fails", r.stderr)
    holds(
        "failed: tests:vulkan racecheck" in r.stderr
        and f"bench:{SHAPE}:turbo4:0 " in r.stderr
        and "error: no turbo" in r.stderr,
        "what failed is said",
        r.stderr,
    )
    holds(
        not [row for row in rows if row["recipe"] == "turbo4"] and "tg4" in r.stdout,
        "the rest is measured, and the table is there",
        r.stdout,
    )


def test_codes(folder):
    r, rows = run(folder, "passes", SHAPE, KS_GPU_CODES="1")
    recipes = ["exact", "q8", "q4", "turbo4", "turbo3", "turbo2", "kivi", "polar"]
    holds(
        r.returncode == 0 and "skipped: all others" in r.stderr and "tests: cuda" not in r.stderr,
        "codes alone",
        r.stderr,
    )
    rows, on_vulkan = [
        [row for row in rows if ("vulkan" in row["recipe"]) == vulkan] for vulkan in (False, True)
    ]
    holds(
        [(row["recipe"], row.get("test"), row["depth"]) for row in rows]
        == [
            (recipe, test, depth)
            for recipe in recipes
            for test, depth in (("pp", 64), ("tg", 64), (None, 8192))
        ],
        "every codec at both depths",
        rows,
    )
    holds(
        [(row["recipe"], row["depth"]) for row in on_vulkan]
        == [("vulkan " + recipe, 8192) for recipe in ("exact", "q8", "turbo4", "polar")],
        "some on Vulkan",
        on_vulkan,
    )
    of_exact = [line.split()[-1] for line in r.stdout.splitlines() if " tg4 " in line]
    holds(
        of_exact[0].endswith("%")
        and all(float(ratio) > 0 for ratio in of_exact[1:])
        and len(of_exact) == len(recipes),
        "beside f16",
        r.stdout,
    )


def test_no_gpu(folder):
    r, rows = run(folder, "nothing", gpu=False)
    holds(
        r.returncode == 5 and "expected an NVIDIA GPU" in r.stderr and not rows and not r.stdout,
        "without a GPU it says so",
        r.stderr,
    )


def test(folder):
    for part in (test_passes, test_codes, test_fails, test_no_gpu):
        part(folder)


run_tests(test)
