// Coded rows to f32, many at a time, as attention reads them. Rows of whole groups of 64 values have loops of their own, with
// neither a copy of the row nor a branch; the bits are those of codec_vectors.h, which does all others.
#pragma once

#include "kernels/cpu/kivi_vectors.h"
#include "kernels/cpu/polar_tables.h"
#include "kernels/cpu/vector_math.h"

namespace ks
{

// The codes of a plane's 64 dims: neighbours under each shift of half of `dims`.
template <class V, uint32_t bits, uint32_t dims> KS_INLINE typename V::W in_fields(typename V::W words)
{
    static const uint32_t right[3][2][16] = {
        {{0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7}},
        {{0, 0, 0, 0, 2, 2, 2, 2, 0, 0, 0, 0, 2, 2, 2, 2}, {0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6}},
        {{}, {0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4}}};
    return 2 * bits == dims ? words : V::shift_each(words, right[bits / 2][dims / 16]);
}

// A row of codes of whole groups of 64 values, as decoders of `dims` values a vector read it; what its tail has is one f16.
template <class V> struct OneRow {
    static constexpr int dims = V::lanes;
    const uint32_t* words;
    const uint8_t* tail;

    KS_INLINE OneRow(const uint32_t* pool, const uint8_t* tails, uint32_t n_words, uint32_t n_tail, const uint32_t* rows)
        : words(pool + size_t(rows[0]) * n_words), tail(tails + size_t(rows[0]) * n_tail)
    {
    }
    template <uint32_t bits> KS_INLINE typename V::W plane(uint32_t word) const
    {
        return in_fields<V, bits, dims>(V::template repeat<2 * bits>(words + word));
    }
    // The words from one on as 64 signed bytes, of which at() gives so many as a vector has dims.
    struct Bytes {
        const int8_t* bytes;
        Bytes() = default;
        KS_INLINE Bytes(const OneRow& row, uint32_t word) : bytes(reinterpret_cast<const int8_t*>(row.words + word)) {}
        KS_INLINE typename V::W at(int nth) const { return V::load_bytes(bytes + nth * dims); }
    };
    KS_INLINE typename V::F half(uint32_t nth) const { return V::broadcast_half(reinterpret_cast<const uint16_t*>(words)[nth]); }
    KS_INLINE void four_halves(uint32_t nth, typename V::F* x) const
    {
        V::broadcast_four_halves(reinterpret_cast<const uint16_t*>(words) + nth, x);
    }
    KS_INLINE typename V::F tail_half() const { return V::broadcast_half(tail[0] | uint32_t(tail[1]) << 8); }
    // Bytes from one on, which lie in one plane, of a row of so many.
    template <class T> KS_INLINE T code(uint32_t row_bytes, uint32_t nth) const
    {
        const uint32_t n = row_bytes / 4 * 4;
        T x;
        memcpy(&x, nth < n ? reinterpret_cast<const uint8_t*>(words) + nth : tail + (nth - n), sizeof x);
        return x;
    }
};

// Codes as floats from `least` on, of vectors whose lanes have more bits above them. Sixteen lanes pick them, and what a row's codes
// stand for.
template <uint32_t bits, int least> struct CodeFloats {
    float at[16];
    constexpr CodeFloats() : at()
    {
        for (int i = 0; i < 16; i++) at[i] = float(i % (1 << bits) + least);
    }
    template <class V> KS_INLINE static typename V::F all()
    {
        static constexpr CodeFloats<bits, least> floats;
        return V::load(floats.at);
    }
    template <class V> KS_INLINE static typename V::F of(typename V::W codes)
    {
        if constexpr (V::lanes == 16)
            return V::pick_of(all<V>(), codes);
        else
            return V::to_float((codes & V::each((1u << bits) - 1)) - V::each(uint32_t(-least)));
    }
};

// Of each codec, 64 values of a row from the one at `base` on: what all of them share, and then the nth vector of them.
template <class S> struct Q8Row {
    using V = typename S::Wide;
    static constexpr DecodeRowKernel any_dim = decode_q8<S>;
    struct Values {
        typename OneRow<V>::Bytes bytes;
        typename V::F scale[2];
        Values() = default;
        KS_INLINE Values(const Q8Row&, const OneRow<V>& in, uint32_t d, uint32_t base)
            : bytes(in, base / 4), scale{in.half((d + base / 16) / 2), in.half((d + base / 16) / 2 + 1)}
        {
        }
        KS_INLINE typename V::F at(int nth) const { return scale[uint32_t(nth) * V::lanes / 32] * V::to_float(bytes.at(nth)); }
    };
};

template <class S> struct Q4Row {
    using V = typename S::Wide;
    using Floats = CodeFloats<4, -8>;
    static constexpr DecodeRowKernel any_dim = decode_q4<S>;
    struct Values {
        typename V::W codes;
        typename V::F scale[2]; // sixteen dims of a row: times all that a code may be
        Values() = default;
        KS_INLINE Values(const Q4Row&, const OneRow<V>& in, uint32_t d, uint32_t base)
            : codes(in.template plane<4>(base / 8)), scale{in.half(d / 4 + base / 32), in.half(d / 4 + base / 32 + 1)}
        {
            if constexpr (V::lanes == 16)
                for (typename V::F& x : scale) x = x * Floats::template all<V>();
        }
        KS_INLINE typename V::F at(int nth) const
        {
            const typename V::W code = codes >> nth * int(V::lanes) / 2;
            if constexpr (V::lanes == 16)
                return V::pick_of(scale[nth / 2], code);
            else
                return scale[nth / 4] * Floats::template of<V>(code);
        }
    };
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
    struct Values {
        const float* levels;
        W codes, signs;
        typename V::F scale; // sixteen dims of a row: times all levels
        Values() = default;
        KS_INLINE Values(const TurboRow& row, const OneRow<V>& in, uint32_t d, uint32_t base)
            : levels(row.levels), codes(in.template plane<(ranks == 8 ? 4 : 2)>(base / (ranks == 8 ? 8 : 16))), signs(codes),
              scale(in.tail_half())
        {
            if constexpr (ranks == 4) signs = in.template plane<1>(d / 16 + base / 32);
            if constexpr (V::lanes == 16) scale = scale * V::load(levels);
        }
        KS_INLINE typename V::F at(int nth) const
        {
            const int bit = nth * int(V::lanes) / 2;
            if constexpr (V::lanes == 16) {
                const typename V::F x = V::pick_of(scale, codes >> bit);
                return ranks == 4 ? V::negate(x, signs << (31 - bit)) : x;
            } else {
                const W code = codes >> bit;
                const typename V::F x = ranks == 8 ? V::pick_signed(levels, code) : V::pick(levels, code);
                return scale * (ranks == 4 ? V::negate(x, signs << (31 - bit)) : x);
            }
        }
    };
};

template <class S> struct KiviRow {
    using V = typename S::Wide;
    using Floats = CodeFloats<4, 0>;
    static constexpr DecodeRowKernel any_dim = decode_kivi_row<S>;
    struct Values {
        typename V::W codes;
        typename V::F scale[2], least[2]; // sixteen dims of a row: all that a code may be is in the scale's place
        Values() = default;
        KS_INLINE Values(const KiviRow&, const OneRow<V>& in, uint32_t d, uint32_t base) : codes(in.template plane<4>(base / 8))
        {
            const uint32_t range = (4 * d + base) / 16; // its scale, then its least value
            if constexpr (V::lanes == 16) {
                typename V::F half[4];
                in.four_halves(range, half);
                for (int i = 0; i < 2; i++) scale[i] = V::fma(Floats::template all<V>(), half[2 * i], half[2 * i + 1]);
            } else {
                for (uint32_t i = 0; i < 2; i++) scale[i] = in.half(range + 2 * i), least[i] = in.half(range + 2 * i + 1);
            }
        }
        KS_INLINE typename V::F at(int nth) const
        {
            const typename V::W code = codes >> nth * int(V::lanes) / 2;
            if constexpr (V::lanes == 16)
                return V::pick_of(scale[nth / 2], code);
            else
                return V::fma(Floats::template of<V>(code), scale[nth / 4], least[nth / 4]);
        }
    };
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
        const uint32_t row = rows[i] - first;
        ask(ahead, i);
        for (uint32_t base = 0; base < d; base += 64) {
            const typename Row::Values values(decoder, OneRow<V>(from.words, from.tails, n_words, n_tail, &row), d, base);
            KS_UNROLL(8)
            for (int j = 0; j < 64 / int(V::lanes); j++) V::store(x + base + V::lanes * j, values.at(j));
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
            const uint32_t nth = (rows[i] - first) % kivi_rows;
            const typename V::W codes = OneRow<V>(words, nullptr, row_words, 0, &nth).template plane<bits>(0) >> half;
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
            encode_turbo<S, 2, false>, encode_turbo<S, 2, true>, encode_polar<S>, encode_kivi_row<S>, encode_kivi_group<S, 4>,             \
            encode_kivi_group<S, 2>                                                                                                        \
    }

#define KS_DECODERS(S)                                                                                                                     \
    {                                                                                                                                      \
        decode_plain<S, false>, decode_plain<S, true>, decode_rows<Q8Row<S>>, decode_rows<Q4Row<S>>, decode_rows<TurboRow<S, 8>>,          \
            decode_rows<TurboRow<S, 4>>, decode_rows<TurboRow<S, 2>>, decode_rows<TurboRow<S, 2>>, decode_polar_rows<S>,                   \
            decode_rows<KiviRow<S>>, decode_kivi_groups<S, 4>, decode_kivi_groups<S, 2>                                                    \
    }

static_assert(cpu_codec_count == 12,
              "a codec more has its place here, in KS_ENCODERS and KS_DECODERS, and in KS_PREPARES, KS_LOGITS and KS_OUTPUTS");

} // namespace ks
