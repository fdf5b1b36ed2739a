// The kivi codecs with vectors. Bits equal the specification's (kernels/common/codecs/kivi.h),
// except for logits, which multiply queries by a group's ranges first.
#pragma once

#include "kernels/cpu/codecs/sums.h"

namespace ks
{

// kivi_code of eight values, each with its own scale and least value.
template <class S>
KS_INLINE typename S::W8 kivi_codes(typename S::F8 x, typename S::F8 scale, typename S::F8 least,
                                    uint32_t most)
{
    using F8 = typename S::F8;
    const F8 tiny = S::broadcast(0x1p-24f); // the smallest scale above 0; scale 0 gives codes of 0
    const F8 above = S::zero_where_less(S::max(x - least, S::zero()), scale, tiny);
    return nearest_multiples<S>(above, S::max(scale, tiny), most);
}

template <class S>
void encode_kivi_row(const float* x, uint32_t d, uint32_t* words, uint8_t*)
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
            const uint32_t range = ranges[from / 32] =
                kivi_range(0.f - S::largest(S::zero() - least), S::largest(top), 15);
            const F8 scale = S::broadcast(kivi_scale(range)),
                     lowest = S::broadcast(kivi_least(range));
            for (uint32_t i = from; i < from + n; i += 8)
                codes = codes | (kivi_codes<S>(CodedValues<S>(x + i).v, scale, lowest, 15)
                                 << int(group.step * ((i - base) / 8)));
        }
        group.template write<S>(words + base / 8, codes);
    }
}

template <class S>
void decode_kivi_row(const uint32_t* words, const uint8_t*, uint32_t d, float* x)
{
    const uint32_t* ranges = words + d / 8;
    for (uint32_t base = 0, size; base < d; base += size) {
        const PlaneGroup<4> group(d - base);
        size = group.size;
        const typename S::W8 codes = group.template read<S>(words + base / 8), mask = S::each(15);
        for (uint32_t j = 0; j < size / 8; j++) {
            const uint32_t range = ranges[(base + 8 * j) / 32];
            const typename S::F8 code = S::to_float((codes >> int(group.step * j)) & mask);
            S::store(x + base + 8 * j, S::fma(code, S::broadcast(kivi_scale(range)),
                                              S::broadcast(kivi_least(range))));
        }
    }
}

// Encodes eight channels at a time, row after row, without a transpose.
template <class S, uint32_t bits>
void encode_kivi_group(const float* x, uint32_t d, uint32_t* words, uint8_t*)
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
                codes = codes | (kivi_codes<S>(CodedValues<S>(x + i).v, scale, least, most)
                                 << int(group.step * ((i - base) / 8)));
            }
            group.template write<S>(row + base * bits / 32, codes);
        }
}

