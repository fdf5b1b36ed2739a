#!/usr/bin/env bash
# Fuzzes with libFuzzer and the sanitizers, one process per target.
#     fuzz.sh [TARGET|all] [SECONDS|-runs=N] [OPTIONS OF LIBFUZZER]
# PLAIN=1 runs without sanitizers, which is five times as fast. Inputs that reach new code are kept
# in build-fuzz/corpus/TARGET. The next run starts from them. An input that crashes, takes a second
# of CPU time, or allocates 64 MiB at once ends the run. It is saved there as crash-*, timeout-* or
# oom-*. Fix the fault and put the input into tests/fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/packages.sh

targets=${1:-all} length=${2:-60}
[ "$targets" != all ] || targets="gguf tokenizer template answer grammar recipe session"
case $length in -runs=*) ;; *) length=-max_total_time=$length ;; esac

# shellcheck disable=SC2154,SC2086
install_packages $build_packages $fuzz_packages $test_packages
folder=build-fuzz plain=()
[ -z "${PLAIN:-}" ] || folder=build-fuzz-plain plain=(-DKS_SANITIZE=)
# Builds only the fuzzers: without a sanitizer's runtime, other programs lack libFuzzer's hooks and
# do not link.
# shellcheck disable=SC2086
build_only=$(printf 'fuzz_%s ' $targets)
build_into "$folder" --preset fuzz "${plain[@]}" -B "$folder"
for target in $targets; do
    found=build-fuzz/corpus/$target options=()
    mkdir -p "$found"
    [ ! -f "tests/fuzz/$target.dict" ] || options=("-dict=tests/fuzz/$target.dict")
    case $target in
        recipe) most=256 ;;
        tokenizer) most=128 ;;
        answer | grammar) most=512 ;;
        gguf) most=24000 ;;
        *) most=8192 ;;
    esac
    echo "== $target" >&2
    "$folder"/fuzz_"$target" "$found" "tests/fuzz/corpus/$target" "$length" -max_len=$most \
        -timeout=20 -malloc_limit_mb=64 -rss_limit_mb=2048 \
        "-artifact_prefix=$found/" -print_final_stats=1 "${options[@]}" "${@:3}"
done
