// The vector operations of simd_avx2.h in NEON with the dot product of ARMv8.2. Sums run in the
// same order, so results are equal bit for bit.
#pragma once

#include "kernels/cpu/cpu_kernels.h"

#include <arm_neon.h>

namespace ks
{
namespace // as in simd_avx2.h
{

// A binary operator of F8 or W8: one intrinsic for each of the two registers.
#define KS_NEON_OPERATOR(V, op, intrinsic)                                                         \
    KS_INLINE friend V operator op(V x, V y)                                                       \
    {                                                                                              \
        return {intrinsic(x.a, y.a), intrinsic(x.b, y.b)};                                         \
    }

struct Neon {
    using Wide = Neon;
    static constexpr uint32_t lanes = 8;
    static constexpr uint32_t matvec_tokens = 4;
    static constexpr uint32_t stored_tokens = 4;

    struct F8 {
        float32x4_t a, b; // lanes 0..3 and 4..7, as in W8
        KS_NEON_OPERATOR(F8, +, vaddq_f32)
        KS_NEON_OPERATOR(F8, -, vsubq_f32)
        KS_NEON_OPERATOR(F8, *, vmulq_f32)
        KS_NEON_OPERATOR(F8, /, vdivq_f32)
    };
    struct W8 {
        uint32x4_t a, b;
        KS_NEON_OPERATOR(W8, +, vaddq_u32)
        KS_NEON_OPERATOR(W8, -, vsubq_u32)
        KS_NEON_OPERATOR(W8, &, vandq_u32)
        KS_NEON_OPERATOR(W8, |, vorrq_u32)
        KS_NEON_OPERATOR(W8, ^, veorq_u32)
        KS_INLINE friend W8 operator<<(W8 x, int n) { return shift(x, n); }
        KS_INLINE friend W8 operator>>(W8 x, int n) { return shift(x, -n); }
    };
    using F = F8;
    using W = W8;
    KS_INLINE static W8 shift(W8 x, int left)
    {
        return {vshlq_u32(x.a, vdupq_n_s32(left)), vshlq_u32(x.b, vdupq_n_s32(left))};
    }
    KS_INLINE static int32x4_t as_int(uint32x4_t x) { return vreinterpretq_s32_u32(x); }
    KS_INLINE static uint32x4_t as_word(int32x4_t x) { return vreinterpretq_u32_s32(x); }

