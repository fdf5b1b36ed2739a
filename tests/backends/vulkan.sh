#!/bin/sh
# What Vulkan's devices make of the tests of ops, caches and models. Each of their shaders is compiled when it is first met,
# which is most of the time, so some are run at all widths of lavapipe's subgroups and on pretended devices, too, and none of the
# tests with many codecs. tests/backends/vulkan_all.sh is the whole of it.
#     vulkan.sh FOLDER_OF_THE_TEST_PROGRAMS [faults]
# faults: only that the n-th call of the driver may fail, for all n.
set -eu
if ! "$1/knapsack" devices | grep -q '^ *vulkan:'; then
    echo "skipped: there is no Vulkan device here"
    exit 77
fi
export KS_TEST_BACKEND=vulkan
# Mesa's own cache stays; what other tests needed is not made in the background of this one.
export MESA_SHADER_CACHE_DIR="${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}" XDG_CACHE_HOME=/dev/null
[ "${2:-}" != faults ] || exec "$1/test_faults" -tc="faults: the n-th call of a GPU*"
few="embed,rmsnorm,rope,rotate,glu,add,softcap,argmax,matmul: targets*,attention: head sizes and groups"
"$1/test_backends" -tc="$few,vulkan*,kernel times*,kv_write,kv_score"
"$1/test_kv" -tc="select: pages*,select: of equal*"
"$1/test_model" -tc="model: every*,pinned*"
"$1/test_api" -tc="C API: tokens are fed*"
for bits in 128 512; do LP_NATIVE_VECTOR_WIDTH=$bits "$1/test_backends" -tc="embed,rmsnorm,matmul: targets*,attention: cache formats*"; done
KNAPSACK_VULKAN_LIMITS=coarse "$1/test_model" -tc="model: every*"
KNAPSACK_VULKAN_LIMITS=pi5 "$1/test_backends" -tc="matmul: targets*,attention: head sizes and groups"
for way in dots halves sums matrices; do # where the device has it; otherwise as a Pi 5
    KNAPSACK_VULKAN_LIMITS=$way "$1/test_backends" -tc="rmsnorm,matmul: targets*,matmul: inputs*,attention: head sizes and groups"
done
KNAPSACK_VULKAN_LIMITS=sums "$1/test_backends" -tc="attention: few*,attention: many*,kernel times*"
KNAPSACK_VULKAN_LIMITS=fast "$1/test_model" -tc="model: every*"
KNAPSACK_VULKAN_LIMITS=tiny_discrete "$1/test_backends" -tc="embed,matmul: targets*,attention: cache formats*"
