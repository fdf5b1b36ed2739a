// Coded rows to f32, many at a time, as attention reads them. Rows of whole groups of 64 values have loops of their own, with
// neither a copy of the row nor a branch; the bits are those of codec_vectors.h, which does all others.
#pragma once

#include "kernels/cpu/kivi_vectors.h"
#include "kernels/cpu/polar_rows.h"
#include "kernels/cpu/vector_math.h"

namespace ks
{

// Bytes of a row from `begin` on, all of them words or all of them tail.
template <class Word> KS_INLINE uint32_t row_bytes_at(const uint32_t* words, const uint8_t* tail, uint32_t row_bytes, uint32_t begin)
{
    const uint32_t in_words = row_bytes / 4 * 4;
    Word word;
    memcpy(&word, begin < in_words ? reinterpret_cast<const uint8_t*>(words) + begin : tail + (begin - in_words), sizeof word);
    return word;
}

// Of each codec, 64 values of a row, from the one at `base` on, in registers.
template <class S> struct Q8Row {
    using V = typename S::Wide;
    static constexpr DecodeRowKernel any_dim = decode_q8<S>;
    KS_INLINE void decode(const uint32_t* words, const uint8_t*, uint32_t d, uint32_t base, typename V::F* x) const
    {
        constexpr int lanes = V::lanes;
        const int8_t* q = reinterpret_cast<const int8_t*>(words) + base;
        const uint16_t* scales = reinterpret_cast<const uint16_t*>(words + d / 4) + base / 32;
        const typename V::F scale[2] = {V::broadcast_half(scales[0]), V::broadcast_half(scales[1])};
        KS_UNROLL(8)
        for (int i = 0; i < 64; i += lanes) x[i / lanes] = scale[i / 32] * V::to_float(V::load_bytes(q + i));
    }
};

// The codes of a plane's 64 dims: neighbours under each shift of half the lanes.
template <class V, uint32_t bits> KS_INLINE typename V::W plane_words(const uint32_t* words)
{
    static const uint32_t right[3][16] = {{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7},
                                          {0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6},
                                          {0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4}};
    const typename V::W all = V::template repeat<2 * bits>(words);
    return 2 * bits == V::lanes ? all : V::shift_each(all, right[bits / 2]);
}

template <class S> struct Q4Row {
    using V = typename S::Wide;
    static constexpr DecodeRowKernel any_dim = decode_q4<S>;
    KS_INLINE void decode(const uint32_t* words, const uint8_t*, uint32_t d, uint32_t base, typename V::F* x) const
    {
        constexpr int lanes = V::lanes;
        const uint16_t* scales = reinterpret_cast<const uint16_t*>(words + d / 8) + base / 32;
        const typename V::W codes = plane_words<V, 4>(words + base / 8);
        const typename V::F scale[2] = {V::broadcast_half(scales[0]), V::broadcast_half(scales[1])};
        KS_UNROLL(8)
        for (int i = 0; i < 64; i += lanes) x[i / lanes] = scale[i / 32] * V::to_float(((codes >> (i / 2)) & V::each(15)) - V::each(8));
    }
};

template <class S, uint32_t ranks> struct TurboRow {
    using V = typename S::Wide;
    using W = typename V::W;
    static constexpr DecodeRowKernel any_dim = decode_turbo<S, ranks>;
    float levels[16]; // by the low bits of a code, of which fewer than four may count; magnitudes, where signs are elsewhere
    KS_INLINE TurboRow()
    {
        for (uint32_t i = 0; i < 16; i++) {
            levels[i] = ranks == 2 ? turbo_level(2, i % 4) : turbo_magnitude(ranks, i % ranks);
            if (ranks == 8 && i >= 8) levels[i] = -levels[i];
        }
    }
    KS_INLINE typename V::F level(W code, W sign) const
    {
        return ranks == 8   ? V::pick_signed(levels, code)
               : ranks == 4 ? V::negate(V::pick(levels, code), sign << 31)
                            : V::pick(levels, code);
    }
    KS_INLINE void decode(const uint32_t* words, const uint8_t* tail, uint32_t d, uint32_t base, typename V::F* x) const
    {
        constexpr int lanes = V::lanes;
        const uint32_t bytes = turbo_bytes(ranks, d);
        const typename V::F scale = V::broadcast_half(row_bytes_at<uint16_t>(words, tail, bytes, bytes - 2));
        const W codes = ranks == 8 ? plane_words<V, 4>(words + base / 8) : plane_words<V, 2>(words + base / 16);
        const W signs = ranks == 4 ? plane_words<V, 1>(words + d / 16 + base / 32) : codes;
        KS_UNROLL(8)
        for (int i = 0; i < 64; i += lanes) x[i / lanes] = scale * level(codes >> (i / 2), signs >> (i / 2));
    }
};

template <class S, uint32_t bits> struct KiviRow {
    using V = typename S::Wide;
    static constexpr DecodeRowKernel any_dim = decode_kivi_row<S, bits>;
    KS_INLINE void decode(const uint32_t* words, const uint8_t*, uint32_t d, uint32_t base, typename V::F* x) const
    {
        constexpr int lanes = V::lanes;
        const uint32_t* ranges = words + (bits * d + base) / 32;
        const typename V::W codes = plane_words<V, bits>(words + base * bits / 32), mask = V::each((1u << bits) - 1);
        const typename V::F scale[2] = {V::broadcast_half(ranges[0] & 0xffff), V::broadcast_half(ranges[1] & 0xffff)};
        const typename V::F least[2] = {V::broadcast_half(ranges[0] >> 16), V::broadcast_half(ranges[1] >> 16)};
        KS_UNROLL(8)
        for (int i = 0; i < 64; i += lanes) x[i / lanes] = V::fma(V::to_float((codes >> (i / 2)) & mask), scale[i / 32], least[i / 32]);
    }
};

// known_d: d where it is one of the usual, so that all within a row has its place at compile time; else 0
template <class Row, uint32_t known_d>
void decode_groups(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d, float* x, const Ahead& ahead)
{
    if (known_d) d = known_d;
    using V = typename Row::V;
    const Row decoder;
    const uint32_t n_words = from.row_words, n_tail = from.row_tail;
    for (uint32_t i = 0; i < n; i++, x += d) {
        const size_t row = rows[i] - first;
        ask(ahead, i);
        for (uint32_t base = 0; base < d; base += 64) {
            typename V::F values[64 / V::lanes];
            decoder.decode(from.words + row * n_words, from.tails + row * n_tail, d, base, values);
            KS_UNROLL(8)
            for (uint32_t j = 0; j < 64 / V::lanes; j++) V::store(x + base + V::lanes * j, values[j]);
        }
    }
}

// Rows rows[i] - first of a pool, x (n, d).
template <class Row>
void decode_rows(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d, float* x, const Ahead& ahead)
{
    if (d == 64) return decode_groups<Row, 64>(from, rows, first, n, d, x, ahead);
    if (d == 128) return decode_groups<Row, 128>(from, rows, first, n, d, x, ahead);
    if (d == 256) return decode_groups<Row, 256>(from, rows, first, n, d, x, ahead);
    if (d % 64 == 0) return decode_groups<Row, 0>(from, rows, first, n, d, x, ahead);
    for (uint32_t i = 0; i < n; i++) {
        const size_t row = rows[i] - first;
        ask(ahead, i);
        Row::any_dim(from.words + row * from.row_words, from.tails + row * from.row_tail, d, x + size_t(i) * d);
    }
}

// sums[h] += weights[h][i] * row i: what is decoded stays in registers, and so do the sums of 64 dims.
template <class Row, uint32_t n_heads> void add_rows(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d,
                                                     const float* weights, float* sums, uint32_t stride, Ahead ahead)
{
    using V = typename Row::V;
    constexpr uint32_t lanes = V::lanes, n_vectors = 64 / lanes;
    const Row decoder;
    const uint32_t n_words = from.row_words, n_tail = from.row_tail;
    for (uint32_t base = 0; base < d; base += 64, ahead.n = 0) {
        typename V::F sum[n_heads][n_vectors];
        KS_UNROLL(4)
        for (uint32_t h = 0; h < n_heads; h++) KS_UNROLL(8)
        for (uint32_t j = 0; j < n_vectors; j++) sum[h][j] = V::load(sums + h * stride + base + lanes * j);
        for (uint32_t i = 0; i < n; i++) {
            const size_t row = rows[i] - first;
            ask(ahead, i);
            typename V::F values[n_vectors];
            decoder.decode(from.words + row * n_words, from.tails + row * n_tail, d, base, values);
            KS_UNROLL(4)
            for (uint32_t h = 0; h < n_heads; h++) {
                const typename V::F weight = V::broadcast(weights[h * kAttentionTile + i]);
                KS_UNROLL(8)
                for (uint32_t j = 0; j < n_vectors; j++) sum[h][j] = V::fma(weight, values[j], sum[h][j]);
            }
        }
        KS_UNROLL(4)
        for (uint32_t h = 0; h < n_heads; h++) KS_UNROLL(8)
        for (uint32_t j = 0; j < n_vectors; j++) V::store(sums + h * stride + base + lanes * j, sum[h][j]);
    }
}

// Where there are registers for the sums.
template <class Row> uint32_t row_outputs(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d,
                                          const float* weights, uint32_t n_heads, float* sums, uint32_t stride, const Ahead& ahead)
{
    constexpr bool many = Row::V::lanes == 16;
    if (d % 64 || n_heads > (many ? 4 : 1)) return 0;
    constexpr decltype(&add_rows<Row, 1>) add[4] = {add_rows<Row, 1>, add_rows<Row, (many ? 2 : 1)>, add_rows<Row, (many ? 3 : 1)>,
                                                    add_rows<Row, (many ? 4 : 1)>};
    add[n_heads - 1](from, rows, first, n, d, weights, sums, stride, ahead);
    return n;
}

// Some rows of one group, x (n, d): ranges are read once for all.
template <class S, uint32_t bits> KS_INLINE void decode_group_rows(const uint32_t* group, const uint32_t* rows, uint32_t first, uint32_t n,
                                                                   uint32_t d, float* x, const Ahead& ahead)
{
    using V = typename S::Wide;
    constexpr int lanes = V::lanes;
    const uint32_t row_words = bits * d / 32;
    for (uint32_t base = 0; base < d; base += 32) {
        typename V::F scale[32 / lanes], least[32 / lanes];
        KS_UNROLL(4)
        for (int j = 0; j < 32 / lanes; j++) V::half2(V::words(group + base + lanes * j), &scale[j], &least[j]);
        const uint32_t* words = group + d + base / 64 * (2 * bits);
        const int half = base % 64 ? 16 : 0;
        for (uint32_t i = 0; i < n; i++) {
            const typename V::W codes = plane_words<V, bits>(words + (rows[i] - first) % kivi_rows * row_words) >> half;
            float* out = x + size_t(i) * d + base;
            if (base == 0) ask(ahead, i);
            KS_UNROLL(4)
            for (int j = 0; j < 32 / lanes; j++)
                V::store(out + lanes * j, V::fma(V::to_float((codes >> (lanes / 2 * j)) & V::each((1u << bits) - 1)), scale[j], least[j]));
        }
    }
}

// The same for any d.
template <class S, uint32_t bits> void decode_group_row(const uint32_t* group, uint32_t nth, uint32_t d, float* x)
{
    const uint32_t* row = group + d + nth * (bits * d / 32);
    for (uint32_t base = 0, size; base < d; base += size) {
        const PlaneGroup<bits> plane(d - base);
        size = plane.size;
        const typename S::W8 codes = plane.template read<S>(row + base * bits / 32), mask = S::each((1u << bits) - 1);
        for (uint32_t i = base; i < base + size; i += 8) {
            typename S::F8 scale, least;
            S::half2(S::words(group + i), &scale, &least);
            S::store(x + i, S::fma(S::to_float((codes >> int(plane.step * ((i - base) / 8))) & mask), scale, least));
        }
    }
}

template <class S, uint32_t bits>
void decode_kivi_groups(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d, float* x, const Ahead& ahead)
{
    for (uint32_t i = 0, end; i < n; i = end) {
        const uint32_t nth = (rows[i] - first) / kivi_rows;
        const uint32_t* group = from.words + size_t(nth) * kivi_group_words(bits, d);
        for (end = i + 1; end < n && (rows[end] - first) / kivi_rows == nth;) end++;
        if (d == 64)
            decode_group_rows<S, bits>(group, rows + i, first, end - i, 64, x + size_t(i) * d, after(ahead, i));
        else if (d == 128)
            decode_group_rows<S, bits>(group, rows + i, first, end - i, 128, x + size_t(i) * d, after(ahead, i));
        else if (d % 64 == 0)
            decode_group_rows<S, bits>(group, rows + i, first, end - i, d, x + size_t(i) * d, after(ahead, i));
        else
            for (uint32_t k = i; k < end; k++) decode_group_row<S, bits>(group, (rows[k] - first) % kivi_rows, d, x + size_t(k) * d);
    }
}

// f32 and f16, any d.
template <class S, bool half> void encode_plain(const float* x, uint32_t d, uint32_t* words, uint8_t*)
{
    if (!half) return void(memcpy(words, x, 4ull * d));
    uint16_t* y = reinterpret_cast<uint16_t*>(words);
    uint32_t i = 0;
    for (; i + 8 <= d; i += 8) S::store_half(y + i, S::load(x + i));
    for (; i < d; i++) y[i] = uint16_t(FLOAT_TO_HALF(x[i]));
}

template <class S, bool half>
void decode_plain(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d, float* x, const Ahead& ahead)
{
    for (uint32_t i = 0; i < n; i++, x += d) {
        ask(ahead, i);
        const size_t at = size_t(rows[i] - first) * d;
        uint32_t k = 0;
        for (; k + 8 <= d; k += 8) S::store(x + k, load_cached<S, half>(from.words, at + k));
        for (; k < d; k++)
            x[k] = half ? HALF_TO_FLOAT(reinterpret_cast<const uint16_t*>(from.words)[at + k]) : BITS_TO_FLOAT(from.words[at + k]);
    }
}

// In the order of CpuCodec.
#define KS_ENCODERS(S)                                                                                                                     \
    {                                                                                                                                      \
        encode_plain<S, false>, encode_plain<S, true>, encode_q8<S>, encode_q4<S>, encode_turbo<S, 8, false>, encode_turbo<S, 4, false>,   \
            encode_turbo<S, 2, false>, encode_turbo<S, 2, true>, encode_polar<S, false>, encode_polar<S, true>, encode_kivi_row<S, 4>,     \
            encode_kivi_row<S, 2>, encode_kivi_group<S, 4>, encode_kivi_group<S, 2>                                                        \
    }

#define KS_DECODERS(S)                                                                                                                     \
    {                                                                                                                                      \
        decode_plain<S, false>, decode_plain<S, true>, decode_rows<Q8Row<S>>, decode_rows<Q4Row<S>>, decode_rows<TurboRow<S, 8>>,          \
            decode_rows<TurboRow<S, 4>>, decode_rows<TurboRow<S, 2>>, decode_rows<TurboRow<S, 2>>, decode_polar_rows<S, false>,            \
            decode_polar_rows<S, true>, decode_rows<KiviRow<S, 4>>, decode_rows<KiviRow<S, 2>>, decode_kivi_groups<S, 4>,                  \
            decode_kivi_groups<S, 2>                                                                                                       \
    }

#define KS_LOGITS(S)                                                                                                                       \
    {                                                                                                                                      \
        nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, polar_logits<S, false>, polar_logits<S, true>              \
    }

#define KS_OUTPUTS(S)                                                                                                                      \
    {                                                                                                                                      \
        nullptr, nullptr, row_outputs<Q8Row<S>>, row_outputs<Q4Row<S>>, row_outputs<TurboRow<S, 8>>, row_outputs<TurboRow<S, 4>>,          \
            row_outputs<TurboRow<S, 2>>, row_outputs<TurboRow<S, 2>>, polar_outputs<S, false>, polar_outputs<S, true>,                     \
            row_outputs<KiviRow<S, 4>>, row_outputs<KiviRow<S, 2>>                                                                         \
    }

} // namespace ks
