#!/bin/sh
# The op harness on the Vulkan devices of this machine: all ops, but only those cases that need few variants of a shader.
#     vulkan.sh TEST_BACKENDS KNAPSACK
set -eu
if ! "$2" devices | grep -q '^ *vulkan:'; then
    echo "skipped: there is no Vulkan device here"
    exit 77
fi
export KS_TEST_VULKAN=1
"$1" -tc="embed,rmsnorm,rope,rotate,glu,add,softcap,kv_write,argmax,attention: head sizes and groups"
