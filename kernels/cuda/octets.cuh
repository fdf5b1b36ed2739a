// Reads octets of cached rows: dims 8 j to 8 j + 7. head_dim is a multiple of 64. The lanes of 64
// dims read the same words under different shifts.
#pragma once

#include "kernels/cuda/slots.cuh"

namespace ks
{

// Tables of code values for a block's keys and values, in shared memory. Registers cannot be
// indexed, and local memory would hold a copy per thread.
constexpr uint max_levels = 128u;
struct alignas(256) Levels {
    float k[max_levels], v[max_levels];
};

DEVICE void unpack_f16(uint word, float* out)
{
    out[0] = HALF_TO_FLOAT(word & 0xffffu);
    out[1] = HALF_TO_FLOAT(word >> 16);
}

// n - subtrahend as a float, for integers below 2^22. A conversion instruction would have low
// throughput.
DEVICE float float_minus(uint n, uint subtrahend)
{
    return BITS_TO_FLOAT(0x4b000000u | n) - float(0x800000u + subtrahend);
}

// Loads n words to out[begin] and on, `each` at a time. `at` is aligned to `each` words.
template <uint n, uint each, uint begin = 0u, uint n_out>
DEVICE void load_words(const uint* at, uint (&out)[n_out])
{
    KS_UNROLL
    for (uint i = 0u; i < n; i += each) {
        uint* to = out + begin + i;
        if constexpr (each == 4u) {
            const uint4 four = __ldg(reinterpret_cast<const uint4*>(at + i));
            to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
        } else if constexpr (each == 2u) {
            const uint2 two = __ldg(reinterpret_cast<const uint2*>(at + i));
            to[0] = two.x, to[1] = two.y;
        } else {
            to[0] = __ldg(at + i);
        }
    }
}

DEVICE void load_f16_octet(const CudaCache& cache, uint r, uint j, uint d, float (&out)[8])
{
    uint words[4];
    load_words<4u, 4u>(cache.words + (uint64_t(r) * d + 8u * j) / 2u, words);
    KS_UNROLL
    for (uint k = 0u; k < 4u; k++) unpack_f16(words[k], out + 2u * k);
}

// The fields of octet j of a plane of 4, 2 or 1 bits. `plane` is aligned to `each` words.
template <uint bits, uint each>
DEVICE void load_fields(const uint* plane, uint j, uint (&out)[8])
{
    constexpr uint n_words = 2u * bits; // words per 64 dims
    // number of the octet's first field in a word
    const uint first = 8u * (j % 8u) / n_words;
    uint words[n_words];
    load_words<n_words, each>(plane + j / 8u * n_words, words);
    KS_UNROLL
    for (uint w = 0u; w < n_words; w++) KS_UNROLL
    for (uint k = 0u; k < 8u / n_words; k++)
        out[n_words * k + w] = words[w] >> (bits * (first + k)) & ((1u << bits) - 1u);
}

// Reads an octet of a codec's row. The primary template reads value by value; codecs/NAME.cuh
// specialises it. fill writes the codec's table, if it has one, with all threads of a block.
template <class C>
struct OctetLoader {
    DEVICE_MEMBER static void fill(float*) {}
    DEVICE_MEMBER static void load(const CudaCache& cache, uint r, uint j, uint d, const float*,
                                   float (&out)[8])
    {
        const uint* words = row_words<C>(cache, r, d);
        const uint tail = row_tail<C>(cache, r, d);
        for (uint i = 0u; i < 8u; i++)
            out[i] = C::value_of(words, tail, r % C::group, 8u * j + i, d);
    }
};

// Loaders of uncoded caches.
struct F16Loader {
    DEVICE_MEMBER static void fill(float*) {}
    DEVICE_MEMBER static void load(const CudaCache& cache, uint r, uint j, uint d, const float*,
                                   float (&out)[8])
    {
        load_f16_octet(cache, r, j, d, out);
    }
};
struct F32Loader {
    DEVICE_MEMBER static void fill(float*) {}
    DEVICE_MEMBER static void load(const CudaCache& cache, uint r, uint j, uint d, const float*,
                                   float (&out)[8])
    {
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++)
            out[i] = BITS_TO_FLOAT(cache.words[uint64_t(r) * d + 8u * j + i]);
    }
};

// The sum over the lanes that share a row. Every lane gets it.
template <uint lanes>
DEVICE float share_sum(float x)
{
    KS_UNROLL
    for (uint distance = lanes / 2u; distance > 0u; distance /= 2u)
        x += __shfl_xor_sync(all_lanes, x, int(distance));
    return x;
}

} // namespace ks
