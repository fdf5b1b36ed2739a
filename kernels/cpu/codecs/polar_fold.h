// Logits of polar keys without decoding them: the query is reduced along a row's tree of angles. A
// node is low * cosine + high * sine of its two children. A block adds radius * root to the logit.
// Tables hold level 1 for every pair of query values and every code. All heads share the factors of
// higher levels. A lane is a row. The sums have another order than for decoded rows, with fewer
// than half the products.
#pragma once

#include "kernels/cpu/codecs/polar_lanes.h"

namespace ks
{

// Tables of level 1: to (d / 2, n_heads, lanes) from q (n_heads, d). Eight lanes hold the codes
// whose sine is not negative.
template <class S>
void fold_first(const float* q, uint32_t n_heads, uint32_t d, float* to)
{
    using V = typename S::Wide;
    static_assert(4 * V::lanes / 2 <= kPreparedFloats, "four queries");
    const PolarTables& t = PolarLanes<V>::tables();
    const typename V::F cosines = V::load(t.first[0]), sines = V::load(t.first[1]);
    for (uint32_t pair = 0; pair < d / 2; pair++)
        for (uint32_t h = 0; h < n_heads; h++, to += V::lanes) {
            const float* values = q + size_t(h) * d + 2 * pair;
            V::store(to, V::fma(V::broadcast(values[1]), sines, V::broadcast(values[0]) * cosines));
        }
}

template <class V, uint32_t n_heads>
struct PolarFold {
    using F = typename V::F;
    using W = typename V::W;
    using Codes = typename PolarLanes<V>::Codes;
    const PolarLanes<V> lanes;

    struct Node {
        F of[n_heads];
    };
    // Codes of level 1 for lookup16_signed. With tables of eight, bit 2 says whether the signs of
    // cosine and sine differ.
    struct First {
        W codes[8];
        const float* table; // the table of the first of 32 angles
    };

    template <uint32_t level>
    KS_INLINE Node node(const Node& low, const Node& high, W code) const
    {
        const F cosine = lanes.template cosine<level>(code),
                sine = lanes.template cosine<level>(code ^ V::each(7));
        Node x;
        KS_UNROLL(4)
        for (uint32_t h = 0; h < n_heads; h++)
            x.of[h] = V::fma(high.of[h], sine, low.of[h] * cosine);
        return x;
    }
    // Angle 8 j + i of 32. The codes are in n_words words.
    template <uint32_t n_words>
    KS_INLINE Node first(const First& f, uint32_t j, uint32_t i) const
    {
        const int shift = int(4 * (8 / n_words * j + i / n_words));
        const float* table = f.table + size_t(8 * j + i) * n_heads * V::lanes;
        const W code = f.codes[i % n_words] >> shift;
        Node x;
        KS_UNROLL(4)
        for (uint32_t h = 0; h < n_heads; h++)
            x.of[h] = V::lookup16_signed(table + h * V::lanes, code);
        return x;
    }
    template <uint32_t n_words>
    KS_INLINE Node second(const First& f, const Codes& c, uint32_t j, uint32_t i) const
    {
        const W code = lanes.nth(c.second, 4 * j + i);
        return node<2>(first<n_words>(f, j, 2 * i), first<n_words>(f, j, 2 * i + 1), code);
    }
    template <uint32_t n_words>
    KS_INLINE Node third(const First& f, const Codes& c, uint32_t j, uint32_t i) const
    {
        const W code = lanes.nth(c.third, 2 * j + i);
        return node<3>(second<n_words>(f, c, j, 2 * i), second<n_words>(f, c, j, 2 * i + 1), code);
    }
    // A block's root.
    template <uint32_t n_words>
    KS_INLINE Node fourth(const First& f, const Codes& c, uint32_t j) const
    {
        return node<4>(third<n_words>(f, c, j, 0), third<n_words>(f, c, j, 1),
                       lanes.nth(c.fourth, j));
    }
    KS_INLINE void add(Node& sums, F radius, const Node& x) const
    {
        KS_UNROLL(4)
        for (uint32_t h = 0; h < n_heads; h++) sums.of[h] = V::fma(radius, x.of[h], sums.of[h]);
    }
    template <uint32_t n_words>
    KS_INLINE void add_blocks(Node& sums, const First& f, const Codes& c, const F* radii) const
    {
        KS_UNROLL(2)
        for (uint32_t b = 0; b < 2; b++) {
            const Node low = fourth<n_words>(f, c, 2 * b), high = fourth<n_words>(f, c, 2 * b + 1);
            add(sums, radii[2 * b], low);
            add(sums, radii[2 * b + 1], high);
        }
    }
    // d is a multiple of 64.
    KS_INLINE Node logits(const LaneRows<V>& row, uint32_t d, const float* tables) const
    {
        Node sums;
        KS_UNROLL(4)
        for (uint32_t h = 0; h < n_heads; h++) sums.of[h] = V::zero();
        for (uint32_t g = 0; g < d / 64; g++) {
            const Codes c = lanes.codes(row, d, g);
            F radii[4];
            lanes.radii(row, d, g, radii);
            First f;
            f.table = tables + size_t(32) * g * n_heads * V::lanes;
            KS_UNROLL(8)
            for (uint32_t w = 0; w < 8; w++) {
                f.codes[w] = c.first[w];
                if (V::lanes == 8)
                    f.codes[w] = f.codes[w] ^ ((f.codes[w] >> 1) & V::each(0x44444444u));
            }
            if (lanes.is_half(d, g))
                add_blocks<4>(sums, f, c, radii);
            else
                add_blocks<8>(sums, f, c, radii);
        }
        return sums;
    }
};

// Logits of rows. known_d as in decode_groups. tables: from fold_first.
template <class V, uint32_t n_heads, uint32_t known_d>
void fold_rows(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d,
               const float* tables, float* logits, const PrefetchRows& ahead)
{
    if (known_d) d = known_d;
    const PolarFold<V, n_heads> fold;
    for (uint32_t begin = 0; begin < n; begin += V::lanes) {
        const uint32_t here = n - begin < V::lanes ? n - begin : V::lanes;
        const LaneRows<V> row(from, FullRows<V>(rows + begin, here).at, first, polar_bytes(d));
        prefetch(ahead, begin, here);
        const auto sums = fold.logits(row, d, tables);
        for (uint32_t h = 0; h < n_heads; h++)
            V::store_first(logits + h * kAttentionTile + begin, sums.of[h], here);
    }
}

template <class V, uint32_t known_d>
KS_INLINE auto fold_rows_of(uint32_t n_heads)
{
    return n_heads == 1   ? fold_rows<V, 1, known_d>
           : n_heads == 2 ? fold_rows<V, 2, known_d>
           : n_heads == 3 ? fold_rows<V, 3, known_d>
                          : fold_rows<V, 4, known_d>;
}

template <class S>
uint32_t polar_logits(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n,
                      uint32_t d, const float* tables, uint32_t n_heads, float* logits, float*,
                      const PrefetchRows& ahead)
{
    using V = typename S::Wide;
    if (d % 64) return 0;
    const auto fold = d == 64    ? fold_rows_of<V, 64>(n_heads)
                      : d == 128 ? fold_rows_of<V, 128>(n_heads)
                      : d == 256 ? fold_rows_of<V, 256>(n_heads)
                                 : fold_rows_of<V, 0>(n_heads);
    fold(from, rows, first, n, d, tables, logits, ahead);
    return n;
}

} // namespace ks
