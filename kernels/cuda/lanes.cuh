// Rows of a cache as decoding reads them: lanes of a warp share a row, of which each has eight dims, and each asks for the words of many
// rows before it uses those of the first, for it is waiting that takes the time.
#pragma once

#include "kernels/cuda/eight.cuh"
#include "kernels/cuda/mma.cuh"

namespace ks
{

// Eight dims of a row that are one lane's. Where rows have a plane of 4 or 2 bits it takes those of one word or of half a word of it,
// which are apart; else neighbours.
struct LaneDims {
    uint first, step;
    DEVICE_MEMBER uint operator[](uint k) const { return first + step * k; }
};

DEVICE LaneDims dims_of_lane(uint plane, uint j)
{
    if (plane == 4u) return {64u * (j / 8u) + j % 8u, 8u};
    if (plane == 2u) return {64u * (j / 8u) + j % 4u + 32u * (j % 8u / 4u), 4u};
    return {8u * j, 1u};
}

// Lane j of those that share a row of d dims.
struct Lane {
    uint j, d;
    LaneDims dims;
};

// The word of a plane that has its fields, and they.
template <uint plane> DEVICE uint word_of_lane(uint j) { return plane == 4u ? j : j / 8u * 4u + j % 4u; }
template <uint plane> DEVICE uint field_of_lane(uint word, uint j, uint k)
{
    return word >> (plane == 2u ? 16u * (j % 8u / 4u) : 0u) >> plane * k & ((1u << plane) - 1u);
}

// How a lane reads rows of a codec. plane: as LaneDims says. n_rows: as many are on their way at a time, of n_words each, and n_shared
// words that the rows of a run have in common. fetch asks for words, decode makes of them the dims' values but for a factor (n_factors 1),
// or for one of the first four and one of the others (2).
struct LaneRows {
    static constexpr uint plane = 0u, n_shared = 1u, n_factors = 1u;
    DEVICE_MEMBER static void fetch_shared(const CudaCache&, uint, const Lane&, uint (&)[1]) {}
    DEVICE_MEMBER static void decode_shared(uint (&)[1]) {}
};
template <class C> struct LaneLoad;

template <class C, uint bits> struct LaneTurbo : LaneRows {
    static constexpr uint plane = bits, n_rows = 8u, n_words = C::ranks == 4u ? 3u : 2u;
    DEVICE_MEMBER static void fetch(const CudaCache& cache, uint r, const Lane& at, uint (&words)[n_words])
    {
        const uint* row = row_words<RowCodec<C>>(cache, r, at.d);
        words[0] = __ldg(row + word_of_lane<bits>(at.j));
        words[1] = row_tail<RowCodec<C>>(cache, r, at.d); // the scale, for d is a multiple of 64
        if (C::ranks == 4u) words[n_words - 1u] = __ldg(row + at.d / 16u + at.j / 8u * 2u + at.j % 2u);
    }
    DEVICE_MEMBER static void decode(const CudaCache&, const Lane& at, const uint (&words)[n_words], const uint (&)[1],
                                     const float* levels, float (&factors)[2], float (&out)[8])
    {
        const uint signs = words[n_words - 1u] >> (at.j % 4u / 2u + 16u * (at.j % 8u / 4u)); // of the dims two apart in one word
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) {
            const uint rank = 4u * field_of_lane<bits>(words[0], at.j, k);
            out[k] = load_of_table(levels, C::ranks == 4u ? rank | (signs << 4u >> 2u * k & 16u) : rank);
        }
        factors[0] = HALF_TO_FLOAT(words[1]);
    }
};
template <> struct LaneLoad<RowCodec<codec_turbo4>> : LaneTurbo<codec_turbo4, 4u> {};
template <> struct LaneLoad<RowCodec<codec_turbo3>> : LaneTurbo<codec_turbo3, 2u> {};
template <> struct LaneLoad<RowCodec<codec_turbo2>> : LaneTurbo<codec_turbo2, 2u> {};
template <> struct LaneLoad<RowCodec<codec_turbo2v>> : LaneTurbo<codec_turbo2v, 2u> {};

