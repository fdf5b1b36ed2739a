#!/bin/sh
# Checks that the given build finds every fault of faults.cpp that it should find, and that correct
# kernels pass.
#     faults.sh TEST_CUDA_FAULTS plain|address|race
set -eu
program=$1 build=$2
export TSAN_OPTIONS=atexit_sleep_ms=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT
n=0
"$program" >"$out.list"
while read -r fault finder; do
    # All three orders, because a race may show in one of them only.
    found=no
    for order in fwd rev rand:1; do
        code=0
        CUDASHIM_ORDER=$order "$program" "$fault" >"$out" 2>&1 || code=$?
        if [ "$code" != 0 ]; then found=yes; fi
    done
    if [ "$finder" = nobody ] && [ "$found" = yes ]; then
        echo "$fault has no fault, but:"
        cat "$out"
        exit 1
    fi
    [ "$finder" = "$build" ] || continue
    [ "$found" = yes ] || { echo "$fault was not found"; exit 1; }
    n=$((n + 1))
done <"$out.list"
rm -f "$out.list"
echo "$n faults found"
[ "$n" != 0 ]
