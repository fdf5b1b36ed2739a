#!/bin/sh
# Runs tests of ops, caches and models on the Vulkan devices. Most of the time is spent compiling
# shaders at their first use. So only some tests run with all subgroup sizes of lavapipe and with
# pretended device limits, and no test with many codecs runs. tests/backends/vulkan_all.sh runs
# everything.
#     vulkan.sh FOLDER_OF_THE_TEST_PROGRAMS [faults]
# faults: runs only the test in which the n-th call of the driver fails, for all n.
set -eu
if ! "$1/knapsack" devices | grep -q '^ *vulkan:'; then
    echo "skipped: there is no Vulkan device here"
    exit 77
fi
export KS_TEST_BACKEND=vulkan
# Mesa's shader cache is kept. The program's list of used pipelines is not, so no pipelines of other
# tests are built in the background.
export MESA_SHADER_CACHE_DIR="${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}" XDG_CACHE_HOME=/dev/null
[ "${2:-}" != faults ] || exec "$1/test_faults" -tc="faults: the n-th call of a GPU*"
ops="embed,norm*,rope,hadamard,glu*,add,scale,copy_cols,softcap,argmax,state*,matmul: targets*"
ops="$ops,route,matmul_experts: targets,combine_experts,attention_sinks"
ops="$ops,attention: head sizes and groups,attention: a softcap*,select: softcap"
# lavapipe compiles a shader with the grid of IQ1 for half a minute, so one run has one of them.
KS_TEST_WITHOUT=iq1_s "$1/test_backends" -tc="$ops,vulkan*,kernel times*,kv_write,kv_score"
export KS_TEST_WITHOUT=iq1_s,iq1_m
"$1/test_kv" -tc="select: pages*,select: of equal*"
"$1/test_model" -tc="model: every*,pinned*"
"$1/test_api" -tc="C API: tokens are fed*,sessions: steps on each*"
for bits in 128 512; do
    LP_NATIVE_VECTOR_WIDTH=$bits "$1/test_backends" \
        -tc="embed,norm*,state*,route,matmul_experts: targets,matmul: targets*,attention: cache f*"
done
KNAPSACK_VULKAN_LIMITS=coarse "$1/test_model" -tc="model: every*"
KNAPSACK_VULKAN_LIMITS=pi5 "$1/test_backends" \
    -tc="matmul_experts: targets,matmul: targets*,attention: head sizes and groups"
for way in int8_dot f16 subgroup_reduce matrices; do # a device without the feature runs as a Pi 5
    KNAPSACK_VULKAN_LIMITS=$way "$1/test_backends" \
        -tc="norm*,matmul: targets*,matmul: inputs*,attention: head sizes and groups"
done
# Nearly every one of these cases compiles a shader of its own, so one of each n runs.
KS_TEST_EVERY=27 KNAPSACK_VULKAN_LIMITS=subgroup_reduce "$1/test_backends" -tc="attention: few*"
KS_TEST_EVERY=27 "$1/test_backends" -tc="attention: softcap,kv_score: softcap,matmul: scales"
KS_TEST_EVERY=9 KNAPSACK_VULKAN_LIMITS=subgroup_reduce "$1/test_backends" \
    -tc="attention: many*,kernel times*,state: delta,state: ssm_scan"
KNAPSACK_VULKAN_LIMITS=fast "$1/test_model" -tc="model: every*"
KNAPSACK_VULKAN_LIMITS=tiny "$1/test_api" -tc="session: chunks fit*"
KNAPSACK_VULKAN_LIMITS=tiny_discrete "$1/test_backends" \
    -tc="embed,matmul: targets*,attention: cache formats*"
