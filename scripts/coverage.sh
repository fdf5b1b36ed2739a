#!/usr/bin/env bash
# Measures with gcov which lines of runtime/ the tests run.  coverage.sh [--missing] [FILE...]
# Prints the share of executed lines for every file of runtime/, or for the named files. --missing
# also prints the lines that never ran.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/packages.sh

# shellcheck disable=SC2154,SC2086
install_packages $build_packages $test_packages
tests=(base text chat kv model api faults)
fuzz=(gguf tokenizer chat template recipe session)
build_only="${tests[*]/#/test_} ${fuzz[*]/#/fuzz_}" build_into build-coverage \
    -DKS_CUDA=OFF -DKS_VULKAN=OFF -DKS_SHARED=OFF \
    -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-Og -g --coverage"
find build-coverage -name '*.gcda' -delete
ctest --test-dir build-coverage --output-on-failure --parallel "$(nproc)" \
    --tests-regex '^(base|text|chat|kv|model|api|faults|fuzz_.*)$' >&2
python3 - "$@" <<'PY'
import collections
import json
import pathlib
import subprocess
import sys

missing, wanted = "--missing" in sys.argv, [a for a in sys.argv[1:] if a != "--missing"]
root = pathlib.Path.cwd()
runs = collections.defaultdict(collections.Counter)  # file -> line -> executions, over all programs
for data in root.glob("build-coverage/CMakeFiles/*.dir/runtime/**/*.gcda"):
    command = ["gcov", "--json-format", "--stdout", str(data)]
    out = subprocess.run(command, cwd=data.parent, capture_output=True, text=True, check=True)
    for unit in out.stdout.splitlines():
        report = json.loads(unit)
        for file in report["files"]:
            path = (root / "build-coverage" / file["file"]).resolve()
            if root / "runtime" in path.parents:
                for line in file["lines"]:
                    runs[path.relative_to(root).as_posix()][line["line_number"]] += line["count"]
total = hit = 0
for path, lines in sorted(runs.items()):
    if wanted and path not in wanted:
        continue
    never = sorted(n for n in lines if not lines[n])
    total, hit = total + len(lines), hit + len(lines) - len(never)
    ran = len(lines) - len(never)
    print(f"{100 * ran / len(lines):6.1f}%  {ran:4} of {len(lines):4}  {path}")
    if missing and never:
        source = (root / path).read_text(encoding="utf-8").splitlines()
        for n in never:
            print(f"           {n}: {source[n - 1].strip()}")
print(f"{100 * hit / max(total, 1):6.1f}%  {hit:4} of {total:4}")
PY
