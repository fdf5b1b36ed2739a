#!/usr/bin/env bash
# gpu_check.sh [SHAPE...]: everything that needs a GPU, on this machine's: builds, runs all tests on CUDA and on Vulkan, looks for faults
# with compute-sanitizer, then measures models of usual shapes (135m 1b 3b 7b 8b; default: all) with random weights in real formats, and
# selected attention beside all of it, and on Vulkan each way to multiply. What does not fit is said. Results are JSON lines in
# build-gpu/gpu_check.jsonl, the table is printed last.
#     LLAMA_BENCH=FILE      llama.cpp's llama-bench, to compare with; default: the one in PATH or in ~/llama.cpp/build/bin
#     KS_GPU_CODES=1        instead, in some twelve minutes: the tests of attention on CUDA, then each codec beside f16, prompts and decoding
#                           at depths of 4,096 and 8,192 (default: 7b and 8b with 8 layers); then some of both on Vulkan
#     KS_GPU_MINUTES=N      for one model at one depth; default 20, then the deeper ones are left out
#     KS_GPU_BUILD=FOLDER   default: build-gpu      KS_CUDA_ARCHS=LIST   default: all that the toolkit knows
#     exit 0: all ran and passed   1: a test failed   5: there is no GPU here, or no driver for it   6: something to build with is missing
set -euo pipefail
cd "$(dirname "$0")/.."
build=${KS_GPU_BUILD:-build-gpu}
results=$build/gpu_check.jsonl
minutes=${KS_GPU_MINUTES:-20}
failed=""

die() {
    echo "gpu_check.sh: $1" >&2
    exit "$2"
}
step() { echo "== $*" >&2; }

# A GPU of NVIDIA's shows itself to nvidia-smi, on a Jetson in the device tree. A board is as fast as its power mode lets it.
model=""
if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; then
    model=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
elif [ -e /dev/nvhost-gpu ] || [ -e /dev/nvgpu ]; then
    model=$(tr -d '\0' </proc/device-tree/model 2>/dev/null || echo "a Jetson")
fi
[ -n "$model" ] || die "expected an NVIDIA GPU and its driver, found none (no nvidia-smi that lists one, no /dev/nvhost-gpu); nothing was run" 5
if command -v nvpmodel >/dev/null; then model="$model, $(nvpmodel -q 2>/dev/null | sed -n 's/.*Power Mode: */power mode /p')"; fi

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || die "expected nvcc of the CUDA Toolkit in PATH or /usr/local/cuda/bin, found none" 6
for tool in cmake python3; do command -v "$tool" >/dev/null || die "expected $tool, found none" 6; done
PATH=$PATH:$(dirname "$nvcc")

step "building for $model"
mkdir -p "$build"
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DKS_CUDA=ON -DKS_VULKAN=AUTO -DKS_CUDA_ARCHS="${KS_CUDA_ARCHS:-}" >"$build/build.log" 2>&1 ||
    { cat "$build/build.log" >&2; die "cmake failed" 6; }
cmake --build "$build" --parallel "$(nproc)" >"$build/build.log" 2>&1 || { tail -40 "$build/build.log" >&2; die "the build failed" 1; }
"$nvcc" -std=c++17 -O2 -arch=native -o "$build/peak" tests/cuda/peak.cu 2>/dev/null || "$nvcc" -std=c++17 -O2 -o "$build/peak" tests/cuda/peak.cu
device=$("$build/knapsack" devices --json | python3 -c 'import json, sys; print(next((d["id"] for d in json.load(sys.stdin) if d["backend"] == "cuda"), ""))')
vulkan=$("$build/knapsack" devices --json | python3 -c 'import json, sys; print(next((d["id"] for d in json.load(sys.stdin) if d["backend"] == "vulkan" and "a program" not in d["name"]), ""))')
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
test_all() {
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
}
test_codes() {
    step "tests: attention on CUDA; skipped: all others, compute-sanitizer, llama.cpp"
    KS_TEST_BACKEND=cuda "$build/test_backends" -tc="attention*" -tce="attention: times" >"$build/tests-attention.log" 2>&1 || failed="$failed tests:attention"
    tail -3 "$build/tests-attention.log" >&2
}
test_codes_on_vulkan() {
    step "tests: a few queries on Vulkan, each third case"
    KS_TEST_EVERY=3 KS_TEST_BACKEND=vulkan "$build/test_backends" -tc="attention: few*,attention: tables*" >"$build/tests-few.log" 2>&1 || failed="$failed tests:few"
    tail -3 "$build/tests-few.log" >&2
}
if [ -n "${KS_GPU_CODES:-}" ]; then test_codes; else test_all; fi

peak=$("$build/peak") || die "the device's memory could not be measured" 5
step "the device reads $peak GB/s"
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
: >"$results"

