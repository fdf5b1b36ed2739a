// Logits and outputs of one token straight from rows of codes: what is decoded stays in registers. The bits are those of rows that are
// decoded first.
#pragma once

#include "kernels/cpu/codec_decode.h"

#include <type_traits>

namespace ks
{

// As many rows as a vector has eights.
template <class V> using KeyRows = std::conditional_t<V::lanes == 16, TwoRows<V>, OneRow<V>>;

// 64 values of rows, eight in a vector, of the dims that begin() was told.
template <class Row> struct RowReader {
    using V = typename Row::V;
    const uint32_t* words;
    const uint8_t* tails;
    uint32_t n_words, n_tail, d, base = 0;
    Row decoder;

    KS_INLINE RowReader(const CodedRows& from, uint32_t dims)
        : words(from.words), tails(from.tails), n_words(from.row_words), n_tail(from.row_tail), d(dims)
    {
    }
    KS_INLINE void begin(uint32_t dim) { base = dim; }
    KS_INLINE void read(const uint32_t* rows, typename V::F* x) const
    {
        decoder.decode(KeyRows<V>(words, tails, n_words, n_tail, rows), d, base, x);
    }
};

// The same of rows of one group, whose ranges are read once for all.
template <class S, uint32_t bits> struct GroupReader {
    using V = typename S::Wide;
    const uint32_t *group, *words;
    uint32_t d;
    typename V::F scale[8], least[8];

    KS_INLINE GroupReader(const uint32_t* codes, uint32_t dims) : group(codes), d(dims) {}
    KS_INLINE void begin(uint32_t base)
    {
        words = group + d + base / 32 * bits;
        KS_UNROLL(8)
        for (uint32_t j = 0; j < 8; j++) V::half2(V::template repeat<8>(group + base + 8 * j), &scale[j], &least[j]);
    }
    KS_INLINE void read(const uint32_t* rows, typename V::F* x) const
    {
        const uint32_t nth[2] = {rows[0] % kivi_rows, rows[KeyRows<V>::n_rows - 1] % kivi_rows};
        const typename V::W codes = KeyRows<V>(words, nullptr, bits * d / 32, 0, nth).template plane<bits>(0);
        KS_UNROLL(8)
        for (int j = 0; j < 8; j++) x[j] = V::fma(CodeFloats<bits, 0>::template of<V>(codes >> 4 * j), scale[j], least[j]);
    }
};

// logits[h * kAttentionTile + i], in the order of few_logits: eight vectors of keys have a sum for each head.
template <class Reader, uint32_t n_heads>
void rows_logits(Reader reader, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d, const float* q, float* logits)
{
    using V = typename Reader::V;
    constexpr uint32_t n_rows = KeyRows<V>::n_rows, step = 8 * n_rows;
    static_assert(step == V::lanes, "a vector of logits");
    for (uint32_t from = 0; from < n; from += step) {
        const uint32_t here = n - from < step ? n - from : step;
        uint32_t at[step]; // the last row once more, where there are fewer
        KS_UNROLL(16)
        for (uint32_t i = 0; i < step; i++) at[i] = rows[from + (i < here ? i : here - 1)] - first;
        typename V::F sums[n_heads][8];
        KS_UNROLL(4)
        for (uint32_t h = 0; h < n_heads; h++) KS_UNROLL(8)
        for (uint32_t i = 0; i < 8; i++) sums[h][i] = V::zero();
        for (uint32_t base = 0; base < d; base += 64) {
            reader.begin(base);
            KS_UNROLL(8)
            for (uint32_t i = 0; i < 8; i++) {
                typename V::F keys[8];
                reader.read(at + n_rows * i, keys);
                KS_UNROLL(8)
                for (uint32_t j = 0; j < 8; j++) KS_UNROLL(4)
                for (uint32_t h = 0; h < n_heads; h++)
                    sums[h][i] = V::fma(V::load_repeated(q + size_t(h) * d + base + 8 * j), keys[j], sums[h][i]);
            }
        }
        for (uint32_t h = 0; h < n_heads; h++) {
            float* const to = logits + h * kAttentionTile + from;
            float some[step];
            V::store(here == step ? to : some, V::sums8(sums[h]));
            for (uint32_t i = 0; i < here && here < step; i++) to[i] = some[i];
        }
    }
}

template <class Reader> KS_INLINE auto rows_logits_of(uint32_t n_heads)
{
    return n_heads == 1   ? rows_logits<Reader, 1>
           : n_heads == 2 ? rows_logits<Reader, 2>
           : n_heads == 3 ? rows_logits<Reader, 3>
                          : rows_logits<Reader, 4>;
}

template <class Row> uint32_t row_logits(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d,
                                         const float* q, uint32_t n_heads, float* logits, float*)
{
    if (d % 64) return 0;
    rows_logits_of<RowReader<Row>>(n_heads)(RowReader<Row>(from, d), rows, first, n, d, q, logits);
    return n;
}

template <class S, uint32_t bits> uint32_t group_logits(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d,
                                                        const float* q, uint32_t n_heads, float* logits, float*)
{
    if (d % 64) return 0;
    const auto some = rows_logits_of<GroupReader<S, bits>>(n_heads);
    for (uint32_t i = 0, end; i < n; i = end) {
        const uint32_t nth = (rows[i] - first) / kivi_rows;
        for (end = i + 1; end < n && (rows[end] - first) / kivi_rows == nth;) end++;
        const GroupReader<S, bits> reader(from.words + size_t(nth) * kivi_group_words(bits, d), d);
        some(reader, rows + i, first, end - i, d, q, logits + i);
    }
    return n;
}

// Sums of 64 dims: neighbours in a vector, or every fourth.
template <class V, bool by_fours> KS_INLINE void load_sums(const float* from, typename V::F* sum)
{
    if constexpr (by_fours) {
        V::load_fours(from, sum);
    } else {
        KS_UNROLL(8)
        for (uint32_t j = 0; j < 64 / V::lanes; j++) sum[j] = V::load(from + V::lanes * j);
    }
}
template <class V, bool by_fours> KS_INLINE void store_sums(float* to, const typename V::F* sum)
{
    if constexpr (by_fours) {
        V::store_fours(to, sum);
    } else {
        KS_UNROLL(8)
        for (uint32_t j = 0; j < 64 / V::lanes; j++) V::store(to + V::lanes * j, sum[j]);
    }
}

// sums[h] += weights[h][i] * row i, 64 dims from `base` on: what is decoded stays in registers, and so do the sums.
template <class Row, uint32_t n_heads, bool by_fours>
KS_INLINE void add_dims(const Row& decoder, const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d,
                        uint32_t base, const float* weights, float* sums, uint32_t stride)
{
    using V = typename Row::V;
    constexpr uint32_t lanes = V::lanes, n_vectors = 64 / lanes;
    const uint32_t *const words = from.words, n_words = from.row_words, n_tail = from.row_tail;
    const uint8_t* const tails = from.tails;
    typename V::F sum[n_heads][n_vectors];
    KS_UNROLL(4)
    for (uint32_t h = 0; h < n_heads; h++) load_sums<V, by_fours>(sums + h * stride + base, sum[h]);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t row = rows[i] - first;
        typename V::F values[n_vectors];
        decoder.decode(OneRow<V>(words, tails, n_words, n_tail, &row), d, base, values);
        KS_UNROLL(4)
        for (uint32_t h = 0; h < n_heads; h++) {
            const typename V::F weight = V::broadcast(weights[h * kAttentionTile + i]);
            KS_UNROLL(8)
            for (uint32_t j = 0; j < n_vectors; j++) sum[h][j] = V::fma(weight, values[j], sum[h][j]);
        }
    }
    KS_UNROLL(4)
    for (uint32_t h = 0; h < n_heads; h++) store_sums<V, by_fours>(sums + h * stride + base, sum[h]);
}

