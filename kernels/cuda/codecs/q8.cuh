// Reads q8 rows: by octets, and by lanes in decode.
#pragma once

#include "kernels/cuda/lanes.cuh"
#include "kernels/cuda/octets.cuh"

namespace ks
{

DEVICE void load_q8(const CudaCache& cache, uint r, uint j, uint d, float (&out)[8])
{
    const uint* words = row_words<RowCodec<codec_q8>>(cache, r, d);
    const float scale = HALF_TO_FLOAT(words[d / 4u + j / 8u] >> (16u * (j / 4u & 1u)) & 0xffffu);
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++)
        out[i] =
            scale *
            float_minus((__ldg(words + 2u * j + i / 4u) >> (8u * (i & 3u)) & 255u) ^ 128u, 128u);
}

template <>
struct OctetLoader<RowCodec<codec_q8>> {
    DEVICE_MEMBER static void fill(float*) {}
    DEVICE_MEMBER static void load(const CudaCache& cache, uint r, uint j, uint d, const float*,
                                   float (&out)[8])
    {
        load_q8(cache, r, j, d, out);
    }
};

template <uint d, uint n>
struct LaneQ8 : LaneCodes<8u, 1u, -128> {
    static constexpr uint n_rows = 8u / n, n_words = 2u * n + 1u;
    const uint* codes;
    const uint16_t* scales;
    DEVICE_MEMBER LaneQ8(const CudaCache& cache, uint, uint j)
        : codes(opaque_address(cache.words + 2u * n * j)),
          scales(
              opaque_address(reinterpret_cast<const uint16_t*>(cache.words + d / 4u) + n * j / 4u))
    {
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        const uint row_bytes = 4u * RowCodec<codec_q8>::words(d);
        load_words<2u * n, d == 64u ? 1u : 2u>(in_row(codes, r, row_bytes), words);
        words[2u * n] = __ldg(in_row(scales, r, row_bytes));
    }
    DEVICE_MEMBER LaneOctet<1> decode(const uint (&words)[n_words], uint e, const float*) const
    {
        LaneOctet<1> row;
        row.factors[0] = row.offsets[0] = HALF_TO_FLOAT(words[2u * n]);
        codes_of(words[2u * e] ^ 0x80808080u, 0u, 4u, row.values);
        codes_of(words[2u * e + 1u] ^ 0x80808080u, 4u, 4u, row.values);
        return row;
    }
};

template <uint d, uint n>
struct LaneLoad<RowCodec<codec_q8>, d, n> {
    using Rows = LaneQ8<d, n>;
};

} // namespace ks