template <> struct LaneLoad<RowCodec<codec_q4>> : LaneRows {
    static constexpr uint plane = 4u, n_rows = 8u, n_words = 2u, n_factors = 2u; // of two blocks
    DEVICE_MEMBER static void fetch(const CudaCache& cache, uint r, const Lane& at, uint (&words)[2])
    {
        const uint* row = row_words<RowCodec<codec_q4>>(cache, r, at.d);
        words[0] = __ldg(row + at.j);
        words[1] = __ldg(row + at.d / 8u + at.j / 8u);
    }
    DEVICE_MEMBER static void decode(const CudaCache&, const Lane& at, const uint (&words)[2], const uint (&)[1], const float*,
                                     float (&factors)[2], float (&out)[8])
    {
        halves_of(words[1], factors);
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) out[k] = whole_less(field_of_lane<4u>(words[0], at.j, k), 8u);
    }
};

template <> struct LaneLoad<RowCodec<codec_q8>> : LaneRows {
    static constexpr uint n_rows = 8u, n_words = 3u;
    DEVICE_MEMBER static void fetch(const CudaCache& cache, uint r, const Lane& at, uint (&words)[3])
    {
        const uint* row = row_words<RowCodec<codec_q8>>(cache, r, at.d);
        words[0] = __ldg(row + 2u * at.j);
        words[1] = __ldg(row + 2u * at.j + 1u);
        words[2] = __ldg(row + at.d / 4u + at.j / 8u);
    }
    DEVICE_MEMBER static void decode(const CudaCache&, const Lane& at, const uint (&words)[3], const uint (&)[1], const float*,
                                     float (&factors)[2], float (&out)[8])
    {
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) out[k] = whole_less(__byte_perm(words[k / 4u] ^ 0x80808080u, 0u, 0x4440u | k % 4u), 128u);
        factors[0] = HALF_TO_FLOAT(words[2] >> (16u * (at.j / 4u & 1u)) & 0xffffu);
    }
};

template <class C, uint bits> struct LaneKiviRow : LaneRows {
    static constexpr uint plane = bits, n_rows = 8u, n_words = bits == 4u ? 3u : 2u; // a lane's dims are in two blocks or in one
    DEVICE_MEMBER static void fetch(const CudaCache& cache, uint r, const Lane& at, uint (&words)[n_words])
    {
        const uint *row = row_words<RowCodec<C>>(cache, r, at.d), *ranges = row + bits * at.d / 32u + 2u * (at.j / 8u);
        words[0] = __ldg(row + word_of_lane<bits>(at.j));
        words[1] = __ldg(ranges + (bits == 4u ? 0u : at.j % 8u / 4u));
        if (bits == 4u) words[n_words - 1u] = __ldg(ranges + 1u);
    }
    DEVICE_MEMBER static void decode(const CudaCache&, const Lane& at, const uint (&words)[n_words], const uint (&)[1], const float*,
                                     float (&)[2], float (&out)[8])
    {
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) out[k] = kivi_of(field_of_lane<bits>(words[0], at.j, k), words[bits == 4u && k > 3u ? n_words - 1u : 1u]);
    }
};
template <> struct LaneLoad<RowCodec<codec_kiviv>> : LaneKiviRow<codec_kiviv, 4u> {};
template <> struct LaneLoad<RowCodec<codec_kivi2v>> : LaneKiviRow<codec_kivi2v, 2u> {};

