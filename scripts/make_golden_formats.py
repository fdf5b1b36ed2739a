#!/usr/bin/env python3
"""Writes tests/backends/golden_formats.h: blocks of every weight format with their values.

The values come from an independent decoder.

The decoder is the `gguf` package from PyPI (0.19 was used):
    pip install gguf && python3 scripts/make_golden_formats.py > tests/backends/golden_formats.h
"""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

# Offsets of the f16 scales of a block. Every other byte is random.
SCALES = {
    "Q8_0": [0],
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
}
# The scales of each block: usual, negative, largest, subnormal. Some formats use the second scale.
SMALL_BLOCKS = [(0x2A3D, 0xA9C4), (0xA877, 0x3155), (0x7BFF, 0xFBFE), (0x8001, 0x0003)]
LARGE_BLOCKS = [(0x2A3D, 0x2E71), (0xFBFF, 0xB402)]
PLAIN = {
    "F32": np.array(
        [
            0,
            0x80000000,
            0x3F800001,
            0xBF7FFFFF,
            1,
            0x80000001,
            0x7F7FFFFF,
            0x7F800000,
            0xFF800000,
            0x7FC00000,
        ],
        np.uint32,
    ),
    "F16": np.array(
        [0, 0x8000, 0x3C01, 0xBBFF, 1, 0x83FF, 0x7BFF, 0x7C00, 0xFC00, 0x7E00], np.uint16
    ),
    "BF16": np.array(
        [0, 0x8000, 0x3F81, 0xBF7F, 1, 0x8001, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0], np.uint16
    ),
}
NAMES = ["F32", "F16", "BF16", *SCALES]


def blocks_of(name, rng):
    if name in PLAIN:
        return PLAIN[name].view(np.uint8).reshape(len(PLAIN[name]), -1)
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    scales = SMALL_BLOCKS if block == 32 else LARGE_BLOCKS
    blocks = rng.integers(0, 256, (len(scales), size), np.uint8)
    for row, halves in zip(blocks, np.array(scales, np.uint16)):
        for at, half in zip(SCALES[name], halves):
            row[at : at + 2] = half.reshape(1).view(np.uint8)
    return blocks


def print_array(kind, name, values, pattern, per_line):
    print(f"static const {kind} {name}[] = {{")
    for i in range(0, len(values), per_line):
        print("    " + "".join(pattern % v for v in values[i : i + per_line]))
    print("};")


def main():
    rng = np.random.default_rng(20260)
    print(
        "// Made by scripts/make_golden_formats.py: do not edit. Blocks as they are in a file, and "
        "the f32 bits of their values."
    )
    print("#pragma once\n\n#include <cstdint>\n")
    for name in NAMES:
        blocks = blocks_of(name, rng)
        values = (
            np.ascontiguousarray(dequantize(blocks, GGMLQuantizationType[name]))
            .view(np.uint32)
            .ravel()
        )
        print(
            f"static const uint32_t golden_{name.lower()}_type = {int(GGMLQuantizationType[name])};"
        )
        print_array("uint8_t", f"golden_{name.lower()}_bytes", blocks.ravel(), "%d,", 32)
        print_array("uint32_t", f"golden_{name.lower()}_values", values, "0x%x,", 12)


if __name__ == "__main__":
    main()
