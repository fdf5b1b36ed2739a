// Readers of rows for attention_decode. Several lanes of a warp share a row; each has one or two
// octets of it. A lane loads the words of several rows before it uses the first, since latency
// dominates.
#pragma once

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/octets.cuh"

namespace ks
{

// The dims of an octet: first, first + step, ... In a plane of 4 or 2 bits they are the fields of a
// word or half a word. Otherwise they are neighbours. The plane also decides which octet is a
// lane's second: see octets_apart.
struct LaneDims {
    uint first, step;
    DEVICE_MEMBER uint operator[](uint k) const { return first + step * k; }
};
// neighbouring dims; octet i shares words with octet i + 2
constexpr uint plane_of_angles = 1u;

DEVICE LaneDims dims_of_octet(uint plane, uint i)
{
    if (plane == 4u) return {64u * (i / 8u) + i % 8u, 8u};
    if (plane == 2u) return {64u * (i / 8u) + i % 4u + 32u * (i % 8u / 4u), 4u};
    return {8u * i, 1u};
}

// The distance from a lane's first octet to its second: the next octet, or the next one in the same
// words.
DEVICE uint octets_apart(uint plane)
{
    return plane == 2u ? 4u : plane == plane_of_angles ? 2u : 1u;
}

// The first of lane j's n octets. The second is octets_apart further.
template <uint n>
DEVICE uint first_octet(uint plane, uint j)
{
    const uint distance = octets_apart(plane);
    return n == 1u ? j : j % distance + j / distance * 2u * distance;
}

// The dims of lane j's octet e.
template <uint n>
DEVICE LaneDims dims_of_lane(uint plane, uint j, uint e)
{
    return dims_of_octet(plane, first_octet<n>(plane, j) + e * octets_apart(plane));
}

// word_of_octet: the number of the word with an octet's fields. fields_of_octet: that word, shifted
// so that the octet's fields begin at bit 0.
template <uint plane>
DEVICE uint word_of_octet(uint i)
{
    return plane == 4u ? i : i / 8u * 4u + i % 4u;
}
template <uint plane>
DEVICE uint fields_of_octet(uint word, uint i)
{
    return plane == 2u ? word >> 16u * (i % 8u / 4u) : word;
}

// An octet of a row, in n parts of 8 / n dims. The dims of part f are scale * factors[f] * value,
// for codes plus scale * offsets[f] * Rows::offset.
template <uint n>
struct LaneOctet {
    float values[8], factors[n], offsets[n], scale = 1.f;
};

// The base of readers. A reader belongs to lane j, which reads n octets of rows of d dims. It is
// made once per run.
//   plane: see LaneDims
//   n_rows, n_words: rows in flight, and words that a lane loads per row
//   fetch: loads a lane's words of a row
//   decode: converts octet e of these words
//   scale_query: converts a query to factors of the decoded values (by) and constant terms (base)
//   query_after_fetch: scale_query waits for memory, so it comes after the first fetch
//   field_scale, scale_up, scale_down: see LaneCodes
struct LaneRows {
    static constexpr uint plane = 0u, n_factors = 1u;
    static constexpr bool are_codes = false, of_keys = true, of_values = true,
                          query_after_fetch = false;
    static constexpr float scale_up = 1.f, scale_down = 1.f;
    DEVICE_MEMBER static float field_scale(uint) { return 1.f; }
    template <uint n>
    DEVICE_MEMBER static void scale_query(const float (&query)[8], uint, float (&by)[8],
                                          float (&base)[n])
    {
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) by[k] = query[k], base[k % n] = 0.f;
    }
};

// Codes as numbers without a conversion: a float whose bits are an integer n < 2^24 has the value n
// * 2^-149. So a mask converts a field in place; field_scale is the weight of its lowest bit. The
// query is multiplied by 2^75 and the sum by 2^74, since 2^149 is not a float.
template <uint bits, uint factors, int code_offset>
struct LaneCodes : LaneRows {
    static constexpr uint plane = bits % 8u, n_factors = factors;
    static constexpr bool are_codes = true;
    static constexpr float scale_up = 0x1p75f, scale_down = 0x1p74f, offset = float(code_offset);
    DEVICE_MEMBER static constexpr uint bit(uint k)
    {
        return bits == 2u ? 2u * k : bits == 4u ? 4u * (k % 4u) : 8u * (k % 4u % 3u);
    }
    DEVICE_MEMBER static float field_scale(uint k) { return float(1u << bit(k)); }
    // Converts dims [first, first + n). Fields at or above bit 24 are shifted below it first.
    DEVICE_MEMBER static void codes_of(uint word, uint first, uint n, float* out)
    {
        KS_UNROLL
        for (uint k = first; k < first + n; k++) {
            const uint shift = bits == 8u && k % 4u == 3u ? 24u : bits == 4u && k > 3u ? 16u : 0u;
            out[k] = BITS_TO_FLOAT(word >> shift & ((1u << bits) - 1u) << bit(k));
        }
    }
    DEVICE_MEMBER static void scale_query(const float (&query)[8], uint, float (&by)[8],
                                          float (&base)[factors])
    {
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) {
            const uint f = k * factors / 8u;
            by[k] = query[k] * (scale_up / field_scale(k));
            base[f] = (k * factors % 8u == 0u ? 0.f : base[f]) + query[k] * (offset / scale_down);
        }
    }
};