template <class C, uint bits> struct LaneKiviGroup : LaneRows {
    static constexpr uint plane = bits, n_rows = 4u, n_words = 1u, n_shared = 16u; // ranges: then the least and the scale of each
    DEVICE_MEMBER static void fetch(const CudaCache& cache, uint r, const Lane& at, uint (&words)[1])
    {
        words[0] = __ldg(row_words<GroupCodec<C>>(cache, r, at.d) + at.d + r % kivi_rows * (bits * at.d / 32u) + word_of_lane<bits>(at.j));
    }
    DEVICE_MEMBER static void fetch_shared(const CudaCache& cache, uint r, const Lane& at, uint (&shared)[16])
    {
        const uint* group = row_words<GroupCodec<C>>(cache, r, at.d);
        const LaneDims dims = dims_of_lane(bits, at.j);
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) shared[k] = __ldg(group + dims[k]);
    }
    DEVICE_MEMBER static void decode_shared(uint (&shared)[16])
    {
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) {
            const uint range = shared[k];
            shared[k] = FLOAT_TO_BITS(kivi_least(range));
            shared[8u + k] = FLOAT_TO_BITS(kivi_scale(range));
        }
    }
    DEVICE_MEMBER static void decode(const CudaCache&, const Lane& at, const uint (&words)[1], const uint (&shared)[16],
                                     const float*, float (&)[2], float (&out)[8])
    {
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++)
            out[k] = BITS_TO_FLOAT(shared[k]) + BITS_TO_FLOAT(shared[8u + k]) * whole_less(field_of_lane<bits>(words[0], at.j, k), 0u);
    }
};
template <> struct LaneLoad<GroupCodec<codec_kivi>> : LaneKiviGroup<codec_kivi, 4u> {};
template <> struct LaneLoad<GroupCodec<codec_kivi2>> : LaneKiviGroup<codec_kivi2, 2u> {};

// A lane has half a block of 16: one angle of level 3, two of level 2, four of level 1 below it, which are under one shift in four words.
template <class C, bool fine> struct LanePolar : LaneRows {
    static constexpr uint n_rows = 2u, n_words = fine ? 11u : 8u;
    // Of the words after those of level 1: the radius, levels 4, 3 and 2, level 5, the high bits of 3 and of 2.
    DEVICE_MEMBER static uint bit_of(const Lane& at, uint i)
    {
        if (i == 0u) return 2u * at.d + 16u * (at.j / (fine ? 4u : 2u));
        if (i < 4u) return polar_bit(at.d, fine, 5u - i, i == 1u ? at.j / 2u : i == 2u ? at.j : 2u * at.j, false);
        if (i == 4u) return polar_bit(at.d, fine, 5u, at.j / 4u, false);
        return polar_bit(at.d, fine, i == 5u ? 3u : 2u, i == 5u ? at.j : 2u * at.j, true);
    }
    DEVICE_MEMBER static void fetch(const CudaCache& cache, uint r, const Lane& at, uint (&words)[n_words])
    {
        const uint *row = row_words<RowCodec<C>>(cache, r, at.d), tail = row_tail<RowCodec<C>>(cache, r, at.d);
        const uint first = at.d == 64u ? 0u : at.j / 16u * 8u + 4u * (at.j & 1u);
        KS_UNROLL
        for (uint k = 0u; k < 4u; k++) words[k] = __ldg(row + first + k);
        KS_UNROLL
        for (uint i = 0u; i < n_words - 4u; i++) {
            const uint bit = bit_of(at, i);
            words[4u + i] = bit / 32u < polar_bytes(at.d, fine) / 4u ? __ldg(row + bit / 32u) : tail;
        }
    }
    // A code's place in a table, in bytes.
    DEVICE_MEMBER static uint place_of(const Lane& at, const uint (&words)[n_words], uint i, uint nth)
    {
        const uint low = words[4u + i] >> (bit_of(at, i) & 31u) >> 2u * nth, high = i == 3u ? n_words - 1u : n_words - 2u;
        const bool is_fine = fine && (i == 2u || i == 3u);
        return 8u * (low & 3u) | (is_fine ? 32u * (words[high] >> (bit_of(at, high - 4u) & 31u) >> nth & 1u) : 0u);
    }
    DEVICE_MEMBER static void decode(const CudaCache&, const Lane& at, const uint (&words)[n_words], const uint (&)[1],
                                     const float* levels, float (&factors)[2], float (&out)[8])
    {
        float third[2], second[2], first[2];
        factors[0] = HALF_TO_FLOAT(words[4] >> (bit_of(at, 0u) & 31u) & 0xffffu);
        if (fine) factors[0] *= load_of_table(polar_at(levels, 5u, 0u), place_of(at, words, 4u, 0u) | 4u * (at.j / 2u & 1u));
        factors[0] *= load_of_table(polar_at(levels, 4u, 0u), place_of(at, words, 1u, 0u) | 4u * (at.j & 1u));
        load_of_table(polar_at(levels, 3u, 0u), place_of(at, words, 2u, 0u), third);
        KS_UNROLL
        for (uint i = 0u; i < 2u; i++) {
            load_of_table(polar_at(levels, 2u, 0u), place_of(at, words, 3u, i), second);
            KS_UNROLL
            for (uint k = 0u; k < 2u; k++) {
                load_of_table(levels, 8u * (words[2u * i + k] >> 4u * (at.d == 64u ? at.j : at.j % 16u / 2u) & 15u), first);
                const float low = third[i] * second[k];
                out[4u * i + 2u * k] = low * first[0];
                out[4u * i + 2u * k + 1u] = low * first[1];
            }
        }
    }
};
template <> struct LaneLoad<RowCodec<codec_polar>> : LanePolar<codec_polar, false> {};
template <> struct LaneLoad<RowCodec<codec_polar5>> : LanePolar<codec_polar5, true> {};

