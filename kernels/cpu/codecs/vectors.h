// Helpers to encode and decode rows with vectors of eight adjacent values. Results equal the
// specification's bit for bit.
#pragma once

#include "kernels/cpu/codec_rows.h"
#include "kernels/cpu/cpu_kernels.h"

namespace ks
{

// coded_value of eight values, and the magnitudes.
template <class S>
struct CodedValues {
    typename S::F8 v, magnitude;
    KS_INLINE explicit CodedValues(const float* x)
    {
        const typename S::F8 raw = S::load(x), most = S::broadcast(65504.f),
                             least = S::broadcast(0x1p-60f);
        const typename S::F8 m = S::max(S::abs(raw), S::zero()); // 0 where NaN
        magnitude = S::zero_where_less(S::min(m, most), m, least);
        v = S::zero_where_less(S::max(S::min(raw, most), S::zero() - most), m, least);
    }
};

// One group of a plane of `bits` bits. In a group of W words, lane l of vector j is in word l % W,
// shifted by `step` * j + bits * (l / W).
template <uint32_t bits>
struct PlaneGroup {
    uint32_t size, n_words, step;
    KS_INLINE explicit PlaneGroup(uint32_t left)
    {
        size = left >= 64 ? 64 : left >= 32 ? 32 : left >= 16 ? 16 : 8;
        n_words = size * bits >= 32 ? size * bits / 32 : 1;
        step = bits * 8 / n_words;
    }

    // Writes lanes to the group's words. A group of half a word keeps the upper bits of that word.
    template <class S>
    KS_INLINE void write(uint32_t* row, typename S::W8 lanes) const
    {
        if (n_words == 8) return S::store_words(row, lanes);
        uint32_t words[8];
        S::store_words(words, lanes);
        for (uint32_t l = n_words; l < 8; l++)
            words[l % n_words] |= words[l] << (bits * (l / n_words));
        for (uint32_t w = 0; w < n_words; w++) row[w] |= words[w];
    }
    template <class S>
    KS_INLINE typename S::W8 read(const uint32_t* row) const
    {
        if (n_words == 8) return S::words(row);
        uint32_t words[8];
        for (uint32_t l = 0; l < 8; l++) words[l] = row[l % n_words] >> (bits * (l / n_words));
        return S::words(words);
    }
};

// A row's words and its tail in one array.
struct RowWords {
    uint32_t word[codec_max_dim + 1];
    uint32_t bytes;
    KS_INLINE explicit RowWords(uint32_t row_bytes) : bytes(row_bytes)
    {
        memset(word, 0, bytes / 4 * 4 + 4);
    }
    KS_INLINE RowWords(uint32_t row_bytes, const uint32_t* words, const uint8_t* tail)
        : bytes(row_bytes)
    {
        memcpy(word, words, bytes / 4 * 4);
        word[bytes / 4] = tail_word(tail, bytes);
    }
    KS_INLINE void store(uint32_t* words, uint8_t* tail) const
    {
        memcpy(words, word, bytes / 4 * 4);
        for (uint32_t i = 0; i < bytes % 4; i++) tail[i] = uint8_t(word[bytes / 4] >> (8 * i));
    }
    KS_INLINE float scale_at(uint32_t bit) const
    {
        return HALF_TO_FLOAT(word[bit / 32] >> (bit & 31) & 0xffffu);
    }
};

// nearest_multiple of eight magnitudes, each with its own scale.
template <class S>
KS_INLINE typename S::W8 nearest_multiples(typename S::F8 magnitude, typename S::F8 s,
                                           uint32_t most)
{
    using F8 = typename S::F8;
    const F8 half = S::broadcast(0.5f), top = S::broadcast(float(most));
    const typename S::W8 guess = S::to_int(S::min(magnitude / s, top));
    const F8 k = S::to_float(guess);
    const typename S::W8 nearest = guess + S::each(1) + S::less(magnitude, (k + half) * s) +
                                   S::less(magnitude, (k - half) * s);
    return S::to_int(S::min(S::to_float(nearest), top));
}

template <class S>
KS_INLINE typename S::W8 nearest_multiples(typename S::F8 magnitude, float scale, uint32_t most)
{
    return nearest_multiples<S>(magnitude, S::broadcast(scale), most);
}

// The largest magnitude of a block.
template <class S>
KS_INLINE float block_top(const float* x, uint32_t size)
{
    typename S::F8 top = S::zero();
    for (uint32_t i = 0; i < size; i += 8) top = S::max(CodedValues<S>(x + i).magnitude, top);
    return S::largest(top);
}

} // namespace ks
