// Unpacks every quantised format into one of four kinds of groups, which matmul.h multiplies.
// Unpack<S, format>::groups(at, body) calls body(group, g, part) for the groups of the tile block
// at `at`. A group holds the values from column 32 g + 16 part on, for eight rows. Unpack::Group is
// the type of the groups. q[j] of a group holds, per row, four adjacent columns from 4j on.
#pragma once

#include "kernels/cpu/tiles.h"

namespace ks
{

enum GroupKind { group_offset, group_small, group_signed, group_halves };

// 32 values w = d * q + m, q unsigned.
template <class S, int max_q_>
struct OffsetGroup {
    static constexpr GroupKind kind = group_offset;
    static constexpr bool half_scales = false; // whether activations may have two scales a block
    static constexpr int max_q = max_q_;
    typename S::W q[8];
    typename S::F d, m;
};

// Like OffsetGroup, for formats with blocks of 32. There the rounding of the activations dominates
// the error, so each half has its own scale. (Formats with blocks of 256 are precise enough
// without: llama.cpp quantizes their activations in blocks of 256.)
template <class S, int max_q_>
struct SmallGroup {
    static constexpr GroupKind kind = group_small;
    static constexpr bool half_scales = true;
    static constexpr int max_q = max_q_;
    typename S::W q[8];
    typename S::F d, m;
};

// 16 values w = d * q, q signed.
template <class S>
struct SignedGroup {
    static constexpr GroupKind kind = group_signed;
    static constexpr bool half_scales = true;
    typename S::W q[4];
    typename S::F d;
};

// 32 values in two half blocks, w = d * scale[half] * (q - 2^zero_bit), q unsigned. The two scales
// are int16 and share a word.
template <class S, int max_q_, int zero_bit_>
struct HalvesGroup {
    static constexpr GroupKind kind = group_halves;
    static constexpr bool half_scales = false;
    static constexpr int max_q = max_q_, zero_bit = zero_bit_;
    typename S::W q[8], scale;
    typename S::F d;
};

// Like HalvesGroup with w = d * scale[half] * q + m * offset[half].
template <class S, int max_q_>
struct HalvesMinGroup {
    static constexpr GroupKind kind = group_halves;
    static constexpr bool half_scales = false;
    static constexpr int max_q = max_q_;
    typename S::W q[8], scale, offset;
    typename S::F d, m;
};

template <class S, class F>
struct Unpack;

template <class S>
KS_INLINE typename S::W bits(typename S::W words, int shift, uint32_t mask)
{
    return (words >> shift) & S::each(mask);
}

// Four words of nibbles from word j on: low nibbles are columns 0..15, high nibbles 16..31.
template <class S, class F>
KS_INLINE void nibbles_of_32(Blocks<S> at, uint32_t j, typename S::W* q)
{
    KS_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++) {
        typename S::W word = tile_word<S, F>(at, j + i);
        q[i] = bits<S>(word, 0, 0x0f0f0f0f);
        q[4 + i] = bits<S>(word, 4, 0x0f0f0f0f);
    }
}

// Eight words from word j on; `mask` selects the bits of each byte after the shift.
template <class S, class F>
KS_INLINE void fields_of_32(Blocks<S> at, uint32_t j, int shift, uint32_t mask, typename S::W* q)
{
    KS_UNROLL(8)
    for (uint32_t i = 0; i < 8; i++) q[i] = bits<S>(tile_word<S, F>(at, j + i), shift, mask);
}

// q[i] |= bits of word j + i, moved from bit `from` to bit `to` of each byte, under `mask`.
template <class S, class F>
KS_INLINE void or_fields_of_32(Blocks<S> at, uint32_t j, int from, int to, uint32_t mask,
                               typename S::W* q)
{
    KS_UNROLL(8)
    for (uint32_t i = 0; i < 8; i++) {
        typename S::W word = tile_word<S, F>(at, j + i);
        q[i] = q[i] | ((from > to ? word >> (from - to) : word << (to - from)) & S::each(mask));
    }
}

// Sets bit 4 of q[0..7] from the permuted word of q5_0 and q5_1.
template <class S>
KS_INLINE void or_fifth_bits(typename S::W high, typename S::W* q)
{
    const typename S::W bit4 = S::each(0x10101010);
    KS_UNROLL(4)
    for (int i = 0; i < 4; i++) {
        q[i] = q[i] | ((high << (4 - i)) & bit4);
        q[4 + i] = q[4 + i] | ((high >> i) & bit4);
    }
}

