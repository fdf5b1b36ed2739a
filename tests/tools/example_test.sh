#!/usr/bin/env bash
# Tests the C example: it answers inside its budget, and prints one clear sentence if the budget is
# too small.
set -u
example=$(dirname "$1")/example_minimal
model=${KNAPSACK_TEST_MODEL:-models/smollm2.gguf}
[ -f "$model" ] || { echo "skipped: there is no $model"; exit 77; }
text=$("$example" "$model" 160 "The capital of France is") || { echo "FAILED: exit $?"; exit 1; }
case $text in *Paris*) ;; *) echo "FAILED: no Paris in '$text'"; exit 1 ;; esac
error=$("$example" "$model" 64 "Hello" 2>&1 >/dev/null)
code=$?
if [ "$code" != 4 ] || [[ $error != *"needs at least"* ]]; then
    echo "FAILED: expected exit 4 and the smallest budget, found exit $code: $error"
    exit 1
fi