// Rows that are not coded, and those beside coded ones, whose plane says which dims are a lane's.
struct LaneHalves : LaneRows {
    static constexpr uint n_rows = 4u, n_words = 4u;
    DEVICE_MEMBER static void fetch(const CudaCache& cache, uint r, const Lane& at, uint (&words)[4])
    {
        load_words<4u, 4u>(cache.words + (uint64_t(r) * at.d + 8u * at.j) / 2u, words);
    }
    DEVICE_MEMBER static void decode(const CudaCache&, const Lane&, const uint (&words)[4], const uint (&)[1], const float*,
                                     float (&)[2], float (&out)[8])
    {
        KS_UNROLL
        for (uint k = 0u; k < 4u; k++) halves_of(words[k], out + 2u * k);
    }
};
struct LaneApart : LaneRows {
    static constexpr uint n_rows = 1u, n_words = 8u;
    DEVICE_MEMBER static void fetch(const CudaCache& cache, uint r, const Lane& at, uint (&words)[8])
    {
        const uint16_t* halves = reinterpret_cast<const uint16_t*>(cache.words) + uint64_t(r) * at.d;
        const uint* floats = cache.words + uint64_t(r) * at.d;
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) words[k] = cache.format == plain_f16 ? __ldg(halves + at.dims[k]) : __ldg(floats + at.dims[k]);
    }
    DEVICE_MEMBER static void decode(const CudaCache& cache, const Lane&, const uint (&words)[8], const uint (&)[1], const float*,
                                     float (&)[2], float (&out)[8])
    {
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) out[k] = cache.format == plain_f16 ? HALF_TO_FLOAT(words[k]) : BITS_TO_FLOAT(words[k]);
    }
};

// The plane of a codec that decides which dims are a lane's.
static inline __host__ __device__ uint plane_of(uint format)
{
    uint nth = first_codec;
#define KS_CASE(name) \
    if (format == nth++) return LaneLoad<RowCodec<codec_##name>>::plane;
    CODECS(KS_CASE)
#undef KS_CASE
#define KS_CASE(name) \
    if (format == nth++) return LaneLoad<GroupCodec<codec_##name>>::plane;
    GROUP_CODECS(KS_CASE)
#undef KS_CASE
    return 0u;
}

// The plane that decides which dims are a lane's: that of the pool which has most of a long text.
static inline __host__ __device__ uint plane_of_pools(const CudaCache& plain, const CudaCache& coded)
{
    return plane_of(coded.words != nullptr ? coded.format : plain.format);
}

// body(what loads a pool's rows by a lane's dims). coded: it may be of any format, else it is of halves.
template <bool coded, class Body> DEVICE void with_lane_loader(uint format, uint plane, const Body& body)
{
    if (!coded || (format == plain_f16 && plane == 0u)) return body(LaneHalves());
    if (format < first_codec) return body(LaneApart());
    with_codec(format, [&](auto codec) { body(LaneLoad<decltype(codec)>()); });
}

} // namespace ks
