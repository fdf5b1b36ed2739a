// The readers of all codecs, chosen by a cache's format.
#pragma once

#include "kernels/cuda/codecs/kivi.cuh"
#include "kernels/cuda/codecs/polar.cuh"
#include "kernels/cuda/codecs/q4.cuh"
#include "kernels/cuda/codecs/q8.cuh"
#include "kernels/cuda/codecs/turbo.cuh"

namespace ks
{

// Calls body with the octet loader of a format. Without `coded` the format is f16.
template <bool coded, class Body>
DEVICE void with_loader(uint format, const Body& body)
{
    if (!coded || format == plain_f16) return body(F16Loader());
    if (format == plain_f32) return body(F32Loader());
    with_codec(format, [&](auto codec) { body(OctetLoader<decltype(codec)>()); });
}

// Fills the tables of each pool. A barrier must follow.
DEVICE void fill_levels(Levels* levels, const CudaSlots& s)
{
    for (uint source = pass_plain; source <= pass_chunk; source++) {
        with_loader<true>(pool_of(s, source, false).format,
                          [&](auto loader) { loader.fill(levels[source].k); });
        with_loader<true>(pool_of(s, source, true).format,
                          [&](auto loader) { loader.fill(levels[source].v); });
    }
}

template <bool coded>
DEVICE void load_octet(const CudaCache& cache, uint r, uint j, uint d, const float* levels,
                       float (&out)[8])
{
    with_loader<coded>(cache.format,
                       [&](auto loader) { loader.load(cache, r, j, d, levels, out); });
}

// Properties of a format's reader.
struct LaneFormat {
    uint plane = 0u;
    bool of_keys = true, of_values = true;
};

template <class Rows>
static inline __host__ __device__ LaneFormat lane_format()
{
    return {Rows::plane, Rows::of_keys, Rows::of_values};
}

static inline __host__ __device__ LaneFormat lane_format_of(uint format)
{
#define KS_CASE(name, number)                                                                      \
    if (format == number)                                                                          \
        return lane_format<typename LaneLoad<RowCodec<codec_##name>, 64u, 1u>::Rows>();
    CODECS(KS_CASE)
#undef KS_CASE
#define KS_CASE(name, number)                                                                      \
    if (format == number)                                                                          \
        return lane_format<typename LaneLoad<GroupCodec<codec_##name>, 64u, 1u>::Rows>();
    GROUP_CODECS(KS_CASE)
#undef KS_CASE
    return {};
}

// The plane that decides a lane's dims: the coded pool's, which holds most slots of a long text.
static inline __host__ __device__ uint plane_of_pools(const CudaCache& plain,
                                                      const CudaCache& coded)
{
    return lane_format_of(coded.words != nullptr ? coded.format : plain.format).plane;
}

// Calls body with the reader of a lane's n octets of rows of d dims. `row`: a row of the run.
// Without `coded` the format is f16. Codecs for values only are skipped for keys, and vice versa.
template <uint d, uint n, bool coded, bool values, class Body>
DEVICE void with_lane_rows(const CudaCache& cache, uint row, uint plane, uint j, const Body& body)
{
    if (!coded || (cache.format == plain_f16 && plane < 2u))
        return body(LaneF16<d, n>(cache, plane, j));
    if (cache.format < first_codec) return body(LaneGathered<d, n>(cache, plane, j));
    with_codec(cache.format, [&](auto codec) {
        using Rows = typename LaneLoad<decltype(codec), d, n>::Rows;
        if constexpr (values ? Rows::of_values : Rows::of_keys) body(Rows(cache, row, j));
    });
}

} // namespace ks
