// Reads q4 rows: by octets, and by lanes in decode.
#pragma once

#include "kernels/cuda/lanes.cuh"
#include "kernels/cuda/octets.cuh"

namespace ks
{

DEVICE void load_q4(const CudaCache& cache, uint r, uint j, uint d, float (&out)[8])
{
    const uint *words = row_words<RowCodec<codec_q4>>(cache, r, d), b = j / 4u; // the block of 32
    const float scale = HALF_TO_FLOAT(words[d / 8u + b / 2u] >> (16u * (b & 1u)) & 0xffffu);
    uint codes[8];
    load_fields<4u, 1u>(words, j, codes);
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) out[i] = scale * float_minus(codes[i], 8u);
}

template <>
struct OctetLoader<RowCodec<codec_q4>> {
    DEVICE_MEMBER static void fill(float*) {}
    DEVICE_MEMBER static void load(const CudaCache& cache, uint r, uint j, uint d, const float*,
                                   float (&out)[8])
    {
        load_q4(cache, r, j, d, out);
    }
};

// The dims of an octet lie in two blocks of 32.
template <uint d, uint n>
struct LaneQ4 : LaneCodes<4u, 2u, -8> {
    static constexpr uint n_rows = 8u, n_words = n + 1u;
    const uint *codes, *scales;
    DEVICE_MEMBER LaneQ4(const CudaCache& cache, uint, uint j)
        : codes(opaque_address(cache.words + n * j)),
          scales(opaque_address(cache.words + d / 8u + n * j / 8u))
    {
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        const uint row_bytes = 4u * RowCodec<codec_q4>::words(d);
        load_words<n, d == 64u ? 1u : n>(in_row(codes, r, row_bytes), words);
        words[n] = __ldg(in_row(scales, r, row_bytes));
    }
    DEVICE_MEMBER LaneOctet<2> decode(const uint (&words)[n_words], uint e, const float*) const
    {
        LaneOctet<2> row;
        unpack_f16(words[n], row.factors);
        unpack_f16(words[n], row.offsets);
        codes_of(words[e], 0u, 8u, row.values);
        return row;
    }
};

template <uint d, uint n>
struct LaneLoad<RowCodec<codec_q4>, d, n> {
    using Rows = LaneQ4<d, n>;
};

} // namespace ks
