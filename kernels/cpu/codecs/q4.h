// q4 with vectors. Bits equal the specification's (kernels/common/codecs/q4.h).
#pragma once

#include "kernels/cpu/codecs/sums.h"

namespace ks
{

template <class S>
void encode_q4(const float* x, uint32_t d, uint32_t* words, uint8_t* tail)
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
            uint32_t first = from; // the first value with the largest magnitude
            while (first < from + n - 1 && fabsf(coded_value(x[first])) != top) first++;
            const bool top_negative = coded_value(x[first]) < 0.f;
            for (uint32_t i = from; i < from + n; i += 8) {
                const CodedValues<S> value(x + i);
                const W8 k =
                    s ? nearest_multiples<S>(value.magnitude, HALF_TO_FLOAT(s), 8) : S::each(0);
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

template <class S>
void decode_q4(const uint32_t* words, const uint8_t* tail, uint32_t d, float* x)
{
    const RowWords row(codec_q4::row_bytes(d), words, tail);
    for (uint32_t base = 0, size; base < d; base += size) {
        const PlaneGroup<4> group(d - base);
        size = group.size;
        const typename S::W8 codes = group.template read<S>(row.word + base / 8);
        for (uint32_t j = 0; j < size / 8; j++) {
            const typename S::F8 q = S::to_float((codes >> int(group.step * j)) & S::each(15));
            S::store(x + base + 8 * j,
                     S::broadcast(row.scale_at(4 * d + (base + 8 * j) / 32 * 16)) *
                         (q - S::broadcast(8.f)));
        }
    }
}

template <class S>
struct Q4Row : RowDecoder {
    using V = typename S::Wide;
    using Floats = CodeFloats<4, -8>;
    static constexpr DecodeRowKernel any_dim = decode_q4<S>;
    struct Values {
        typename V::W codes;
        typename V::F scale[2]; // with sixteen lanes: the products with all sixteen codes
        Values() = default;
        KS_INLINE Values(const Q4Row&, const OneRow<V>& in, uint32_t d, uint32_t base)
            : codes(in.template plane<4>(base / 8)), scale{in.half(d / 4 + base / 32),
                                                           in.half(d / 4 + base / 32 + 1)}
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

template <class S>
struct RowLanes<Q4Row<S>> {
    using V = typename S::Wide;
    typename V::F scale[2];
    uint32_t base;
    static uint32_t bytes(uint32_t d) { return codec_q4::row_bytes(d); }
    KS_INLINE RowLanes(const LaneRows<V>& row, uint32_t d, uint32_t from) : base(from)
    {
        V::half2(row.word[d / 8 + from / 64], &scale[0], &scale[1]);
    }
    KS_INLINE typename V::F at(const LaneRows<V>& row, uint32_t i, uint32_t j) const
    {
        return scale[j / 4] *
               CodeFloats<4, -8>::template of<V>(lane_code<V, 4>(row, base / 8, i, j));
    }
};

template <class S>
struct CpuCodec<codec_q4, S> {
    static constexpr EncodeKernel encode = encode_q4<S>;
    static constexpr DecodeKernel decode = decode_rows<Q4Row<S>>;
    static constexpr PrepareKernel prepare = nullptr;
    static constexpr LogitsKernel logits = row_logits<Q4Row<S>>;
    static constexpr OutputsKernel outputs = row_outputs<Q4Row<S>>;
};

} // namespace ks
