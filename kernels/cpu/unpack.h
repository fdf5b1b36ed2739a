// Unpacks every quantised format into one of four kinds of groups, which matmul.h multiplies.
// Unpack<S, format>::groups(at, body) calls body(group, g, part) for the groups of the tile block
// at `at`. A group holds the values from column 32 g + 16 part on, for eight rows. Unpack::Group is
// the type of the groups. q[j] of a group holds, per row, four adjacent columns from 4j on.
#pragma once

#include "kernels/cpu/cpu_kernels.h"

namespace ks
{

enum GroupKind { group_offset, group_small, group_signed, group_halves };

// 32 values w = d * q + m, q unsigned.
template <class S, int max_q_>
struct OffsetGroup {
    static constexpr GroupKind kind = group_offset;
    static constexpr bool half_scales = false; // whether activations may have two scales a block
    static constexpr int max_q = max_q_;
    typename S::W8 q[8];
    typename S::F8 d, m;
};

// Like OffsetGroup, for formats with blocks of 32. There the rounding of the activations dominates
// the error, so each half has its own scale. (Formats with blocks of 256 are precise enough
// without: llama.cpp quantizes their activations in blocks of 256.)
template <class S, int max_q_>
struct SmallGroup {
    static constexpr GroupKind kind = group_small;
    static constexpr bool half_scales = true;
    static constexpr int max_q = max_q_;
    typename S::W8 q[8];
    typename S::F8 d, m;
};

// 16 values w = d * q, q signed.
template <class S>
struct SignedGroup {
    static constexpr GroupKind kind = group_signed;
    static constexpr bool half_scales = true;
    typename S::W8 q[4];
    typename S::F8 d;
};

// 32 values in two half blocks, w = d * (scale[half] * q + offset[half]), q unsigned. A scale is
// repeated as int16 in the low and the high bits of its word. The two offsets share one word.
template <class S, int max_q_>
struct HalvesGroup {
    static constexpr GroupKind kind = group_halves;
    static constexpr bool half_scales = false;
    static constexpr int max_q = max_q_;
    typename S::W8 q[8], scale[2], offset;
    typename S::F8 d;
};

// Like HalvesGroup with w = d * scale[half] * q + m * offset[half].
template <class S, int max_q_>
struct HalvesMinGroup {
    static constexpr GroupKind kind = group_halves;
    static constexpr bool half_scales = false;
    static constexpr int max_q = max_q_;
    typename S::W8 q[8], scale[2], offset;
    typename S::F8 d, m;
};

template <class S, class F>
struct Unpack;

// Word j of eight rows.
template <class S, class F>
KS_INLINE typename S::W8 tile_word(const uint32_t* at, uint32_t j)
{
    return S::words(at + F::half_words + tile_rows * j);
}

template <class S>
KS_INLINE typename S::F8 tile_half(const uint32_t* at)
{
    return S::load_half(reinterpret_cast<const uint16_t*>(at));
}

template <class S>
KS_INLINE typename S::W8 bits(typename S::W8 words, int shift, uint32_t mask)
{
    return (words >> shift) & S::each(mask);
}

// The low 16 bits, repeated in the high 16 bits.
template <class S>
KS_INLINE typename S::W8 both_halves(typename S::W8 x)
{
    return (x & S::each(0xffff)) | (x << 16);
}
// The low 16 bits of both, side by side.
template <class S>
KS_INLINE typename S::W8 half_pair(typename S::W8 low, typename S::W8 high)
{
    return (low & S::each(0xffff)) | (high << 16);
}

// Four words of nibbles from word j on: low nibbles are columns 0..15, high nibbles 16..31.
template <class S, class F>
KS_INLINE void nibbles_of_32(const uint32_t* at, uint32_t j, typename S::W8* q)
{
    KS_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++) {
        typename S::W8 word = tile_word<S, F>(at, j + i);
        q[i] = bits<S>(word, 0, 0x0f0f0f0f);
        q[4 + i] = bits<S>(word, 4, 0x0f0f0f0f);
    }
}

