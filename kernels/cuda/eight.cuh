// Eight neighbouring dims of a cached row at a time, dims 8 j to 8 j + 7, of heads of a multiple of 64 values: what a lane takes of a
// row that a warp shares. The lanes of a group of 64 dims read the same words under different shifts.
#pragma once

#include "kernels/cuda/slots.cuh"

namespace ks
{

// What the codes of turbo codecs stand for, for a block's keys and values: a table in registers would be indexed.
struct Levels {
    float k[16], v[16];
};

template <class C> struct RanksOf {
    static constexpr uint n = 0u;
};
template <> struct RanksOf<codec_turbo4> {
    static constexpr uint n = codec_turbo4::ranks;
};
template <> struct RanksOf<codec_turbo3> {
    static constexpr uint n = codec_turbo3::ranks;
};
template <> struct RanksOf<codec_turbo2> {
    static constexpr uint n = codec_turbo2::ranks;
};
template <> struct RanksOf<codec_turbo2v> {
    static constexpr uint n = codec_turbo2v::ranks;
};

DEVICE uint ranks_of(uint format)
{
    uint nth = first_codec;
#define KS_CASE(name) \
    if (format == nth++) return RanksOf<codec_##name>::n;
    CODECS(KS_CASE)
#undef KS_CASE
    return 0u;
}

DEVICE void fill_levels(float* levels, uint format)
{
    const uint ranks = ranks_of(format);
    if (threadIdx.x < 2u * ranks) levels[threadIdx.x] = turbo_level(ranks, threadIdx.x);
}

// Of each pool; a barrier comes before they are read.
DEVICE void fill_levels(Levels* levels, const CudaSlots& s)
{
    for (uint source = pass_plain; source <= pass_chunk; source++) {
        fill_levels(levels[source].k, pool_of(s, source, false).format);
        fill_levels(levels[source].v, pool_of(s, source, true).format);
    }
}

DEVICE void halves_of(uint word, float* out)
{
    out[0] = HALF_TO_FLOAT(word & 0xffffu);
    out[1] = HALF_TO_FLOAT(word >> 16);
}

DEVICE void load_halves(const CudaCache& cache, uint r, uint j, uint d, float (&out)[8])
{
    const uint4 four = __ldg(reinterpret_cast<const uint4*>(cache.words + (uint64_t(r) * d + 8u * j) / 2u));
    halves_of(four.x, out);
    halves_of(four.y, out + 2);
    halves_of(four.z, out + 4);
    halves_of(four.w, out + 6);
}

// The fields of eight dims of a plane of 4, 2 or 1 bits that begins at `plane`.
template <uint bits> DEVICE void load_fields(const uint* plane, uint j, uint (&out)[8])
{
    constexpr uint n_words = 2u * bits; // of a group of 64 dims
    const uint* group = plane + j / 8u * n_words;
    const uint first = 8u * (j % 8u) / n_words; // field of the first dims
    KS_UNROLL
    for (uint w = 0u; w < n_words; w++) {
        const uint word = __ldg(group + w);
        KS_UNROLL
        for (uint k = 0u; k < 8u / n_words; k++) out[n_words * k + w] = word >> (bits * (first + k)) & ((1u << bits) - 1u);
    }
}

template <class C> DEVICE void load_turbo(const CudaCache& cache, uint r, uint j, uint d, const float* levels, float (&out)[8])
{
    const uint* words = row_words<RowCodec<C>>(cache, r, d);
    const float scale = C::scale(words, 0u, row_tail<RowCodec<C>>(cache, r, d), d);
    uint codes[8], signs[8];
    load_fields<C::ranks == 8u ? 4u : 2u>(words, j, codes);
    if (C::ranks == 4u) load_fields<1u>(words + d / 16u, j, signs);
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) out[i] = scale * levels[C::ranks == 4u ? codes[i] | signs[i] << 2 : codes[i]];
}

DEVICE void load_q4(const CudaCache& cache, uint r, uint j, uint d, float (&out)[8])
{
    const uint *words = row_words<RowCodec<codec_q4>>(cache, r, d), b = j / 4u; // the block of 32
    const float scale = HALF_TO_FLOAT(words[d / 8u + b / 2u] >> (16u * (b & 1u)) & 0xffffu);
    uint codes[8];
    load_fields<4u>(words, j, codes);
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) out[i] = scale * (float(codes[i]) - 8.f);
}

DEVICE void load_q8(const CudaCache& cache, uint r, uint j, uint d, float (&out)[8])
{
    const uint* words = row_words<RowCodec<codec_q8>>(cache, r, d);
    const float scale = HALF_TO_FLOAT(words[d / 4u + j / 8u] >> (16u * (j / 4u & 1u)) & 0xffffu);
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) out[i] = scale * float(int(__ldg(words + 2u * j + i / 4u) << (24u - 8u * (i & 3u))) >> 24);
}

template <uint bits> DEVICE void load_kivi_row(const CudaCache& cache, uint r, uint j, uint d, float (&out)[8])
{
    const uint *words = cache.words + uint64_t(r) * (kivi_row_bytes(bits, d) / 4u), range = words[bits * d / 32u + j / 4u];
    uint codes[8];
    load_fields<bits>(words, j, codes);
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) out[i] = kivi_decoded(codes[i], range);
}