// known_d as in decode_groups: a loop for each 64 dims
template <class Row, uint32_t n_heads, uint32_t known_d, bool by_fours> void add_rows(const CodedRows& from, const uint32_t* rows,
                                                                                      uint32_t first, uint32_t n, uint32_t d,
                                                                                      const float* weights, float* sums, uint32_t stride)
{
    const Row decoder;
    if constexpr (known_d != 0) {
        KS_UNROLL(4)
        for (uint32_t base = 0; base < known_d; base += 64)
            add_dims<Row, n_heads, by_fours>(decoder, from, rows, first, n, known_d, base, weights, sums, stride);
    } else {
        for (uint32_t base = 0; base < d; base += 64)
            add_dims<Row, n_heads, by_fours>(decoder, from, rows, first, n, d, base, weights, sums, stride);
    }
}

// Where there are registers for the sums.
template <class Row, uint32_t known_d = 0, bool by_fours = false>
uint32_t row_outputs(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d, const float* weights,
                     uint32_t n_heads, float* sums, uint32_t stride)
{
    constexpr bool many = Row::V::lanes == 16;
    if (d % 64 || n_heads > (many ? 4 : 1)) return 0;
    const auto add = n_heads == 1   ? add_rows<Row, 1, known_d, by_fours>
                     : n_heads == 2 ? add_rows<Row, (many ? 2 : 1), known_d, by_fours>
                     : n_heads == 3 ? add_rows<Row, (many ? 3 : 1), known_d, by_fours>
                                    : add_rows<Row, (many ? 4 : 1), known_d, by_fours>;
    add(from, rows, first, n, d, weights, sums, stride);
    return n;
}

