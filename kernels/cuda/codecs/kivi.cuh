// Reads kivi rows and groups: by octets, and by lanes in decode.
#pragma once

#include "kernels/cuda/lanes.cuh"
#include "kernels/cuda/octets.cuh"

namespace ks
{

// The value of kivi_decoded, without a conversion instruction.
DEVICE float kivi_value(uint code, uint range)
{
    return kivi_least(range) + kivi_scale(range) * float_minus(code, 0u);
}

DEVICE void load_kivi_row(const CudaCache& cache, uint r, uint j, uint d, float (&out)[8])
{
    const uint *words = cache.words + uint64_t(r) * RowCodec<codec_kiviv>::words(d),
               range = words[d / 8u + j / 4u];
    uint codes[8];
    // 8-byte loads: the codes are followed by two words of ranges per 64 dims
    load_fields<4u, 2u>(words, j, codes);
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) out[i] = kivi_value(codes[i], range);
}

template <uint bits>
DEVICE void load_kivi_group(const CudaCache& cache, uint r, uint j, uint d, float (&out)[8])
{
    const uint* group = cache.words + uint64_t(r / kivi_rows) * kivi_group_words(bits, d);
    uint codes[8];
    load_fields<bits, 4u>(group + d + r % kivi_rows * (bits * d / 32u), j, codes);
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) out[i] = kivi_value(codes[i], __ldg(group + 8u * j + i));
}

template <>
struct OctetLoader<RowCodec<codec_kiviv>> {
    DEVICE_MEMBER static void fill(float*) {}
    DEVICE_MEMBER static void load(const CudaCache& cache, uint r, uint j, uint d, const float*,
                                   float (&out)[8])
    {
        load_kivi_row(cache, r, j, d, out);
    }
};
template <>
struct OctetLoader<GroupCodec<codec_kivi>> {
    DEVICE_MEMBER static void fill(float*) {}
    DEVICE_MEMBER static void load(const CudaCache& cache, uint r, uint j, uint d, const float*,
                                   float (&out)[8])
    {
        load_kivi_group<4u>(cache, r, j, d, out);
    }
};
template <>
struct OctetLoader<GroupCodec<codec_kivi2>> {
    DEVICE_MEMBER static void fill(float*) {}
    DEVICE_MEMBER static void load(const CudaCache& cache, uint r, uint j, uint d, const float*,
                                   float (&out)[8])
    {
        load_kivi_group<2u>(cache, r, j, d, out);
    }
};

// Values. The dims of an octet lie in two blocks of 32, and so do those of the lane's next octet.
template <uint d, uint n>
struct LaneKiviRow : LaneCodes<4u, 2u, 1> {
    static constexpr uint n_rows = 8u, n_words = n + 2u;
    static constexpr bool of_keys = false;
    const uint *codes, *ranges;
    DEVICE_MEMBER LaneKiviRow(const CudaCache& cache, uint, uint j)
        : codes(opaque_address(cache.words + n * j)),
          ranges(opaque_address(cache.words + d / 8u + n * j / 8u * 2u))
    {
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        const uint row_bytes = 4u * RowCodec<codec_kiviv>::words(d);
        load_words<2u, 2u, n>(in_row(ranges, r, row_bytes), words);
        load_words<n, n>(in_row(codes, r, row_bytes), words);
    }
    DEVICE_MEMBER LaneOctet<2> decode(const uint (&words)[n_words], uint e, const float*) const
    {
        LaneOctet<2> row;
        KS_UNROLL
        for (uint b = 0u; b < 2u; b++)
            row.factors[b] = kivi_scale(words[n + b]), row.offsets[b] = kivi_least(words[n + b]);
        codes_of(words[e], 0u, 8u, row.values);
        return row;
    }
};

// Keys of one group. Registers hold its ranges until the query has been multiplied by them.
template <class C, uint bits, uint d, uint n>
struct LaneKiviGroup : LaneCodes<bits, 1u, 1> {
    static constexpr uint n_rows = d == 256u ? 4u : 8u, n_words = bits == 4u ? n : 1u;
    static constexpr bool of_values = false, query_after_fetch = true;
    uint i, ranges[n][8];
    const uint* codes;
    DEVICE_MEMBER LaneKiviGroup(const CudaCache& cache, uint row, uint j)
        : i(first_octet<n>(bits, j))
    {
        const uint* group = row_words<GroupCodec<C>>(cache, row, d);
        KS_UNROLL
        for (uint e = 0u; e < n; e++) {
            const LaneDims dims = dims_of_octet(bits, i + e * octets_apart(bits));
            KS_UNROLL
            for (uint k = 0u; k < 8u; k++) ranges[e][k] = __ldg(group + dims[k]);
        }
        codes = opaque_address(group + d + word_of_octet<bits>(i));
    }
    DEVICE_MEMBER void scale_query(const float (&query)[8], uint e, float (&by)[8],
                                   float (&base)[1]) const
    {
        base[0] = 0.f;
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) {
            by[k] = query[k] * kivi_scale(ranges[e][k]) * (this->scale_up / this->field_scale(k));
            base[0] += query[k] * kivi_least(ranges[e][k]) / this->scale_down;
        }
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        load_words<n_words, n_words>(in_row(codes, r % kivi_rows, bits * d / 8u), words);
    }
    DEVICE_MEMBER LaneOctet<1> decode(const uint (&words)[n_words], uint e, const float*) const
    {
        LaneOctet<1> row;
        row.factors[0] = 1.f;
        this->codes_of(fields_of_octet<bits>(words[e % n_words], i + 4u * e), 0u, 8u, row.values);
        return row;
    }
};

template <uint d, uint n>
struct LaneLoad<RowCodec<codec_kiviv>, d, n> {
    using Rows = LaneKiviRow<d, n>;
};
template <uint d, uint n>
struct LaneLoad<GroupCodec<codec_kivi>, d, n> {
    using Rows = LaneKiviGroup<codec_kivi, 4u, d, n>;
};
template <uint d, uint n>
struct LaneLoad<GroupCodec<codec_kivi2>, d, n> {
    using Rows = LaneKiviGroup<codec_kivi2, 2u, d, n>;
};

} // namespace ks