// Eight words from word j on; `mask` selects the bits of each byte after the shift.
template <class S, class F>
KS_INLINE void fields_of_32(const uint32_t* at, uint32_t j, int shift, uint32_t mask,
                            typename S::W8* q)
{
    KS_UNROLL(8)
    for (uint32_t i = 0; i < 8; i++) q[i] = bits<S>(tile_word<S, F>(at, j + i), shift, mask);
}

// q[i] |= bits of word j + i, moved from bit `from` to bit `to` of each byte, under `mask`.
template <class S, class F>
KS_INLINE void or_fields_of_32(const uint32_t* at, uint32_t j, int from, int to, uint32_t mask,
                               typename S::W8* q)
{
    KS_UNROLL(8)
    for (uint32_t i = 0; i < 8; i++) {
        typename S::W8 word = tile_word<S, F>(at, j + i);
        q[i] = q[i] | ((from > to ? word >> (from - to) : word << (to - from)) & S::each(mask));
    }
}

// Sets bit 4 of q[0..7] from the permuted word of q5_0 and q5_1.
template <class S>
KS_INLINE void or_fifth_bits(typename S::W8 high, typename S::W8* q)
{
    const typename S::W8 bit4 = S::each(0x10101010);
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
    KS_INLINE static void groups(const uint32_t* at, const Body& body)
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
    KS_INLINE static void groups(const uint32_t* at, const Body& body)
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
    KS_INLINE static void groups(const uint32_t* at, const Body& body)
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
    KS_INLINE static void groups(const uint32_t* at, const Body& body)
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
    KS_INLINE static void groups(const uint32_t* at, const Body& body)
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
KS_INLINE void iq4_group(const uint32_t* at, uint32_t j, typename S::F8 d, uint32_t g,
                         const Body& body, const int8_t* levels = kIq4Levels)
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
    KS_INLINE static void groups(const uint32_t* at, const Body& body)
    {
        iq4_group<S, format_iq4_nl>(at, 0, tile_half<S>(at), 0, body);
    }
};

template <class S>
struct Unpack<S, format_iq4_xs> {
    using F = format_iq4_xs;
    using Group = SignedGroup<S>;
    template <class Body>
    KS_INLINE static void groups(const uint32_t* at, const Body& body)
    {
        typename S::W8 head = tile_word<S, F>(at, 0), low = tile_word<S, F>(at, 1);
        typename S::F8 d, unused;
        S::half2(head, &d, &unused);
        KS_UNROLL(8)
        for (uint32_t g = 0; g < 8; g++) {
            typename S::W8 s =
                bits<S>(low, int(4 * g), 15) | (bits<S>(head, int(16 + 2 * g), 3) << 4);
            iq4_group<S, F>(at, 2 + 4 * g, d * S::to_float(s - S::each(32)), g, body);
        }
    }
};

// The scales and mins of q4_k and q5_k, in words 0..3 of the block.
template <class S, class F>
struct KScales {
    typename S::F8 d, minus_dmin;
    typename S::W8 a, b, c;

    KS_INLINE explicit KScales(const uint32_t* at)
        : a(tile_word<S, F>(at, 1)), b(tile_word<S, F>(at, 2)), c(tile_word<S, F>(at, 3))
    {
        S::half2(tile_word<S, F>(at, 0), &d, &minus_dmin);
        minus_dmin = S::zero() - minus_dmin;
    }

    template <int max_q>
    KS_INLINE void set(uint32_t g, OffsetGroup<S, max_q>* w) const
    {
        int shift = int(8 * (g & 3));
        typename S::W8 s = bits<S>(a, shift, 63), m = bits<S>(b, shift, 63);
        if (g >= 4) {
            s = bits<S>(c, shift, 15) | (bits<S>(a, shift + 6, 3) << 4);
            m = bits<S>(c, shift + 4, 15) | (bits<S>(b, shift + 6, 3) << 4);
        }
        w->d = d * S::to_float(s);
        w->m = minus_dmin * S::to_float(m);
    }
};