// With sixteen lanes one row at a time, for vectors of rows would have to be turned.
template <class S, bool fine> uint32_t polar_outputs(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d,
                                                     const float* weights, uint32_t n_heads, float* sums, uint32_t stride)
{
    if constexpr (S::Wide::lanes == 16) {
        using Row = PolarRow<S, fine>;
        const auto outputs = d == 64    ? row_outputs<Row, 64, true>
                             : d == 128 ? row_outputs<Row, 128, true>
                             : d == 256 ? row_outputs<Row, 256, true>
                                        : row_outputs<Row, 0, true>;
        return outputs(from, rows, first, n, d, weights, n_heads, sums, stride);
    } else {
        return polar_lane_outputs<S, fine>(from, rows, first, n, d, weights, n_heads, sums, stride);
    }
}

// In the order of CpuCodec. Keys are not in those that are for values only.
#define KS_LOGITS(S)                                                                                                                       \
    {                                                                                                                                      \
        nullptr, nullptr, row_logits<Q8Row<S>>, row_logits<Q4Row<S>>, row_logits<TurboRow<S, 8>>, row_logits<TurboRow<S, 4>>,              \
            row_logits<TurboRow<S, 2>>, row_logits<TurboRow<S, 2>>, polar_logits<S, false>, polar_logits<S, true>, nullptr, nullptr,       \
            group_logits<S, 4>, group_logits<S, 2>                                                                                         \
    }

#define KS_OUTPUTS(S)                                                                                                                      \
    {                                                                                                                                      \
        nullptr, nullptr, row_outputs<Q8Row<S>>, row_outputs<Q4Row<S>>, row_outputs<TurboRow<S, 8>>, row_outputs<TurboRow<S, 4>>,          \
            row_outputs<TurboRow<S, 2>>, row_outputs<TurboRow<S, 2>>, polar_outputs<S, false>, polar_outputs<S, true>,                     \
            row_outputs<KiviRow<S, 4>>, row_outputs<KiviRow<S, 2>>                                                                         \
    }

} // namespace ks
