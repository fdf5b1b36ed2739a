// Logits straight from rows of codes, sixteen rows at a time, where a lane is a row: a value of each is picked by one vector of codes and
// multiplied with that of all heads, and nothing is added across lanes. The bits are those of rows that are decoded first, for a
// logit is still eight sums over every eighth dimension, added as sums8 does.
#pragma once

#include "kernels/cpu/codec_decode.h"
#include "kernels/cpu/polar_rows.h"

namespace ks
{

// How each codec's rows are read: words of the 64 values from `base` on, and value 8 j + i of each row. A plane of 64 dims with w words has
// dim 8 j + i in word i % w, under a shift by 4 j and what lies below.
template <class V, uint32_t bits> KS_INLINE typename V::W lane_code(const LaneRows<V>& row, uint32_t word, uint32_t i, uint32_t j)
{
    constexpr uint32_t n_words = 2 * bits;
    return row.word[word + i % n_words] >> int(4 * j + i / n_words * bits);
}

template <class Row> struct RowLanes;

template <class S> struct RowLanes<Q4Row<S>> {
    using V = typename S::Wide;
    typename V::F scale[2];
    uint32_t base;
    static uint32_t bytes(uint32_t d) { return codec_q4::row_bytes(d); }
    KS_INLINE RowLanes(const LaneRows<V>& row, uint32_t d, uint32_t from) : base(from)
    {
        V::half2(row.word[d / 8 + from / 64], &scale[0], &scale[1]);
    }
    KS_INLINE typename V::F at(const LaneRows<V>& row, uint32_t i, uint32_t j) const
    {
        return scale[j / 4] * CodeFloats<4, -8>::template of<V>(lane_code<V, 4>(row, base / 8, i, j));
    }
};

template <class S, uint32_t ranks> struct RowLanes<TurboRow<S, ranks>> {
    using V = typename S::Wide;
    static constexpr uint32_t bits = ranks == 8 ? 4 : 2;
    typename V::F levels, scale;
    uint32_t base, d;
    static uint32_t bytes(uint32_t d) { return turbo_bytes(ranks, d); }
    KS_INLINE RowLanes(const LaneRows<V>& row, uint32_t dims, uint32_t from) : base(from), d(dims)
    {
        float all[16];
        for (uint32_t i = 0; i < 16; i++) all[i] = turbo_level(ranks, i % (2 * ranks));
        levels = V::load(all);
        typename V::F none;
        V::half2(row.word[turbo_bytes(ranks, d) / 4], &scale, &none);
    }
    KS_INLINE typename V::F at(const LaneRows<V>& row, uint32_t i, uint32_t j) const
    {
        typename V::W code = lane_code<V, bits>(row, base * bits / 32, i, j);
        if constexpr (ranks == 4) {
            const int sign = int(4 * j + i / 2) - 2;
            const typename V::W signs = row.word[d / 16 + base / 32 + i % 2];
            code = V::chosen(V::each(4), sign < 0 ? signs << -sign : signs >> sign, code);
        }
        return scale * V::pick_of(levels, code);
    }
};

template <class S, uint32_t bits> struct KiviLanes {
    using V = typename S::Wide;
    uint32_t base;
    static uint32_t bytes(uint32_t d) { return bits * d / 8; }
    KS_INLINE KiviLanes(const LaneRows<V>&, uint32_t, uint32_t from) : base(from) {}
    KS_INLINE typename V::F at(const LaneRows<V>& row, uint32_t i, uint32_t j) const
    {
        return CodeFloats<bits, 0>::template of<V>(lane_code<V, bits>(row, base * bits / 32, i, j));
    }
};

// logits[h * kAttentionTile + i] of rows rows[i] - first, to which least[h] is added; least may be null.
template <class Lanes, uint32_t n_heads, uint32_t known_d> void lane_logits(const CodedRows& from, const uint32_t* rows, uint32_t first,
                                                                            uint32_t n, uint32_t d, const float* q, const float* least,
                                                                            float* logits, const Ahead& ahead)
{
    using V = typename Lanes::V;
    using F = typename V::F;
    if (known_d) d = known_d;
    for (uint32_t begin = 0; begin < n; begin += V::lanes) {
        const uint32_t here = n - begin < V::lanes ? n - begin : V::lanes;
        const LaneRows<V> row(from, FullRows<V>(rows + begin, here).at, first, Lanes::bytes(d));
        ask(ahead, begin, here);
        F halves[2][n_heads];
        KS_UNROLL(2)
        for (uint32_t half = 0; half < 2; half++) {
            F sums[n_heads][4];
            KS_UNROLL(4)
            for (uint32_t h = 0; h < n_heads; h++) KS_UNROLL(4)
            for (uint32_t i = 0; i < 4; i++) sums[h][i] = V::zero();
            for (uint32_t base = 0; base < d; base += 64) {
                const Lanes lanes(row, d, base);
                KS_UNROLL(8)
                for (uint32_t j = 0; j < 8; j++) KS_UNROLL(4)
                for (uint32_t i = 0; i < 4; i++) {
                    const F key = lanes.at(row, 4 * half + i, j);
                    KS_UNROLL(4)
                    for (uint32_t h = 0; h < n_heads; h++)
                        sums[h][i] = V::fma(V::broadcast(q[size_t(h) * d + base + 8 * j + 4 * half + i]), key, sums[h][i]);
                }
            }
            KS_UNROLL(4)
            for (uint32_t h = 0; h < n_heads; h++) halves[half][h] = (sums[h][0] + sums[h][1]) + (sums[h][2] + sums[h][3]);
        }
        for (uint32_t h = 0; h < n_heads; h++) {
            F sum = halves[0][h] + halves[1][h];
            if (least) sum = sum + V::broadcast(least[h]);
            V::store_first(logits + h * kAttentionTile + begin, sum, here);
        }
    }
}

template <class Lanes, uint32_t known_d> KS_INLINE auto lane_logits_of(uint32_t n_heads)
{
    return n_heads == 1   ? lane_logits<Lanes, 1, known_d>
           : n_heads == 2 ? lane_logits<Lanes, 2, known_d>
           : n_heads == 3 ? lane_logits<Lanes, 3, known_d>
                          : lane_logits<Lanes, 4, known_d>;
}

template <class Lanes> KS_INLINE auto lane_logits_of(uint32_t n_heads, uint32_t d)
{
    return d == 64    ? lane_logits_of<Lanes, 64>(n_heads)
           : d == 128 ? lane_logits_of<Lanes, 128>(n_heads)
           : d == 256 ? lane_logits_of<Lanes, 256>(n_heads)
                      : lane_logits_of<Lanes, 0>(n_heads);
}

} // namespace ks
