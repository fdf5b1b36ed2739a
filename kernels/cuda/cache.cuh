// Rows of a cache in any format. Formats: 0 is f32, 1 is f16, then the codecs in the order of their
// lists.
#pragma once

#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

#include "kernels/common/codecs.h"

namespace ks
{

constexpr uint plain_f32 = 0u;
constexpr uint plain_f16 = 1u;
constexpr uint first_codec = 2u;
constexpr uint max_row_words = codec_max_dim / 4u + 32u; // words of the longest coded row

// One interface for codecs of single rows and codecs of groups of rows. Each kind gets the members
// that only the other kind needs.
template <class C>
struct RowCodec : C {
    static constexpr uint group = 1u;
    FN uint words(uint d) { return C::row_bytes(d) / 4u; }
    FN uint n_tail(uint d) { return C::row_bytes(d) % 4u; }
    FN float value_of(const uint* words, uint tail, uint, uint i, uint d)
    {
        return C::value(words, 0u, tail, i, d);
    }
};
template <class C>
struct GroupCodec : C {
    FN uint words(uint d) { return C::group_words(d); }
    FN uint n_tail(uint) { return 0u; }
    FN float value_of(const uint* words, uint, uint nth, uint i, uint d)
    {
        return C::value(words, 0u, nth, i, d);
    }
};

#define KS_IS(name, number) || format == number
DEVICE bool is_group_codec(uint format)
{
    return false GROUP_CODECS(KS_IS);
}
#undef KS_IS

// Calls body with the codec of a format.
template <class Body>
DEVICE void with_codec(uint format, const Body& body)
{
#define KS_CASE(name, number)                                                                      \
    if (format == number) return body(RowCodec<codec_##name>());
    CODECS(KS_CASE)
#undef KS_CASE
#define KS_CASE(name, number)                                                                      \
    if (format == number) return body(GroupCodec<codec_##name>());
    GROUP_CODECS(KS_CASE)
#undef KS_CASE
}

// The bytes of row r behind its last whole word.
template <class C>
DEVICE uint row_tail(const CudaCache& cache, uint r, uint d)
{
    const uint n = C::n_tail(d);
    if (n == 0u) return 0u;
    const uint8_t* at =
        reinterpret_cast<const uint8_t*>(cache.words + uint64_t(cache.n_rows) * C::words(d)) +
        uint64_t(r) * n;
    if (n == 2u) return __ldg(reinterpret_cast<const uint16_t*>(at));
    uint tail = 0u;
    for (uint i = 0u; i < n; i++) tail |= uint(__ldg(at + i)) << (8u * i);
    return tail;
}

// The words of row r, or of its group.
template <class C>
DEVICE uint* row_words(const CudaCache& cache, uint r, uint d)
{
    return cache.words + uint64_t(r / C::group) * C::words(d);
}

// Calls put(i, value) for values first, first + step, ... of row r.
template <class C, class Put>
DEVICE void decode_coded(const CudaCache& cache, uint r, uint d, uint first, uint step,
                         const Put& put)
{
    const uint tail = row_tail<C>(cache, r, d);
    const uint* words = row_words<C>(cache, r, d);
    for (uint i = first; i < d; i += step) put(i, C::value_of(words, tail, r % C::group, i, d));
}

template <class Put>
DEVICE void decode_row(const CudaCache& cache, uint r, uint d, uint first, uint step,
                       const Put& put)
{
    if (cache.format == plain_f16) {
        const uint16_t* f16 = reinterpret_cast<const uint16_t*>(cache.words) + uint64_t(r) * d;
        for (uint i = first; i < d; i += step) put(i, HALF_TO_FLOAT(f16[i]));
        return;
    }
    if (cache.format == plain_f32) {
        const uint* words = cache.words + uint64_t(r) * d;
        for (uint i = first; i < d; i += step) put(i, BITS_TO_FLOAT(words[i]));
        return;
    }
    with_codec(cache.format,
               [&](auto codec) { decode_coded<decltype(codec)>(cache, r, d, first, step, put); });
}

// One value of row r.
DEVICE float cache_value(const CudaCache& cache, uint r, uint i, uint d)
{
    float found = 0.f;
    decode_row(cache, r, d, i, codec_max_dim, [&](uint, float value) { found = value; });
    return found;
}

} // namespace ks