template <class S>
struct KiviRow : RowDecoder {
    using V = typename S::Wide;
    using Floats = CodeFloats<4, 0>;
    static constexpr DecodeRowKernel any_dim = decode_kivi_row<S>;
    struct Values {
        typename V::W codes;
        typename V::F scale[2], least[2]; // with sixteen lanes scale holds the values of all codes
        Values() = default;
        KS_INLINE Values(const KiviRow&, const OneRow<V>& in, uint32_t d, uint32_t base)
            : codes(in.template plane<4>(base / 8))
        {
            const uint32_t range = (4 * d + base) / 16; // of f16: scale, then least value
            if constexpr (V::lanes == 16) {
                typename V::F half[4];
                in.half4(range, half);
                for (int i = 0; i < 2; i++)
                    scale[i] = V::fma(Floats::template all<V>(), half[2 * i], half[2 * i + 1]);
            } else {
                for (uint32_t i = 0; i < 2; i++)
                    scale[i] = in.half(range + 2 * i), least[i] = in.half(range + 2 * i + 1);
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

// Decodes rows of one group into x (n, d). Ranges are read once for all rows.
template <class S, uint32_t bits>
KS_INLINE void decode_group_rows(const uint32_t* group, const uint32_t* rows, uint32_t first,
                                 uint32_t n, uint32_t d, float* x, const PrefetchRows& ahead)
{
    using V = typename S::Wide;
    constexpr int lanes = V::lanes;
    const uint32_t row_words = bits * d / 32;
    for (uint32_t base = 0; base < d; base += 32) {
        typename V::F scale[32 / lanes], least[32 / lanes];
        KS_UNROLL(4)
        for (int j = 0; j < 32 / lanes; j++)
            V::half2(V::words(group + base + lanes * j), &scale[j], &least[j]);
        const uint32_t* words = group + d + base / 64 * (2 * bits);
        const int half = base % 64 ? 16 : 0;
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t nth = (rows[i] - first) % kivi_rows;
            const typename V::W codes =
                OneRow<V>(words, nullptr, row_words, 0, &nth).template plane<bits>(0) >> half;
            float* out = x + size_t(i) * d + base;
            if (base == 0) prefetch(ahead, i);
            KS_UNROLL(4)
            for (int j = 0; j < 32 / lanes; j++)
                V::store(out + lanes * j,
                         V::fma(V::to_float((codes >> (lanes / 2 * j)) & V::each((1u << bits) - 1)),
                                scale[j], least[j]));
        }
    }
}

// Decodes one row, for any d.
template <class S, uint32_t bits>
void decode_group_row(const uint32_t* group, uint32_t nth, uint32_t d, float* x)
{
    const uint32_t* row = group + d + nth * (bits * d / 32);
    for (uint32_t base = 0, size; base < d; base += size) {
        const PlaneGroup<bits> plane(d - base);
        size = plane.size;
        const typename S::W8 codes = plane.template read<S>(row + base * bits / 32),
                             mask = S::each((1u << bits) - 1);
        for (uint32_t i = base; i < base + size; i += 8) {
            typename S::F8 scale, least;
            S::half2(S::words(group + i), &scale, &least);
            S::store(x + i,
                     S::fma(S::to_float((codes >> int(plane.step * ((i - base) / 8))) & mask),
                            scale, least));
        }
    }
}

template <class S, uint32_t bits>
void decode_kivi_groups(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n,
                        uint32_t d, float* x, const PrefetchRows& ahead)
{
    for (uint32_t i = 0, end; i < n; i = end) {
        const uint32_t nth = (rows[i] - first) / kivi_rows;
        const uint32_t* group = from.words + size_t(nth) * kivi_group_words(bits, d);
        for (end = i + 1; end < n && (rows[end] - first) / kivi_rows == nth;) end++;
        if (d == 64)
            decode_group_rows<S, bits>(group, rows + i, first, end - i, 64, x + size_t(i) * d,
                                       after(ahead, i));
        else if (d == 128)
            decode_group_rows<S, bits>(group, rows + i, first, end - i, 128, x + size_t(i) * d,
                                       after(ahead, i));
        else if (d % 64 == 0)
            decode_group_rows<S, bits>(group, rows + i, first, end - i, d, x + size_t(i) * d,
                                       after(ahead, i));
        else
            for (uint32_t k = i; k < end; k++)
                decode_group_row<S, bits>(group, (rows[k] - first) % kivi_rows, d,
                                          x + size_t(k) * d);
    }
}

template <class S, uint32_t bits>
struct KiviLanes {
    using V = typename S::Wide;
    uint32_t base;
    static uint32_t bytes(uint32_t d) { return bits * d / 8; }
    KS_INLINE KiviLanes(const LaneRows<V>&, uint32_t, uint32_t from) : base(from) {}
    KS_INLINE typename V::F at(const LaneRows<V>& row, uint32_t i, uint32_t j) const
    {
        return CodeFloats<bits, 0>::template of<V>(lane_code<V, bits>(row, base * bits / 32, i, j));
    }
};

// Like RowReader, for codes of one group. Queries are already multiplied by the group's scales.
template <class S, uint32_t bits>
struct GroupReader {
    using V = typename S::Wide;
    using Part = typename V::W; // codes
    const uint32_t* words;
    const float* least; // (n_heads), the sums of query * least value
    uint32_t d, base = 0;

    KS_INLINE void begin(uint32_t dim) { base = dim; }
    KS_INLINE Part part(const uint32_t* rows) const
    {
        const uint32_t nth = rows[0] % kivi_rows;
        return OneRow<V>(words + base / 32 * bits, nullptr, bits * d / 32, 0, &nth)
            .template plane<bits>(0);
    }
    KS_INLINE typename V::F key(const Part& codes, int nth) const
    {
        return CodeFloats<bits, 0>::template of<V>(codes >> 4 * nth);
    }
    KS_INLINE typename V::F logits(uint32_t h, typename V::F sums) const
    {
        return sums + V::broadcast(least[h]);
    }
};

// A logit is (query * scale) * code + query * least value, summed over dims. Writes query * scale
// to `to` (n_heads, d), and the sums of query * least value to `least` (n_heads).
template <class S>
void range_queries(const uint32_t* ranges, uint32_t d, const float* q, uint32_t n_heads, float* to,
                   float* least)
{
    typename S::F8 sums[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
    for (uint32_t i = 0; i < d; i += 8) {
        typename S::F8 scale, low;
        S::half2(S::words(ranges + i), &scale, &low);
        KS_UNROLL(4)
        for (uint32_t h = 0; h < 4; h++) {
            if (h == n_heads) break;
            const typename S::F8 query = S::load(q + size_t(h) * d + i);
            S::store(to + size_t(h) * d + i, query * scale);
            sums[h] = S::fma(query, low, sums[h]);
        }
    }
    for (uint32_t h = 0; h < n_heads; h++) least[h] = S::sum(sums[h]);
}

template <class S, uint32_t bits>
uint32_t group_logits(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n,
                      uint32_t d, const float* q, uint32_t n_heads, float* logits, float* scratch,
                      const PrefetchRows& ahead)
{
    if (d % 64) return 0;
    for (uint32_t i = 0, end; i < n; i = end) {
        const uint32_t nth = (rows[i] - first) / kivi_rows;
        for (end = i + 1; end < n && (rows[end] - first) / kivi_rows == nth;) end++;
        const uint32_t* group = from.words + size_t(nth) * kivi_group_words(bits, d);
        float least[4];
        range_queries<S>(group, d, q, n_heads, scratch, least);
        if constexpr (S::Wide::lanes == 16) {
            CodedRows codes = from;
            codes.words = group + d;
            codes.row_words = bits * d / 32;
            lane_logits_of<KiviLanes<S, bits>>(n_heads, d)(codes, rows + i, first + nth * kivi_rows,
                                                           end - i, d, scratch, least, logits + i,
                                                           after(ahead, i));
        } else {
            rows_logits_of<GroupReader<S, bits>>(n_heads)({group + d, least, d}, rows + i, first,
                                                          end - i, d, scratch, logits + i,
                                                          after(ahead, i));
        }
    }
    return n;
}

template <class S>
struct CpuCodec<codec_kiviv, S> {
    static constexpr EncodeKernel encode = encode_kivi_row<S>;
    static constexpr DecodeKernel decode = decode_rows<KiviRow<S>>;
    static constexpr PrepareKernel prepare = nullptr;
    static constexpr LogitsKernel logits = nullptr; // kiviv is for values
    static constexpr OutputsKernel outputs = row_outputs<KiviRow<S>>;
};

template <class S, uint32_t bits>
struct KiviGroupCodec {
    static constexpr EncodeKernel encode = encode_kivi_group<S, bits>;
    static constexpr DecodeKernel decode = decode_kivi_groups<S, bits>;
    static constexpr PrepareKernel prepare = nullptr;
    static constexpr LogitsKernel logits = group_logits<S, bits>;
    static constexpr OutputsKernel outputs = nullptr; // kivi is for keys
};
template <class S>
struct CpuCodec<codec_kivi, S> : KiviGroupCodec<S, 4> {
};
template <class S>
struct CpuCodec<codec_kivi2, S> : KiviGroupCodec<S, 2> {
};

} // namespace ks
