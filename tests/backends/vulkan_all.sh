#!/bin/bash
# Runs all tests of Vulkan devices. On two cores lavapipe takes hours, most of them for compiling
# shaders.
# tests/backends/vulkan.sh is the part that ctest runs.
#     vulkan_all.sh FOLDER_OF_THE_TEST_PROGRAMS [PART ...]
# PARTs, default all of them:
#   ops     the op harness
#   widths  ops and victims with subgroups of 4 and 16 on lavapipe
#   limits  ops and victims with pretended device limits
#   faster  ops and victims with each optional feature beyond Vulkan 1.1 that the device has, and
#           with all of them
#   cache   codes, victims and selected slots equal the reference's; sessions move between devices
#   layers  ops under the validation layers: synchronisation, then GPU-assisted. Any message is a
#           fault.
set -eu
bin=$1
shift
export KS_TEST_BACKEND=vulkan
# Mesa's shader cache is kept. The program's list of used pipelines is not, so no pipelines of other
# tests are built in the background.
export MESA_SHADER_CACHE_DIR="${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}" XDG_CACHE_HOME=/dev/null
[ $# -gt 0 ] || set -- ops cache widths limits faster layers

say() { echo "== $(date +%T) ${LP_NATIVE_VECTOR_WIDTH:-} ${KNAPSACK_VULKAN_LIMITS:-} $*"; }
ops() { # in parts, so that a run with a time limit shows its progress
    local tests
    for tests in "embed,norm*,rope,hadamard*,glu*,add,scale,copy_cols,softcap,argmax" \
        "buffers*,registry*,scratch*,kv_read and kv_move,kv_write,vulkan*" "matmul*" \
        "attention: head*,attention: contexts*,attention: cache*,attention: tables*" \
        "attention: slots*" "attention: keys*" "attention: *softcap*,select: softcap" "kv_score*" \
        "codecs: kv_write" ${1:+"$1"}; do
        say "$tests"
        "$bin/test_backends" -tce="*times,perf*" -tc="$tests"
    done
}
cache() {
    say "caches"
    "$bin/test_kv" -tc="cache:*,coded*,climb*,groups*,victims*,select:*,positions*"
    KS_PINNED_ALL=1 "$bin/test_model" -tc="model:*,pinned*"
    "$bin/test_api" -tc="session file: saved*,session: the plan*,session: prompt*,sessions: steps*"
    KS_TEST_ALL=1 "$bin/test_faults" -tc="faults: the n-th call of a GPU*"
}
# ways: the features that the program uses on the device.
ways() { "$bin/knapsack" devices | grep -E '^ +(reads|multiplies) '; }
# settings FEATURE LOG: the settings file of the validation layers. Version 1.4 renamed settings.
settings() {
    local names layer=/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json
    if grep -q '"api_version": "1\.[0-3]\.' $layer; then
        names=("enables = VK_VALIDATION_FEATURE_ENABLE_${1}_EXT"
            'gpuav_descriptor_indexing = false' 'report_flags = error,warn')
    elif [ "$1" = GPU_ASSISTED ]; then
        names=('gpuav_enable = true' 'validate_core = false' 'report_flags = error')
    else
        names=('validate_sync = true' 'report_flags = error,warn')
    fi
    printf 'khronos_validation.%s\n' "${names[@]}" \
        'debug_action = VK_DBG_LAYER_ACTION_LOG_MSG' "log_filename = $2"
}
# page_zero FILE: builds a library for LD_PRELOAD that makes address 0 readable (needs root).
# Since 1.4, GPU-assisted validation dereferences null addresses in inactive threads of lavapipe.
page_zero() {
    printf '%s\n' '#include <sys/mman.h>' '__attribute__((constructor)) static void map(void) {' \
        'mmap((void *)0, 1 << 16, PROT_READ, MAP_FIXED | MAP_ANONYMOUS | MAP_PRIVATE, -1, 0); }' |
        cc -shared -fPIC -x c -o "$1" -
}
layers() {
    local folder log feature preload=
    folder=$(mktemp -d) log=$folder/log
    # GPU-assisted validation before 1.4 makes shaders so large that lavapipe takes hours to compile
    # matmul and attention. GALLIVM_PERF=nopt saves most of the time. Descriptor indexes need no
    # check, because a shader has as many descriptors as it declares.
    for feature in SYNCHRONIZATION_VALIDATION GPU_ASSISTED; do
        settings $feature "$log" >"$folder/settings.txt"
        : >"$log"
        say "$feature"
        if [ $feature = GPU_ASSISTED ]; then
            export GALLIVM_PERF=nopt
            page_zero "$folder/page_zero.so"
            preload=$folder/page_zero.so
        fi
        LD_PRELOAD=$preload VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation \
            VK_LAYER_SETTINGS_PATH=$folder/settings.txt ops
        [ ! -s "$log" ] || { head -50 "$log"; exit 1; }
    done
    rm -r "$folder"
}

for part; do
    case $part in
    ops) ops "codecs: kv_move*,kivi: kv_move*" ;;
    cache) cache ;;
    widths) for bits in 128 512; do
        export LP_NATIVE_VECTOR_WIDTH=$bits
        ops
        KS_TEST_ROUNDS=10 "$bin/test_kv" -tc="victims*"
    done
        unset LP_NATIVE_VECTOR_WIDTH ;;
    # Not tiny_discrete, whose ranges are too small for activations (see vulkan.sh).
    limits) for name in pi5 mali dozen coarse; do
        export KNAPSACK_VULKAN_LIMITS=$name
        ops
        KS_TEST_ROUNDS=10 "$bin/test_kv" -tc="victims*"
    done
        unset KNAPSACK_VULKAN_LIMITS ;;
    faster) for name in int8_dot f16 subgroup_reduce matrices fast; do
        export KNAPSACK_VULKAN_LIMITS=$name
        if [ "$(ways)" = "$(KNAPSACK_VULKAN_LIMITS=pi5 ways)" ]; then
            say "skipped: the device has none of it"
            continue
        fi
        ops
        KS_TEST_ROUNDS=10 "$bin/test_kv" -tc="victims*"
    done
        unset KNAPSACK_VULKAN_LIMITS ;;
    layers) layers ;;
    *) echo "no part $part" && exit 1 ;;
    esac
done
