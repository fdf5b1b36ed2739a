// Decodes polar rows one at a time with vectors of sixteen lanes. The angles of a level lie side by
// side; their cosines and sines make two vectors of the level below. No transpose is needed, unlike
// in polar_lanes.h. Bits equal those of decode_polar.
#pragma once

#include "kernels/cpu/codecs/sums.h"

namespace ks
{

// Factors by code, repeated to sixteen entries, so that bits above a code do not matter. Level 4 is
// indexed by two neighbours' codes.
struct PolarFactorLanes {
    float first[2][16], second[2][16]; // cosines and sines
    float third[16];                   // cosines; a sine is the cosine of the complement
    float fourth[16][4];

    PolarFactorLanes()
    {
        for (uint32_t i = 0; i < 16; i++) {
            for (uint32_t sine = 0; sine < 2; sine++) {
                first[sine][i] = polar_first_factor(i, sine != 0);
                second[sine][i] = polar_factor(2, i % 4, sine != 0);
            }
            third[i] = polar_factor(3, i % 4, false);
            for (uint32_t k = 0; k < 4; k++)
                fourth[i][k] = polar_factor(4, i >> k / 2 * 2 & 3, k % 2);
        }
    }
};

template <class S>
struct PolarRow : RowDecoder {
    using V = typename S::Wide;
    using F = typename V::F;
    using W = typename V::W;
    static constexpr bool by_fours = true;
    const PolarFactorLanes& t;

    static const PolarFactorLanes& tables()
    {
        static const PolarFactorLanes all;
        return all;
    }
    KS_INLINE PolarRow() : t(tables()) {}

    // Factors by the low four bits of codes.
    KS_INLINE static F lookup16(const float* factors, W codes)
    {
        return V::pick_of(V::load(factors), codes);
    }

    // Codes of the 32 angles of level 1 from angle base / 2 on: codes[0] the even ones, codes[1]
    // the odd ones.
    KS_INLINE static void first_codes(const uint32_t* words, uint32_t d, uint32_t base, W* codes)
    {
        static const uint32_t of_four[2][16] = {{0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2},
                                                {1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3}};
        static const uint32_t of_eight[2][16] = {{0, 2, 4, 6, 0, 2, 4, 6, 0, 2, 4, 6, 0, 2, 4, 6},
                                                 {1, 3, 5, 7, 1, 3, 5, 7, 1, 3, 5, 7, 1, 3, 5, 7}};
        static const uint32_t twice[16] = {0,  0,  4,  4,  8,  8,  12, 12,
                                           16, 16, 20, 20, 24, 24, 28, 28};
        static const uint32_t four_times[2][16] = {
            {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12},
            {16, 16, 16, 16, 20, 20, 20, 20, 24, 24, 24, 24, 28, 28, 28, 28}};
        words += base / 128 * 8;
        KS_UNROLL(2)
        for (int odd = 0; odd < 2; odd++)
            if (d % 128 && base + 64 == d) // the plane's last group, of 32 angles in four words
                codes[odd] =
                    V::shift_each(V::permuted(V::template repeat<4>(words), of_four[odd]), twice);
            else
                codes[odd] = V::shift_each(V::permuted(V::template repeat<8>(words), of_eight[odd]),
                                           four_times[base / 64 % 2]);
    }

    // at(r): values 4 k + r of 64.
    struct Values {
        F x[4];
        template <class In>
        KS_INLINE Values(const PolarRow& row, const In& in, uint32_t d, uint32_t base)
        {
            row.decode(in, d, base, x);
        }
        KS_INLINE F at(int nth) const { return x[nth]; }
    };
    template <class In>
    KS_INLINE void decode(const In& in, uint32_t d, uint32_t base, F* x) const
    {
        static const uint32_t each[16] = {0,  2,  4,  6,  8,  10, 12, 14,
                                          16, 18, 20, 22, 24, 26, 28, 30};
        static const uint32_t twice[16] = {0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14};
        static const uint32_t pairs[16] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7};
        // Complements the codes of odd lanes, whose factors are sines.
        static const uint32_t complement[16] = {0, 7, 0, 7, 0, 7, 0, 7, 0, 7, 0, 7, 0, 7, 0, 7};
        const uint32_t g = base / 64, bytes = polar_bytes(d);
        const uint32_t two = polar_begin(d, 2) / 8, three = polar_begin(d, 3) / 8,
                       four = polar_begin(d, 4) / 8;
        const uint16_t* f16 = reinterpret_cast<const uint16_t*>(in.words);
        const uint32_t fourths = in.template code<uint8_t>(bytes, four + g);
        const W seconds =
            V::shift_each(V::each(in.template code<uint32_t>(bytes, two + 4 * g)), each);
        const W thirds =
            V::shift_each(V::each(in.template code<uint16_t>(bytes, three + 2 * g)), twice);
        const typename S::F8 radii =
            V::repeat_half4(f16 + d / 8 + 4 * g) *
            V::load_two_fours(t.fourth[fourths & 15], t.fourth[fourths >> 4]);
        const F third =
            V::permuted(radii, pairs) * lookup16(t.third, thirds ^ V::words(complement));
        const F second[2] = {third * lookup16(t.second[0], seconds),
                             third * lookup16(t.second[1], seconds)};
        W first[2];
        first_codes(in.words, d, base, first);
        KS_UNROLL(2)
        for (int i = 0; i < 2; i++) {
            x[2 * i] = second[i] * lookup16(t.first[0], first[i]);
            x[2 * i + 1] = second[i] * lookup16(t.first[1], first[i]);
        }
    }
};

} // namespace ks
