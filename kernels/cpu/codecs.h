// The table of all codecs of one instruction set. A codec with its own kernels has an include here.
#pragma once

#include "kernels/cpu/codecs/kivi.h"
#include "kernels/cpu/codecs/polar.h"
#include "kernels/cpu/codecs/q4.h"
#include "kernels/cpu/codecs/q8.h"
#include "kernels/cpu/codecs/turbo.h"

namespace ks
{

// f32 and f16, any d.
template <class S, bool half>
void encode_plain(const float* x, uint32_t d, uint32_t* words, uint8_t*)
{
    if (!half) return void(memcpy(words, x, 4ull * d));
    uint16_t* y = reinterpret_cast<uint16_t*>(words);
    uint32_t i = 0;
    for (; i + 8 <= d; i += 8) S::store_half(y + i, S::load(x + i));
    for (; i < d; i++) y[i] = uint16_t(FLOAT_TO_HALF(x[i]));
}

template <class S, bool half>
void decode_plain(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n,
                  uint32_t d, float* x, const PrefetchRows& ahead)
{
    for (uint32_t i = 0; i < n; i++, x += d) {
        prefetch(ahead, i);
        const size_t at = size_t(rows[i] - first) * d;
        uint32_t k = 0;
        for (; k + 8 <= d; k += 8) S::store(x + k, load_cached<S, half>(from.words, at + k));
        for (; k < d; k++)
            x[k] = half ? HALF_TO_FLOAT(reinterpret_cast<const uint16_t*>(from.words)[at + k])
                        : BITS_TO_FLOAT(from.words[at + k]);
    }
}

template <class C, class S>
constexpr CodecKernels codec_kernels()
{
    using Codec = CpuCodec<C, S>;
    return {Codec::encode, Codec::decode, Codec::prepare, Codec::logits, Codec::outputs};
}

template <class S>
constexpr CodecTable codec_table()
{
    CodecTable table = {};
    table.of[cpu_codec_f32] = {encode_plain<S, false>, decode_plain<S, false>, nullptr, nullptr,
                               nullptr};
    table.of[cpu_codec_f16] = {encode_plain<S, true>, decode_plain<S, true>, nullptr, nullptr,
                               nullptr};
#define KS_CODEC(name, number) table.of[number] = codec_kernels<codec_##name, S>();
    CODECS(KS_CODEC)
    GROUP_CODECS(KS_CODEC)
#undef KS_CODEC
    return table;
}

} // namespace ks
