// Reads polar rows: by octets, and by lanes in decode.
#pragma once

#include "kernels/cuda/lanes.cuh"
#include "kernels/cuda/octets.cuh"

namespace ks
{

// Fills tables of (cosine, sine) pairs: level 1 by its 16 codes; level 2 times the cosine of level
// 3, by both codes; level 2 times the sine of level 3; level 4 by its four codes.
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
    float v[2];
};
// The table of level 4.
DEVICE const float* polar_level4(const float* levels)
{
    return levels + 96u;
}
// The products of levels 2 and 3, indexed by the code of level 3, then of level 2.
DEVICE const float* polar_products(const float* levels, uint sine)
{
    return levels + 32u + 32u * sine;
}
DEVICE CosineSine polar_pair(const float* table, uint code)
{
    return reinterpret_cast<const CosineSine*>(table)[code];
}

// An octet is half a block: one angle of level 3, two of level 2, four of level 1.
DEVICE void load_polar(const CudaCache& cache, uint r, uint j, uint d, const float* levels,
                       float (&out)[8])
{
    using C = RowCodec<codec_polar>;
    const uint *w = row_words<C>(cache, r, d), tail = row_tail<C>(cache, r, d),
               bytes = polar_bytes(d);
    float top = HALF_TO_FLOAT(row_field(w, 0u, tail, bytes, 2u * d + 16u * (j / 2u), 0xffffu));
    top *= polar_pair(polar_level4(levels), polar_code(w, 0u, tail, d, 4u, j / 2u)).v[j & 1u];
    const uint third = polar_code(w, 0u, tail, d, 3u, j);
    KS_UNROLL
    for (uint i = 0u; i < 2u; i++) {
        const uint code = polar_code(w, 0u, tail, d, 2u, 2u * j + i);
        const CosineSine second = polar_pair(polar_products(levels, i), 4u * third + code);
        KS_UNROLL
        for (uint k = 0u; k < 2u; k++) {
            const float low = top * second.v[k];
            const uint sector =
                row_field(w, 0u, tail, bytes, plane_bit(4u * j + 2u * i + k, d / 2u, 4u), 15u);
            const CosineSine first = polar_pair(levels, sector);
            out[4u * i + 2u * k] = low * first.v[0];
            out[4u * i + 2u * k + 1u] = low * first.v[1];
        }
    }
}

template <>
struct OctetLoader<RowCodec<codec_polar>> {
    DEVICE_MEMBER static void fill(float* levels) { fill_polar(levels); }
    DEVICE_MEMBER static void load(const CudaCache& cache, uint r, uint j, uint d,
                                   const float* levels, float (&out)[8])
    {
        load_polar(cache, r, j, d, levels, out);
    }
};

// An octet is half a block: one angle of level 3, two of level 2, four of level 1. The codes of
// level 1 lie in four words, at the same bit of each.
template <uint d, uint n>
struct LanePolar : LaneRows {
    using C = codec_polar;
    static constexpr uint plane = plane_of_angles, n_factors = 4u, n_rows = 4u, n_words = 8u;
    const uint row_bytes = 4u * RowCodec<C>::words(d);
    uint i;
    const CudaCache& cache;
    const uint *rows, *firsts, *seconds;
    const uint16_t* radii;
    DEVICE_MEMBER LanePolar(const CudaCache& of, uint, uint j)
        : i(first_octet<n>(plane, j)), cache(of), rows(opaque_address(of.words)),
          firsts(opaque_address(of.words + (d == 64u ? 0u : i / 16u * 8u + 4u * (i & 1u)))),
          seconds(opaque_address(of.words + bit_of(2u) / 32u)),
          radii(opaque_address(reinterpret_cast<const uint16_t*>(of.words) + d / 8u + i / 2u))
    {
    }
    DEVICE_MEMBER uint bit_of(uint level) const
    {
        return polar_bit(d, level, level == 2u ? 2u * i : i >> (level - 3u));
    }
    // The word with the lane's angles of a level. It may be the row's tail.
    DEVICE_MEMBER uint word_of(uint r, uint tail, uint level) const
    {
        const uint first = polar_bit(d, level, 0u) / 32u,
                   last = polar_bit(d, level, d / 2u / (1u << (level - 1u)) - 1u) / 32u;
        if (first == last)
            return 4u * first < row_bytes ? __ldg(in_row(rows, r, row_bytes) + first) : tail;
        return level == 2u ? __ldg(in_row(seconds, r, row_bytes))
                           : __ldg(in_row(rows + bit_of(level) / 32u, r, row_bytes));
    }
    // Loads four words of level 1, the radii, then one word each of levels 2, 3 and 4.
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        const uint tail = row_tail<RowCodec<C>>(cache, r, d);
        KS_UNROLL
        for (uint k = 0u; k < 4u; k++) words[k] = __ldg(in_row(firsts, r, row_bytes) + k);
        words[4] = n == 2u ? __ldg(reinterpret_cast<const uint*>(in_row(radii, r, row_bytes)))
                           : __ldg(in_row(radii, r, row_bytes));
        KS_UNROLL
        for (uint level = 2u; level < 5u; level++) words[3u + level] = word_of(r, tail, level);
    }
    // angle_index: angle a of octet e among the lane's angles of a level. table_offset: the byte
    // offset of its pair in a table, eight times its code.
    DEVICE_MEMBER static uint angle_index(uint e, uint level, uint a)
    {
        return e * (level == 2u ? 4u : 4u >> (level - 2u)) + a;
    }
    DEVICE_MEMBER uint table_offset(const uint (&words)[n_words], uint e, uint level, uint a) const
    {
        const uint word = words[3u + level];
        return __funnelshift_r(word, word, bit_of(level) - 3u) >> 2u * angle_index(e, level, a) &
               0x18u;
    }
    DEVICE_MEMBER LaneOctet<4> decode(const uint (&words)[n_words], uint e,
                                      const float* levels) const
    {
        LaneOctet<4> row;
        row.scale = HALF_TO_FLOAT(words[4] >> 16u * e & 0xffffu);
        row.scale *=
            load_at_offset(polar_level4(levels), table_offset(words, e, 4u, 0u) | 4u * (i & 1u));
        angle_factors(words, e, levels, row.factors);
        KS_UNROLL
        for (uint k = 0u; k < 4u; k++) {
            float first[2];
            load_at_offset(
                levels,
                __funnelshift_r(words[k], words[k], 4u * (d == 64u ? i : i % 16u / 2u) - 3u) >>
                        (d == 64u ? 8u : 4u) * e &
                    0x78u,
                first);
            row.values[2u * k] = first[0];
            row.values[2u * k + 1u] = first[1];
        }
        return row;
    }
    // The factors of levels 3 and 2.
    DEVICE_MEMBER void angle_factors(const uint (&words)[n_words], uint e, const float* levels,
                                     float (&out)[4]) const
    {
        KS_UNROLL
        for (uint a = 0u; a < 2u; a++) {
            float second[2];
            load_at_offset(polar_products(levels, a),
                           4u * table_offset(words, e, 3u, 0u) | table_offset(words, e, 2u, a),
                           second);
            KS_UNROLL
            for (uint k = 0u; k < 2u; k++) out[2u * a + k] = second[k];
        }
    }
};

template <uint d, uint n>
struct LaneLoad<RowCodec<codec_polar>, d, n> {
    using Rows = LanePolar<d, n>;
};

} // namespace ks