    KS_INLINE static F8 zero() { return broadcast(0.f); }
    KS_INLINE static F8 broadcast(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
    KS_INLINE static F8 load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
    KS_INLINE static void store(float* p, F8 x)
    {
        vst1q_f32(p, x.a);
        vst1q_f32(p + 4, x.b);
    }
    KS_INLINE static void store_first(float* p, F8 x, uint32_t n)
    {
        float all[8];
        store(all, x);
        memcpy(p, all, 4 * n);
    }
    KS_INLINE static F8 fma(F8 x, F8 y, F8 z)
    {
        return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)};
    }
    // y if either is NaN, like AVX2.
    KS_INLINE static float32x4_t max4(float32x4_t x, float32x4_t y)
    {
        return vbslq_f32(vcgtq_f32(x, y), x, y);
    }
    KS_INLINE static float32x4_t min4(float32x4_t x, float32x4_t y)
    {
        return vbslq_f32(vcltq_f32(x, y), x, y);
    }
    KS_INLINE static F8 max(F8 x, F8 y) { return {max4(x.a, y.a), max4(x.b, y.b)}; }
    KS_INLINE static F8 min(F8 x, F8 y) { return {min4(x.a, y.a), min4(x.b, y.b)}; }
    KS_INLINE static F8 abs(F8 x) { return {vabsq_f32(x.a), vabsq_f32(x.b)}; }
    KS_INLINE static float32x4_t clear(float32x4_t x, uint32x4_t where)
    {
        return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), where));
    }
    KS_INLINE static F8 zero_where_less(F8 x, F8 y, F8 z)
    {
        return {clear(x.a, vcltq_f32(y.a, z.a)), clear(x.b, vcltq_f32(y.b, z.b))};
    }
    // All bits are set where x < y, else none.
    KS_INLINE static W8 less(F8 x, F8 y) { return {vcltq_f32(x.a, y.a), vcltq_f32(x.b, y.b)}; }
    KS_INLINE static float32x4_t negate4(float32x4_t x, uint32x4_t top_bits)
    {
        return vreinterpretq_f32_u32(
            veorq_u32(vreinterpretq_u32_f32(x), vandq_u32(top_bits, vdupq_n_u32(0x80000000u))));
    }
    KS_INLINE static F8 negate(F8 x, W8 top_bits)
    {
        return {negate4(x.a, top_bits.a), negate4(x.b, top_bits.b)};
    }
    KS_INLINE static float32x4_t pick4(uint8x16x2_t eight, uint32x4_t index)
    {
        uint32x4_t bytes =
            vmlaq_n_u32(vdupq_n_u32(0x03020100), vandq_u32(index, vdupq_n_u32(7)), 0x04040404);
        return vreinterpretq_f32_u8(vqtbl2q_u8(eight, vreinterpretq_u8_u32(bytes)));
    }
    KS_INLINE static F8 lookup8(const float* eight, W8 index)
    {
        const uint8x16x2_t bytes = {
            {vreinterpretq_u8_f32(vld1q_f32(eight)), vreinterpretq_u8_f32(vld1q_f32(eight + 4))}};
        return {pick4(bytes, index.a), pick4(bytes, index.b)};
    }
    KS_INLINE static float32x4_t from_half(uint16x4_t x)
    {
        return vcvt_f32_f16(vreinterpret_f16_u16(x));
    }
    KS_INLINE static F8 lookup16_signed(const float* sixteen, W8 index)
    {
        return negate(lookup8(sixteen, index), index << 28);
    }
    KS_INLINE static F8 lookup4(const float* twice, W8 index) { return lookup8(twice, index); }
    KS_INLINE static F8 load_half(const uint16_t* p)
    {
        return {from_half(vld1_u16(p)), from_half(vld1_u16(p + 4))};
    }
    KS_INLINE static F8 broadcast_half(uint32_t half)
    {
        const float32x4_t x = from_half(vdup_n_u16(uint16_t(half)));
        return {x, x};
    }
    KS_INLINE static void store_half(uint16_t* p, F8 x)
    {
        vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x.a)));
        vst1_u16(p + 4, vreinterpret_u16_f16(vcvt_f16_f32(x.b)));
    }
    KS_INLINE static float32x4_t from_bf16(uint16x4_t x)
    {
        return vreinterpretq_f32_u32(vshll_n_u16(x, 16));
    }
    KS_INLINE static F8 load_bf16(const uint16_t* p)
    {
        return {from_bf16(vld1_u16(p)), from_bf16(vld1_u16(p + 4))};
    }

    template <bool half>
    KS_INLINE static F8 load_rows(const uint8_t* const* rows, size_t d)
    {
        return half ? load_half(reinterpret_cast<const uint16_t*>(rows[0]) + d)
                    : load(reinterpret_cast<const float*>(rows[0]) + d);
    }
    KS_INLINE static F8 load_repeated(const float* p) { return load(p); }

    KS_INLINE static W8 words(const uint32_t* p) { return {vld1q_u32(p), vld1q_u32(p + 4)}; }
    template <uint32_t n>
    KS_INLINE static W8 repeat(const uint32_t* p)
    {
        if (n == 8) return words(p);
        const uint32x4_t x = n == 4 ? vld1q_u32(p) : vcombine_u32(vld1_u32(p), vld1_u32(p));
        return {x, x};
    }
    KS_INLINE static W8 shift_each(W8 x, const uint32_t* right)
    {
        const W8 by = words(right);
        return {vshlq_u32(x.a, vnegq_s32(as_int(by.a))), vshlq_u32(x.b, vnegq_s32(as_int(by.b)))};
    }
    KS_INLINE static W8 load_bytes(const int8_t* p)
    {
        const int16x8_t x = vmovl_s8(vld1_s8(p));
        return {as_word(vmovl_s16(vget_low_s16(x))), as_word(vmovl_s16(vget_high_s16(x)))};
    }
    KS_INLINE static void store_words(uint32_t* p, W8 x)
    {
        vst1q_u32(p, x.a);
        vst1q_u32(p + 4, x.b);
    }
    KS_INLINE static W8 each(uint32_t word) { return {vdupq_n_u32(word), vdupq_n_u32(word)}; }
    KS_INLINE static int32x4_t low_byte(uint32x4_t x)
    {
        return vshrq_n_s32(as_int(vshlq_n_u32(x, 24)), 24);
    }
    KS_INLINE static W8 sign_extend_byte(W8 x)
    {
        return {as_word(low_byte(x.a)), as_word(low_byte(x.b))};
    }
    KS_INLINE static F8 to_float(W8 x)
    {
        return {vcvtq_f32_s32(as_int(x.a)), vcvtq_f32_s32(as_int(x.b))};
    }
    // Rounds to nearest even.
    KS_INLINE static W8 to_int(F8 x)
    {
        return {as_word(vcvtnq_s32_f32(x.a)), as_word(vcvtnq_s32_f32(x.b))};
    }
    KS_INLINE static F8 times_power_of_two(F8 x, W8 n)
    {
        return {vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(x.a), vshlq_n_u32(n.a, 23))),
                vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(x.b), vshlq_n_u32(n.b, 23)))};
    }

    KS_INLINE static void half2(W8 w, F8* low, F8* high)
    {
        *low = {from_half(vmovn_u32(w.a)), from_half(vmovn_u32(w.b))};
        *high = {from_half(vshrn_n_u32(w.a, 16)), from_half(vshrn_n_u32(w.b, 16))};
    }

    KS_INLINE static W8 look_up(W8 bytes, const int8_t* levels)
    {
        int8x16_t table = vld1q_s8(levels);
        return {vreinterpretq_u32_s8(vqtbl1q_s8(table, vreinterpretq_u8_u32(bytes.a))),
                vreinterpretq_u32_s8(vqtbl1q_s8(table, vreinterpretq_u8_u32(bytes.b)))};
    }

    KS_INLINE static int8x8_t bytes8(W8 x)
    {
        return vqmovn_s16(vcombine_s16(vqmovn_s32(as_int(x.a)), vqmovn_s32(as_int(x.b))));
    }
    KS_INLINE static void store_bytes(int8_t* p, const W8* x)
    {
        for (int i = 0; i < 4; i++) vst1_s8(p + 8 * i, bytes8(x[i]));
    }

    KS_INLINE static int sum(W8 x) { return int(vaddvq_u32(vaddq_u32(x.a, x.b))); }
    KS_INLINE static float sum(F8 x)
    {
        float32x4_t four = vaddq_f32(x.a, x.b);
        float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
        return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
    }
    KS_INLINE static float largest(F8 x)
    {
        float32x4_t four = max4(x.a, x.b), two = max4(four, vextq_f32(four, four, 2));
        return vgetq_lane_f32(max4(two, vextq_f32(two, two, 1)), 0);
    }
    KS_INLINE static float32x4_t sums4(float32x4_t x0, float32x4_t x1, float32x4_t x2,
                                       float32x4_t x3)
    {
        return vpaddq_f32(vpaddq_f32(x0, x1), vpaddq_f32(x2, x3));
    }
    KS_INLINE static F8 sums8(const F8* x)
    {
        return {
            vaddq_f32(sums4(x[0].a, x[1].a, x[2].a, x[3].a), sums4(x[0].b, x[1].b, x[2].b, x[3].b)),
            vaddq_f32(sums4(x[4].a, x[5].a, x[6].a, x[7].a),
                      sums4(x[4].b, x[5].b, x[6].b, x[7].b))};
    }

    // rows[i] = column i of the four rows
    KS_INLINE static void transpose4(float32x4_t x0, float32x4_t x1, float32x4_t x2, float32x4_t x3,
                                     float32x4_t* rows)
    {
        // even01: x0[0] x2[0] x0[1] x2[1]; odd01: x1[0] x3[0] x1[1] x3[1]
        float32x4_t even01 = vzip1q_f32(x0, x2), odd01 = vzip1q_f32(x1, x3);
        float32x4_t even23 = vzip2q_f32(x0, x2), odd23 = vzip2q_f32(x1, x3);
        rows[0] = vzip1q_f32(even01, odd01);
        rows[1] = vzip2q_f32(even01, odd01);
        rows[2] = vzip1q_f32(even23, odd23);
        rows[3] = vzip2q_f32(even23, odd23);
    }
    KS_INLINE static void transpose(F8* x)
    {
        float32x4_t top_left[4], bottom_left[4], top_right[4], bottom_right[4];
        transpose4(x[0].a, x[1].a, x[2].a, x[3].a, top_left);
        transpose4(x[4].a, x[5].a, x[6].a, x[7].a, bottom_left);
        transpose4(x[0].b, x[1].b, x[2].b, x[3].b, top_right);
        transpose4(x[4].b, x[5].b, x[6].b, x[7].b, bottom_right);
        KS_UNROLL(4)
        for (int i = 0; i < 4; i++) {
            x[i] = {top_left[i], bottom_left[i]};
            x[4 + i] = {top_right[i], bottom_right[i]};
        }
    }

    KS_INLINE static W8 gather_words(const uint8_t* const* at)
    {
        uint32_t x[8];
        KS_UNROLL(8)
        for (int i = 0; i < 8; i++) memcpy(x + i, at[i], 4);
        return words(x);
    }
    // words[i]: word begin + i of each row
    KS_INLINE static void transpose_words(const uint32_t* const* rows, uint32_t begin, W8* words)
    {
        float32x4_t in[8], low[4], high[4];
        KS_UNROLL(8)
        for (int i = 0; i < 8; i++) in[i] = vreinterpretq_f32_u32(vld1q_u32(rows[i] + begin));
        transpose4(in[0], in[1], in[2], in[3], low);
        transpose4(in[4], in[5], in[6], in[7], high);
        KS_UNROLL(4)
        for (int i = 0; i < 4; i++)
            words[i] = {vreinterpretq_u32_f32(low[i]), vreinterpretq_u32_f32(high[i])};
    }

    static constexpr uint32_t n_digits = 3, digit_words = 3, above_code = 0;
    struct Bytes {
        W8 codes;
        KS_INLINE explicit Bytes(W8 x) : codes(x) {}
        KS_INLINE void add_products(const uint32_t* digits, W8* sums) const
        {
            KS_UNROLL(3)
            for (int k = 0; k < 3; k++) {
                const int8x16_t digit = vreinterpretq_s8_u32(vdupq_n_u32(digits[k]));
                sums[k].a =
                    as_word(vdotq_s32(as_int(sums[k].a), vreinterpretq_s8_u32(codes.a), digit));
                sums[k].b =
                    as_word(vdotq_s32(as_int(sums[k].b), vreinterpretq_s8_u32(codes.b), digit));
            }
        }
    };

    KS_INLINE static void load_pairs(const float* p, F8* even, F8* odd)
    {
        float32x4x2_t first = vld2q_f32(p), second = vld2q_f32(p + 8);
        *even = {first.val[0], second.val[0]};
        *odd = {first.val[1], second.val[1]};
    }
    KS_INLINE static void store_pairs(float* p, F8 even, F8 odd)
    {
        float32x4x2_t first = {{even.a, odd.a}}, second = {{even.b, odd.b}};
        vst2q_f32(p, first);
        vst2q_f32(p + 8, second);
    }
};
#undef KS_NEON_OPERATOR

} // namespace
} // namespace ks
