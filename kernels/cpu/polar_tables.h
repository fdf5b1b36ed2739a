// Values of polar rows one row at a time, for vectors of sixteen neighbours: factors come from small tables by the codes of two angles of
// a level together, and nothing is turned as in polar_rows.h. The bits are those of polar_vectors.h.
#pragma once

#include "kernels/cpu/polar_rows.h"

namespace ks
{

// Factors of neighbours: cosines and sines of each angle for as many values as are below it.
template <bool fine> struct PolarNeighbours {
    float second[fine ? 64 : 16][8], third[fine ? 64 : 16][16]; // fine: low bits of two angles, then the high ones
    float fourth[16][4], fifth[16][8];                          // by two codes
    float first[2][16];                                         // cosines by a code of level 1, sines

    static uint32_t code(uint32_t all, uint32_t nth)
    {
        return fine ? (all >> 2 * nth & 3) | (all >> (4 + nth) & 1) << 2 : all >> 2 * nth & 3;
    }
    PolarNeighbours()
    {
        for (uint32_t i = 0; i < (fine ? 64 : 16); i++)
            for (uint32_t k = 0; k < 8; k++) second[i][k] = polar_factor(fine, 2, code(i, k / 4), k / 2 % 2);
        for (uint32_t i = 0; i < (fine ? 64 : 16); i++)
            for (uint32_t k = 0; k < 16; k++) third[i][k] = polar_factor(fine, 3, code(i, k / 8), k / 4 % 2);
        for (uint32_t i = 0; i < 16; i++) {
            for (uint32_t k = 0; k < 4; k++) fourth[i][k] = polar_factor(fine, 4, i >> k / 2 * 2 & 3, k % 2);
            for (uint32_t k = 0; k < 8; k++) fifth[i][k] = polar_factor(fine, 5, i >> k / 4 * 2 & 3, k / 2 % 2);
            first[0][i] = polar_first_factor(i, false);
            first[1][i] = polar_first_factor(i, true);
        }
    }
};

template <class S, bool fine> struct PolarRow {
    using V = typename S::Wide;
    using F = typename V::F;
    using W = typename V::W;
    const PolarNeighbours<fine>& t;

    static const PolarNeighbours<fine>& tables()
    {
        static const PolarNeighbours<fine> all;
        return all;
    }
    KS_INLINE PolarRow() : t(tables()) {}

    // Nibbles, and the two bits of each that are elsewhere: a byte of each.
    KS_INLINE static uint64_t in_bytes(uint64_t nibbles, uint64_t high)
    {
        return V::deposit(nibbles, 0x0f0f0f0f0f0f0f0fu) | V::deposit(high, 0x3030303030303030u);
    }

    // Factors of level 1 of the four 16s from the one at `base` on. A byte is a code and, in bit 4, whether it is the sine that is wanted.
    KS_INLINE void first_factors(const uint32_t* words, uint32_t d, uint32_t base, F* x) const
    {
        static const uint32_t pairs[16] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7},
                              right[16] = {0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4};
        static const uint32_t odd[16] = {0, 0x10101010u, 0, 0x10101010u, 0, 0x10101010u, 0, 0x10101010u,
                                         0, 0x10101010u, 0, 0x10101010u, 0, 0x10101010u, 0, 0x10101010u};
        const F cosines = V::load(t.first[0]), sines = V::load(t.first[1]);
        const W nibble = V::each(0x0f0f0f0fu), sine = V::words(odd);
        words += base / 128 * 8;
        if (d % 128 && base + 64 == d) { // the plane's last group, of 32 angles in four words
            const W codes = V::masked_or(V::shift_each(V::permuted(V::template repeat<4>(words), pairs), right), nibble, sine);
            KS_UNROLL(4)
            for (int j = 0; j < 4; j++) x[j] = V::pick_of_two(cosines, sines, codes >> 8 * j);
        } else {
            const W all = V::permuted(V::template repeat<8>(words), pairs);
            const W codes = all >> int(base / 64 % 2 * 16);
            const W even = V::masked_or(codes, nibble, sine), odds = V::masked_or(codes >> 4, nibble, sine);
            KS_UNROLL(4)
            for (int j = 0; j < 4; j++) x[j] = V::pick_of_two(cosines, sines, (j % 2 ? odds : even) >> 8 * (j / 2));
        }
    }

    template <class In> KS_INLINE void decode(const In& in, uint32_t d, uint32_t base, F* x) const
    {
        const uint32_t g = base / 64, bytes = polar_bytes(d, fine);
        const uint32_t two = polar_begin(d, fine, 2) / 8, three = polar_begin(d, fine, 3) / 8, four = polar_begin(d, fine, 4) / 8;
        const uint32_t seconds = in.template code<uint32_t>(bytes, two + 4 * g), fourths = in.template code<uint8_t>(bytes, four + g);
        uint64_t thirds = in.template code<uint16_t>(bytes, three + 2 * g);
        uint64_t finer = 0; // seconds, in bytes
        const uint16_t* halves = reinterpret_cast<const uint16_t*>(in.words);
        static const uint32_t each[4][16] = {{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
                                             {2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3},
                                             {4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5},
                                             {6, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7}};
        typename S::F8 radii;
        if (fine) {
            const uint32_t five = polar_begin(d, true, 5) / 8;
            finer = in_bytes(seconds, in.template code<uint16_t>(bytes, two + d / 16 + 2 * g));
            thirds = in_bytes(thirds, in.template code<uint8_t>(bytes, three + d / 32 + g));
            radii = V::template repeat_halves<2>(halves + d / 8 + 2 * g) *
                    S::load(t.fifth[in.template code<uint8_t>(bytes, five + g / 2) >> g % 2 * 4 & 15]);
        } else {
            radii = V::template repeat_halves<4>(halves + d / 8 + 4 * g);
        }
        radii = radii * V::load_two_fours(t.fourth[fourths & 15], t.fourth[fourths >> 4]);
        first_factors(in.words, d, base, x);
        KS_UNROLL(4)
        for (int j = 0; j < 4; j++) {
            const F third = V::load(t.third[fine ? thirds >> 8 * j & 63 : thirds >> 4 * j & 15]);
            const F second = fine ? V::load_two(t.second[finer >> 16 * j & 63], t.second[finer >> (16 * j + 8) & 63])
                                  : V::load_two(t.second[seconds >> 8 * j & 15], t.second[seconds >> (8 * j + 4) & 15]);
            x[j] = V::permuted(radii, each[j]) * third * second * x[j];
        }
    }
};

} // namespace ks
