#!/usr/bin/env bash
# Runs the program, the examples and the unit tests of a release build with Memcheck.
#     valgrind.sh [BUILD_FOLDER]
# Fails on an invalid access, a use of uninitialised memory or a leak. Takes some minutes; skips
# tests that would take hours.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build} model=$(mktemp -d)
trap 'rm -rf "$model"' EXIT
export KNAPSACK_CPU=${KNAPSACK_CPU:-avx2} # valgrind does not support AVX-512
export VK_ICD_FILENAMES=/dev/null # Vulkan drivers have leaks of their own
PYTHONPATH=tests/tools/lib python3 -c \
    'import sys, tiny_model; tiny_model.write_model(sys.argv[1])' "$model/m.gguf"

check() {
    echo "== ${*##*/}" >&2
    valgrind -q --error-exitcode=99 --leak-check=full \
        --errors-for-leak-kinds=definite,indirect,possible "$@" >"$model/out" 2>&1 ||
        { cat "$model/out"; exit 1; }
}
recipes="exact mix,slots=48,recent=8,victims=merge turbo4 tokenselect,read=32 kivi,slots=96"
for recipe in $recipes subgen,slots=64; do
    check "$build/knapsack" plan -m "$model/m.gguf" --kv "$recipe" --device cpu
    for _ in saved resumed; do
        check "$build/knapsack" run -m "$model/m.gguf" -p "hello world" -n 40 --ignore-eos \
            --kv "$recipe" --device cpu -t 2 --session "$model/s"
    done
    printf 'hello\n/memory\n/save %s\n/load %s\n/regen\nagain\n' "$model/t" "$model/t" |
        check "$build/knapsack" chat -m "$model/m.gguf" --kv "$recipe" --device cpu -t 2 -n 20
    rm -f "$model"/[st]
done
check "$build/example_minimal" "$model/m.gguf" 64 hello
printf 'hello\nagain\n' | check "$build/example_chat" "$model/m.gguf" 64 sink,slots=64,recent=16
check "$build/example_budget" "$model/m.gguf" 64 200 hello
slow="*million*,victims*,budget*" # tests that take minutes even without valgrind
for test in ${tests-base text model}; do
    check "$build/test_$test" "-tce=$slow"
done
