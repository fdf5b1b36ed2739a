// Unpacks groups of 32 weights of every quantised format into bytes, for products with int8
// activations. Weight 16 half + i is d[half] * q + m[half], where q is the signed byte i % 4 of
// word 4 half + i / 4.
#pragma once

#include "kernels/cuda/cuda_util.cuh"

#include "kernels/common/formats.h"

namespace ks
{

struct Group {
    uint q[8];
    float d[2], m[2];
};

// Word j of row r of tile-block b.
template <class F>
DEVICE uint tile_word(const uint* b, uint j, uint r)
{
    return __ldg(b + F::half_words + tile_rows * j + r);
}
DEVICE float tile_half(const uint* b, uint r)
{
    return HALF_TO_FLOAT((__ldg(b + r / 2u) >> (16u * (r & 1u))) & 0xffffu);
}
DEVICE float low_half(uint word)
{
    return HALF_TO_FLOAT(word & 0xffffu);
}
DEVICE float high_half(uint word)
{
    return HALF_TO_FLOAT(word >> 16);
}

DEVICE void set_scales(Group& out, float d, float m)
{
    out.d[0] = out.d[1] = d;
    out.m[0] = out.m[1] = m;
}

// Four words of nibbles from word j on. The low nibbles are values 0..15, the high nibbles
// values 16..31.
template <class F>
DEVICE void nibbles_of_32(Group& out, const uint* b, uint j, uint r)
{
    KS_UNROLL
    for (uint i = 0u; i < 4u; i++) {
        uint word = tile_word<F>(b, j + i, r);
        out.q[i] = word & 0x0f0f0f0fu;
        out.q[4u + i] = (word >> 4) & 0x0f0f0f0fu;
    }
}

// Eight words from word j on. A value is the bits of `mask` in a byte, after the shift.
template <class F>
DEVICE void fields_of_32(Group& out, const uint* b, uint j, uint r, uint shift, uint mask)
{
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) out.q[i] = (tile_word<F>(b, j + i, r) >> shift) & mask;
}

// Sets bit 4 of all values from the permuted word of q5_0 and q5_1.
DEVICE void or_fifth_bits(Group& out, uint high)
{
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) out.q[i] |= ((high >> i) & 0x01010101u) << 4;
}

// The int8 levels of the low nibbles of four bytes. a has the levels of 0..3, d of 12..15.
DEVICE uint levels_of(uint nibbles, uint a, uint b, uint c, uint d)
{
    // __byte_perm selects from eight bytes by three bits: once from levels 0..7, once from
    // levels 8..15. Bit 3 chooses between them.
    uint picks = (nibbles & 7u) | (nibbles >> 4 & 0x70u) | (nibbles >> 8 & 0x700u) |
                 (nibbles >> 12 & 0x7000u);
    uint low = __byte_perm(a, b, picks), high = __byte_perm(c, d, picks);
    uint is_high = (nibbles >> 3 & 0x01010101u) * 0xffu;
    return (low & ~is_high) | (high & is_high);
}
DEVICE uint iq4_levels(uint nibbles)
{
    return levels_of(nibbles, 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
}

DEVICE uint e2m1_levels(uint nibbles)
{
    return levels_of(nibbles, 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
}

template <class F>
struct Unpack;

// Unpack<F>::group(b, r, g): group g of row r of tile-block b.
template <>
struct Unpack<format_q8_0> {
    using F = format_q8_0;
    DEVICE Group group(const uint* b, uint r, uint)
    {
        Group out;
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) out.q[i] = tile_word<F>(b, i, r);
        set_scales(out, tile_half(b, r), 0.f);
        return out;
    }
};

template <>
struct Unpack<format_q4_0> {
    using F = format_q4_0;
    DEVICE Group group(const uint* b, uint r, uint)
    {
        Group out;
        float d = tile_half(b, r);
        nibbles_of_32<F>(out, b, 0u, r);
        set_scales(out, d, -8.f * d);
        return out;
    }
};

template <>
struct Unpack<format_q4_1> {
    using F = format_q4_1;
    DEVICE Group group(const uint* b, uint r, uint)
    {
        Group out;
        uint dm = tile_word<F>(b, 0u, r);
        nibbles_of_32<F>(out, b, 1u, r);
        set_scales(out, low_half(dm), high_half(dm));
        return out;
    }
};

template <>
struct Unpack<format_q5_0> {
    using F = format_q5_0;
    DEVICE Group group(const uint* b, uint r, uint)
    {
        Group out;
        float d = tile_half(b, r);
        nibbles_of_32<F>(out, b, 1u, r);
        or_fifth_bits(out, tile_word<F>(b, 0u, r));
        set_scales(out, d, -16.f * d);
        return out;
    }
};

template <>
struct Unpack<format_q5_1> {
    using F = format_q5_1;
    DEVICE Group group(const uint* b, uint r, uint)
    {
        Group out;
        uint dm = tile_word<F>(b, 0u, r);
        nibbles_of_32<F>(out, b, 2u, r);
        or_fifth_bits(out, tile_word<F>(b, 1u, r));
        set_scales(out, low_half(dm), high_half(dm));
        return out;
    }
};

template <>
struct Unpack<format_iq4_nl> {
    using F = format_iq4_nl;
    DEVICE Group group(const uint* b, uint r, uint)
    {
        Group out;
        nibbles_of_32<F>(out, b, 0u, r);
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) out.q[i] = iq4_levels(out.q[i]);
        set_scales(out, tile_half(b, r), 0.f);
        return out;
    }
};

