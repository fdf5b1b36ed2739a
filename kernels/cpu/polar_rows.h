// Polar rows to f32, some at a time, side by side: a lane is a row, so that a radius and a code of every row are one vector, and
// no angle is picked twice. The bits are those of polar_vectors.h.
#pragma once

#include "kernels/cpu/polar_vectors.h"

namespace ks
{

// Words of as many rows as there are lanes: lane i of word w is word w of row i, after them the tail. `bytes` of a row are known where
// d is.
template <class V> struct LaneRows {
    typename V::W word[codec_max_dim / 4 + codec_max_dim / 64 + V::lanes];

    KS_INLINE LaneRows(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t bytes)
    {
        const uint32_t n_words = bytes / 4, n_tail = bytes % 4;
        uint32_t tails[V::lanes];
        for (uint32_t w = 0; w < n_words; w += V::lanes) {
            KS_UNROLL(16)
            for (uint32_t i = 0; i < V::lanes; i++) {
                const uint32_t* words = from.words + size_t(rows[i] - first) * n_words + w;
                word[w + i] = n_words - w < V::lanes ? V::some_words(words, n_words - w) : V::words(words);
            }
            V::transpose(word + w);
        }
        KS_UNROLL(16)
        for (uint32_t i = 0; i < V::lanes; i++) tails[i] = n_tail ? tail_word(from.tails + size_t(rows[i] - first) * n_tail, bytes) : 0;
        word[n_words] = V::words(tails);
    }
    // Bits from one on, which lie in one word.
    KS_INLINE typename V::W at(uint32_t bit) const { return word[bit / 32] >> int(bit % 32); }
};

// What a polar decoder picks from. The sine of a code is the cosine of its complement, so that one table does for both.
template <bool fine> struct PolarTables {
    float cosines[4][8]; // of levels 2 to 5, by the low three bits of a code, of which two count where a level is not fine
    float first[8];      // of level 1: the cosines of the sectors, then negative ones
    PolarTables()
    {
        for (uint32_t i = 0; i < 8; i++) {
            for (uint32_t level = 2; level <= 5; level++)
                cosines[level - 2][i] = polar_factor(fine, level, polar_is_fine(fine, level) ? i : i % 4, false);
            first[i] = polar_first_factor(i, false);
        }
    }
};

template <class V, bool fine> struct PolarLanes {
    using F = typename V::F;
    using W = typename V::W;
    const PolarTables<fine>& t;

    static const PolarTables<fine>& tables()
    {
        static const PolarTables<fine> all;
        return all;
    }
    KS_INLINE PolarLanes() : t(tables()) {}

    template <uint32_t level> KS_INLINE F pick(W code) const
    {
        return polar_is_fine(fine, level) ? V::pick(t.cosines[level - 2], code) : V::pick_of_four(t.cosines[level - 2], code);
    }
    // n radii become the 2 n of the level below. Their codes begin at bit 0 of `codes`, third bits of `high`.
    template <uint32_t level, uint32_t n> KS_INLINE void step(const F* radii, W codes, W high, F* below) const
    {
        KS_UNROLL(16)
        for (uint32_t j = 0; j < n; j++) {
            W code = codes >> int(2 * j);
            if (polar_is_fine(fine, level)) code = (code & V::each(3)) | ((j < 2 ? high << int(2 - j) : high >> int(j - 2)) & V::each(4));
            below[2 * j] = radii[j] * pick<level>(code);
            below[2 * j + 1] = radii[j] * pick<level>(code ^ V::each(7));
        }
    }
    // The 32 radii of level 2 of the 64 values from 64 g on.
    KS_INLINE void radii(const LaneRows<V>& row, uint32_t d, uint32_t g, F* second) const
    {
        const uint32_t n = d / 16;
        const uint32_t two = polar_begin(d, fine, 2), three = polar_begin(d, fine, 3), four = polar_begin(d, fine, 4);
        F top[4], fourth[8], third[16];
        if (fine) {
            F pair[2];
            V::half2(row.word[d / 16 + g], pair, pair + 1);
            step<5, 2>(pair, row.at(polar_begin(d, true, 5) + 4 * g), V::each(0), top);
        } else {
            V::half2(row.word[d / 16 + 2 * g], top, top + 1);
            V::half2(row.word[d / 16 + 2 * g + 1], top + 2, top + 3);
        }
        step<4, 4>(top, row.at(four + 8 * g), V::each(0), fourth);
        step<3, 8>(fourth, row.at(three + 16 * g), fine ? row.at(three + 4 * n + 8 * g) : V::each(0), third);
        step<2, 16>(third, row.at(two + 32 * g), fine ? row.at(two + 8 * n + 16 * g) : V::each(0), second);
    }
    // 16 values of each row, from the j-th eight angles of a group whose n_words words have their codes from bit 0 on.
    template <uint32_t n_words>
    KS_INLINE void eight_angles(const W* cosines, const W* sines, uint32_t j, const F* radii, uint32_t d, float* x) const
    {
        F values[16];
        KS_UNROLL(8)
        for (uint32_t i = 0; i < 8; i++) {
            const int shift = int(4 * (8 / n_words * j + i / n_words));
            values[2 * i] = radii[8 * j + i] * V::pick(t.first, cosines[i % n_words] >> shift);
            values[2 * i + 1] = radii[8 * j + i] * V::pick(t.first, sines[i % n_words] >> shift);
        }
        KS_UNROLL(2)
        for (uint32_t part = 0; part < 16; part += V::lanes) {
            V::transpose(values + part);
            KS_UNROLL(16)
            for (uint32_t i = 0; i < V::lanes; i++) V::store(x + size_t(i) * d + 16 * j + part, values[part + i]);
        }
    }
    // x: (lanes, d), d a multiple of 64
    KS_INLINE void decode(const LaneRows<V>& row, uint32_t d, float* x) const
    {
        for (uint32_t g = 0; g < d / 64; g++) {
            F second[32];
            radii(row, d, g, second);
            W cosines[8], sines[8]; // sectors, and the signs of what the lanes are
            KS_UNROLL(8)
            for (uint32_t w = 0; w < 8; w++) {
                cosines[w] = row.word[g / 2 * 8 + w] >> int(g % 2 * 16);
                sines[w] = (cosines[w] & V::each(0x33333333u)) ^ V::each(0x33333333u);
                sines[w] = sines[w] | ((cosines[w] >> 1) & V::each(0x44444444u));
            }
            const bool alone = d % 128 != 0 && g + 1 == d / 64; // the plane's last group, of 32 angles
            KS_UNROLL(4)
            for (uint32_t j = 0; j < 4; j++) {
                if (alone)
                    eight_angles<4>(cosines, sines, j, second, d, x + 64 * g);
                else
                    eight_angles<8>(cosines, sines, j, second, d, x + 64 * g);
            }
        }
    }
};

// As decode_groups, for whole vectors of rows; returns how many those are.
template <class V, bool fine, uint32_t known_d>
uint32_t decode_polar_lanes(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d, float* x)
{
    if (known_d) d = known_d;
    const PolarLanes<V, fine> polar;
    uint32_t i = 0;
    for (; i + V::lanes <= n; i += V::lanes) {
        for (uint32_t j = i + 16; j < n && j < i + 16 + V::lanes; j++)
            __builtin_prefetch(from.words + size_t(rows[j] - first) * from.row_words);
        polar.decode(LaneRows<V>(from, rows + i, first, polar_bytes(d, fine)), d, x + size_t(i) * d);
    }
    return i;
}

template <class V, bool fine>
uint32_t decode_polar_lanes(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d, float* x)
{
    if (d % 64) return 0;
    const auto lanes = d == 64    ? decode_polar_lanes<V, fine, 64>
                       : d == 128 ? decode_polar_lanes<V, fine, 128>
                       : d == 256 ? decode_polar_lanes<V, fine, 256>
                                  : decode_polar_lanes<V, fine, 0>;
    return lanes(from, rows, first, n, d, x);
}

// Rows that do not fill a vector, and those of other head sizes, are decoded one by one.
template <class S, bool fine>
void decode_polar_rows(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d, float* x)
{
    uint32_t i = decode_polar_lanes<typename S::Wide, fine>(from, rows, first, n, d, x);
    i += decode_polar_lanes<S, fine>(from, rows + i, first, n - i, d, x + size_t(i) * d);
    for (; i < n; i++) {
        const size_t row = rows[i] - first;
        decode_polar<S, fine>(from.words + row * from.row_words, from.tails + row * from.row_tail, d, x + size_t(i) * d);
    }
}

} // namespace ks