// The address in row r that corresponds to in_first in row 0. It takes one instruction.
template <class T>
DEVICE const T* in_row(const T* in_first, uint r, uint bytes)
{
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(in_first) +
                                      uint64_t(r) * bytes);
}

// Readers of uncoded rows. If the layer has a coded pool, its plane decides a lane's dims.
template <uint d, uint n>
struct LaneF16 : LaneRows {
    static constexpr uint n_rows = 4u / n, n_words = 4u * n;
    const uint* words_of_lane;
    uint distance;
    DEVICE_MEMBER LaneF16(const CudaCache& cache, uint plane_of_lane, uint j)
        : words_of_lane(opaque_address(cache.words + 4u * first_octet<n>(plane_of_lane, j))),
          distance(4u * octets_apart(plane_of_lane))
    {
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        load_words<4u, 4u>(in_row(words_of_lane, r, 2u * d), words);
        if constexpr (n == 2u)
            load_words<4u, 4u, 4u>(in_row(words_of_lane + distance, r, 2u * d), words);
    }
    DEVICE_MEMBER LaneOctet<1> decode(const uint (&words)[n_words], uint e, const float*) const
    {
        LaneOctet<1> row;
        row.factors[0] = 1.f;
        KS_UNROLL
        for (uint k = 0u; k < 4u; k++) unpack_f16(words[4u * e + k], row.values + 2u * k);
        return row;
    }
};
template <uint d, uint n>
struct LaneGathered : LaneRows {
    static constexpr uint n_rows = 1u, n_words = 8u * n;
    const CudaCache& cache;
    uint plane, i;
    DEVICE_MEMBER LaneGathered(const CudaCache& of, uint plane_of_lane, uint j)
        : cache(of), plane(plane_of_lane), i(first_octet<n>(plane, j))
    {
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        const uint16_t* f16 = reinterpret_cast<const uint16_t*>(cache.words) + uint64_t(r) * d;
        const uint* floats = cache.words + uint64_t(r) * d;
        KS_UNROLL
        for (uint e = 0u; e < n; e++) {
            const LaneDims dims = dims_of_octet(plane, i + e * octets_apart(plane));
            KS_UNROLL
            for (uint k = 0u; k < 8u; k++)
                words[8u * e + k] =
                    cache.format == plain_f16 ? __ldg(f16 + dims[k]) : __ldg(floats + dims[k]);
        }
    }
    DEVICE_MEMBER LaneOctet<1> decode(const uint (&words)[n_words], uint e, const float*) const
    {
        LaneOctet<1> row;
        row.factors[0] = 1.f;
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) {
            const uint word = words[8u * e + k];
            row.values[k] = cache.format == plain_f16 ? HALF_TO_FLOAT(word) : BITS_TO_FLOAT(word);
        }
        return row;
    }
};

// Reads value by value, for codecs without a file in codecs/.
template <class C, uint d, uint n>
struct LaneValues : LaneRows {
    static constexpr uint n_rows = 1u, n_words = 8u * n;
    const CudaCache& cache;
    uint i;
    DEVICE_MEMBER LaneValues(const CudaCache& of, uint, uint j)
        : cache(of), i(first_octet<n>(plane, j))
    {
    }
    DEVICE_MEMBER void fetch(uint r, uint (&words)[n_words]) const
    {
        const uint* row = row_words<C>(cache, r, d);
        const uint tail = row_tail<C>(cache, r, d);
        for (uint k = 0u; k < n_words; k++)
            words[k] = FLOAT_TO_BITS(C::value_of(row, tail, r % C::group, 8u * i + k, d));
    }
    DEVICE_MEMBER LaneOctet<1> decode(const uint (&words)[n_words], uint e, const float*) const
    {
        LaneOctet<1> row;
        row.factors[0] = 1.f;
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) row.values[k] = BITS_TO_FLOAT(words[8u * e + k]);
        return row;
    }
};

// The reader of a codec's rows. codecs/NAME.cuh specialises it.
template <class C, uint d, uint n>
struct LaneLoad {
    using Rows = LaneValues<C, d, n>;
};

} // namespace ks
