// Logits straight from rows of codes: a lane is a row. One vector of codes looks up a value of
// every row, which is multiplied by the queries of all heads; nothing is added across lanes. A
// logit is eight sums over every eighth dim, added as sums8 does, so bits equal those of decoded
// rows.
#pragma once

#include "kernels/cpu/codecs/rows.h"

namespace ks
{

// One row per lane; with fewer than V::lanes rows, the last is repeated.
template <class V>
struct FullRows {
    uint32_t at[V::lanes];
    KS_INLINE FullRows(const uint32_t* rows, uint32_t n)
    {
        KS_UNROLL(16)
        for (uint32_t i = 0; i < V::lanes; i++) at[i] = rows[i < n ? i : n - 1];
    }
};

// Pointers to one row per lane, of n_words words each.
template <class V>
struct RowsAt {
    const uint32_t* row[V::lanes];
    KS_INLINE RowsAt(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n_words)
    {
        KS_UNROLL(16)
        for (uint32_t i = 0; i < V::lanes; i++)
            row[i] = from.words + size_t(rows[i] - first) * n_words;
    }
    // Word `nth` of each row.
    KS_INLINE typename V::W word(uint32_t nth) const
    {
        const uint8_t* all[V::lanes];
        KS_UNROLL(16)
        for (uint32_t i = 0; i < V::lanes; i++)
            all[i] = reinterpret_cast<const uint8_t*>(row[i] + nth);
        return V::gather_words(all);
    }
};

// The words of one row per lane: lane i of word[w] is word w of row i. The tail follows the words.
// `bytes` is a row's size, a constant if d is.
template <class V>
struct LaneRows {
    typename V::W word[codec_max_dim / 4 + codec_max_dim / 64 + V::lanes];

    KS_INLINE LaneRows(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t bytes)
    {
        const uint32_t n_words = bytes / 4, n_tail = bytes % 4;
        const RowsAt<V> at(from, rows, first, n_words);
        // The last four words may overlap the four before. A row has at least four words.
        for (uint32_t w = 0; w < n_words; w += 4) {
            const uint32_t begin = w + 4 < n_words ? w : n_words - 4;
            V::transpose_words(at.row, begin, word + begin);
        }
        if (!n_tail) return;
        // The four bytes that end with each tail. Words lie before the first tail.
        const uint8_t* tails[V::lanes];
        KS_UNROLL(16)
        for (uint32_t i = 0; i < V::lanes; i++)
            tails[i] = from.tails + (size_t(rows[i] - first) + 1) * n_tail - 4;
        word[n_words] = V::gather_words(tails) >> int(32 - 8 * n_tail);
    }
    // Bits from `bit` on, within one word.
    KS_INLINE typename V::W at(uint32_t bit) const { return word[bit / 32] >> int(bit % 32); }
};

// The code of dim 8 j + i, of 64 dims whose plane begins at `word`, in the low bits of each lane.
// It is in word i % n_words of the plane.
template <class V, uint32_t bits>
KS_INLINE typename V::W lane_code(const LaneRows<V>& row, uint32_t word, uint32_t i, uint32_t j)
{
    constexpr uint32_t n_words = 2 * bits;
    return row.word[word + i % n_words] >> int(4 * j + i / n_words * bits);
}

// Reads dim 8 j + i of the 64 dims from `base` on, for one row per lane. Codecs specialise it for
// their Row.
template <class Row>
struct RowLanes;

// logits[h * kAttentionTile + i] of rows rows[i] - first, plus least[h] unless least is null.
template <class Lanes, uint32_t n_heads, uint32_t known_d>
void lane_logits(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n,
                 uint32_t d, const float* q, const float* least, float* logits,
                 const PrefetchRows& ahead)
{
    using V = typename Lanes::V;
    using F = typename V::F;
    if (known_d) d = known_d;
    for (uint32_t begin = 0; begin < n; begin += V::lanes) {
        const uint32_t here = n - begin < V::lanes ? n - begin : V::lanes;
        const LaneRows<V> row(from, FullRows<V>(rows + begin, here).at, first, Lanes::bytes(d));
        prefetch(ahead, begin, here);
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
                        sums[h][i] =
                            V::fma(V::broadcast(q[size_t(h) * d + base + 8 * j + 4 * half + i]),
                                   key, sums[h][i]);
                }
            }
            KS_UNROLL(4)
            for (uint32_t h = 0; h < n_heads; h++)
                halves[half][h] = (sums[h][0] + sums[h][1]) + (sums[h][2] + sums[h][3]);
        }
        for (uint32_t h = 0; h < n_heads; h++) {
            F sum = halves[0][h] + halves[1][h];
            if (least) sum = sum + V::broadcast(least[h]);
            V::store_first(logits + h * kAttentionTile + begin, sum, here);
        }
    }
}

template <class Lanes, uint32_t known_d>
KS_INLINE auto lane_logits_of(uint32_t n_heads)
{
    return n_heads == 1   ? lane_logits<Lanes, 1, known_d>
           : n_heads == 2 ? lane_logits<Lanes, 2, known_d>
           : n_heads == 3 ? lane_logits<Lanes, 3, known_d>
                          : lane_logits<Lanes, 4, known_d>;
}

template <class Lanes>
KS_INLINE auto lane_logits_of(uint32_t n_heads, uint32_t d)
{
    return d == 64    ? lane_logits_of<Lanes, 64>(n_heads)
           : d == 128 ? lane_logits_of<Lanes, 128>(n_heads)
           : d == 256 ? lane_logits_of<Lanes, 256>(n_heads)
                      : lane_logits_of<Lanes, 0>(n_heads);
}

} // namespace ks