template <>
struct Unpack<format_iq4_xs> {
    using F = format_iq4_xs;
    DEVICE Group group(const uint* b, uint r, uint g)
    {
        Group out;
        uint head = tile_word<F>(b, 0u, r),
             s = (tile_word<F>(b, 1u, r) >> (4u * g) & 15u) | (head >> (16u + 2u * g) & 3u) << 4;
        nibbles_of_32<F>(out, b, 2u + 4u * g, r);
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) out.q[i] = iq4_levels(out.q[i]);
        set_scales(out, low_half(head) * (float(s) - 32.f), 0.f);
        return out;
    }
};

template <>
struct Unpack<format_mxfp4> {
    using F = format_mxfp4;
    DEVICE Group group(const uint* b, uint r, uint)
    {
        Group out;
        nibbles_of_32<F>(out, b, 0u, r);
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) out.q[i] = e2m1_levels(out.q[i]);
        set_scales(out, F::mxfp4_scale(b, 0u, r), 0.f);
        return out;
    }
};

template <>
struct Unpack<format_nvfp4> {
    using F = format_nvfp4;
    DEVICE Group group(const uint* b, uint r, uint g)
    {
        Group out;
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) {
            uint word = tile_word<F>(b, 1u + 4u * g + i / 4u * 2u + (i & 1u), r);
            out.q[i] = e2m1_levels(word >> (2u * (i & 2u)) & 0x0f0f0f0fu);
        }
        KS_UNROLL
        for (uint half = 0u; half < 2u; half++) {
            out.d[half] = F::nvfp4_scale(b, 0u, r, 2u * g + half);
            out.m[half] = 0.f;
        }
        return out;
    }
};

// The formats of one or two bits without a grid.
template <>
struct Unpack<format_q1_0> {
    using F = format_q1_0;
    DEVICE Group group(const uint* b, uint r, uint g)
    {
        Group out;
        uint word = tile_word<F>(b, g, r);
        float d = tile_half(b, r);
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) out.q[i] = word >> i & 0x01010101u;
        set_scales(out, 2.f * d, -d);
        return out;
    }
};

template <>
struct Unpack<format_q2_0> {
    using F = format_q2_0;
    DEVICE Group group(const uint* b, uint r, uint g)
    {
        Group out;
        float d = tile_half(b, r);
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++)
            out.q[i] = tile_word<F>(b, 2u * g + i / 4u, r) >> (2u * (i & 3u)) & 0x03030303u;
        set_scales(out, d, -d);
        return out;
    }
};

template <>
struct Unpack<format_tq2_0> {
    using F = format_tq2_0;
    DEVICE Group group(const uint* b, uint r, uint g)
    {
        Group out;
        float d = tile_half(b, r);
        fields_of_32<F>(out, b, g / 4u * 8u, r, 2u * (g & 3u), 0x03030303u);
        set_scales(out, d, -d);
        return out;
    }
};

template <>
struct Unpack<format_tq1_0> {
    using F = format_tq1_0;
    DEVICE Group group(const uint* b, uint r, uint g)
    {
        Group out;
        float d = tile_half(b, r);
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) out.q[i] = F::tq1_levels(b, 0u, r, 8u * g + i);
        set_scales(out, d, -d);
        return out;
    }
};

// The formats with a grid. Entries come from the L1 cache.
template <class F>
struct GridUnpack {
    DEVICE Group group(const uint* b, uint r, uint g)
    {
        Group out;
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) out.q[i] = F::grid_levels(b, 0u, r, 8u * g + i);
        KS_UNROLL
        for (uint half = 0u; half < 2u; half++) {
            out.d[half] = F::grid_scale(b, 0u, r, 2u * g + half);
            out.m[half] = 0.f;
        }
        return out;
    }
};
template <>
struct Unpack<format_iq2_xxs> : GridUnpack<format_iq2_xxs> {
};
template <>
struct Unpack<format_iq2_xs> : GridUnpack<format_iq2_xs> {
};
template <>
struct Unpack<format_iq2_s> : GridUnpack<format_iq2_s> {
};
template <>
struct Unpack<format_iq3_xxs> : GridUnpack<format_iq3_xxs> {
};
template <>
struct Unpack<format_iq3_s> : GridUnpack<format_iq3_s> {
};
template <>
struct Unpack<format_iq1_s> : GridUnpack<format_iq1_s> {
};
template <>
struct Unpack<format_iq1_m> : GridUnpack<format_iq1_m> {
};

