// Eight neighbouring dims of a cached row at a time, dims 8 j to 8 j + 7, of heads of a multiple of 64 values: what a lane takes of a
// row that a warp shares. The lanes of a group of 64 dims read the same words under different shifts.
#pragma once

#include "kernels/cuda/slots.cuh"

namespace ks
{

// What the codes of turbo and polar codecs stand for, for a block's keys and values: a table in registers would be indexed, in memory of
// each thread's own it would lie in as many places as there are codes.
constexpr uint most_levels = 128u; // of a polar codec 104
struct alignas(256) Levels {
    float k[most_levels], v[most_levels];
};

// Where the 16 pairs of two ranks of 2 bits are.
DEVICE const float* turbo_pairs(const float* levels) { return levels + 32u; }

template <class C> DEVICE void fill_turbo(float* levels)
{
    const uint i = threadIdx.x, pair = i % 32u / 2u;
    if (i < 2u * C::ranks) levels[i] = turbo_level(C::ranks, i);
    if (i / 32u == 1u) levels[i] = turbo_level(C::ranks, i % 2u != 0u ? pair / 4u : pair % 4u);
}

// Cosine and sine of each of 16 codes of level 1; both of each of level 2, multiplied with the cosine of each code of level 3, then with
// its sine; both of four codes of level 4.
DEVICE void fill_polar(float* levels)
{
    const uint i = threadIdx.x, code = i % 16u / 2u;
    const bool sine = i % 2u != 0u;
    if (i < 32u)
        levels[i] = polar_first_factor(i / 2u, sine);
    else if (i < 96u)
        levels[i] = polar_factor(3u, i / 8u % 4u, i >= 64u) * polar_factor(2u, code % 4u, sine);
    else if (i < 104u)
        levels[i] = polar_factor(4u, code, sine);
}

struct alignas(8) CosineSine {
    float of[2];
};
DEVICE const float* polar_top(const float* levels) { return levels + 96u; } // of level 4
// The products: by code of level 3, then of level 2.
DEVICE const float* polar_products(const float* levels, uint sine) { return levels + 32u + 32u * sine; }
DEVICE CosineSine polar_both(const float* table, uint code) { return reinterpret_cast<const CosineSine*>(table)[code]; }

DEVICE void halves_of(uint word, float* out)
{
    out[0] = HALF_TO_FLOAT(word & 0xffffu);
    out[1] = HALF_TO_FLOAT(word >> 16);
}

// n - less, of whole numbers below 2^22, without a conversion, of which there are few at a time.
DEVICE float whole_less(uint n, uint less) { return BITS_TO_FLOAT(0x4b000000u | n) - float(0x800000u + less); }
DEVICE float kivi_of(uint code, uint range) { return kivi_least(range) + kivi_scale(range) * whole_less(code, 0u); } // kivi_decoded

// n words, `each` of them at a time, to out[begin] and on: where they begin is a multiple of so many.
template <uint n, uint each, uint begin = 0u, uint most> DEVICE void load_words(const uint* at, uint (&out)[most])
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

DEVICE void load_halves(const CudaCache& cache, uint r, uint j, uint d, float (&out)[8])
{
    uint words[4];
    load_words<4u, 4u>(cache.words + (uint64_t(r) * d + 8u * j) / 2u, words);
    KS_UNROLL
    for (uint k = 0u; k < 4u; k++) halves_of(words[k], out + 2u * k);
}

// The fields of eight dims of a plane of 4, 2 or 1 bits that begins at `plane`, a multiple of `each` words.
template <uint bits, uint each> DEVICE void load_fields(const uint* plane, uint j, uint (&out)[8])
{
    constexpr uint n_words = 2u * bits; // of a group of 64 dims
    const uint first = 8u * (j % 8u) / n_words; // field of the first dims
    uint words[n_words];
    load_words<n_words, each>(plane + j / 8u * n_words, words);
    KS_UNROLL
    for (uint w = 0u; w < n_words; w++)
        KS_UNROLL
        for (uint k = 0u; k < 8u / n_words; k++) out[n_words * k + w] = words[w] >> (bits * (first + k)) & ((1u << bits) - 1u);
}

template <class C> DEVICE void load_turbo(const CudaCache& cache, uint r, uint j, uint d, const float* levels, float (&out)[8])
{
    const uint* words = row_words<RowCodec<C>>(cache, r, d);
    const float scale = C::scale(words, 0u, row_tail<RowCodec<C>>(cache, r, d), d);
    uint codes[8], signs[8];
    load_fields<C::ranks == 8u ? 4u : 2u, C::ranks == 4u ? 2u : 4u>(words, j, codes); // rows of turbo3 are of six words for 64 dims
    if (C::ranks == 4u) load_fields<1u, 2u>(words + d / 16u, j, signs);
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) out[i] = scale * levels[C::ranks == 4u ? codes[i] | signs[i] << 2 : codes[i]];
}

