#!/usr/bin/env bash
# gpu_check.sh [SHAPE...]: tests and measures Knapsack on the GPU of this machine. Builds, runs all
# tests on CUDA and on Vulkan, and runs kernels under compute-sanitizer. Then measures models with
# random weights in real formats, of the shapes 135m 1b 3b 7b 8b (default: all), attention with
# selectors, and the matmul kernels of Vulkan. Reports what does not fit. Writes JSON lines to
# build-gpu/gpu_check.jsonl and prints a table at the end.
#     LLAMA_BENCH=FILE     llama-bench of llama.cpp, to compare with; default: the one in PATH or in
#                          ~/llama.cpp/build/bin
#     KS_GPU_CODES=1       only tests of attention on CUDA, then every codec beside f16, prefill and
#                          decode at depths of 4,096 and 8,192 (default: 7b and 8b with 8 layers);
#                          then some of both on Vulkan. Takes twelve minutes
#     KS_GPU_MINUTES=N     limit for one model at one depth; default: 20. Skips the deeper ones
#     KS_GPU_BUILD=FOLDER  default: build-gpu
#     KS_CUDA_ARCHS=LIST   default: all that the toolkit knows
# Exit: 0 passed, 1 a test failed, 5 no GPU or no driver, 6 a build tool is missing
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

# nvidia-smi names the GPU, on a Jetson the device tree. The power mode of a Jetson sets its speed.
model=""
if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; then
    model=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
elif [ -e /dev/nvhost-gpu ] || [ -e /dev/nvgpu ]; then
    model=$(tr -d '\0' </proc/device-tree/model 2>/dev/null || echo "a Jetson")
fi
[ -n "$model" ] || die "expected an NVIDIA GPU and its driver, found none \
(nvidia-smi lists none, and there is no /dev/nvhost-gpu); nothing was run" 5
if command -v nvpmodel >/dev/null; then
    model="$model, $(nvpmodel -q 2>/dev/null | sed -n 's/.*Power Mode: */power mode /p')"
fi

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || die "expected nvcc (CUDA Toolkit) in PATH or /usr/local/cuda/bin, found none" 6
for tool in cmake python3; do
    command -v "$tool" >/dev/null || die "expected $tool, found none" 6
done
PATH=$PATH:$(dirname "$nvcc")

step "building for $model"
mkdir -p "$build"
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DKS_CUDA=ON -DKS_VULKAN=AUTO \
    -DKS_CUDA_ARCHS="${KS_CUDA_ARCHS:-}" >"$build/build.log" 2>&1 ||
    { cat "$build/build.log" >&2; die "cmake failed" 6; }
cmake --build "$build" --parallel "$(nproc)" >"$build/build.log" 2>&1 ||
    { tail -40 "$build/build.log" >&2; die "the build failed" 1; }
"$nvcc" -std=c++17 -O2 -arch=native -o "$build/peak" tests/cuda/peak.cu 2>/dev/null ||
    "$nvcc" -std=c++17 -O2 -o "$build/peak" tests/cuda/peak.cu

# device_of BACKEND: the id of the first hardware device of a backend, or nothing.
device_of() {
    "$build/knapsack" devices --json | python3 -c '
import json, sys
ids = (d["id"] for d in json.load(sys.stdin)
       if d["backend"] == sys.argv[1] and "a program" not in d.get("name", ""))
print(next(ids, ""))' "$1"
}
device=$(device_of cuda)
vulkan=$(device_of vulkan)
[ -n "$device" ] ||
    die "knapsack finds no CUDA device beside $model: is the driver older than the toolkit?" 5

# run_tests NAME [VARIABLE=VALUE...]: runs all tests with these variables.
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
    if "$build/knapsack" devices | grep -q '^ *vulkan:'; then
        run_tests vulkan KS_TEST_BACKEND=vulkan
    else
        step "skipped: Vulkan, no device"
    fi

    if ! command -v compute-sanitizer >/dev/null; then
        step "skipped: compute-sanitizer, not installed"
        return
    fi
    for tool in memcheck racecheck synccheck; do
        step "compute-sanitizer $tool"
        KS_TEST_BACKEND=cuda compute-sanitizer --tool "$tool" --error-exitcode 1 \
            "$build/test_backends" -tc="matmul: every*,attention: tables*,kv_*,hadamard,argmax" \
            >"$build/$tool.log" 2>&1 || { tail -20 "$build/$tool.log" >&2; failed="$failed $tool"; }
    done
}
test_codes() {
    step "tests: attention on CUDA; skipped: all others, compute-sanitizer, llama.cpp"
    KS_TEST_BACKEND=cuda "$build/test_backends" -tc="attention*" -tce="attention: times" \
        >"$build/tests-attention.log" 2>&1 || failed="$failed tests:attention"
    tail -3 "$build/tests-attention.log" >&2
}
test_codes_on_vulkan() {
    step "tests: decode attention on Vulkan, every third case"
    KS_TEST_EVERY=3 KS_TEST_BACKEND=vulkan "$build/test_backends" \
        -tc="attention: few*,attention: tables*" \
        >"$build/tests-few.log" 2>&1 || failed="$failed tests:few"
    tail -3 "$build/tests-few.log" >&2
}
if [ -n "${KS_GPU_CODES:-}" ]; then test_codes; else test_all; fi

