#!/bin/sh
# Compiles the headers of kernels/common as GLSL (each format alone, all codecs together) and as
# CUDA. Missing compilers are skipped.
set -eu
cd "$(dirname "$0")/../.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
tried=0

formats=$(sed -e ':join' -e '/\\$/{N;s/\\\n//;b join' -e '}' kernels/common/formats.h |
    sed -n 's/^#define FORMATS(X) //p' | sed 's/X(\([a-z0-9_]*\))/\1/g')
[ -n "$formats" ] || { echo "no list of formats in kernels/common/formats.h"; exit 1; }

glsl() { # OUTPUT SHADER [OPTION]
    output=$1 shader=$2
    shift 2
    glslangValidator -V --target-env vulkan1.1 -I. "$@" -o "$out/$output.spv" \
        "tests/backends/dialect/$shader.comp" >"$out/log" ||
        { echo "GLSL, $output:"; cat "$out/log"; exit 1; }
    [ -s "$out/$output.spv" ]
}
if command -v glslangValidator >/dev/null; then
    for format in $formats; do
        glsl "$format" formats -D"FORMAT_$format"
    done
    glsl codecs codecs
    echo "GLSL: compiled with $formats and the codecs"
    tried=1
else
    echo "GLSL: skipped, there is no glslangValidator"
fi

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [ -x "$nvcc" ]; then
    for file in formats codecs; do
        "$nvcc" -std=c++17 -I. -c -o "$out/$file.o" "tests/backends/dialect/$file.cu"
    done
    echo "CUDA: compiled"
    tried=1
else
    echo "CUDA: skipped, there is no nvcc"
fi
[ "$tried" = 1 ] || exit 77
