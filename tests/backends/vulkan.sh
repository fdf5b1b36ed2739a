#!/bin/sh
# What Vulkan's devices make of the tests of ops, caches and models. Shaders are compiled as they are met, so what needs few of them
# is run at every width of lavapipe's subgroups and on devices that are pretended; KS_TEST_VULKAN=1 test_backends is the whole of it.
#     vulkan.sh TEST_BACKENDS TEST_KV TEST_MODEL KNAPSACK
set -eu
if ! "$4" devices | grep -q '^ *vulkan:'; then
    echo "skipped: there is no Vulkan device here"
    exit 77
fi
export KS_TEST_VULKAN=only
few="embed,rmsnorm,rope,rotate,glu,add,softcap,argmax,matmul: targets*,attention: head sizes and groups"
"$1" -tc="$few,vulkan*,kv_write,kv_read*,kv_score,attention: tables*,attention: keys*"
"$2" -tc="select: a step*,select: pages*,select: blocks*,select: of equal*,positions=*"
"$3" -tc="model*"
for bits in 128 512; do LP_NATIVE_VECTOR_WIDTH=$bits "$1" -tc="$few"; done
for device in tiny_discrete pi5; do KNAPSACK_VULKAN_LIMITS=$device "$1" -tc="$few"; done