template <uint bits> DEVICE void load_kivi_group(const CudaCache& cache, uint r, uint j, uint d, float (&out)[8])
{
    const uint* group = cache.words + uint64_t(r / kivi_rows) * kivi_group_words(bits, d);
    uint codes[8];
    load_fields<bits>(group + d + r % kivi_rows * (bits * d / 32u), j, codes);
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) out[i] = kivi_decoded(codes[i], __ldg(group + 8u * j + i));
}

// Of a block of 16 these are a half: one angle of level 3, two of level 2, four of level 1 below it.
template <class C, bool fine> DEVICE void load_polar(const CudaCache& cache, uint r, uint j, uint d, float (&out)[8])
{
    const uint *w = row_words<RowCodec<C>>(cache, r, d), tail = row_tail<RowCodec<C>>(cache, r, d), bytes = polar_bytes(d, fine);
    float top = HALF_TO_FLOAT(row_field(w, 0u, tail, bytes, 2u * d + 16u * (j / (fine ? 4u : 2u)), 0xffffu));
    if (fine) top *= polar_factor(fine, 5u, polar_code(w, 0u, tail, d, fine, 5u, j / 4u), (j / 2u & 1u) != 0u);
    top *= polar_factor(fine, 4u, polar_code(w, 0u, tail, d, fine, 4u, j / 2u), (j & 1u) != 0u);
    const uint third = polar_code(w, 0u, tail, d, fine, 3u, j);
    KS_UNROLL
    for (uint i = 0u; i < 2u; i++) {
        const float mid = top * polar_factor(fine, 3u, third, i != 0u);
        const uint second = polar_code(w, 0u, tail, d, fine, 2u, 2u * j + i);
        KS_UNROLL
        for (uint k = 0u; k < 2u; k++) {
            const float low = mid * polar_factor(fine, 2u, second, k != 0u);
            const uint first = row_field(w, 0u, tail, bytes, plane_bit(4u * j + 2u * i + k, d / 2u, 4u), 15u);
            out[4u * i + 2u * k] = low * polar_first_factor(first, false);
            out[4u * i + 2u * k + 1u] = low * polar_first_factor(first, true);
        }
    }
}

template <class C> struct LoadEight;
#define KS_LOAD(Codec, ...)                                                                                                      \
    template <> struct LoadEight<Codec> {                                                                                         \
        DEVICE_MEMBER static void load(const CudaCache& cache, uint r, uint j, uint d, const float* levels, float (&out)[8]) { __VA_ARGS__; } \
    }
KS_LOAD(RowCodec<codec_turbo4>, load_turbo<codec_turbo4>(cache, r, j, d, levels, out));
KS_LOAD(RowCodec<codec_turbo3>, load_turbo<codec_turbo3>(cache, r, j, d, levels, out));
KS_LOAD(RowCodec<codec_turbo2>, load_turbo<codec_turbo2>(cache, r, j, d, levels, out));
KS_LOAD(RowCodec<codec_turbo2v>, load_turbo<codec_turbo2v>(cache, r, j, d, levels, out));
KS_LOAD(RowCodec<codec_q4>, (void)levels; load_q4(cache, r, j, d, out));
KS_LOAD(RowCodec<codec_q8>, (void)levels; load_q8(cache, r, j, d, out));
KS_LOAD(RowCodec<codec_polar>, (void)levels; load_polar<codec_polar, false>(cache, r, j, d, out));
KS_LOAD(RowCodec<codec_polar5>, (void)levels; load_polar<codec_polar5, true>(cache, r, j, d, out));
KS_LOAD(RowCodec<codec_kiviv>, (void)levels; load_kivi_row<4u>(cache, r, j, d, out));
KS_LOAD(RowCodec<codec_kivi2v>, (void)levels; load_kivi_row<2u>(cache, r, j, d, out));
KS_LOAD(GroupCodec<codec_kivi>, (void)levels; load_kivi_group<4u>(cache, r, j, d, out));
KS_LOAD(GroupCodec<codec_kivi2>, (void)levels; load_kivi_group<2u>(cache, r, j, d, out));
#undef KS_LOAD

// coded: the cache may be of any format; else it is of halves.
template <bool coded> DEVICE void load_eight(const CudaCache& cache, uint r, uint j, uint d, const float* levels, float (&out)[8])
{
    if (!coded || cache.format == plain_f16) return load_halves(cache, r, j, d, out);
    if (cache.format == plain_f32) {
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) out[i] = BITS_TO_FLOAT(cache.words[uint64_t(r) * d + 8u * j + i]);
        return;
    }
    uint nth = first_codec;
#define KS_CASE(name) \
    if (cache.format == nth++) return LoadEight<RowCodec<codec_##name>>::load(cache, r, j, d, levels, out);
    CODECS(KS_CASE)
#undef KS_CASE
#define KS_CASE(name) \
    if (cache.format == nth++) return LoadEight<GroupCodec<codec_##name>>::load(cache, r, j, d, levels, out);
    GROUP_CODECS(KS_CASE)
#undef KS_CASE
}

// Sums over the lanes that share a row, the same in each.
template <uint lanes> DEVICE float share_sum(float x)
{
    KS_UNROLL
    for (uint apart = lanes / 2u; apart > 0u; apart /= 2u) x += __shfl_xor_sync(all_lanes, x, int(apart));
    return x;
}

// Whether a layer's pools are all of halves.
static inline bool are_halves(const CudaSlots& s)
{
    for (const CudaCache* cache : {&s.k, &s.v, &s.coded_k, &s.coded_v, &s.chunk_k, &s.chunk_v})
        if (cache->words != nullptr && cache->format != plain_f16) return false;
    return true;
}

} // namespace ks
