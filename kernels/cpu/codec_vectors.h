// The codecs of kernels/common/codecs.h with vectors: the same bits, eight neighbours of a row at a time.
#pragma once

#include "kernels/cpu/codec_rows.h"
#include "kernels/cpu/cpu_kernels.h"

namespace ks
{

// What codecs make of values, and the magnitudes of that.
template <class S> struct CodedValues {
    typename S::F8 v, magnitude;
    KS_INLINE explicit CodedValues(const float* x)
    {
        const typename S::F8 raw = S::load(x), most = S::broadcast(65504.f), least = S::broadcast(0x1p-60f);
        const typename S::F8 m = S::max(S::abs(raw), S::zero()); // 0 where NaN
        magnitude = S::zero_where_less(S::min(m, most), m, least);
        v = S::zero_where_less(S::max(S::min(raw, most), S::zero() - most), m, least);
    }
};

// A plane of n dims of `bits` bits, by groups. In a group of W words lane l of vector j is in word l % W, under a shift of
// `step` * j + bits * (l / W).
template <uint32_t bits> struct PlaneGroup {
    uint32_t size, n_words, step;
    KS_INLINE explicit PlaneGroup(uint32_t left)
    {
        size = left >= 64 ? 64 : left >= 32 ? 32 : left >= 16 ? 16 : 8;
        n_words = size * bits >= 32 ? size * bits / 32 : 1;
        step = bits * 8 / n_words;
    }

    // Lanes to the group's words; a half word leaves what is above it.
    template <class S> KS_INLINE void write(uint32_t* row, typename S::W8 lanes) const
    {
        if (n_words == 8) return S::store_words(row, lanes);
        uint32_t words[8];
        S::store_words(words, lanes);
        for (uint32_t l = n_words; l < 8; l++) words[l % n_words] |= words[l] << (bits * (l / n_words));
        for (uint32_t w = 0; w < n_words; w++) row[w] |= words[w];
    }
    template <class S> KS_INLINE typename S::W8 read(const uint32_t* row) const
    {
        if (n_words == 8) return S::words(row);
        uint32_t words[8];
        for (uint32_t l = 0; l < 8; l++) words[l] = row[l % n_words] >> (bits * (l / n_words));
        return S::words(words);
    }
};

// The words of a row and of its tail, in one array.
struct RowWords {
    uint32_t word[codec_max_dim + 1];
    uint32_t bytes;
    KS_INLINE explicit RowWords(uint32_t row_bytes) : bytes(row_bytes) { memset(word, 0, bytes / 4 * 4 + 4); }
    KS_INLINE RowWords(uint32_t row_bytes, const uint32_t* words, const uint8_t* tail) : bytes(row_bytes)
    {
        memcpy(word, words, bytes / 4 * 4);
        word[bytes / 4] = tail_word(tail, bytes);
    }
    KS_INLINE void store(uint32_t* words, uint8_t* tail) const
    {
        memcpy(words, word, bytes / 4 * 4);
        for (uint32_t i = 0; i < bytes % 4; i++) tail[i] = uint8_t(word[bytes / 4] >> (8 * i));
    }
    KS_INLINE float scale_at(uint32_t bit) const { return HALF_TO_FLOAT(word[bit / 32] >> (bit & 31) & 0xffffu); }
};

template <class S, uint32_t ranks, bool least_squares> void encode_turbo(const float* x, uint32_t d, uint32_t* words, uint8_t* tail)
{
    using F8 = typename S::F8;
    using W8 = typename S::W8;
    constexpr uint32_t bits = ranks == 8 ? 4 : 2, sign_bit = ranks == 8 ? 3 : 1;
    RowWords row(turbo_bytes(ranks, d));
    F8 sums = S::zero(), squares = S::zero(), products = S::zero(), thresholds[ranks - 1];
    for (uint32_t i = 0; i < d; i += 8) {
        const F8 m = CodedValues<S>(x + i).magnitude;
        sums = sums + m * m;
    }
    const float sum = S::sum(sums);
    float magnitudes[8] = {};
    for (uint32_t t = 0; t < ranks; t++) magnitudes[t] = turbo_magnitude(ranks, t);
    for (uint32_t t = 0; t + 1 < ranks; t++) thresholds[t] = S::broadcast(turbo_square(ranks, t) * sum);
    for (uint32_t base = 0, size; base < d; base += size) {
        const PlaneGroup<bits> group(d - base);
        const PlaneGroup<1> sign_group(d - base);
        size = group.size;
        W8 codes = S::each(0), signs = S::each(0);
        for (uint32_t j = 0; j < size / 8; j++) {
            const CodedValues<S> value(x + base + 8 * j);
            const F8 square = value.magnitude * value.magnitude * S::broadcast(float(d));
            W8 rank = S::each(0);
            KS_UNROLL(8)
            for (uint32_t t = 0; t + 1 < ranks; t++) rank = rank - S::less(thresholds[t], square);
            const F8 c = S::pick(magnitudes, rank);
            squares = squares + c * c;
            products = products + value.magnitude * c;
            const W8 sign = S::less(value.v, S::zero()) >> 31;
            codes = codes | ((ranks == 4 ? rank : rank | (sign << int(sign_bit))) << int(group.step * j));
            if (ranks == 4) signs = signs | (sign << int(sign_group.step * j));
        }
        group.template write<S>(row.word + base * bits / 32, codes);
        if (ranks == 4) sign_group.template write<S>(row.word + (2 * d + base) / 32, signs);
    }
    const float norm = S::sum(squares);
    const uint32_t g = least_squares ? half_quotient(S::sum(products), norm) : half_root(sum, norm);
    if (g == 0) clear_row(row.word, row.bytes);
    put_field(row.word, 8 * row.bytes - 16, g);
    row.store(words, tail);
}

template <class S, uint32_t ranks> void decode_turbo(const uint32_t* words, const uint8_t* tail, uint32_t d, float* x)
{
    using W8 = typename S::W8;
    constexpr uint32_t bits = ranks == 8 ? 4 : 2, sign_bit = ranks == 8 ? 3 : 1;
    const RowWords row(turbo_bytes(ranks, d), words, tail);
    const typename S::F8 scale = S::broadcast(row.scale_at(8 * row.bytes - 16));
    float magnitudes[8] = {};
    for (uint32_t t = 0; t < ranks; t++) magnitudes[t] = turbo_magnitude(ranks, t);
    for (uint32_t base = 0, size; base < d; base += size) {
        const PlaneGroup<bits> group(d - base);
        const PlaneGroup<1> sign_group(d - base);
        size = group.size;
        const W8 codes = group.template read<S>(row.word + base * bits / 32);
        W8 signs = S::each(0);
        if (ranks == 4) signs = sign_group.template read<S>(row.word + (2 * d + base) / 32);
        for (uint32_t j = 0; j < size / 8; j++) {
            const W8 code = codes >> int(group.step * j);
            const W8 sign = ranks == 4 ? signs >> int(sign_group.step * j) : code >> int(sign_bit);
            const typename S::F8 c = S::pick(magnitudes, code & S::each(ranks - 1));
            S::store(x + base + 8 * j, scale * S::times_power_of_two(c, (sign & S::each(1)) << 8)); // + 2^31: the sign
        }
    }
}

// nearest_multiple of eight magnitudes, each with its own scale.
template <class S> KS_INLINE typename S::W8 nearest_multiples(typename S::F8 magnitude, typename S::F8 s, uint32_t most)
{
    using F8 = typename S::F8;
    const F8 some = S::broadcast(0.5f), top = S::broadcast(float(most));
    const typename S::W8 guess = S::to_int(S::min(magnitude / s, top));
    const F8 k = S::to_float(guess);
    const typename S::W8 nearest = guess + S::each(1) + S::less(magnitude, (k + some) * s) + S::less(magnitude, (k - some) * s);
    return S::to_int(S::min(S::to_float(nearest), top));
}

template <class S> KS_INLINE typename S::W8 nearest_multiples(typename S::F8 magnitude, float scale, uint32_t most)
{
    return nearest_multiples<S>(magnitude, S::broadcast(scale), most);
}

// Largest magnitude of a block.
template <class S> KS_INLINE float block_top(const float* x, uint32_t size)
{
    typename S::F8 top = S::zero();
    for (uint32_t i = 0; i < size; i += 8) top = S::max(CodedValues<S>(x + i).magnitude, top);
    return S::largest(top);
}

template <class S> void encode_q8(const float* x, uint32_t d, uint32_t* words, uint8_t* tail)
{
    using W8 = typename S::W8;
    RowWords row(codec_q8::row_bytes(d));
    for (uint32_t base = 0; base < d; base += 32) {
        const uint32_t size = d - base < 32 ? d - base : 32;
        const uint32_t s = FLOAT_TO_HALF(block_top<S>(x + base, size) * (1.f / 127.f));
        if (s == 0) continue;
        W8 q[4] = {S::each(0), S::each(0), S::each(0), S::each(0)};
        for (uint32_t i = 0; i < size / 8; i++) {
            const CodedValues<S> value(x + base + 8 * i);
            const W8 k = nearest_multiples<S>(value.magnitude, HALF_TO_FLOAT(s), 127);
            q[i] = k - ((k + k) & S::less(value.v, S::zero()));
        }
        int8_t bytes[32];
        S::store_bytes(bytes, q);
        memcpy(row.word + base / 4, bytes, size);
        put_field(row.word, 8 * d + base / 2, s);
    }
    row.store(words, tail);
}

template <class S> void decode_q8(const uint32_t* words, const uint8_t* tail, uint32_t d, float* x)
{
    const RowWords row(codec_q8::row_bytes(d), words, tail);
    const int8_t* q = reinterpret_cast<const int8_t*>(row.word);
    for (uint32_t base = 0; base < d; base += 32) {
        const float s = row.scale_at(8 * d + base / 2);
        const uint32_t end = d - base < 32 ? d : base + 32;
        for (uint32_t i = base; i < end; i++) x[i] = s * float(q[i]);
    }
}

template <class S> void encode_q4(const float* x, uint32_t d, uint32_t* words, uint8_t* tail)
{
    using W8 = typename S::W8;
    RowWords row(codec_q4::row_bytes(d));
    for (uint32_t base = 0, size; base < d; base += size) {
        const PlaneGroup<4> group(d - base);
        size = group.size;
        W8 codes = S::each(0);
        for (uint32_t from = base; from < base + size; from += 32) {
            const uint32_t n = size < 32 ? size : 32;
            const float top = block_top<S>(x + from, n);
            const uint32_t s = FLOAT_TO_HALF(top * 0.125f);
            uint32_t first = from; // of those with the largest magnitude
            while (first < from + n - 1 && fabsf(coded_value(x[first])) != top) first++;
            const bool top_negative = coded_value(x[first]) < 0.f;
            for (uint32_t i = from; i < from + n; i += 8) {
                const CodedValues<S> value(x + i);
                const W8 k = s ? nearest_multiples<S>(value.magnitude, HALF_TO_FLOAT(s), 8) : S::each(0);
                const W8 negative = S::less(value.v, S::zero()), all = S::each(~0u);
                const W8 below = top_negative ? negative : all - negative;
                const W8 above = S::to_int(S::min(S::to_float(S::each(8) + k), S::broadcast(15.f)));
                const W8 q = (below & (S::each(8) - k)) | ((all - below) & above);
                codes = codes | (q << int(group.step * ((i - base) / 8)));
            }
            put_field(row.word, 4 * d + from / 2, s && !top_negative ? s | 0x8000u : s);
        }
        group.template write<S>(row.word + base / 8, codes);
    }
    row.store(words, tail);
}

template <class S> void decode_q4(const uint32_t* words, const uint8_t* tail, uint32_t d, float* x)
{
    const RowWords row(codec_q4::row_bytes(d), words, tail);
    for (uint32_t base = 0, size; base < d; base += size) {
        const PlaneGroup<4> group(d - base);
        size = group.size;
        const typename S::W8 codes = group.template read<S>(row.word + base / 8);
        for (uint32_t j = 0; j < size / 8; j++) {
            const typename S::F8 q = S::to_float((codes >> int(group.step * j)) & S::each(15));
            S::store(x + base + 8 * j, S::broadcast(row.scale_at(4 * d + (base + 8 * j) / 32 * 16)) * (q - S::broadcast(8.f)));
        }
    }
}

} // namespace ks
