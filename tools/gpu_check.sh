#!/usr/bin/env bash
# gpu_check.sh [SHAPE...]: everything that needs a GPU, on this machine's: builds, runs all tests on CUDA and on Vulkan, looks for faults
# with compute-sanitizer, then measures models of usual shapes (135m 1b 3b 7b 8b; default: those that fit) with random weights in real formats.
# Results are JSON lines in build-gpu/gpu_check.jsonl, the table is printed last. LLAMA_BENCH=path of llama.cpp's llama-bench compares.
#     exit 0: all ran and passed   1: a test failed   5: there is no GPU here, or no driver for it   6: something to build with is missing
set -euo pipefail
cd "$(dirname "$0")/.."
build="build-gpu"
results=$build/gpu_check.jsonl
failed=""

die() {
    echo "gpu_check.sh: $1" >&2
    exit "$2"
}
step() { echo "== $*" >&2; }

# A GPU of NVIDIA's shows itself to nvidia-smi, on a Jetson in the device tree.
model=""
if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; then
    model=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
elif [ -e /dev/nvhost-gpu ] || [ -e /dev/nvgpu ]; then
    model=$(tr -d '\0' </proc/device-tree/model 2>/dev/null || echo "a Jetson")
fi
[ -n "$model" ] || die "expected an NVIDIA GPU and its driver, found none (no nvidia-smi that lists one, no /dev/nvhost-gpu); nothing was run" 5

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || die "expected nvcc of the CUDA Toolkit in PATH or /usr/local/cuda/bin, found none" 6
for tool in cmake python3; do command -v "$tool" >/dev/null || die "expected $tool, found none" 6; done
PATH=$PATH:$(dirname "$nvcc")

step "building for $model"
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DKS_CUDA=ON -DKS_VULKAN=AUTO -DKS_CUDA_ARCHS="${KS_CUDA_ARCHS:-}" >"$build.log" 2>&1 || { cat "$build.log" >&2; die "cmake failed" 6; }
cmake --build "$build" --parallel >"$build.log" 2>&1 || { tail -40 "$build.log" >&2; die "the build failed" 1; }
"$nvcc" -std=c++17 -O2 -arch=native -o "$build/peak" tests/cuda/peak.cu || "$nvcc" -std=c++17 -O2 -o "$build/peak" tests/cuda/peak.cu
device=$("$build/knapsack" devices --json | python3 -c 'import json, sys; print(next((d["id"] for d in json.load(sys.stdin) if d["backend"] == "cuda"), ""))')
[ -n "$device" ] || die "the program finds no CUDA device, though there is $model: is the driver older than the toolkit?" 5

# run_tests NAME [VARIABLE=VALUE...]: what the tests say of one backend.
run_tests() {
    local name=$1
    shift
    step "tests: $name"
    if env "$@" ctest --test-dir "$build" --output-on-failure >"$build/tests-$name.log" 2>&1; then
        tail -3 "$build/tests-$name.log" >&2
    else
        grep -E "tests passed|Failed|\*\*\*" "$build/tests-$name.log" >&2 || true
        failed="$failed tests:$name"
    fi
}
run_tests cuda KS_TEST_BACKEND=cuda
run_tests all
if "$build/knapsack" devices | grep -q '^ *vulkan:'; then run_tests vulkan KS_TEST_BACKEND=vulkan; else step "skipped: Vulkan, no device"; fi

if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck synccheck; do
        step "compute-sanitizer $tool"
        KS_TEST_BACKEND=cuda compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/test_backends" -tc="matmul: every*,attention: tables*,kv_*,rotate,argmax" \
            >"$build/$tool.log" 2>&1 || { tail -20 "$build/$tool.log" >&2; failed="$failed $tool"; }
    done
else
    step "skipped: compute-sanitizer is not there"
fi

peak=$("$build/peak") || die "the device's memory could not be measured" 5
step "the device reads $peak GB/s"
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
: >"$results"

# measure SHAPE RECIPE DEPTHS: one line of JSON for each test of bench.
measure() {
    "$build/knapsack" bench -m "$build/$1.gguf" --device "$device" --kv "$2" -p 512 -n 64 -d "$3" -r 3 --json 2>"$build/bench.log" |
        python3 tests/cuda/gpu_table.py add "$1" "$2" "$peak" "$commit" "$model" >>"$results" || { tail -2 "$build/bench.log" >&2; failed="$failed bench:$1:$2"; }
}
shapes=("$@")
[ $# -gt 0 ] || shapes=(135m 1b 3b 7b 8b)
for shape in "${shapes[@]}"; do
    step "measuring $shape"
    [ -f "$build/$shape.gguf" ] || python3 tools/random_model.py "$shape" "$build/$shape.gguf"
    if ! "$build/knapsack" plan -m "$build/$shape.gguf" --device "$device" --kv turbo4 -c 8192 >/dev/null 2>&1; then
        step "skipped: $shape does not fit"
        continue
    fi
    measure "$shape" exact 0,4096
    measure "$shape" turbo4 0,4096,32768
    [ "$shape" != 135m ] || measure "$shape" tokenselect 4096,131072,1000000
    if [ -n "${LLAMA_BENCH:-}" ]; then
        "$LLAMA_BENCH" -m "$build/$shape.gguf" -p 512 -n 64 -ngl 99 -fa 1 -o jsonl 2>/dev/null | python3 tests/cuda/gpu_table.py add-llama "$shape" llama.cpp "$peak" "$commit" "$model" >>"$results" ||
            step "llama-bench failed on $shape"
    fi
done
python3 tests/cuda/gpu_table.py print "$results"
[ -z "$failed" ] || die "failed:$failed; what they said is in $build/*.log" 1
