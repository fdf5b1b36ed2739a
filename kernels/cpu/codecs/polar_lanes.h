// Decodes several polar rows side by side: a lane is a row, so a radius or a code of all rows is
// one vector. Bits equal those of decode_polar.
#pragma once

#include "kernels/cpu/codecs/lanes.h"

namespace ks
{

// Factors by code. The sine of a code is the cosine of its complement, so one table serves both in
// levels 2 to 4. Level 1 has a table of each.
struct PolarTables {
    float cosines[3][8]; // levels 2 to 4; the code is the low two bits of the index
    float first[2][16];  // level 1, by code: cosines, then sines
    PolarTables()
    {
        for (uint32_t i = 0; i < 8; i++)
            for (uint32_t level = 2; level <= 4; level++)
                cosines[level - 2][i] = polar_factor(level, i % 4, false);
        for (uint32_t i = 0; i < 16; i++) {
            first[0][i] = polar_first_factor(i, false);
            first[1][i] = polar_first_factor(i, true);
        }
    }
};

template <class V>
struct PolarLanes {
    using F = typename V::F;
    using W = typename V::W;
    const PolarTables& t;

    static const PolarTables& tables()
    {
        static const PolarTables all;
        return all;
    }
    KS_INLINE PolarLanes() : t(tables()) {}

    // Codes of the 64 values from 64 g on, from bit 0 on. Level 1 is spread over eight words, or
    // over four in the plane's last group of 32 angles.
    struct Codes {
        W first[8];
        W second, third, fourth;
    };
    KS_INLINE Codes codes(const LaneRows<V>& row, uint32_t d, uint32_t g) const
    {
        Codes c;
        KS_UNROLL(8)
        for (uint32_t w = 0; w < 8; w++) c.first[w] = row.word[g / 2 * 8 + w] >> int(g % 2 * 16);
        c.second = row.at(polar_begin(d, 2) + 32 * g);
        c.third = row.at(polar_begin(d, 3) + 16 * g);
        c.fourth = row.at(polar_begin(d, 4) + 8 * g);
        return c;
    }
    static KS_INLINE bool is_half(uint32_t d, uint32_t g)
    {
        return d % 128 != 0 && g + 1 == d / 64;
    }

