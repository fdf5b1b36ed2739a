#!/bin/sh
# Tests the kernels for ARM: compiles test_backends for aarch64 and runs it with qemu on three CPUs.
# One CPU has int8 matrix products (i8mm), one has int8 dot products only, one has neither. The
# expected bits are the ones of AVX2.
set -eu
cd "$(dirname "$0")/../.."
for tool in cmake aarch64-linux-gnu-g++ qemu-aarch64; do
    command -v "$tool" >/dev/null || { echo "skipped: there is no $tool"; exit 77; }
done
out=$(dirname "${1:-build/knapsack}")/neon # kept for the next run

# The backends do not need utf8proc, which may be missing for ARM.
cmake -S . -B "$out" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
    -DUTF8PROC_INCLUDE=unused -DUTF8PROC_LIBRARY=unused -DKS_DEV=ON -DKS_TESTS=ON \
    >"$out.log" 2>&1 || { cat "$out.log"; exit 1; }
cmake --build "$out" --target test_backends --parallel 2 >"$out.log" 2>&1 ||
    { tail -40 "$out.log"; exit 1; }

arm() {
    cpu=$1
    shift
    qemu-aarch64 -cpu "$cpu" -L /usr/aarch64-linux-gnu "$out/test_backends" "$@"
}
# A ninth of the cases runs. Tests that take minutes under emulation are left out; other tests run
# the same code with smaller cases.
export KS_TEST_EVERY=9
slow="codecs: errors*,attention: slots in coded pools"
arm max -tce="$slow,attention: keys without their bias in long chunks"
unset KS_TEST_EVERY
arm cortex-a76 -tc="matmul: *" # has the dot product only
arm cortex-a72 -tc="matmul: every format" # has neither: the generic kernels
# Each CPU gets the right kernels, and they give the expected bits.
got() {
    said=$(arm "$1" -tc="simd: matmul*") || { echo "$said"; exit 1; }
    echo "$said" | grep -q "kernels: $2\$" || { echo "$1 did not get the kernels '$2'"; exit 1; }
}
got max i8mm
got cortex-a76 neon
got cortex-a72 generic
export KNAPSACK_CPU=neon
got max neon