DEVICE void load_q4(const CudaCache& cache, uint r, uint j, uint d, float (&out)[8])
{
    const uint *words = row_words<RowCodec<codec_q4>>(cache, r, d), b = j / 4u; // the block of 32
    const float scale = HALF_TO_FLOAT(words[d / 8u + b / 2u] >> (16u * (b & 1u)) & 0xffffu);
    uint codes[8];
    load_fields<4u, 1u>(words, j, codes);
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) out[i] = scale * whole_less(codes[i], 8u);
}

DEVICE void load_q8(const CudaCache& cache, uint r, uint j, uint d, float (&out)[8])
{
    const uint* words = row_words<RowCodec<codec_q8>>(cache, r, d);
    const float scale = HALF_TO_FLOAT(words[d / 4u + j / 8u] >> (16u * (j / 4u & 1u)) & 0xffffu);
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) out[i] = scale * whole_less((__ldg(words + 2u * j + i / 4u) >> (8u * (i & 3u)) & 255u) ^ 128u, 128u);
}

DEVICE void load_kivi_row(const CudaCache& cache, uint r, uint j, uint d, float (&out)[8])
{
    const uint *words = cache.words + uint64_t(r) * (kivi_row_bytes(d) / 4u), range = words[d / 8u + j / 4u];
    uint codes[8];
    load_fields<4u, 2u>(words, j, codes); // as many more words as 32 dims
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) out[i] = kivi_of(codes[i], range);
}

template <uint bits> DEVICE void load_kivi_group(const CudaCache& cache, uint r, uint j, uint d, float (&out)[8])
{
    const uint* group = cache.words + uint64_t(r / kivi_rows) * kivi_group_words(bits, d);
    uint codes[8];
    load_fields<bits, 4u>(group + d + r % kivi_rows * (bits * d / 32u), j, codes);
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) out[i] = kivi_of(codes[i], __ldg(group + 8u * j + i));
}

// Of a block of 16 these are a half: one angle of level 3, two of level 2, four of level 1 below it.
DEVICE void load_polar(const CudaCache& cache, uint r, uint j, uint d, const float* levels, float (&out)[8])
{
    using C = RowCodec<codec_polar>;
    const uint *w = row_words<C>(cache, r, d), tail = row_tail<C>(cache, r, d), bytes = polar_bytes(d);
    float top = HALF_TO_FLOAT(row_field(w, 0u, tail, bytes, 2u * d + 16u * (j / 2u), 0xffffu));
    top *= polar_both(polar_top(levels), polar_code(w, 0u, tail, d, 4u, j / 2u)).of[j & 1u];
    const uint third = polar_code(w, 0u, tail, d, 3u, j);
    KS_UNROLL
    for (uint i = 0u; i < 2u; i++) {
        const uint code = polar_code(w, 0u, tail, d, 2u, 2u * j + i);
        const CosineSine second = polar_both(polar_products(levels, i), 4u * third + code);
        KS_UNROLL
        for (uint k = 0u; k < 2u; k++) {
            const float low = top * second.of[k];
            const uint sector = row_field(w, 0u, tail, bytes, plane_bit(4u * j + 2u * i + k, d / 2u, 4u), 15u);
            const CosineSine first = polar_both(levels, sector);
            out[4u * i + 2u * k] = low * first.of[0];
            out[4u * i + 2u * k + 1u] = low * first.of[1];
        }
    }
}