peak=$("$build/peak") || die "measuring the memory bandwidth of the device failed" 5
step "memory bandwidth of the device: $peak GB/s"
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
: >"$results"

# add HOW SHAPE RECIPE [DEPTH]: converts the output of a program to lines of JSON.
add() {
    python3 tests/cuda/gpu_table.py "$1" "$2" "$3" "$peak" "$commit" "$model" "${4:-}" >>"$results"
}

# measure SHAPE RECIPE DEPTH...: adds lines for prefill and decode at each depth, or why there are
# none. $label: the name in the results; default: RECIPE. $decoded: tokens to generate; default: 64.
# A coded cache evicts every 64 tokens, so it needs more.
measure() {
    local shape=$1 recipe=$2 name=${label:-$2} depth code why
    shift 2
    for depth in "$@"; do
        code=0
        timeout "${minutes}m" "$build/knapsack" bench -m "$build/$shape.gguf" --device "$device" \
            --kv "$recipe" -p 512 -n "${decoded:-64}" -d "$depth" -r 3 --json \
            >"$build/bench.json" 2>"$build/bench.log" || code=$?
        case $code in
            0)
                add bench "$shape" "$name" <"$build/bench.json" ||
                    failed="$failed bench:$shape:$name:$depth" ;;
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

# measure_llama SHAPE: the same with llama.cpp. Its older versions have no option for the depth.
llama=${LLAMA_BENCH:-$(command -v llama-bench || echo "$HOME/llama.cpp/build/bin/llama-bench")}
measure_llama() {
    local options=(-m "$build/$1.gguf" -p 512 -n 64 -r 3 -ngl 99 -fa 1 -o jsonl)
    local out=$build/llama.jsonl log=$build/llama.log
    timeout "${minutes}m" "$llama" "${options[@]}" -d 0,4096,32768 >"$out" 2>"$log" ||
        timeout "${minutes}m" "$llama" "${options[@]}" >"$out" 2>"$log" ||
        step "$llama failed on $1; see $log"
    add llama "$1" llama.cpp <"$out"
}

make_model() {
    step "measuring $1"
    [ -f "$build/$1.gguf" ] || python3 scripts/random_model.py "$1" "$build/$1.gguf"
}
measure_codes() {
    local shape recipe
    for shape in "$@"; do
        make_model "$shape"
        for recipe in exact q8 q4 turbo4 turbo3 turbo2 kivi polar; do
            decoded=128 measure "$shape" "$recipe" 4096 8192
        done
    done
    if [ -z "$vulkan" ]; then
        step "skipped: codecs on Vulkan, no hardware device"
        return
    fi
    test_codes_on_vulkan
    for shape in "$@"; do
        for recipe in exact q8 turbo4 polar; do
            label="vulkan $recipe" device=$vulkan decoded=128 measure "$shape" "$recipe" 8192
        done
    done
}
finish() {
    [ -z "$failed" ] || echo "gpu_check.sh: failed:$failed; see $build/*.log" >&2
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

[ -x "$llama" ] || step "skipped: llama.cpp, no llama-bench in PATH; set LLAMA_BENCH"
[ $# -gt 0 ] || shapes=(135m 1b 3b 7b 8b)
for shape in "${shapes[@]}"; do
    make_model "$shape"
    million=()
    [ "${shape%%,*}" != 135m ] || million=(1000000)
    measure "$shape" exact 0 4096 32768 131072 "${million[@]}"
    measure "$shape" turbo4 0 4096 32768 131072 "${million[@]}"
    if [ "${#million[@]}" -gt 0 ]; then
        measure "$shape" tokenselect 4096 131072 1000000
        measure "$shape" h2o,slots=8192,k=turbo4,v=turbo4 131072 1000000
    fi
    [ ! -x "$llama" ] || measure_llama "$shape"
done

if [ -n "$vulkan" ]; then
    # Each limit enables one of the optional features (backends/vulkan/vulkan_device.cpp), pi5 none.
    for limit in all pi5 int8_dot f16 matrices subgroup_reduce; do
        label="vulkan $limit" device=$vulkan KNAPSACK_VULKAN_LIMITS=$limit \
            measure "${shapes[0]}" exact 0 4096
    done
else
    step "skipped: matmul kernels of Vulkan, no hardware device"
fi

step "attention of a layer, over all slots and over selected slots"
if KS_PERF=1 KS_TEST_BACKEND=cuda "$build/test_kv" -tc="perf: select" \
    >"$build/select.log" 2>&1; then
    add select layer "" <"$build/select.log" || failed="$failed select"
else
    tail -20 "$build/select.log" >&2
    failed="$failed select"
fi

finish
