// How the CPU kernels encode and read rows of a codec. The primary template goes through the
// specification. codecs/NAME.h specialises it with faster code.
#pragma once

#include "kernels/cpu/codec_rows.h"

namespace ks
{

template <class C, class = void>
constexpr uint32_t codec_group = 1;
template <class C>
constexpr uint32_t codec_group<C, std::void_t<decltype(C::group)>> = C::group;

// The base of a codec's Row (rows.h). by_fours: vector r of 64 dims holds dims 4 k + r. Otherwise a
// vector holds adjacent dims.
struct RowDecoder {
    static constexpr bool by_fours = false;
};

template <class C, class S>
struct CpuCodec {
    static void encode(const float* x, uint32_t d, uint32_t* words, uint8_t* tail)
    {
        if constexpr (codec_group<C> == 1)
            encode_row<C>(x, d, words, tail);
        else
            C::encode(x, words, d);
    }
    static void decode(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n,
                       uint32_t d, float* x, const PrefetchRows& ahead)
    {
        for (uint32_t i = 0; i < n; i++, x += d) {
            const size_t row = rows[i] - first;
            prefetch(ahead, i);
            if constexpr (codec_group<C> == 1) {
                decode_row<C>(from.words + row * from.row_words, from.tails + row * from.row_tail,
                              d, x);
            } else {
                const uint32_t* group = from.words + row / C::group * C::group_words(d);
                for (uint32_t k = 0; k < d; k++) x[k] = C::value(group, 0, row % C::group, k, d);
            }
        }
    }
    static constexpr PrepareKernel prepare = nullptr;
    static constexpr LogitsKernel logits = nullptr;
    static constexpr OutputsKernel outputs = nullptr;
};

} // namespace ks
