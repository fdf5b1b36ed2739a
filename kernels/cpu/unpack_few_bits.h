// Unpacks the formats of one or two bits without a grid, and NVFP4 (unpack.h).
#pragma once

#include "kernels/cpu/unpack.h"

namespace ks
{

template <class S>
struct Unpack<S, format_q1_0> {
    using F = format_q1_0;
    using Group = OffsetGroup<S, 1>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        Group w;
        const typename S::F d = tile_half<S>(at);
        w.d = d + d;
        w.m = S::zero() - d;
        KS_UNROLL(4)
        for (uint32_t g = 0; g < 4; g++) {
            const typename S::W word = tile_word<S, F>(at, g);
            KS_UNROLL(8)
            for (uint32_t i = 0; i < 8; i++) w.q[i] = bits<S>(word, int(i), 0x01010101);
            body(w, g, 0);
        }
    }
};

template <class S>
struct Unpack<S, format_q2_0> {
    using F = format_q2_0;
    using Group = OffsetGroup<S, 3>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        Group w;
        w.d = tile_half<S>(at);
        w.m = S::zero() - w.d;
        KS_UNROLL(2)
        for (uint32_t g = 0; g < 2; g++) {
            KS_UNROLL(8)
            for (uint32_t i = 0; i < 8; i++)
                w.q[i] = bits<S>(tile_word<S, F>(at, 2 * g + i / 4), int(2 * (i & 3)), 0x03030303);
            body(w, g, 0);
        }
    }
};

template <class S>
struct Unpack<S, format_tq2_0> {
    using F = format_tq2_0;
    using Group = OffsetGroup<S, 3>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        Group w;
        w.d = tile_half<S>(at);
        w.m = S::zero() - w.d;
        KS_UNROLL(8)
        for (uint32_t g = 0; g < 8; g++) {
            fields_of_32<S, F>(at, g / 4 * 8, int(2 * (g & 3)), 0x03030303, w.q);
            body(w, g, 0);
        }
    }
};

// The base-3 digits of four bytes, one after the other. A byte times three has a digit in its high
// byte, and in its low byte what the other digits are in.
template <class S>
struct Digits {
    typename S::W even, odd;

    KS_INLINE void start(typename S::W word)
    {
        even = bits<S>(word, 0, 0x00ff00ff);
        odd = bits<S>(word, 8, 0x00ff00ff);
    }
    KS_INLINE typename S::W next()
    {
        even = even + (even << 1);
        odd = odd + (odd << 1);
        const typename S::W digits = bits<S>(even, 8, 0x00030003) | (odd & S::each(0x03000300));
        even = even & S::each(0x00ff00ff);
        odd = odd & S::each(0x00ff00ff);
        return digits;
    }
};

template <class S>
struct Unpack<S, format_tq1_0> {
    using F = format_tq1_0;
    using Group = OffsetGroup<S, 3>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        Group w;
        Digits<S> bytes[8];
        w.d = tile_half<S>(at);
        w.m = S::zero() - w.d;
        KS_UNROLL(8)
        for (uint32_t i = 0; i < 8; i++) bytes[i].start(tile_word<S, F>(at, i));
        for (uint32_t g = 0; g < 5; g++) {
            KS_UNROLL(8)
            for (uint32_t i = 0; i < 8; i++) w.q[i] = bytes[i].next();
            body(w, g, 0);
        }
        KS_UNROLL(4)
        for (uint32_t i = 0; i < 4; i++) bytes[i].start(tile_word<S, F>(at, 8 + i));
        for (uint32_t g = 5; g < 7; g++) {
            KS_UNROLL(8)
            for (uint32_t i = 0; i < 8; i++) w.q[i] = bytes[i & 3].next();
            body(w, g, 0);
        }
        bytes[4].start(tile_word<S, F>(at, 12));
        KS_UNROLL(8)
        for (uint32_t i = 0; i < 8; i++) w.q[i] = bytes[i < 4 ? i : 4].next();
        body(w, 7, 0);
    }
};

template <class S>
struct Unpack<S, format_nvfp4> {
    using F = format_nvfp4;
    using Group = SignedGroup<S>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        // Seven bits of a scale become the exponent and the mantissa of an f16, which has another
        // bias. Bytes that are 127 become 0: no bit of them differs from 127.
        const typename S::W word = tile_word<S, F>(at, 0);
        const typename S::W differs = word ^ S::each(0x7f7f7f7f);
        const typename S::W top =
            (((differs & S::each(0x7f7f7f7f)) + S::each(0x7f7f7f7f)) | differs) &
            S::each(0x80808080);
        const typename S::W scales = word & (top - (top >> 7));
        typename S::F d[4];
        S::half2((scales & S::each(0x007f007f)) << 7, &d[0], &d[2]);
        S::half2((scales & S::each(0x7f007f00)) >> 1, &d[1], &d[3]);
        Group w;
        KS_UNROLL(4)
        for (uint32_t s = 0; s < 4; s++) {
            w.d = d[s] * S::broadcast(128.f);
            KS_UNROLL(4)
            for (uint32_t i = 0; i < 4; i++)
                w.q[i] = S::look_up(
                    bits<S>(tile_word<S, F>(at, 1 + 2 * s + (i & 1)), int(i / 2 * 4), 0x0f0f0f0f),
                    kE2m1Levels);
            body(w, s / 2, s & 1);
        }
    }
};

} // namespace ks