template <class S>
struct Unpack<S, format_q4_k> {
    using F = format_q4_k;
    using Group = OffsetGroup<S, 15>;
    template <class Body>
    KS_INLINE static void groups(const uint32_t* at, const Body& body)
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
    KS_INLINE static void groups(const uint32_t* at, const Body& body)
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
    KS_INLINE static void groups(const uint32_t* at, const Body& body)
    {
        Group w;
        S::half2(tile_word<S, F>(at, 20), &w.d, &w.m);
        w.m = S::zero() - w.m;
        KS_UNROLL(8)
        for (uint32_t g = 0; g < 8; g++) {
            fields_of_32<S, F>(at, 4 + g / 4 * 8, int(2 * (g & 3)), 0x03030303, w.q);
            // bytes: s and m of the first half, s and m of the second half
            typename S::W8 sm = tile_word<S, F>(at, g / 2) >> int(16 * (g & 1));
            w.scale[0] = both_halves<S>(bits<S>(sm, 0, 15));
            w.scale[1] = both_halves<S>(bits<S>(sm, 8, 15));
            w.offset = half_pair<S>(bits<S>(sm, 4, 15), bits<S>(sm, 12, 15));
            body(w, g, 0);
        }
    }
};

template <class S>
struct Unpack<S, format_q3_k> {
    using F = format_q3_k;
    using Group = HalvesGroup<S, 7>;
    template <class Body>
    KS_INLINE static void groups(const uint32_t* at, const Body& body)
    {
        Group w;
        w.d = tile_half<S>(at);
        typename S::W8 high = tile_word<S, F>(at, 26);
        KS_UNROLL(8)
        for (uint32_t g = 0; g < 8; g++) {
            fields_of_32<S, F>(at, 8 + g / 4 * 8, int(2 * (g & 3)), 0x03030303, w.q);
            or_fields_of_32<S, F>(at, 0, int(g), 2, 0x04040404, w.q);
            typename S::W8 low = tile_word<S, F>(at, 24 + (g & 3) / 2);
            typename S::W8 s[2];
            for (uint32_t half = 0; half < 2; half++) {
                int byte = int(8 * (2 * (g & 1) + half));
                s[half] = (bits<S>(low, byte + int(4 * (g / 4)), 15) |
                           (bits<S>(high, byte + int(2 * (g / 2)), 3) << 4)) -
                          S::each(32);
                w.scale[half] = both_halves<S>(s[half]);
            }
            w.offset = half_pair<S>(S::each(0) - (s[0] << 2), S::each(0) - (s[1] << 2));
            body(w, g, 0);
        }
    }
};

template <class S>
struct Unpack<S, format_q6_k> {
    using F = format_q6_k;
    using Group = HalvesGroup<S, 63>;
    template <class Body>
    KS_INLINE static void groups(const uint32_t* at, const Body& body)
    {
        Group w;
        w.d = tile_half<S>(at);
        KS_UNROLL(8)
        for (uint32_t g = 0; g < 8; g++) {
            uint32_t n = g / 4, part = g & 3;
            fields_of_32<S, F>(at, 16 * n + 8 * (part & 1), int(4 * (part / 2)), 0x0f0f0f0f, w.q);
            or_fields_of_32<S, F>(at, 32 + 8 * n, int(2 * part), 4, 0x30303030, w.q);
            typename S::W8 scales = tile_word<S, F>(at, 48 + g / 2) >> int(16 * (g & 1));
            typename S::W8 s0 = S::sign_extend_byte(scales), s1 = S::sign_extend_byte(scales >> 8);
            w.scale[0] = both_halves<S>(s0);
            w.scale[1] = both_halves<S>(s1);
            w.offset = half_pair<S>(S::each(0) - (s0 << 5), S::each(0) - (s1 << 5));
            body(w, g, 0);
        }
    }
};

constexpr int8_t kMxfp4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

template <class S>
struct Unpack<S, format_mxfp4> {
    using Group = SignedGroup<S>;
    template <class Body>
    KS_INLINE static void groups(const uint32_t* at, const Body& body)
    {
        // 2^(e - 128) as the product of two normal numbers with half the exponent each.
        typename S::W8 e = S::load_bytes(reinterpret_cast<const int8_t*>(at)) & S::each(255);
        typename S::F8 one = S::broadcast(0x1p-64f);
        typename S::F8 d =
            S::times_power_of_two(one, e >> 1) * S::times_power_of_two(one, e - (e >> 1));
        iq4_group<S, format_mxfp4>(at, 0, d, 0, body, kMxfp4Levels);
    }
};

} // namespace ks
