// Reads turbo rows: by octets, and by lanes in decode.
#pragma once

#include "kernels/cuda/lanes.cuh"
#include "kernels/cuda/octets.cuh"

namespace ks
{

// The table of pairs of levels, indexed by two 2-bit ranks.
DEVICE const float* turbo_pairs(const float* levels)
{
    return levels + 32u;
}

template <class C>
DEVICE void fill_turbo(float* levels)
{
    const uint i = threadIdx.x, pair = i % 32u / 2u;
    if (i < 2u * C::ranks) levels[i] = turbo_level(C::ranks, i);
    if (i / 32u == 1u) levels[i] = turbo_level(C::ranks, i % 2u != 0u ? pair / 4u : pair % 4u);
}

template <class C>
DEVICE void load_turbo(const CudaCache& cache, uint r, uint j, uint d, const float* levels,
                       float (&out)[8])
{
    const uint* words = row_words<RowCodec<C>>(cache, r, d);
    const float scale = C::scale(words, 0u, row_tail<RowCodec<C>>(cache, r, d), d);
    uint codes[8], signs[8];
    // turbo3 has six words per 64 dims, so its loads are 8 bytes
    load_fields<C::ranks == 8u ? 4u : 2u, C::ranks == 4u ? 2u : 4u>(words, j, codes);
    if (C::ranks == 4u) load_fields<1u, 2u>(words + d / 16u, j, signs);
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++)
        out[i] = scale * levels[C::ranks == 4u ? codes[i] | signs[i] << 2 : codes[i]];
}

template <class C, uint bits, uint d, uint n>
struct LaneTurbo : LaneRows {
    static constexpr uint plane = bits, n_rows = 8u, n_codes = bits == 4u ? n : 1u,
                          n_words = n_codes + (C::ranks == 4u ? 2u : 1u);
    uint i;
    const uint *codes, *signs;
    const uint16_t* scales;
    // The scales begin where row n_rows would: d is a multiple of 64, so a tail is just a scale.
    DEVICE_MEMBER LaneTurbo(const CudaCache& cache, uint, uint j)
        : i(first_octet<n>(plane, j)), codes(opaque_address(cache.words + word_of_octet<bits>(i))),
          signs(opaque_address(cache.words + d / 16u + i / 8u * 2u + i % 2u)),
          scales(reinterpret_cast<const uint16_t*>(row_words<RowCodec<C>>(cache, cache.n_rows, d)))
    {
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        const uint row_bytes = 4u * RowCodec<C>::words(d);
        load_words<n_codes, n_codes>(in_row(codes, r, row_bytes), words);
        words[n_codes] = __ldg(scales + r);
        if (C::ranks == 4u) words[n_words - 1u] = __ldg(in_row(signs, r, row_bytes));
    }
    DEVICE_MEMBER LaneOctet<1> decode(const uint (&words)[n_words], uint e,
                                      const float* levels) const
    {
        LaneOctet<1> row;
        row.factors[0] = HALF_TO_FLOAT(words[n_codes]);
        // places masks byte offsets: four times every second code
        const uint fields = fields_of_octet<bits>(words[e % n_codes], i + 4u * e),
                   places = 0x3c3c3c3cu;
        const uint half = bits == 4u ? 0u : i % 8u / 4u + e; // which half of the word
        // bit 2 k is the sign of dim k
        const uint signs_of_two = words[n_words - 1u] >> (i % 4u / 2u + 16u * half);
        KS_UNROLL
        for (uint k = 0u; k < 8u; k += 2u) {
            if (bits == 4u) {
                row.values[k] = load_at_byte_offset(levels, fields << 2u & places, k / 2u);
                row.values[k + 1u] = load_at_byte_offset(levels, fields >> 2u & places, k / 2u);
                continue;
            }
            float two[2];
            load_at_offset(turbo_pairs(levels),
                           (k == 0u ? fields << 3u : fields >> (2u * k - 3u)) & 0x78u, two);
            KS_UNROLL
            for (uint m = 0u; m < 2u; m++) {
                const uint sign = signs_of_two << (31u - 2u * (k + m)) & 0x80000000u;
                row.values[k + m] =
                    C::ranks == 4u ? BITS_TO_FLOAT(FLOAT_TO_BITS(two[m]) ^ sign) : two[m];
            }
        }
        return row;
    }
};

#define KS_TURBO(Codec, bits)                                                                      \
    template <>                                                                                    \
    struct OctetLoader<RowCodec<Codec>> {                                                          \
        DEVICE_MEMBER static void fill(float* levels) { fill_turbo<Codec>(levels); }               \
        DEVICE_MEMBER static void load(const CudaCache& cache, uint r, uint j, uint d,             \
                                       const float* levels, float (&out)[8])                       \
        {                                                                                          \
            load_turbo<Codec>(cache, r, j, d, levels, out);                                        \
        }                                                                                          \
    };                                                                                             \
    template <uint d, uint n>                                                                      \
    struct LaneLoad<RowCodec<Codec>, d, n> {                                                       \
        using Rows = LaneTurbo<Codec, bits, d, n>;                                                 \
    };
KS_TURBO(codec_turbo4, 4u)
KS_TURBO(codec_turbo3, 2u)
KS_TURBO(codec_turbo2, 2u)
KS_TURBO(codec_turbo2v, 2u)
#undef KS_TURBO

} // namespace ks