template <class S>
struct Unpack<S, format_q4_0> {
    using F = format_q4_0;
    using Group = SmallGroup<S, 15>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        Group w;
        nibbles_of_32<S, F>(at, 0, w.q);
        w.d = tile_half<S>(at);
        w.m = w.d * S::broadcast(-8.f);
        body(w, 0, 0);
    }
};

template <class S>
struct Unpack<S, format_q4_1> {
    using F = format_q4_1;
    using Group = SmallGroup<S, 15>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        Group w;
        nibbles_of_32<S, F>(at, 1, w.q);
        S::half2(tile_word<S, F>(at, 0), &w.d, &w.m);
        body(w, 0, 0);
    }
};

template <class S>
struct Unpack<S, format_q5_0> {
    using F = format_q5_0;
    using Group = SmallGroup<S, 31>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        Group w;
        nibbles_of_32<S, F>(at, 1, w.q);
        or_fifth_bits<S>(tile_word<S, F>(at, 0), w.q);
        w.d = tile_half<S>(at);
        w.m = w.d * S::broadcast(-16.f);
        body(w, 0, 0);
    }
};

template <class S>
struct Unpack<S, format_q5_1> {
    using F = format_q5_1;
    using Group = SmallGroup<S, 31>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        Group w;
        nibbles_of_32<S, F>(at, 2, w.q);
        or_fifth_bits<S>(tile_word<S, F>(at, 1), w.q);
        S::half2(tile_word<S, F>(at, 0), &w.d, &w.m);
        body(w, 0, 0);
    }
};

template <class S>
struct Unpack<S, format_q8_0> {
    using F = format_q8_0;
    using Group = SignedGroup<S>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        Group w;
        w.d = tile_half<S>(at);
        KS_UNROLL(2)
        for (uint32_t part = 0; part < 2; part++) {
            KS_UNROLL(4)
            for (uint32_t i = 0; i < 4; i++) w.q[i] = tile_word<S, F>(at, 4 * part + i);
            body(w, 0, part);
        }
    }
};

constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};

// 32 values of iq4_nl or iq4_xs, from the four words from word j on.
template <class S, class F, class Body>
KS_INLINE void iq4_group(Blocks<S> at, uint32_t j, typename S::F d, uint32_t g, const Body& body,
                         const int8_t* levels = kIq4Levels)
{
    SignedGroup<S> w;
    w.d = d;
    KS_UNROLL(2)
    for (uint32_t part = 0; part < 2; part++) {
        KS_UNROLL(4)
        for (uint32_t i = 0; i < 4; i++)
            w.q[i] =
                S::look_up(bits<S>(tile_word<S, F>(at, j + i), int(4 * part), 0x0f0f0f0f), levels);
        body(w, g, part);
    }
}

template <class S>
struct Unpack<S, format_iq4_nl> {
    using Group = SignedGroup<S>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        iq4_group<S, format_iq4_nl>(at, 0, tile_half<S>(at), 0, body);
    }
};

template <class S>
struct Unpack<S, format_iq4_xs> {
    using F = format_iq4_xs;
    using Group = SignedGroup<S>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        typename S::W head = tile_word<S, F>(at, 0), low = tile_word<S, F>(at, 1);
        typename S::F d, unused;
        S::half2(head, &d, &unused);
        KS_UNROLL(8)
        for (uint32_t g = 0; g < 8; g++) {
            typename S::W s =
                bits<S>(low, int(4 * g), 15) | (bits<S>(head, int(16 + 2 * g), 3) << 4);
            iq4_group<S, F>(at, 2 + 4 * g, d * S::to_float(s - S::each(32)), g, body);
        }
    }
};

// The scales and mins of q4_k and q5_k, from words 0..3 of the block. Byte i of s[j] and m[j] is of
// group 4 j + i.
template <class S, class F>
struct KScales {
    typename S::F d, minus_dmin;
    typename S::W s[2], m[2];

    KS_INLINE explicit KScales(Blocks<S> at)
    {
        S::half2(tile_word<S, F>(at, 0), &d, &minus_dmin);
        minus_dmin = S::zero() - minus_dmin;
        const typename S::W a = tile_word<S, F>(at, 1), b = tile_word<S, F>(at, 2),
                            c = tile_word<S, F>(at, 3);
        s[0] = bits<S>(a, 0, 0x3f3f3f3f);
        m[0] = bits<S>(b, 0, 0x3f3f3f3f);
        s[1] = bits<S>(c, 0, 0x0f0f0f0f) | bits<S>(a, 2, 0x30303030);
        m[1] = bits<S>(c, 4, 0x0f0f0f0f) | bits<S>(b, 2, 0x30303030);
    }

