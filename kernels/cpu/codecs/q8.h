// q8 with vectors. Bits equal the specification's (kernels/common/codecs/q8.h), except for logits
// (byte_logits.h).
#pragma once

#include "kernels/cpu/codecs/byte_logits.h"
#include "kernels/cpu/codecs/sums.h"

namespace ks
{

template <class S>
void encode_q8(const float* x, uint32_t d, uint32_t* words, uint8_t* tail)
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

template <class S>
void decode_q8(const uint32_t* words, const uint8_t* tail, uint32_t d, float* x)
{
    const RowWords row(codec_q8::row_bytes(d), words, tail);
    const int8_t* q = reinterpret_cast<const int8_t*>(row.word);
    for (uint32_t base = 0; base < d; base += 32) {
        const float s = row.scale_at(8 * d + base / 2);
        const uint32_t end = d - base < 32 ? d : base + 32;
        for (uint32_t i = base; i < end; i++) x[i] = s * float(q[i]);
    }
}

template <class S>
struct Q8Row : RowDecoder {
    using V = typename S::Wide;
    static constexpr DecodeRowKernel any_dim = decode_q8<S>;
    struct Values {
        typename OneRow<V>::Bytes bytes;
        typename V::F scale[2];
        Values() = default;
        KS_INLINE Values(const Q8Row&, const OneRow<V>& in, uint32_t d, uint32_t base)
            : bytes(in, base / 4), scale{in.half((d + base / 16) / 2),
                                         in.half((d + base / 16) / 2 + 1)}
        {
        }
        KS_INLINE typename V::F at(int nth) const
        {
            return scale[uint32_t(nth) * V::lanes / 32] * V::to_float(bytes.at(nth));
        }
    };
};

template <class S>
struct CpuCodec<codec_q8, S> {
    static constexpr EncodeKernel encode = encode_q8<S>;
    static constexpr DecodeKernel decode = decode_rows<Q8Row<S>>;
    static constexpr PrepareKernel prepare = byte_queries<S>;
    static constexpr LogitsKernel logits = q8_logits<S>;
    static constexpr OutputsKernel outputs = row_outputs<Q8Row<S>>;
};

} // namespace ks
