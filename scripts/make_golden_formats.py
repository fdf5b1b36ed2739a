#!/usr/bin/env python3
"""Writes tests/backends/golden_formats.h: blocks of every weight format with their values.

The values come from independent decoders. Of a thousand more blocks, which reach every entry of a
grid, only a checksum is written.

The decoders are the `gguf` package (0.19 was used) and, for Q1_0 and Q2_0, libggml-base of
llama-cpp-python (0.3.36). Both are on PyPI:
    pip install gguf llama-cpp-python
    python3 scripts/make_golden_formats.py LIBGGML > tests/backends/golden_formats.h
LIBGGML is llama_cpp/lib/libggml-base.so in the folder of Python's packages.
"""

import ctypes
import sys
import zlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

# GGUF type, values and bytes of a block of the formats that libggml decodes.
OF_LIBGGML = {"Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18)}

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
    "IQ2_XXS": [0],
    "IQ2_XS": [0],
    "IQ2_S": [0],
    "IQ3_XXS": [0],
    "IQ3_S": [0],
    "MXFP4": [],
    "Q1_0": [0],
    "Q2_0": [0],
    "NVFP4": [],
    "TQ1_0": [52],
    "TQ2_0": [64],
    "IQ1_S": [0],
    "IQ1_M": [],
}
# The scales of each block: usual, negative, largest, subnormal. Some formats use the second scale.
SMALL_BLOCKS = [(0x2A3D, 0xA9C4), (0xA877, 0x3155), (0x7BFF, 0xFBFE), (0x8001, 0x0003)]
LARGE_BLOCKS = [(0x2A3D, 0x2E71), (0xFBFF, 0xB402)]
GRID_BLOCKS = [(0x2A3D,), (0x8000,), (0x83FF,)]  # usual, minus zero, subnormal
EXPONENTS = [0, 1, 2, 120, 127, 254, 255]  # MXFP4's first byte
# NVFP4's scales: zeros, subnormals, the least and the largest normal ones, the top bit set.
FOUR_SCALES = [(0, 127, 1, 7), (8, 126, 56, 63), (128, 255, 129, 0x3A)]
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


def type_of(name):
    """GGUF type, values and bytes of a block."""
    if name in OF_LIBGGML:
        return OF_LIBGGML[name]
    number = GGMLQuantizationType[name]
    return int(number), *GGML_QUANT_SIZES[number]


def put_iq1_m_half(block, half):
    """IQ1_M has an f16 in the high four bits of four scales."""
    for i in range(4):
        block[49 + 2 * i] = block[49 + 2 * i] & 15 | (half >> 4 * i & 15) << 4


def blocks_of(name, rng):
    if name in PLAIN:
        return PLAIN[name].view(np.uint8).reshape(len(PLAIN[name]), -1)
    _, block, size = type_of(name)
    if name == "MXFP4":
        blocks = rng.integers(0, 256, (len(EXPONENTS), size), np.uint8)
        blocks[:, 0] = EXPONENTS
        return blocks
    if name == "NVFP4":
        blocks = rng.integers(0, 256, (len(FOUR_SCALES), size), np.uint8)
        blocks[:, :4] = FOUR_SCALES
        return blocks
    scales = SMALL_BLOCKS if block == 32 else LARGE_BLOCKS
    if name.startswith(("IQ1", "IQ2", "IQ3", "Q1", "Q2_0", "TQ")):
        scales = GRID_BLOCKS
    blocks = rng.integers(0, 256, (len(scales), size), np.uint8)
    for row, halves in zip(blocks, np.array(scales, np.uint16)):
        if name == "IQ1_M":
            put_iq1_m_half(row, int(halves[0]))
        for at, half in zip(SCALES[name], halves):
            row[at : at + 2] = half.reshape(1).view(np.uint8)
    return blocks


def decode(name, blocks):
    """The f32 bits of the values."""
    if name in OF_LIBGGML:
        values = np.empty(len(blocks) * OF_LIBGGML[name][1], np.float32)
        row = np.ascontiguousarray(blocks)
        decoder = getattr(ctypes.CDLL(sys.argv[1]), f"dequantize_row_{name.lower()}")
        decoder(
            row.ctypes.data_as(ctypes.c_void_p),
            values.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_int64(values.size),
        )
        return values.view(np.uint32)
    with np.errstate(all="ignore"):
        values = dequantize(blocks, GGMLQuantizationType[name])
    return np.ascontiguousarray(values).view(np.uint32).ravel()


def many_blocks(name):
    """A thousand blocks of hashed bytes; formats_test.cpp makes the same. Scales are 1."""
    size = type_of(name)[2]
    at = np.arange(1000 * size, dtype=np.uint32)
    hashed = at * np.uint32(2654435761)
    hashed = (hashed ^ hashed >> np.uint32(15)) * np.uint32(2246822519)
    blocks = (hashed >> np.uint32(24)).astype(np.uint8).reshape(1000, size)
    for offset in SCALES[name]:
        blocks[:, offset : offset + 2] = (0x00, 0x3C)
    for row in blocks if name == "IQ1_M" else ():
        put_iq1_m_half(row, 0x3C00)
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
        values = decode(name, blocks)
        print(f"static const uint32_t golden_{name.lower()}_type = {type_of(name)[0]};")
        print_array("uint8_t", f"golden_{name.lower()}_bytes", blocks.ravel(), "%d,", 32)
        print_array("uint32_t", f"golden_{name.lower()}_values", values, "0x%x,", 12)
    print("\n// The CRC32 of the values of a thousand blocks, and the offsets of their scales.")
    print("struct GoldenMany {\n    uint32_t type, crc;\n    int scales[2]; // -1: none\n};")
    print("static const GoldenMany golden_many[] = {")
    for name, scales in SCALES.items():
        crc = zlib.crc32(decode(name, many_blocks(name)).tobytes())
        first, second = [*scales, -1, -1][:2]
        print(f"    {{{type_of(name)[0]}, 0x{crc:08x}, {{{first}, {second}}}}}, // {name}")
    print("};")


if __name__ == "__main__":
    main()