    template <int max_q>
    KS_INLINE void set(uint32_t g, OffsetGroup<S, max_q>* w) const
    {
        const int shift = int(8 * (g & 3));
        w->d = d * S::to_float(bits<S>(s[g / 4], shift, 63));
        w->m = minus_dmin * S::to_float(bits<S>(m[g / 4], shift, 63));
    }
};

template <class S>
struct Unpack<S, format_q4_k> {
    using F = format_q4_k;
    using Group = OffsetGroup<S, 15>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        KScales<S, F> scales(at);
        KS_UNROLL(8)
        for (uint32_t g = 0; g < 8; g++) {
            Group w;
            fields_of_32<S, F>(at, 4 + g / 2 * 8, int(4 * (g & 1)), 0x0f0f0f0f, w.q);
            scales.set(g, &w);
            body(w, g, 0);
        }
    }
};

template <class S>
struct Unpack<S, format_q5_k> {
    using F = format_q5_k;
    using Group = OffsetGroup<S, 31>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        KScales<S, F> scales(at);
        KS_UNROLL(8)
        for (uint32_t g = 0; g < 8; g++) {
            Group w;
            fields_of_32<S, F>(at, 12 + g / 2 * 8, int(4 * (g & 1)), 0x0f0f0f0f, w.q);
            or_fields_of_32<S, F>(at, 4, int(g), 4, 0x10101010, w.q);
            scales.set(g, &w);
            body(w, g, 0);
        }
    }
};

template <class S>
struct Unpack<S, format_q2_k> {
    using F = format_q2_k;
    using Group = HalvesMinGroup<S, 3>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        Group w;
        S::half2(tile_word<S, F>(at, 20), &w.d, &w.m);
        w.m = S::zero() - w.m;
        KS_UNROLL(8)
        for (uint32_t g = 0; g < 8; g++) {
            fields_of_32<S, F>(at, 4 + g / 4 * 8, int(2 * (g & 3)), 0x03030303, w.q);
            // bytes: s and m of each half, in nibbles
            typename S::W sm = tile_word<S, F>(at, g / 2);
            w.scale = S::signed_pair(bits<S>(sm, 0, 0x0f0f0f0f), 2 * (g & 1));
            w.offset = S::signed_pair(bits<S>(sm, 4, 0x0f0f0f0f), 2 * (g & 1));
            body(w, g, 0);
        }
    }
};

template <class S>
struct Unpack<S, format_q3_k> {
    using F = format_q3_k;
    using Group = HalvesGroup<S, 7, 2>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        Group w;
        w.d = tile_half<S>(at);
        typename S::W high = tile_word<S, F>(at, 26);
        KS_UNROLL(8)
        for (uint32_t g = 0; g < 8; g++) {
            fields_of_32<S, F>(at, 8 + g / 4 * 8, int(2 * (g & 3)), 0x03030303, w.q);
            or_fields_of_32<S, F>(at, 0, int(g), 2, 0x04040404, w.q);
            // Two groups share a word. Its bytes become s - 32, without borrows.
            typename S::W s =
                bits<S>(tile_word<S, F>(at, 24 + (g & 3) / 2), int(4 * (g / 4)), 0x0f0f0f0f) |
                (bits<S>(high, int(2 * (g / 2)), 0x03030303) << 4);
            w.scale = S::signed_pair((s + S::each(0x60606060)) ^ S::each(0x80808080), 2 * (g & 1));
            body(w, g, 0);
        }
    }
};

template <class S>
struct Unpack<S, format_q6_k> {
    using F = format_q6_k;
    using Group = HalvesGroup<S, 63, 5>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        Group w;
        w.d = tile_half<S>(at);
        KS_UNROLL(8)
        for (uint32_t g = 0; g < 8; g++) {
            uint32_t n = g / 4, part = g & 3;
            fields_of_32<S, F>(at, 16 * n + 8 * (part & 1), int(4 * (part / 2)), 0x0f0f0f0f, w.q);
            or_fields_of_32<S, F>(at, 32 + 8 * n, int(2 * part), 4, 0x30303030, w.q);
            w.scale = S::signed_pair(tile_word<S, F>(at, 48 + g / 2), 2 * (g & 1));
            body(w, g, 0);
        }
    }
};

constexpr int8_t kE2m1Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

template <class S>
struct Unpack<S, format_mxfp4> {
    using Group = SignedGroup<S>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        // 2^(e - 128) as the product of two normal numbers with half the exponent each.
        typename S::W e = tile_byte<S>(at);
        typename S::F one = S::broadcast(0x1p-64f);
        typename S::F d =
            S::times_power_of_two(one, e >> 1) * S::times_power_of_two(one, e - (e >> 1));
        iq4_group<S, format_mxfp4>(at, 0, d, 0, body, kE2m1Levels);
    }
};

} // namespace ks