// The scales and mins of q4_k and q5_k.
template <class F>
DEVICE void set_k_scales(Group& out, const uint* b, uint r, uint g)
{
    uint dm = tile_word<F>(b, 0u, r), shift = 8u * (g & 3u);
    uint s = tile_word<F>(b, 1u, r) >> shift, m = tile_word<F>(b, 2u, r) >> shift,
         low = tile_word<F>(b, 3u, r) >> shift;
    s = g < 4u ? s & 63u : (low & 15u) | (s >> 2 & 48u);
    m = g < 4u ? m & 63u : (low >> 4 & 15u) | (m >> 2 & 48u);
    set_scales(out, low_half(dm) * float(s), -high_half(dm) * float(m));
}

template <>
struct Unpack<format_q4_k> {
    using F = format_q4_k;
    DEVICE Group group(const uint* b, uint r, uint g)
    {
        Group out;
        fields_of_32<F>(out, b, 4u + g / 2u * 8u, r, 4u * (g & 1u), 0x0f0f0f0fu);
        set_k_scales<F>(out, b, r, g);
        return out;
    }
};

template <>
struct Unpack<format_q5_k> {
    using F = format_q5_k;
    DEVICE Group group(const uint* b, uint r, uint g)
    {
        Group out;
        fields_of_32<F>(out, b, 12u + g / 2u * 8u, r, 4u * (g & 1u), 0x0f0f0f0fu);
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++)
            out.q[i] |= (tile_word<F>(b, 4u + i, r) >> g & 0x01010101u) << 4;
        set_k_scales<F>(out, b, r, g);
        return out;
    }
};

template <>
struct Unpack<format_q2_k> {
    using F = format_q2_k;
    DEVICE Group group(const uint* b, uint r, uint g)
    {
        Group out;
        uint dm = tile_word<F>(b, 20u, r), sm = tile_word<F>(b, g / 2u, r) >> (16u * (g & 1u));
        fields_of_32<F>(out, b, 4u + g / 4u * 8u, r, 2u * (g & 3u), 0x03030303u);
        KS_UNROLL
        for (uint half = 0u; half < 2u; half++) {
            out.d[half] = low_half(dm) * float(sm >> (8u * half) & 15u);
            out.m[half] = -high_half(dm) * float(sm >> (8u * half + 4u) & 15u);
        }
        return out;
    }
};

template <>
struct Unpack<format_q3_k> {
    using F = format_q3_k;
    DEVICE Group group(const uint* b, uint r, uint g)
    {
        Group out;
        uint low = tile_word<F>(b, 24u + (g & 3u) / 2u, r), high = tile_word<F>(b, 26u, r);
        fields_of_32<F>(out, b, 8u + g / 4u * 8u, r, 2u * (g & 3u), 0x03030303u);
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) out.q[i] |= (tile_word<F>(b, i, r) >> g & 0x01010101u) << 2;
        KS_UNROLL
        for (uint half = 0u; half < 2u; half++) {
            uint byte = 8u * (2u * (g & 1u) + half);
            uint s = (low >> (byte + 4u * (g / 4u)) & 15u) | (high >> (byte + 2u * (g / 2u)) & 3u)
                                                                 << 4;
            out.d[half] = tile_half(b, r) * (float(s) - 32.f);
            out.m[half] = -4.f * out.d[half];
        }
        return out;
    }
};

template <>
struct Unpack<format_q6_k> {
    using F = format_q6_k;
    DEVICE Group group(const uint* b, uint r, uint g)
    {
        Group out;
        uint n = g / 4u, part = g & 3u,
             scales = tile_word<F>(b, 48u + g / 2u, r) >> (16u * (g & 1u));
        fields_of_32<F>(out, b, 16u * n + 8u * (part & 1u), r, 4u * (part / 2u), 0x0f0f0f0fu);
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++)
            out.q[i] |= (tile_word<F>(b, 32u + 8u * n + i, r) >> (2u * part) & 0x03030303u) << 4;
        KS_UNROLL
        for (uint half = 0u; half < 2u; half++) {
            int s = int(scales << (24u - 8u * half)) >> 24;
            out.d[half] = tile_half(b, r) * float(s);
            out.m[half] = -32.f * out.d[half];
        }
        return out;
    }
};

} // namespace ks
