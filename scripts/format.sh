#!/usr/bin/env bash
# Formats the sources as scripts/check.py requires. The headers of kernels/common are formatted by
# hand.
set -euo pipefail
cd "$(dirname "$0")/.."
find kernels runtime backends tools tests examples \
    \( -name '*.h' -o -name '*.cpp' -o -name '*.c' -o -name '*.cu' -o -name '*.cuh' \) \
    ! -path 'kernels/common/*' ! -name '*golden*' -exec clang-format -i {} +
