// Logits and outputs of one token straight from rows of codes; decoded values stay in registers.
// Bits equal those of rows that are decoded first, except for kivi's groups, byte_logits.h and
// polar_fold.h, whose sums have another order.
#pragma once

#include "kernels/cpu/codecs/lanes.h"

namespace ks
{

// Vectors of sums that fit in registers beside their operands.
constexpr uint32_t kSumsAtOnce = 8;

// Reads 64 values of a row from the dim given to begin() on.
template <class Row>
struct RowReader {
    using V = typename Row::V;
    const uint32_t* words;
    const uint8_t* tails;
    uint32_t n_words, n_tail, d, base = 0;
    Row decoder;

    KS_INLINE RowReader(const CodedRows& from, uint32_t dims)
        : words(from.words), tails(from.tails), n_words(from.row_words), n_tail(from.row_tail),
          d(dims)
    {
    }
    KS_INLINE void begin(uint32_t dim) { base = dim; }
    using Part = typename Row::Values;
    KS_INLINE Part part(const uint32_t* rows) const
    {
        return Part(decoder, OneRow<V>(words, tails, n_words, n_tail, rows), d, base);
    }
    KS_INLINE typename V::F key(const Part& part, int nth) const { return part.at(nth); }
    KS_INLINE typename V::F logits(uint32_t, typename V::F sums) const { return sums; }
};

// logits[h * kAttentionTile + i] with vectors of eight lanes, eight keys at a time. Vectors of
// sixteen lanes use lane_logits.
template <class Reader, uint32_t n_heads>
void rows_logits(Reader reader, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d,
                 const float* q, float* logits, const PrefetchRows& ahead)
{
    using V = typename Reader::V;
    static_assert(V::lanes == 8, "a vector of logits");
    constexpr uint32_t n_part = 8 * n_heads <= kSumsAtOnce ? 8 : 4 * n_heads <= kSumsAtOnce ? 4 : 2;
    for (uint32_t from = 0; from < n; from += 8) {
        const uint32_t here = n - from < 8 ? n - from : 8;
        FullRows<V> full(rows + from, here);
        prefetch(ahead, from, here);
        KS_UNROLL(8)
        for (uint32_t& row : full.at) row -= first;
        typename V::F all[n_heads][8];
        KS_UNROLL(8)
        for (uint32_t begin = 0; begin < 8; begin += n_part) {
            typename V::F sums[n_heads][n_part];
            KS_UNROLL(4)
            for (uint32_t h = 0; h < n_heads; h++) KS_UNROLL(8)
            for (uint32_t i = 0; i < n_part; i++) sums[h][i] = V::zero();
            for (uint32_t base = 0; base < d; base += 64) {
                reader.begin(base);
                typename Reader::Part parts[n_part];
                KS_UNROLL(8)
                for (uint32_t i = 0; i < n_part; i++) parts[i] = reader.part(full.at + begin + i);
                KS_UNROLL(8)
                for (uint32_t j = 0; j < 8; j++) {
                    typename V::F query[n_heads];
                    KS_UNROLL(4)
                    for (uint32_t h = 0; h < n_heads; h++)
                        query[h] = V::load_repeated(q + size_t(h) * d + base + 8 * j);
                    KS_UNROLL(8)
                    for (uint32_t i = 0; i < n_part; i++) {
                        const typename V::F key = reader.key(parts[i], int(j));
                        KS_UNROLL(4)
                        for (uint32_t h = 0; h < n_heads; h++)
                            sums[h][i] = V::fma(query[h], key, sums[h][i]);
                    }
                }
            }
            KS_UNROLL(4)
            for (uint32_t h = 0; h < n_heads; h++) KS_UNROLL(8)
            for (uint32_t i = 0; i < n_part; i++) all[h][begin + i] = sums[h][i];
        }
        for (uint32_t h = 0; h < n_heads; h++)
            V::store_first(logits + h * kAttentionTile + from, reader.logits(h, V::sums8(all[h])),
                           here);
    }
}

template <class Reader>
KS_INLINE auto rows_logits_of(uint32_t n_heads)
{
    return n_heads == 1   ? rows_logits<Reader, 1>
           : n_heads == 2 ? rows_logits<Reader, 2>
           : n_heads == 3 ? rows_logits<Reader, 3>
                          : rows_logits<Reader, 4>;
}

template <class Row>
uint32_t row_logits(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n,
                    uint32_t d, const float* q, uint32_t n_heads, float* logits, float*,
                    const PrefetchRows& ahead)
{
    if (d % 64) return 0;
    if constexpr (Row::V::lanes == 16)
        lane_logits_of<RowLanes<Row>>(n_heads, d)(from, rows, first, n, d, q, nullptr, logits,
                                                  ahead);
    else
        rows_logits_of<RowReader<Row>>(n_heads)(RowReader<Row>(from, d), rows, first, n, d, q,
                                                logits, ahead);
    return n;
}

// Load and store sums of 64 dims: vectors of adjacent dims, or of every fourth dim
// (RowDecoder::by_fours).
template <class V, bool fours>
KS_INLINE void load_sums(const float* from, typename V::F* sum)
{
    if constexpr (fours) {
        V::deinterleave4(from, sum);
    } else {
        KS_UNROLL(8)
        for (uint32_t j = 0; j < 64 / V::lanes; j++) sum[j] = V::load(from + V::lanes * j);
    }
}
template <class V, bool fours>
KS_INLINE void store_sums(float* to, const typename V::F* sum)
{
    if constexpr (fours) {
        V::interleave4(to, sum);
    } else {
        KS_UNROLL(8)
        for (uint32_t j = 0; j < 64 / V::lanes; j++) V::store(to + V::lanes * j, sum[j]);
    }
}

// sums[h] += weights[h][i] * row i, for 64 dims from `base` on. Sums stay in registers.
template <class Row, uint32_t n_heads>
KS_INLINE void add_dims(const Row& decoder, const CodedRows& from, const uint32_t* rows,
                        uint32_t first, uint32_t n, uint32_t d, uint32_t base, const float* weights,
                        float* sums, uint32_t stride, const PrefetchRows& ahead)
{
    using V = typename Row::V;
    constexpr uint32_t lanes = V::lanes, n_vectors = 64 / lanes;
    const uint32_t *const words = from.words, n_words = from.row_words, n_tail = from.row_tail;
    const uint8_t* const tails = from.tails;
    typename V::F sum[n_heads][n_vectors];
    KS_UNROLL(4)
    for (uint32_t h = 0; h < n_heads; h++)
        load_sums<V, Row::by_fours>(sums + h * stride + base, sum[h]);
    // Rows that are prefetched before row i. Each pass over 64 dims prefetches its share.
    const auto n_ahead = [&](uint32_t i) { return (n * base + 64 * i) / d; };
    for (uint32_t i = 0; i < n;) {
        const uint32_t end = i + 16 < n ? i + 16 : n;
        prefetch(ahead, n_ahead(i), n_ahead(end) - n_ahead(i));
        for (; i < end; i++) {
            const uint32_t row = rows[i] - first;
            const typename Row::Values values(
                decoder, OneRow<V>(words, tails, n_words, n_tail, &row), d, base);
            KS_UNROLL(4)
            for (uint32_t h = 0; h < n_heads; h++) {
                const typename V::F weight = V::broadcast(weights[h * kAttentionTile + i]);
                KS_UNROLL(8)
                for (uint32_t j = 0; j < n_vectors; j++)
                    sum[h][j] = V::fma(weight, values.at(int(j)), sum[h][j]);
            }
        }
    }
    KS_UNROLL(4)
    for (uint32_t h = 0; h < n_heads; h++)
        store_sums<V, Row::by_fours>(sums + h * stride + base, sum[h]);
}

// Runs one loop over the rows for each 64 dims. known_d as in decode_groups.
template <class Row, uint32_t n_heads, uint32_t known_d>
void add_rows(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d,
              const float* weights, float* sums, uint32_t stride, const PrefetchRows& ahead)
{
    const Row decoder;
    if constexpr (known_d != 0) {
        KS_UNROLL(4)
        for (uint32_t base = 0; base < known_d; base += 64)
            add_dims<Row, n_heads>(decoder, from, rows, first, n, known_d, base, weights, sums,
                                   stride, ahead);
    } else {
        for (uint32_t base = 0; base < d; base += 64)
            add_dims<Row, n_heads>(decoder, from, rows, first, n, d, base, weights, sums, stride,
                                   ahead);
    }
}

// Returns 0 if the sums of n_heads do not fit in registers, or d is no multiple of 64.
template <class Row, uint32_t known_d = 0>
uint32_t row_outputs(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n,
                     uint32_t d, const float* weights, uint32_t n_heads, float* sums,
                     uint32_t stride, const PrefetchRows& ahead)
{
    constexpr bool wide = Row::V::lanes == 16;
    if (d % 64 || n_heads > (wide ? 4 : 1)) return 0;
    const auto add = n_heads == 1   ? add_rows<Row, 1, known_d>
                     : n_heads == 2 ? add_rows<Row, (wide ? 2 : 1), known_d>
                     : n_heads == 3 ? add_rows<Row, (wide ? 3 : 1), known_d>
                                    : add_rows<Row, (wide ? 4 : 1), known_d>;
    add(from, rows, first, n, d, weights, sums, stride, ahead);
    return n;
}

} // namespace ks
