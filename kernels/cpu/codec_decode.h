// Coded rows to f32, many at a time, as attention reads them. Rows of whole groups of 64 values have loops of their own, with
// neither a copy of the row nor a branch; the bits are those of codec_vectors.h and polar_vectors.h, which do all others.
#pragma once

#include "kernels/cpu/polar_vectors.h"

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
        static const uint32_t by_four[8] = {0, 0, 0, 0, 2, 2, 2, 2}, by_two[8] = {0, 0, 1, 1, 2, 2, 3, 3};
        const uint32_t bytes = turbo_bytes(ranks, d);
        const typename S::F8 scale = S::broadcast_half(row_bytes_at<uint16_t>(words, tail, bytes, bytes - 2));
        for (uint32_t base = 0; base < d; base += 64) {
            const W8 codes = ranks == 8 ? S::words(words + base / 8) : S::shift_each(S::four_words(words + base / 16), by_four);
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

// What a polar decoder picks from. The sine of a code is the cosine of its complement, so that one table does for both.
template <bool fine> struct PolarTables {
    float cosines[4][8];        // of levels 2 to 5, by the low three bits of a code, of which two count where a level is not fine
    float first[8];             // of level 1: the cosines of the sectors, then negative ones
    uint32_t complement[8];     // of odd lanes, which are sines
    uint32_t even[8], odd[8];   // bits of level 1: sector and sign, and the sign of what is under the odd lanes, once shifted
    uint32_t pairs[8], ones[8]; // where the codes of four angles are, two lanes each, by bits of codes

    PolarTables()
    {
        for (uint32_t i = 0; i < 8; i++) {
            for (uint32_t level = 2; level <= 5; level++)
                cosines[level - 2][i] = polar_factor(fine, level, polar_is_fine(fine, level) ? i : i % 4, false);
            first[i] = polar_first_factor(i, false);
            complement[i] = i % 2 ? 0x77777777u : 0u;
            even[i] = i % 2 ? 0x33333333u : 0x77777777u;
            odd[i] = i % 2 ? 0x44444444u : 0u;
            pairs[i] = i / 2 * 2;
            ones[i] = i / 2;
        }
    }
};

template <class S, bool fine> struct PolarRow {
    using F8 = typename S::F8;
    using W8 = typename S::W8;
    static constexpr DecodeRowKernel any_dim = decode_polar<S, fine>;
    const PolarTables<fine>& t;

    static const PolarTables<fine>& tables()
    {
        static const PolarTables<fine> all;
        return all;
    }
    KS_INLINE PolarRow() : t(tables()) {}

    // Four radii, each twice, become the eight of the level below. Their codes begin at bit 0 of `codes`, third bits of `high`.
    template <uint32_t level> KS_INLINE F8 step(F8 twice, uint32_t codes, uint32_t high) const
    {
        W8 code = S::shift_each(S::each(codes), t.pairs);
        if (polar_is_fine(fine, level)) code = (code & S::each(3)) | (S::shift_each(S::each(high << 2), t.ones) & S::each(4));
        return twice * S::pick(t.cosines[level - 2], code ^ S::words(t.complement));
    }
    // Eight radii become sixteen.
    template <uint32_t level> KS_INLINE void two_steps(F8 radii, uint32_t codes, uint32_t high, F8* below) const
    {
        F8 first, second;
        S::twice(radii, &first, &second);
        below[0] = step<level>(first, codes, high);
        below[1] = step<level>(second, codes >> 8, high >> 4);
    }
    // The eight radii of level 3 in 64 values.
    KS_INLINE F8 top_radii(const uint32_t* words, const uint8_t* tail, uint32_t d, uint32_t block) const
    {
        const uint32_t bytes = polar_bytes(d, fine), four = row_bytes_at<uint8_t>(words, tail, bytes, polar_begin(d, fine, 4) / 8 + block);
        F8 radii, unused;
        if (fine) {
            const uint32_t five = row_bytes_at<uint8_t>(words, tail, bytes, polar_begin(d, true, 5) / 8 + block / 2) >> (block % 2 * 4);
            S::twice(S::four_halves(words[d / 16 + block]), &radii, &unused);
            radii = step<5>(radii, five, 0);
        } else {
            radii = S::four_halves(words[d / 16 + 2 * block] | uint64_t(words[d / 16 + 2 * block + 1]) << 32);
        }
        S::twice(radii, &radii, &unused);
        return step<4>(radii, four, 0);
    }
    // Of level 1, 4 bits each: sectors, and the signs of what the lanes are.
    KS_INLINE W8 first_codes(const uint32_t* four) const
    {
        const W8 codes = S::four_words_twice(four), sectors = S::words(t.complement) & S::each(0x33333333u);
        return ((codes & S::words(t.even)) | ((codes >> 1) & S::words(t.odd))) ^ sectors;
    }
    KS_INLINE void decode(const uint32_t* words, const uint8_t* tail, uint32_t d, float* x) const
    {
        const uint32_t bytes = polar_bytes(d, fine), n = d / 16;
        const uint32_t two = polar_begin(d, fine, 2) / 8, three = polar_begin(d, fine, 3) / 8;
        for (uint32_t block = 0; block < d / 64; block++) {
            const uint32_t codes2 = row_bytes_at<uint32_t>(words, tail, bytes, two + 4 * block);
            const uint32_t high2 = fine ? row_bytes_at<uint16_t>(words, tail, bytes, two + n + 2 * block) : 0;
            const uint32_t codes3 = row_bytes_at<uint16_t>(words, tail, bytes, three + 2 * block);
            const uint32_t high3 = fine ? row_bytes_at<uint8_t>(words, tail, bytes, three + n / 2 + block) : 0;
            F8 third[2], second[4];
            two_steps<3>(top_radii(words, tail, d, block), codes3, high3, third);
            two_steps<2>(third[0], codes2, high2, second);
            two_steps<2>(third[1], codes2 >> 16, high2 >> 8, second + 2);
            const bool alone = d % 128 != 0 && block + 1 == d / 64; // the plane's last group, of 32 angles
            const uint32_t* group = words + block / 2 * 8;
            const W8 codes[2] = {first_codes(group), alone ? S::each(0) : first_codes(group + 4)};
            KS_UNROLL(4)
            for (int v = 0; v < 4; v++) {
                F8 left, right;
                S::twice(second[v], &left, &right);
                const W8 low = alone ? codes[0] >> (8 * v) : codes[0] >> (4 * (int(block % 2) * 4 + v));
                const W8 high = alone ? codes[0] >> (8 * v + 4) : codes[1] >> (4 * (int(block % 2) * 4 + v));
                S::store(x + 64 * block + 16 * v, left * S::pick(t.first, low));
                S::store(x + 64 * block + 16 * v + 8, right * S::pick(t.first, high));
            }
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

// In the order of CODECS.
#define KS_DECODERS(S)                                                                                                                     \
    {                                                                                                                                      \
        decode_rows<Q8Row<S>>, decode_rows<Q4Row<S>>, decode_rows<TurboRow<S, 8>>, decode_rows<TurboRow<S, 4>>,                            \
            decode_rows<TurboRow<S, 2>>, decode_rows<TurboRow<S, 2>>, decode_rows<PolarRow<S, false>>, decode_rows<PolarRow<S, true>>      \
    }

} // namespace ks
