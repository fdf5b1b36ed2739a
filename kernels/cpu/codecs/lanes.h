// Logits straight from rows of codes, sixteen rows at a time, where a lane is a row: a value of each is picked by one vector of codes and
// multiplied with that of all heads, and nothing is added across lanes. The bits are those of rows that are decoded first, for a
// logit is still eight sums over every eighth dimension, added as sums8 does.
#pragma once

#include "kernels/cpu/codecs/rows.h"

namespace ks
{

// As many rows as there are lanes, of n of them: the last once more, where there are fewer.
template <class V> struct FullRows {
    uint32_t at[V::lanes];
    KS_INLINE FullRows(const uint32_t* rows, uint32_t n)
    {
        KS_UNROLL(16)
        for (uint32_t i = 0; i < V::lanes; i++) at[i] = rows[i < n ? i : n - 1];
    }
};

// Where as many rows as there are lanes begin, each of n_words.
template <class V> struct RowsAt {
    const uint32_t* row[V::lanes];
    KS_INLINE RowsAt(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n_words)
    {
        KS_UNROLL(16)
        for (uint32_t i = 0; i < V::lanes; i++) row[i] = from.words + size_t(rows[i] - first) * n_words;
    }
    KS_INLINE typename V::W word(uint32_t nth) const // of each row
    {
        const uint8_t* all[V::lanes];
        KS_UNROLL(16)
        for (uint32_t i = 0; i < V::lanes; i++) all[i] = reinterpret_cast<const uint8_t*>(row[i] + nth);
        return V::scattered_words(all);
    }
};

// Words of as many rows as there are lanes: lane i of word w is word w of row i, after them the tail. `bytes` of a row are known where
// d is.
template <class V> struct LaneRows {
    typename V::W word[codec_max_dim / 4 + codec_max_dim / 64 + V::lanes];

    KS_INLINE LaneRows(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t bytes)
    {
        const uint32_t n_words = bytes / 4, n_tail = bytes % 4;
        const RowsAt<V> at(from, rows, first, n_words);
        for (uint32_t w = 0; w < n_words; w += 4) { // the last four may be some once more: a row has four words and more
            const uint32_t begin = w + 4 < n_words ? w : n_words - 4;
            V::four_words(at.row, begin, word + begin);
        }
        if (!n_tail) return;
        const uint8_t* tails[V::lanes]; // the four bytes up to the end of each tail; the first comes after the words
        KS_UNROLL(16)
        for (uint32_t i = 0; i < V::lanes; i++) tails[i] = from.tails + (size_t(rows[i] - first) + 1) * n_tail - 4;
        word[n_words] = V::scattered_words(tails) >> int(32 - 8 * n_tail);
    }
    // Bits from one on, which lie in one word.
    KS_INLINE typename V::W at(uint32_t bit) const { return word[bit / 32] >> int(bit % 32); }
};

// How each codec's rows are read: words of the 64 values from `base` on, and value 8 j + i of each row. A plane of 64 dims with w words has
// dim 8 j + i in word i % w, under a shift by 4 j and what lies below.
template <class V, uint32_t bits> KS_INLINE typename V::W lane_code(const LaneRows<V>& row, uint32_t word, uint32_t i, uint32_t j)
{
    constexpr uint32_t n_words = 2 * bits;
    return row.word[word + i % n_words] >> int(4 * j + i / n_words * bits);
}

// How lanes read a codec's rows: specialised for its Row.
template <class Row> struct RowLanes;

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
