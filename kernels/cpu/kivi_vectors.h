// The kivi codecs with vectors: the same bits.
#pragma once

#include "kernels/cpu/codec_vectors.h"

namespace ks
{

// kivi_code of eight values, each with a scale and a least value of its own.
template <class S> KS_INLINE typename S::W8 kivi_codes(typename S::F8 x, typename S::F8 scale, typename S::F8 least, uint32_t most)
{
    using F8 = typename S::F8;
    const F8 tiny = S::broadcast(0x1p-24f); // the smallest scale but 0, which gives no codes
    const F8 above = S::zero_where_less(S::max(x - least, S::zero()), scale, tiny);
    return nearest_multiples<S>(above, S::max(scale, tiny), most);
}

template <class S> void encode_kivi_row(const float* x, uint32_t d, uint32_t* words, uint8_t*)
{
    using F8 = typename S::F8;
    uint32_t* ranges = words + d / 8;
    memset(words, 0, d / 2);
    for (uint32_t base = 0, size; base < d; base += size) {
        const PlaneGroup<4> group(d - base);
        size = group.size;
        typename S::W8 codes = S::each(0);
        for (uint32_t from = base; from < base + size; from += 32) {
            const uint32_t n = size < 32 ? size : 32;
            F8 least = CodedValues<S>(x + from).v, top = least;
            for (uint32_t i = from + 8; i < from + n; i += 8) {
                const F8 v = CodedValues<S>(x + i).v;
                least = S::min(v, least);
                top = S::max(v, top);
            }
            const uint32_t range = ranges[from / 32] = kivi_range(0.f - S::largest(S::zero() - least), S::largest(top), 15);
            const F8 scale = S::broadcast(kivi_scale(range)), lowest = S::broadcast(kivi_least(range));
            for (uint32_t i = from; i < from + n; i += 8)
                codes = codes | (kivi_codes<S>(CodedValues<S>(x + i).v, scale, lowest, 15) << int(group.step * ((i - base) / 8)));
        }
        group.template write<S>(words + base / 8, codes);
    }
}

template <class S> void decode_kivi_row(const uint32_t* words, const uint8_t*, uint32_t d, float* x)
{
    const uint32_t* ranges = words + d / 8;
    for (uint32_t base = 0, size; base < d; base += size) {
        const PlaneGroup<4> group(d - base);
        size = group.size;
        const typename S::W8 codes = group.template read<S>(words + base / 8), mask = S::each(15);
        for (uint32_t j = 0; j < size / 8; j++) {
            const uint32_t range = ranges[(base + 8 * j) / 32];
            const typename S::F8 code = S::to_float((codes >> int(group.step * j)) & mask);
            S::store(x + base + 8 * j, S::fma(code, S::broadcast(kivi_scale(range)), S::broadcast(kivi_least(range))));
        }
    }
}

// Eight channels at a time, row after row: nothing is transposed.
template <class S, uint32_t bits> void encode_kivi_group(const float* x, uint32_t d, uint32_t* words, uint8_t*)
{
    using F8 = typename S::F8;
    constexpr uint32_t most = (1u << bits) - 1;
    for (uint32_t i = 0; i < d; i += 8) {
        F8 least = CodedValues<S>(x + i).v, top = least;
        for (uint32_t r = 1; r < kivi_rows; r++) {
            const F8 v = CodedValues<S>(x + r * d + i).v;
            least = S::min(v, least);
            top = S::max(v, top);
        }
        float lows[8], tops[8];
        S::store(lows, least);
        S::store(tops, top);
        for (uint32_t k = 0; k < 8; k++) words[i + k] = kivi_range(lows[k], tops[k], most);
    }
    uint32_t* row = words + d;
    memset(row, 0, 4 * (kivi_group_words(bits, d) - d));
    for (uint32_t r = 0; r < kivi_rows; r++, x += d, row += bits * d / 32)
        for (uint32_t base = 0, size; base < d; base += size) {
            const PlaneGroup<bits> group(d - base);
            size = group.size;
            typename S::W8 codes = S::each(0);
            for (uint32_t i = base; i < base + size; i += 8) {
                F8 scale, least;
                S::half2(S::words(words + i), &scale, &least);
                codes = codes | (kivi_codes<S>(CodedValues<S>(x + i).v, scale, least, most) << int(group.step * ((i - base) / 8)));
            }
            group.template write<S>(row + base * bits / 32, codes);
        }
}

} // namespace ks
