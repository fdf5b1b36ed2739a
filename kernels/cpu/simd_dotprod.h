// NEON with the int8 dot product of ARMv8.2, for weight products.
#pragma once

#include "kernels/cpu/simd_neon.h"

namespace ks
{
namespace // as in simd_avx2.h
{

struct DotProd : Neon {
    KS_INLINE static W8 gather(const uint32_t* table, W8 index)
    {
        uint32_t x[8];
        store_words(x, index);
        for (uint32_t& word : x) word = table[word];
        return words(x);
    }
    // Negates byte i of each word where bit i of its word of `signs` is set. Other bits are zero.
    KS_INLINE static uint32x4_t negate4(uint32x4_t bytes, uint32x4_t signs)
    {
        const uint8x16_t mask = vtstq_u8(vreinterpretq_u8_u32(vmulq_n_u32(signs, 0x01010101)),
                                         vreinterpretq_u8_u32(vdupq_n_u32(0x08040201)));
        return vreinterpretq_u32_u8(vsubq_u8(veorq_u8(vreinterpretq_u8_u32(bytes), mask), mask));
    }
    KS_INLINE static W8 negate_bytes(W8 bytes, W8 signs, int j)
    {
        signs = (signs >> (4 * j)) & each(15);
        return {negate4(bytes.a, signs.a), negate4(bytes.b, signs.b)};
    }

    // Adds the products of four words of weights with sixteen activations to `sum`. The instruction
    // broadcasts one word of activations.
    KS_INLINE static int32x4_t add_products(int32x4_t sum, uint32x4_t q0, uint32x4_t q1,
                                            uint32x4_t q2, uint32x4_t q3, int8x16_t a)
    {
        sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u32(q0), a, 0);
        sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u32(q1), a, 1);
        sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u32(q2), a, 2);
        return vdotq_laneq_s32(sum, vreinterpretq_s8_u32(q3), a, 3);
    }

    // Both operands are signed; unsigned levels stay below 128.
    template <int n, uint32_t n_tokens>
    KS_INLINE static void dot_signed(const W8* q, const ActBlock* a, uint32_t from, W8* dots)
    {
        KS_UNROLL(2)
        for (int j = 0; j < n; j += 4) {
            KS_UNROLL(4)
            for (uint32_t t = 0; t < n_tokens; t++) {
                int8x16_t values = vld1q_s8(a[t].q + from + 4 * j);
                W8 sum = j == 0 ? each(0) : dots[t];
                dots[t] = {as_word(add_products(as_int(sum.a), q[j].a, q[j + 1].a, q[j + 2].a,
                                                q[j + 3].a, values)),
                           as_word(add_products(as_int(sum.b), q[j].b, q[j + 1].b, q[j + 2].b,
                                                q[j + 3].b, values))};
            }
        }
    }
    template <int max_q, int n, uint32_t n_tokens>
    KS_INLINE static void dot(const W8* q, const ActBlock* a, uint32_t from, W8* dots)
    {
        static_assert(max_q < 128, "unsigned bytes must be valid as signed ones");
        dot_signed<n, n_tokens>(q, a, from, dots);
    }
    // The int16 in the low and in the high halves of all words.
    KS_INLINE static void split_halves(W8 x, int32x4_t* low, int32x4_t* high)
    {
        const W8 up = x << 16;
        low[0] = vshrq_n_s32(as_int(up.a), 16), low[1] = vshrq_n_s32(as_int(up.b), 16);
        high[0] = vshrq_n_s32(as_int(x.a), 16), high[1] = vshrq_n_s32(as_int(x.b), 16);
    }
    // dots[t] * the low int16 of scale + second[t] * the high int16
    template <uint32_t n_tokens>
    KS_INLINE static void scale_dots(W8 scale, const W8* second, W8* dots)
    {
        int32x4_t low[2], high[2];
        split_halves(scale, low, high);
        KS_UNROLL(4)
        for (uint32_t t = 0; t < n_tokens; t++)
            dots[t] = {as_word(as_int(dots[t].a) * low[0] + as_int(second[t].a) * high[0]),
                       as_word(as_int(dots[t].b) * low[1] + as_int(second[t].b) * high[1])};
    }
    template <int max_q, uint32_t n_tokens>
    KS_INLINE static void dot_halves(const W8* q, W8 scale, const ActBlock* a, W8* dots)
    {
        W8 second[n_tokens];
        dot<max_q, 4, n_tokens>(q, a, 0, dots);
        dot<max_q, 4, n_tokens>(q + 4, a, 16, second);
        scale_dots<n_tokens>(scale, second, dots);
    }
    // The signed bytes `first` and `first` + 1 of each word as two int16.
    KS_INLINE static W8 signed_pair(W8 bytes, uint32_t first)
    {
        // Each int16 takes its byte as its high byte; 0x80 takes none.
        const uint32x4_t steps = {0, 0x04000400, 0x08000800, 0x0c000c00};
        const uint8x16_t pattern = vreinterpretq_u8_u32(steps + (0x01800080 + 0x01000100 * first));
        auto pairs = [&](uint32x4_t x) {
            const uint8x16_t picked = vqtbl1q_u8(vreinterpretq_u8_u32(x), pattern);
            return vreinterpretq_u32_s16(vshrq_n_s16(vreinterpretq_s16_u8(picked), 8));
        };
        return {pairs(bytes.a), pairs(bytes.b)};
    }

    KS_INLINE static W8 dot_pair(W8 halves, const int16_t* pair)
    {
        int32x4_t low[2], high[2];
        split_halves(halves, low, high);
        return {as_word(low[0] * int(pair[0]) + high[0] * int(pair[1])),
                as_word(low[1] * int(pair[0]) + high[1] * int(pair[1]))};
    }
};

} // namespace
} // namespace ks
