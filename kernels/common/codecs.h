// The codecs of cached keys and values. A codec makes a fixed number of bytes of a row, which is
// the head_dim values of one head and one token. Codecs of GROUP_CODECS code a group of
// neighbouring rows together. All others code each row by itself.
//
// A row is row_bytes(d) bytes: whole 32-bit words, and a tail of 0 to 3 bytes. Bit b of a row is
// bit b % 32 of word b / 32. For this the tail counts as one more word, low byte first. n rows are
// stored in two planes:
//   n * words words, row after row;  then n * tail bytes;  then zeros up to a multiple of 64 bytes.
// A group of rows is whole words, and group follows group. Group r of a pool has rows r * group to
// r * group + group - 1.
//
// Codes of 4, 2 and 1 bits are in planes. A plane has groups of 64 dims, so that under each shift a
// load of eight words has eight neighbouring dims. A group of n dims of b bits is W = n * b / 32
// words (at least one), and field k of word w is dim W * k + w:
//   4 bits: nibble k of word w (of 8) is dim 8k + w; 2 bits: 4 words, dim 4k + w; 1 bit: 2 words,
//   dim 2k + w.
// The dims after the last whole group are in groups of 32, of 16 and (angles only) of 8. d is a
// multiple of 16.
//
// All machines get the same bits: every decision compares float products and sums of a stated
// order. None depends on a quotient, a root or a table that differs between machines. Products that
// are added go through MUL. A sum over a row has eight parts: part j adds the dims i % 8 == j in
// order. The sum is ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)).
// Every input has a code: NaN and magnitudes below 2^-60 count as 0, magnitudes above 65504 and
// infinities as 65504. Scales are at most 65504. A scale that rounds to 0 gives a row (or block) of
// zeros, with the codes that zeros have.
//
// Codecs with hadamard = 1 expect rows that were multiplied by H D (hadamard_sign below). Their
// constants are for such rows.
#ifndef KS_COMMON_CODECS_H
#define KS_COMMON_CODECS_H

#include "kernels/common/lang.h"

CONST uint codec_max_dim = 576u;

// The value that is coded in place of x.
FN float coded_value(float x)
{
    uint magnitude = FLOAT_TO_BITS(x) & 0x7fffffffu;
    if (magnitude < 0x21800000u || magnitude > 0x7f800000u) return 0.f; // 2^-60, NaN
    if (magnitude > 0x477fe000u) return x < 0.f ? -65504.f : 65504.f;
    return x;
}

// +1 or -1: the diagonal of D, by which dim i is multiplied before the Walsh-Hadamard transform.
// The transform of equal values stays below 2.5 times their magnitude, in blocks of 16 to 256.
FN float hadamard_sign(uint i)
{
    uint h = (i + 582u) * 0x9e3779b1u;
    h = (h ^ (h >> 15)) * 0x85ebca77u;
    return ((h ^ (h >> 13)) >> 31) != 0u ? -1.f : 1.f;
}

// The transform's block that begins at dim `base`: the largest power of two that ends within d. 80
// dims are blocks of 64 and 16.
FN uint hadamard_block(uint base, uint d)
{
    uint block = 1u;
    while (2u * block <= d - base) block *= 2u;
    return block;
}

// 1 / sqrt(block): the factor of a block's sums.
FN float hadamard_scale(uint block)
{
    float scale = 1.f;
    for (uint n = block; n >= 4u; n /= 4u) scale *= 0.5f;
    return (block & 0x2aaaaaaau) != 0u ? scale * 0.70710678f : scale; // an odd power of two
}

