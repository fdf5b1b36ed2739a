#!/usr/bin/env bash
# Fuzzes with libFuzzer under the sanitizers, one process a target.  fuzz.sh [TARGET|all] [SECONDS|-runs=N] [MORE OPTIONS OF LIBFUZZER]
# PLAIN=1 leaves the sanitizers out and gets through five times as many.
# What it finds on its way stays in build-fuzz/corpus/TARGET, from where the next run goes on; an input that crashes, takes a second of the processor or
# allocates 64 MiB at once ends the run and is left there as crash-*, timeout-*, oom-*: fix the fault and put it into tests/fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/packages.sh

targets=${1:-all} length=${2:-60}
[ "$targets" != all ] || targets="gguf tokenizer chat recipe session"
case $length in -runs=*) ;; *) length=-max_total_time=$length ;; esac

# shellcheck disable=SC2154,SC2086
install_packages $build_packages $fuzz_packages $test_packages
folder=build-fuzz plain=()
[ -z "${PLAIN:-}" ] || folder=build-fuzz-plain plain=(-DKS_SANITIZE=)
# The fuzzers alone: without the sanitizers' runtime nothing else has libFuzzer's hooks.
# shellcheck disable=SC2086
build_only=$(printf 'fuzz_%s ' $targets) build_into "$folder" --preset fuzz "${plain[@]}" -B "$folder"
for target in $targets; do
    found=build-fuzz/corpus/$target options=()
    mkdir -p "$found"
    [ ! -f "tests/fuzz/$target.dict" ] || options=("-dict=tests/fuzz/$target.dict")
    case $target in recipe) most=256 ;; tokenizer) most=128 ;; chat) most=512 ;; *) most=8192 ;; esac
    echo "== $target" >&2
    "$folder"/fuzz_"$target" "$found" "tests/fuzz/corpus/$target" "$length" -max_len=$most -timeout=20 -malloc_limit_mb=64 -rss_limit_mb=2048 \
        "-artifact_prefix=$found/" -print_final_stats=1 "${options[@]}" "${@:3}"
done