template <class C> struct LoadEight;
#define KS_LOAD(Codec, fills, loads)                                                                                         \
    template <> struct LoadEight<Codec> {                                                                                    \
        DEVICE_MEMBER static void fill(float* levels) { (void)levels, fills; }                                               \
        DEVICE_MEMBER static void load(const CudaCache& cache, uint r, uint j, uint d, const float* levels, float (&out)[8]) \
        {                                                                                                                    \
            (void)levels, loads;                                                                                             \
        }                                                                                                                    \
    }
#define KS_TURBO(name) KS_LOAD(RowCodec<codec_##name>, fill_turbo<codec_##name>(levels), load_turbo<codec_##name>(cache, r, j, d, levels, out))
KS_TURBO(turbo4);
KS_TURBO(turbo3);
KS_TURBO(turbo2);
KS_TURBO(turbo2v);
KS_LOAD(RowCodec<codec_q4>, (void)0, load_q4(cache, r, j, d, out));
KS_LOAD(RowCodec<codec_q8>, (void)0, load_q8(cache, r, j, d, out));
KS_LOAD(RowCodec<codec_polar>, fill_polar(levels), load_polar(cache, r, j, d, levels, out));
KS_LOAD(RowCodec<codec_kiviv>, (void)0, load_kivi_row(cache, r, j, d, out));
KS_LOAD(GroupCodec<codec_kivi>, (void)0, load_kivi_group<4u>(cache, r, j, d, out));
KS_LOAD(GroupCodec<codec_kivi2>, (void)0, load_kivi_group<2u>(cache, r, j, d, out));
#undef KS_TURBO
#undef KS_LOAD

// Caches that are not coded.
struct LoadHalves {
    DEVICE_MEMBER static void fill(float*) {}
    DEVICE_MEMBER static void load(const CudaCache& cache, uint r, uint j, uint d, const float*, float (&out)[8]) { load_halves(cache, r, j, d, out); }
};
struct LoadFloats {
    DEVICE_MEMBER static void fill(float*) {}
    DEVICE_MEMBER static void load(const CudaCache& cache, uint r, uint j, uint d, const float*, float (&out)[8])
    {
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) out[i] = BITS_TO_FLOAT(cache.words[uint64_t(r) * d + 8u * j + i]);
    }
};

// body(what loads rows of the format). coded: it may be any; else it is f16.
template <bool coded, class Body> DEVICE void with_loader(uint format, const Body& body)
{
    if (!coded || format == plain_f16) return body(LoadHalves());
    if (format == plain_f32) return body(LoadFloats());
    with_codec(format, [&](auto codec) { body(LoadEight<decltype(codec)>()); });
}

// Of each pool; a barrier comes before they are read.
DEVICE void fill_levels(Levels* levels, const CudaSlots& s)
{
    for (uint source = pass_plain; source <= pass_chunk; source++) {
        with_loader<true>(pool_of(s, source, false).format, [&](auto loader) { loader.fill(levels[source].k); });
        with_loader<true>(pool_of(s, source, true).format, [&](auto loader) { loader.fill(levels[source].v); });
    }
}

template <bool coded> DEVICE void load_eight(const CudaCache& cache, uint r, uint j, uint d, const float* levels, float (&out)[8])
{
    with_loader<coded>(cache.format, [&](auto loader) { loader.load(cache, r, j, d, levels, out); });
}

// Sums over the lanes that share a row, the same in each.
template <uint lanes> DEVICE float share_sum(float x)
{
    KS_UNROLL
    for (uint apart = lanes / 2u; apart > 0u; apart /= 2u) x += __shfl_xor_sync(all_lanes, x, int(apart));
    return x;
}

} // namespace ks