# add HOW SHAPE RECIPE [DEPTH]: a program's output to lines of JSON.
add() { python3 tests/cuda/gpu_table.py "$1" "$2" "$3" "$peak" "$commit" "$model" "${4:-}" >>"$results"; }

# measure SHAPE RECIPE DEPTH...: a line for the prompt and one for decoding at each depth, or why there is none; $label: another name for it;
# $decoded: so many tokens, for a cache of codes decides every 64.
measure() {
    local shape=$1 recipe=$2 name=${label:-$2} depth code why
    shift 2
    for depth in "$@"; do
        code=0
        timeout "${minutes}m" "$build/knapsack" bench -m "$build/$shape.gguf" --device "$device" --kv "$recipe" -p 512 -n "${decoded:-64}" -d "$depth" -r 3 --json \
            >"$build/bench.json" 2>"$build/bench.log" || code=$?
        case $code in
            0) add bench "$shape" "$name" <"$build/bench.json" || failed="$failed bench:$shape:$name:$depth" ;;
            4 | 124)
                why="does not fit"
                [ $code = 4 ] || why="more than $minutes min"
                step "$shape $name at a depth of $depth: $why"
                echo "$why" | add none "$shape" "$name" "$depth"
                return ;;
            *)
                tail -2 "$build/bench.log" >&2
                failed="$failed bench:$shape:$name:$depth" ;;
        esac
    done
}

# The same of llama.cpp; its older versions know no depths.
llama=${LLAMA_BENCH:-$(command -v llama-bench || echo "$HOME/llama.cpp/build/bin/llama-bench")}
measure_llama() {
    local options=(-m "$build/$1.gguf" -p 512 -n 64 -r 3 -ngl 99 -fa 1 -o jsonl)
    timeout "${minutes}m" "$llama" "${options[@]}" -d 0,4096,32768 >"$build/llama.jsonl" 2>"$build/llama.log" ||
        timeout "${minutes}m" "$llama" "${options[@]}" >"$build/llama.jsonl" 2>"$build/llama.log" || step "$llama failed on $1; see $build/llama.log"
    add llama "$1" llama.cpp <"$build/llama.jsonl"
}

make_model() {
    step "measuring $1"
    [ -f "$build/$1.gguf" ] || python3 scripts/random_model.py "$1" "$build/$1.gguf"
}
measure_codes() {
    local shape recipe
    for shape in "$@"; do
        make_model "$shape"
        for recipe in exact q8 q4 turbo4 turbo3 turbo2 kivi polar; do decoded=128 measure "$shape" "$recipe" 4096 8192; done
    done
    if [ -z "$vulkan" ]; then step "skipped: codes on Vulkan, no device that is hardware" && return; fi
    test_codes_on_vulkan
    for shape in "$@"; do
        for recipe in exact q8 turbo4 polar; do label="vulkan $recipe" device=$vulkan decoded=128 measure "$shape" "$recipe" 8192; done
    done
}
finish() {
    [ -z "$failed" ] || echo "gpu_check.sh: failed:$failed; what they said is in $build/*.log" >&2
    python3 tests/cuda/gpu_table.py print "$results"
    [ -z "$failed" ] || exit 1
    exit 0
}
shapes=("$@")
if [ -n "${KS_GPU_CODES:-}" ]; then
    [ $# -gt 0 ] || shapes=("7b,layers=8" "8b,layers=8")
    measure_codes "${shapes[@]}"
    finish
fi

[ -x "$llama" ] || step "skipped: llama.cpp, no llama-bench in PATH; LLAMA_BENCH names one"
[ $# -gt 0 ] || shapes=(135m 1b 3b 7b 8b)
for shape in "${shapes[@]}"; do
    make_model "$shape"
    far=()
    [ "${shape%%,*}" != 135m ] || far=(1000000)
    measure "$shape" exact 0 4096 32768 131072 "${far[@]}"
    measure "$shape" turbo4 0 4096 32768 131072 "${far[@]}"
    if [ "${#far[@]}" -gt 0 ]; then
        measure "$shape" tokenselect 4096 131072 1000000
        measure "$shape" h2o,slots=8192,k=turbo4,v=turbo4 131072 1000000
    fi
    [ ! -x "$llama" ] || measure_llama "$shape"
done

if [ -n "$vulkan" ]; then
    for way in all pi5 dots halves matrices sums; do # pi5: none of them; what the device lacks is as pi5
        label="vulkan $way" device=$vulkan KNAPSACK_VULKAN_LIMITS=$way measure "${shapes[0]}" exact 0 4096
    done
else
    step "skipped: the ways of Vulkan, no device that is hardware"
fi

step "attention of a layer, all slots and selected ones"
if KS_PERF=1 KS_TEST_BACKEND=cuda "$build/test_kv" -tc="perf: select" >"$build/select.log" 2>&1; then
    add select layer "" <"$build/select.log" || failed="$failed select"
else
    tail -20 "$build/select.log" >&2
    failed="$failed select"
fi

finish
