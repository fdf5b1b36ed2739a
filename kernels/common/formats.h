// The weight formats. A format is a lossless re-layout of GGUF's block of the same name. Every bit
// is kept, the bytes are the file's, and everything is addressed in aligned 32-bit words.
//
// Weights are stored in tiles of eight rows. A tile holds the blocks of its rows side by side:
//   tile(row / 8), then block(k / block), then the fields of this block for all eight rows:
//     if the block has one f16 outside its words (half): 4 words, row r's half in word r / 2, bits
//     16 * (r & 1). A block of MXFP4 has a byte instead: 2 words, row r's in word r / 4
//     then for each word j of the block, in file order: 8 words, one per row. Words that
//     permuted_word names have their bits in another order, which the format's header states. All
//     other words are the file's
// So word j of row r of a tile-block that begins at word `at` is
//   WORD(at + half_words + 8 * j + r)
// One 32-byte load is the same word of eight rows: a CPU's vector, a warp's coalesced read. Four
// consecutive values of k are in one word. Rows are padded to a multiple of eight with zero bytes.
//
// The struct of a format has these members. Offsets are bytes in the block of the file.
//   block          values of a block
//   half_words     4 if the block has an f16 outside its words, 2 if it has a byte there, else 0
//   half_byte      the offset of this f16 or byte
//   words          words of one row
//   words_byte     the offset of the words
//   permuted_word  the word whose bits weight_to_tiles permutes; permuted_bits, permuted_pairs: all
//                  words, by bits or by pairs of bits; 0xffffffff: none
//   value(at, r, k) is value k of row r of a tile-block at word `at`. In formats of single values k
//   may extend into the following blocks
//
// To add a format: formats/NAME.h, one include and one entry here.
#ifndef KS_COMMON_FORMATS_H
#define KS_COMMON_FORMATS_H

#include "kernels/common/lang.h"

CONST uint tile_rows = 8u;
CONST uint permuted_bits = 0xfffffffeu;
CONST uint permuted_pairs = 0xfffffffdu;

#define TILE_WORD(j, r) WORD(at + half_words + 8u * (j) + (r))
#define TILE_HALF_BITS(r) ((WORD(at + (r) / 2u) >> (16u * ((r) & 1u))) & 0xffffu)
#define TILE_HALF(r) HALF_TO_FLOAT(TILE_HALF_BITS(r))
#define TILE_BYTE(r) ((WORD(at + (r) / 4u) >> (8u * ((r) & 3u))) & 0xffu)

// The sixteen levels of iq4_nl and iq4_xs:
// -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113
FN int iq4_level(uint q)
{
    uint four_levels = q < 4u    ? 0xbfad9881u
                       : q < 8u  ? 0xf6eaddcfu
                       : q < 12u ? 0x26190d01u
                                 : 0x71594535u;
    return int(four_levels << (24u - 8u * (q & 3u))) >> 24;
}

// Twice the sixteen values of E2M1: 0 1 2 3 4 6 8 12, and their negatives.
FN int e2m1_level(uint q)
{
    int magnitude = int(0xc8643210u >> (4u * (q & 7u)) & 15u);
    return (q & 8u) != 0u ? -magnitude : magnitude;
}

// Formats with a grid (IQ1, IQ2, IQ3) have two more functions:
//   grid_levels(at, r, j)  the signed bytes q of values 4j .. 4j + 3
//   grid_scale(at, r, g)   w / q of values 16g .. 16g + 15

// The four levels of half j & 1 of an entry of an IQ2 grid: 8, 25 or 43.
FN uint iq2_levels(uint entry, uint j)
{
    uint q = entry >> (8u * (j & 1u)) & 255u;
    q = (q | q << 12) & 0x000f000fu;
    q = (q | q << 6) & 0x03030303u;
    return 17u * q + (q >> 1 & 0x01010101u) + 0x08080808u;
}

// Eight times the four values of half j & 1 of an entry of the IQ1 grid, plus 1, or minus 1 if
// `minus` is 1.
FN uint iq1_levels(uint entry, uint j, uint minus)
{
    uint q = entry >> (8u * (j & 1u)) & 255u;
    q = (q | q << 12) & 0x000f000fu;
    q = (q | q << 6) & 0x03030303u;
    return ((q << 3) + (0x79797979u - 0x02020202u * minus)) ^ 0x80808080u;
}

// The four nibbles of an entry of an IQ3 grid in a byte each.
FN uint iq3_nibbles(uint entry)
{
    uint q = (entry | entry << 8) & 0x00ff00ffu;
    return (q | q << 4) & 0x0f0f0f0fu;
}

// The signs of 32 values, 1: negative. A file has seven of every eight, in the low 28 bits of
// `file`. The eighth makes the number of negative values even.
FN uint even_signs(uint file)
{
    uint signs = (file & 0x7fu) | (file << 1 & 0x7f00u) | (file << 2 & 0x7f0000u) |
                 (file << 3 & 0x7f000000u);
    uint odd = signs ^ signs >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return signs | (odd & 0x01010101u) << 7;
}

// Negates byte i where bit i of signs is set. Bytes are in 1..127.
FN uint negate_bytes(uint bytes, uint signs)
{
    uint ones = (signs & 15u) * 0x00204081u & 0x01010101u;
    return (bytes ^ 255u * ones) + ones;
}

#include "kernels/common/formats/f32.h"
#include "kernels/common/formats/f16.h"
#include "kernels/common/formats/bf16.h"
#include "kernels/common/formats/q8_0.h"
#include "kernels/common/formats/q4_0.h"
#include "kernels/common/formats/q4_1.h"
#include "kernels/common/formats/q5_0.h"
#include "kernels/common/formats/q5_1.h"
#include "kernels/common/formats/q2_k.h"
#include "kernels/common/formats/q3_k.h"
#include "kernels/common/formats/q4_k.h"
#include "kernels/common/formats/q5_k.h"
#include "kernels/common/formats/q6_k.h"
#include "kernels/common/formats/iq4_nl.h"
#include "kernels/common/formats/iq4_xs.h"
#include "kernels/common/formats/iq2_xxs.h"
#include "kernels/common/formats/iq2_xs.h"
#include "kernels/common/formats/iq2_s.h"
#include "kernels/common/formats/iq3_xxs.h"
#include "kernels/common/formats/iq3_s.h"
#include "kernels/common/formats/mxfp4.h"
#include "kernels/common/formats/q1_0.h"
#include "kernels/common/formats/q2_0.h"
#include "kernels/common/formats/nvfp4.h"
#include "kernels/common/formats/tq1_0.h"
#include "kernels/common/formats/tq2_0.h"
#include "kernels/common/formats/iq1_grid.h"
#include "kernels/common/formats/iq1_s.h"
#include "kernels/common/formats/iq1_m.h"

#define FORMATS(X)                                                \
    X(f32) X(f16) X(bf16) X(q8_0) X(q4_0) X(q4_1) X(q5_0) X(q5_1) \
    X(q2_k) X(q3_k) X(q4_k) X(q5_k) X(q6_k) X(iq4_nl) X(iq4_xs)   \
    X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs) X(iq3_s) X(mxfp4)    \
    X(q1_0) X(q2_0) X(nvfp4) X(tq1_0) X(tq2_0) X(iq1_s) X(iq1_m)

#endif