FN float sum_of_octet(const float s[8])
{
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// One of four constants, or of eight. A table is no alternative: a shader that indexes one copies
// all of it at every call.
FN float one_of(uint i, float a, float b, float c, float d)
{
    return (i & 2u) != 0u ? ((i & 1u) != 0u ? d : c) : (i & 1u) != 0u ? b : a;
}
FN float one_of(uint i, float a, float b, float c, float d, float e, float f, float g, float h)
{
    return (i & 4u) != 0u ? one_of(i, e, f, g, h) : one_of(i, a, b, c, d);
}

// The bit of a plane of n dims at which the field of dim i begins. Fields have 4, 2 or 1 bits.
FN uint plane_bit(uint i, uint n, uint bits)
{
    if (n % 64u == 0u || n == 32u) { // whole groups need no loop
        uint whole = n == 32u ? 32u : 64u, width = whole * bits / 32u, place = i % whole;
        return i / whole * whole * bits + 32u * (place % width) + bits * (place / width);
    }
    uint base = i & ~63u, group = 64u, left = n - base;
    while (left < group || i >= base + group) {
        if (left >= group) {
            base += group;
            left -= group;
        }
        group /= 2u;
    }
    uint words = group * bits >= 32u ? group * bits / 32u : 1u;
    return base * bits + 32u * ((i - base) % words) + bits * ((i - base) / words);
}

// The field under `mask` at a bit of the row whose words begin at `at`. tail: the row's tail as one
// word.
FN uint row_field(WORDS_PARAM uint at, uint tail, uint row_bytes, uint bit, uint mask)
{
    uint word = bit / 32u < row_bytes / 4u ? WORD(at + bit / 32u) : tail;
    return (word >> (bit & 31u)) & mask;
}

FN void put_field(ROW_PARAM uint bit, uint value) { ROW_WORD(bit / 32u) |= value << (bit & 31u); }

FN void clear_row(ROW_PARAM uint row_bytes)
{
    for (uint i = 0u; 4u * i < row_bytes; i++) ROW_WORD(i) = 0u;
}

// The middle between a half (not 0, finite) and the half before it. Exact.
FN float half_middle(uint h) { return 0.5f * (HALF_TO_FLOAT(h - 1u) + HALF_TO_FLOAT(h)); }

// The half nearest to sqrt(a / b), 65504 at most: the last one whose middle m has m^2 b <= a.
// Neither a nor b is negative.
FN uint half_root(float a, float b)
{
    uint h = FLOAT_TO_HALF(sqrt(a / b)); // a guess
    h = h > 0x7bffu ? 0x7bffu : h;
    while (h < 0x7bffu && MUL(MUL(half_middle(h + 1u), half_middle(h + 1u)), b) <= a) h++;
    while (h > 0u && MUL(MUL(half_middle(h), half_middle(h)), b) > a) h--;
    return h;
}

// The half nearest to a / b, 65504 at most: the last one whose middle m has m b <= a. Neither a nor
// b is negative.
FN uint half_quotient(float a, float b)
{
    uint h = FLOAT_TO_HALF(a / b); // a guess
    h = h > 0x7bffu ? 0x7bffu : h;
    while (h < 0x7bffu && MUL(half_middle(h + 1u), b) <= a) h++;
    while (h > 0u && MUL(half_middle(h), b) > a) h--;
    return h;
}

// The k <= max_k nearest to x / scale, the larger of two equally near. 0 for a scale of 0. The
// scale is a half, so the products are exact.
FN uint nearest_multiple(float x, float scale, uint max_k)
{
    if (scale == 0.f) return 0u;
    float guess = x / scale + 0.5f;
    uint k = guess < float(max_k) ? uint(guess) : max_k;
    if (k < max_k && (float(k) + 0.5f) * scale <= x) k++;
    if (k > 0u && (float(k) - 0.5f) * scale > x) k--;
    return k;
}

// To add a codec: codecs/NAME.h, one include and one entry here. A codec of rows has hadamard,
// row_bytes, value and encode. A codec of groups has hadamard, group, group_words, value and
// encode. An entry has a name and the next number. Number 0 is f32, 1 is f16.
#include "kernels/common/codecs/kivi.h"
#include "kernels/common/codecs/polar.h"
#include "kernels/common/codecs/q4.h"
#include "kernels/common/codecs/q8.h"
#include "kernels/common/codecs/turbo.h"

#define CODECS(X) \
    X(q8, 2u) X(q4, 3u) X(turbo4, 4u) X(turbo3, 5u) X(turbo2, 6u) X(turbo2v, 7u) X(polar, 8u) \
    X(kiviv, 9u)
#define GROUP_CODECS(X) X(kivi, 10u) X(kivi2, 11u)

#endif