    template <uint32_t level>
    KS_INLINE F cosine(W code) const
    {
        return V::lookup4(t.cosines[level - 2], code);
    }
    // The nth code in the low two bits. Higher bits are not cleared.
    KS_INLINE static W nth(W codes, uint32_t nth) { return codes >> int(2 * nth); }
    // n radii become the 2 n radii of the level below. Their codes begin at code `first`.
    template <uint32_t level, uint32_t n>
    KS_INLINE void step(const F* radii, W codes, uint32_t first, F* below) const
    {
        KS_UNROLL(4)
        for (uint32_t i = 0; i < n; i++) {
            const W code = nth(codes, first + i);
            below[2 * i] = radii[i] * cosine<level>(code);
            below[2 * i + 1] = radii[i] * cosine<level>(code ^ V::each(7));
        }
    }
    // The radii of the four blocks of the 64 values from 64 g on.
    KS_INLINE void radii(const LaneRows<V>& row, uint32_t d, uint32_t g, F* top) const
    {
        V::half2(row.word[d / 16 + 2 * g], top, top + 1);
        V::half2(row.word[d / 16 + 2 * g + 1], top + 2, top + 3);
    }
    // 16 values of each row, from angles 8 j .. 8 j + 7 of a group of n_words words.
    template <uint32_t n_words>
    KS_INLINE void first_level(const W* cosines, const W* sines, uint32_t j, const F* radii,
                               F* values) const
    {
        KS_UNROLL(8)
        for (uint32_t i = 0; i < 8; i++) {
            const int shift = int(4 * (8 / n_words * j + i / n_words));
            const W code = cosines[i % n_words] >> shift;
            values[2 * i] = radii[i] * (V::lanes == 16 ? V::lookup16_signed(t.first[0], code)
                                                       : V::lookup8(t.first[0], code));
            values[2 * i + 1] =
                radii[i] * (V::lanes == 16 ? V::lookup16_signed(t.first[1], code)
                                           : V::lookup8(t.first[0], sines[i % n_words] >> shift));
        }
    }
    // Calls take(values, at) with 16 values of each row from dim `at` on. d is a multiple of 64.
    template <class Take>
    KS_INLINE void decode(const LaneRows<V>& row, uint32_t d, const Take& take) const
    {
        for (uint32_t g = 0; g < d / 64; g++) {
            const Codes c = codes(row, d, g);
            F top[4];
            radii(row, d, g, top);
            W sines[8]; // codes of the cosines that equal the sines
            KS_UNROLL(8)
            for (uint32_t w = 0; w < 8; w++)
                sines[w] = ((c.first[w] & V::each(0x33333333u)) ^ V::each(0x33333333u)) |
                           ((c.first[w] >> 1) & V::each(0x44444444u));
            const bool half = is_half(d, g);
            KS_UNROLL(4)
            for (uint32_t j = 0; j < 4; j++) {
                F fourth[2], third[4], second[8], values[16];
                step<4, 1>(top + j, c.fourth, j, fourth);
                step<3, 2>(fourth, c.third, 2 * j, third);
                step<2, 4>(third, c.second, 4 * j, second);
                if (half)
                    first_level<4>(c.first, sines, j, second, values);
                else
                    first_level<8>(c.first, sines, j, second, values);
                take(values, 64 * g + 16 * j);
            }
        }
    }
};

// Calls take(values, at) for each 16 dims of one vector of rows. known_d as in decode_groups.
template <class V, uint32_t known_d, class Take>
KS_INLINE void polar_lanes(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t d,
                           const Take& take)
{
    if (known_d) d = known_d;
    const LaneRows<V> row(from, rows, first, polar_bytes(d));
    PolarLanes<V>().decode(row, d, take);
}

// Decodes one vector of rows into x (lanes, d).
template <class V, uint32_t known_d>
void polar_vector(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t, uint32_t d,
                  float* x, const PrefetchRows&)
{
    polar_lanes<V, known_d>(
        from, rows, first, d, [&](typename V::F* values, uint32_t at) KS_INLINED {
            const uint32_t width = known_d ? known_d : d;
            KS_UNROLL(2)
            for (uint32_t part = 0; part < 16; part += V::lanes) {
                V::transpose(values + part);
                KS_UNROLL(16)
                for (uint32_t i = 0; i < V::lanes; i++)
                    V::store(x + size_t(i) * width + at + part, values[part + i]);
            }
        });
}

template <class V>
KS_INLINE DecodeKernel polar_vector_of(uint32_t d)
{
    return d == 64    ? polar_vector<V, 64>
           : d == 128 ? polar_vector<V, 128>
           : d == 256 ? polar_vector<V, 256>
                      : polar_vector<V, 0>;
}

// Decodes whole vectors of rows, if d is a multiple of 64. Returns the number of rows.
template <class V>
uint32_t decode_polar_lanes(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n,
                            uint32_t d, float* x, const PrefetchRows& ahead)
{
    if (d % 64) return 0;
    const DecodeKernel decode = polar_vector_of<V>(d);
    uint32_t i = 0;
    for (; i + V::lanes <= n; i += V::lanes)
        decode(from, rows + i, first, V::lanes, d, x + size_t(i) * d, after(ahead, i));
    return i;
}

// Adds one vector of rows to the sums of each head, row after row.
template <class V, uint32_t known_d>
void polar_vector_outputs(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t d,
                          const float* weights, uint32_t n_heads, float* sums, uint32_t stride)
{
    polar_lanes<V, known_d>(
        from, rows, first, d, [&](typename V::F* values, uint32_t at) KS_INLINED {
            KS_UNROLL(2)
            for (uint32_t part = 0; part < 16; part += V::lanes) {
                V::transpose(values + part);
                for (uint32_t h = 0; h < n_heads; h++) {
                    float* to = sums + size_t(h) * stride + at + part;
                    const float* weight = weights + size_t(h) * kAttentionTile;
                    typename V::F sum = V::load(to);
                    KS_UNROLL(16)
                    for (uint32_t i = 0; i < V::lanes; i++)
                        sum = V::fma(V::broadcast(weight[i]), values[part + i], sum);
                    V::store(to, sum);
                }
            }
        });
}

template <class V>
uint32_t polar_lane_outputs(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n,
                            uint32_t d, const float* weights, uint32_t n_heads, float* sums,
                            uint32_t stride, const PrefetchRows& ahead)
{
    if (d % 64) return 0;
    const auto outputs = d == 64    ? polar_vector_outputs<V, 64>
                         : d == 128 ? polar_vector_outputs<V, 128>
                         : d == 256 ? polar_vector_outputs<V, 256>
                                    : polar_vector_outputs<V, 0>;
    uint32_t i = 0;
    for (; i + V::lanes <= n; i += V::lanes) {
        prefetch(ahead, i, V::lanes);
        outputs(from, rows + i, first, d, weights + i, n_heads, sums, stride);
    }
    return i;
}

} // namespace ks
