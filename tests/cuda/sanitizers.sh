#!/bin/sh
# Runs the op harness with the sanitizers on the CUDA kernels as C++: all accesses are aligned and
# in bounds, and no threads race. Takes some minutes.
#     sanitizers.sh [address|race] [BUILD_FOLDER]
set -eu
cd "$(dirname "$0")/../.."
folder=${2:-build-cuda}
run() {
    name=$1 sanitizer=$2 compiler=$3
    build=$folder-$name
    mkdir -p "$build"
    cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1" \
        -DCMAKE_CXX_COMPILER="$compiler" -DKS_DEV=ON -DKS_VULKAN=OFF -DKS_CUDA=OFF \
        -DKS_SANITIZE="$sanitizer" >"$build/build.log" 2>&1 || { cat "$build/build.log"; exit 1; }
    cmake --build "$build" --target test_cuda test_cuda_faults --parallel "$(nproc)" \
        >"$build/build.log" 2>&1 || { tail -40 "$build/build.log"; exit 1; }
    tests/cuda/faults.sh "$build/test_cuda_faults" "$name"
    # Long cases are left out where shorter cases cover the same code.
    slow="codecs: errors*,kivi: channels*,attention: contexts*,attention: slots*,victims:*"
    slow="$slow,select: over*,select: of 7*,positions*"
    slow="$slow,faults: *allocation,faults: *block*,faults: *file*"
    KS_TEST_BACKEND=cuda TSAN_OPTIONS="atexit_sleep_ms=0 halt_on_error=1" "$build/test_cuda" \
        -tce="$slow" -d=true
}
# g++ finds more misaligned accesses; clang's thread sanitizer is several times faster than g++'s.
[ "${1:-address}" != address ] || run address address,undefined g++
[ "${1:-race}" != race ] || run race thread clang++
