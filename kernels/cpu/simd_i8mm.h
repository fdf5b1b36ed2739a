// NEON with the int8 matrix multiply of ARMv8.6, for two tokens at a time. All integer sums are
// exact, so the results equal those of the dot product bit for bit.
#pragma once

#include "kernels/cpu/simd_dotprod.h"

namespace ks
{
namespace // as in simd_avx2.h
{

// The instruction multiplies two rows of eight bytes by two others: two tokens by two rows of
// weights. Compilers hoist the reordering of the weights out of a loop over tokens.
struct I8mm : DotProd {
    static constexpr uint32_t stored_tokens = 2; // four do not fit beside 16 registers of weights

    KS_INLINE static uint32x4_t low_halves(uint32x4_t x, uint32x4_t y)
    {
        return vreinterpretq_u32_u64(
            vzip1q_u64(vreinterpretq_u64_u32(x), vreinterpretq_u64_u32(y)));
    }
    KS_INLINE static uint32x4_t high_halves(uint32x4_t x, uint32x4_t y)
    {
        return vreinterpretq_u32_u64(
            vzip2q_u64(vreinterpretq_u64_u32(x), vreinterpretq_u64_u32(y)));
    }

    // dots of tokens a[0] and a[1] with n words of eight rows. rows[j][i] holds words 2j and 2j + 1
    // of rows 2i and 2i + 1.
    template <int n>
    KS_INLINE static void dot_two(const uint32x4_t (*rows)[4], const ActBlock* a, uint32_t from,
                                  W8* dots)
    {
        // {token 0 x row 2i, token 0 x row 2i + 1, token 1 x row 2i, token 1 x row 2i + 1}
        uint32x4_t sums[4];
        KS_UNROLL(4)
        for (int i = 0; i < 4; i++) sums[i] = vdupq_n_u32(0);
        KS_UNROLL(4)
        for (int j = 0; j < n / 2; j++) {
            const int8_t* at[2] = {a[0].q + from + 8 * (j & ~1), a[1].q + from + 8 * (j & ~1)};
            const uint32x4_t x = vreinterpretq_u32_s8(vld1q_s8(at[0])),
                             y = vreinterpretq_u32_s8(vld1q_s8(at[1]));
            const int8x16_t values =
                vreinterpretq_s8_u32(j & 1 ? high_halves(x, y) : low_halves(x, y));
            KS_UNROLL(4)
            for (int i = 0; i < 4; i++)
                sums[i] =
                    as_word(vmmlaq_s32(as_int(sums[i]), values, vreinterpretq_s8_u32(rows[j][i])));
        }
        dots[0] = {low_halves(sums[0], sums[1]), low_halves(sums[2], sums[3])};
        dots[1] = {high_halves(sums[0], sums[1]), high_halves(sums[2], sums[3])};
    }

    template <int n, uint32_t n_tokens>
    KS_INLINE static void dot_signed(const W8* q, const ActBlock* a, uint32_t from, W8* dots)
    {
        uint32x4_t rows[n / 2][4];
        KS_UNROLL(4)
        for (int j = 0; j < n / 2; j++) {
            const W8 first = q[2 * j], second = q[2 * j + 1];
            rows[j][0] = vzip1q_u32(first.a, second.a);
            rows[j][1] = vzip2q_u32(first.a, second.a);
            rows[j][2] = vzip1q_u32(first.b, second.b);
            rows[j][3] = vzip2q_u32(first.b, second.b);
        }
        KS_UNROLL(2)
        for (uint32_t t = 0; t + 2 <= n_tokens; t += 2) dot_two<n>(rows, a + t, from, dots + t);
        if constexpr (n_tokens % 2 != 0)
            DotProd::dot_signed<n, 1>(q, a + n_tokens - 1, from, dots + n_tokens - 1);
    }
    template <int max_q, int n, uint32_t n_tokens>
    KS_INLINE static void dot(const W8* q, const ActBlock* a, uint32_t from, W8* dots)
    {
        static_assert(max_q < 128, "unsigned bytes must be valid as signed ones");
        dot_signed<n, n_tokens>(q, a, from, dots);
    }
    template <int max_q, uint32_t n_tokens>
    KS_INLINE static void dot_halves(const W8* q, W8 scale, const ActBlock* a, W8* dots)
    {
        W8 second[n_tokens];
        dot<max_q, 4, n_tokens>(q, a, 0, dots);
        dot<max_q, 4, n_tokens>(q + 4, a, 16, second);
        scale_dots<n_tokens>(scale, second, dots);
    }
};

} // namespace
} // namespace ks
