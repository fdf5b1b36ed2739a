// Coded rows to f32, many at a time, as attention reads them. Rows of whole groups of 64 values have loops of their own, with
// neither a copy of the row nor a branch; the bits are those of codec_vectors.h, which does all others.
#pragma once

#include "kernels/cpu/kivi_vectors.h"
#include "kernels/cpu/polar_eight.h"
#include "kernels/cpu/vector_math.h"

namespace ks
{

// Bytes of a row from `begin` on, all of them words or all of them tail.
template <class Word> KS_INLINE uint32_t row_bytes_at(const uint32_t* words, const uint8_t* tail, uint32_t row_bytes, uint32_t begin)
{
    const uint32_t in_words = row_bytes / 4 * 4;
    Word word;
    memcpy(&word, begin < in_words ? reinterpret_cast<const uint8_t*>(words) + begin : tail + (begin - in_words), sizeof word);
    return word;
}

template <class S> struct Q8Row {
    static constexpr DecodeRowKernel any_dim = decode_q8<S>;
    KS_INLINE void decode(const uint32_t* words, const uint8_t*, uint32_t d, float* x) const
    {
        const int8_t* q = reinterpret_cast<const int8_t*>(words);
        const uint16_t* scales = reinterpret_cast<const uint16_t*>(words + d / 4);
        for (uint32_t base = 0; base < d; base += 32) {
            const typename S::F8 scale = S::broadcast_half(scales[base / 32]);
            KS_UNROLL(4)
            for (uint32_t i = 0; i < 32; i += 8) S::store(x + base + i, scale * S::to_float(S::load_bytes(q + base + i)));
        }
    }
};

template <class S> struct Q4Row {
    static constexpr DecodeRowKernel any_dim = decode_q4<S>;
    KS_INLINE void decode(const uint32_t* words, const uint8_t*, uint32_t d, float* x) const
    {
        const uint16_t* scales = reinterpret_cast<const uint16_t*>(words + d / 8);
        for (uint32_t base = 0; base < d; base += 64) {
            const typename S::W8 codes = S::words(words + base / 8);
            const typename S::F8 scale[2] = {S::broadcast_half(scales[base / 32]), S::broadcast_half(scales[base / 32 + 1])};
            KS_UNROLL(8)
            for (int j = 0; j < 8; j++)
                S::store(x + base + 8 * j, scale[j / 4] * S::to_float(((codes >> (4 * j)) & S::each(15)) - S::each(8)));
        }
    }
};

// The codes of a plane's 64 dims: eight neighbours under each shift of 4.
template <class S, uint32_t bits> KS_INLINE typename S::W8 plane_words(const uint32_t* words)
{
    static const uint32_t by_four[8] = {0, 0, 0, 0, 2, 2, 2, 2};
    return bits == 4 ? S::words(words) : S::shift_each(S::four_words(words), by_four);
}

template <class S, uint32_t ranks> struct TurboRow {
    using W8 = typename S::W8;
    static constexpr DecodeRowKernel any_dim = decode_turbo<S, ranks>;
    float levels[8]; // by the low three bits of a code, of which fewer may count; magnitudes, where signs are elsewhere
    KS_INLINE TurboRow()
    {
        for (uint32_t i = 0; i < 8; i++) levels[i] = ranks == 2 ? turbo_level(2, i % 4) : turbo_magnitude(ranks, i % ranks);
    }
    KS_INLINE void decode(const uint32_t* words, const uint8_t* tail, uint32_t d, float* x) const
    {
        static const uint32_t by_two[8] = {0, 0, 1, 1, 2, 2, 3, 3};
        const uint32_t bytes = turbo_bytes(ranks, d);
        const typename S::F8 scale = S::broadcast_half(row_bytes_at<uint16_t>(words, tail, bytes, bytes - 2));
        for (uint32_t base = 0; base < d; base += 64) {
            const W8 codes = ranks == 8 ? plane_words<S, 4>(words + base / 8) : plane_words<S, 2>(words + base / 16);
            const W8 signs = ranks == 4 ? S::shift_each(S::two_words(words + d / 16 + base / 32), by_two) : codes;
            KS_UNROLL(8)
            for (int j = 0; j < 8; j++) {
                typename S::F8 c = S::pick(levels, codes >> (4 * j));
                if (ranks != 2) c = S::negate(c, signs << ((ranks == 8 ? 28 : 31) - 4 * j));
                S::store(x + base + 8 * j, scale * c);
            }
        }
    }
};

template <class S, uint32_t bits> struct KiviRow {
    static constexpr DecodeRowKernel any_dim = decode_kivi_row<S, bits>;
    KS_INLINE void decode(const uint32_t* words, const uint8_t*, uint32_t d, float* x) const
    {
        const uint32_t* ranges = words + bits * d / 32;
        for (uint32_t base = 0; base < d; base += 64) {
            const typename S::W8 codes = plane_words<S, bits>(words + base * bits / 32);
            const uint32_t range[2] = {ranges[base / 32], ranges[base / 32 + 1]};
            const typename S::F8 scale[2] = {S::broadcast_half(range[0] & 0xffff), S::broadcast_half(range[1] & 0xffff)};
            const typename S::F8 least[2] = {S::broadcast_half(range[0] >> 16), S::broadcast_half(range[1] >> 16)};
            KS_UNROLL(8)
            for (int j = 0; j < 8; j++)
                S::store(x + base + 8 * j, S::fma(S::to_float((codes >> (4 * j)) & S::each((1u << bits) - 1)), scale[j / 4], least[j / 4]));
        }
    }
};

constexpr uint32_t kAheadCodes = 16; // rows of codes that are asked for before they are decoded

// known_d: d where it is one of the usual, so that all within a row has its place at compile time; else 0
template <class Row, uint32_t known_d>
void decode_groups(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d, float* x)
{
    if (known_d) d = known_d;
    const Row decoder;
    const uint32_t n_words = from.row_words, n_tail = from.row_tail;
    for (uint32_t i = 0; i < n; i++, x += d) {
        const size_t row = rows[i] - first;
        if (i + kAheadCodes < n) __builtin_prefetch(from.words + size_t(rows[i + kAheadCodes] - first) * n_words);
        decoder.decode(from.words + row * n_words, from.tails + row * n_tail, d, x);
    }
}

// Rows rows[i] - first of a pool, x (n, d).
template <class Row> void decode_rows(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d, float* x)
{
    if (d == 64) return decode_groups<Row, 64>(from, rows, first, n, d, x);
    if (d == 128) return decode_groups<Row, 128>(from, rows, first, n, d, x);
    if (d == 256) return decode_groups<Row, 256>(from, rows, first, n, d, x);
    if (d % 64 == 0) return decode_groups<Row, 0>(from, rows, first, n, d, x);
    for (uint32_t i = 0; i < n; i++) {
        const size_t row = rows[i] - first;
        Row::any_dim(from.words + row * from.row_words, from.tails + row * from.row_tail, d, x + size_t(i) * d);
    }
}

// Some rows of one group, nths[i] of it each, x (n, d): ranges are read once for all.
template <class S, uint32_t bits>
KS_INLINE void decode_group_rows(const uint32_t* group, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d, float* x)
{
    const uint32_t row_words = bits * d / 32;
    for (uint32_t base = 0; base < d; base += 32) {
        typename S::F8 scale[4], least[4];
        KS_UNROLL(4)
        for (int j = 0; j < 4; j++) S::half2(S::words(group + base + 8 * j), &scale[j], &least[j]);
        const uint32_t* words = group + d + base / 64 * (2 * bits);
        const int half = base % 64 ? 16 : 0;
        for (uint32_t i = 0; i < n; i++) {
            const typename S::W8 codes = plane_words<S, bits>(words + (rows[i] - first) % kivi_rows * row_words) >> half;
            float* out = x + size_t(i) * d + base;
            KS_UNROLL(4)
            for (int j = 0; j < 4; j++)
                S::store(out + 8 * j, S::fma(S::to_float((codes >> (4 * j)) & S::each((1u << bits) - 1)), scale[j], least[j]));
        }
    }
}

// The same for any d.
template <class S, uint32_t bits> void decode_group_row(const uint32_t* group, uint32_t nth, uint32_t d, float* x)
{
    const uint32_t* row = group + d + nth * (bits * d / 32);
    for (uint32_t base = 0, size; base < d; base += size) {
        const PlaneGroup<bits> plane(d - base);
        size = plane.size;
        const typename S::W8 codes = plane.template read<S>(row + base * bits / 32), mask = S::each((1u << bits) - 1);
        for (uint32_t i = base; i < base + size; i += 8) {
            typename S::F8 scale, least;
            S::half2(S::words(group + i), &scale, &least);
            S::store(x + i, S::fma(S::to_float((codes >> int(plane.step * ((i - base) / 8))) & mask), scale, least));
        }
    }
}

template <class S, uint32_t bits>
void decode_kivi_groups(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d, float* x)
{
    for (uint32_t i = 0, end; i < n; i = end) {
        const uint32_t nth = (rows[i] - first) / kivi_rows;
        const uint32_t* group = from.words + size_t(nth) * kivi_group_words(bits, d);
        for (end = i + 1; end < n && (rows[end] - first) / kivi_rows == nth;) end++;
        if (d == 64)
            decode_group_rows<S, bits>(group, rows + i, first, end - i, 64, x + size_t(i) * d);
        else if (d == 128)
            decode_group_rows<S, bits>(group, rows + i, first, end - i, 128, x + size_t(i) * d);
        else if (d % 64 == 0)
            decode_group_rows<S, bits>(group, rows + i, first, end - i, d, x + size_t(i) * d);
        else
            for (uint32_t k = i; k < end; k++) decode_group_row<S, bits>(group, (rows[k] - first) % kivi_rows, d, x + size_t(k) * d);
    }
}

// f32 and f16, any d.
template <class S, bool half> void encode_plain(const float* x, uint32_t d, uint32_t* words, uint8_t*)
{
    if (!half) return void(memcpy(words, x, 4ull * d));
    uint16_t* y = reinterpret_cast<uint16_t*>(words);
    uint32_t i = 0;
    for (; i + 8 <= d; i += 8) S::store_half(y + i, S::load(x + i));
    for (; i < d; i++) y[i] = uint16_t(FLOAT_TO_HALF(x[i]));
}

template <class S, bool half>
void decode_plain(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d, float* x)
{
    for (uint32_t i = 0; i < n; i++, x += d) {
        const size_t at = size_t(rows[i] - first) * d;
        uint32_t k = 0;
        for (; k + 8 <= d; k += 8) S::store(x + k, load_cached<S, half>(from.words, at + k));
        for (; k < d; k++)
            x[k] = half ? HALF_TO_FLOAT(reinterpret_cast<const uint16_t*>(from.words)[at + k]) : BITS_TO_FLOAT(from.words[at + k]);
    }
}

// In the order of CpuCodec.
#define KS_ENCODERS(S)                                                                                                                     \
    {                                                                                                                                      \
        encode_plain<S, false>, encode_plain<S, true>, encode_q8<S>, encode_q4<S>, encode_turbo<S, 8, false>, encode_turbo<S, 4, false>,   \
            encode_turbo<S, 2, false>, encode_turbo<S, 2, true>, encode_polar<S, false>, encode_polar<S, true>, encode_kivi_row<S, 4>,     \
            encode_kivi_row<S, 2>, encode_kivi_group<S, 4>, encode_kivi_group<S, 2>                                                        \
    }

#define KS_DECODERS(S)                                                                                                                     \
    {                                                                                                                                      \
        decode_plain<S, false>, decode_plain<S, true>, decode_rows<Q8Row<S>>, decode_rows<Q4Row<S>>, decode_rows<TurboRow<S, 8>>,          \
            decode_rows<TurboRow<S, 4>>, decode_rows<TurboRow<S, 2>>, decode_rows<TurboRow<S, 2>>, decode_polar_rows<S, false>,            \
            decode_polar_rows<S, true>, decode_rows<KiviRow<S, 4>>, decode_rows<KiviRow<S, 2>>, decode_kivi_groups<S, 4>,                  \
            decode_kivi_groups<S, 2>                                                                                                       \
    }

} // namespace ks
