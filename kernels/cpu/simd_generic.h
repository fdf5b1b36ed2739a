// The vector operations of simd_avx2.h in plain C++: for other processors, and to test the vector
// code.
#pragma once

#include "kernels/cpu/cpu_kernels.h"

#include <math.h>

namespace ks
{
namespace // as in simd_avx2.h
{

struct Generic {
    using Wide = Generic;
    static constexpr uint32_t lanes = 8;
    static constexpr uint32_t matvec_tokens = 1; // a larger number would only cost compile time
    static constexpr uint32_t stored_tokens = 4;
    struct F8 {
        float v[8];
        KS_INLINE friend F8 operator+(F8 a, F8 b)
        {
            return both(a, b, [](float x, float y) { return x + y; });
        }
        KS_INLINE friend F8 operator-(F8 a, F8 b)
        {
            return both(a, b, [](float x, float y) { return x - y; });
        }
        KS_INLINE friend F8 operator*(F8 a, F8 b)
        {
            return both(a, b, [](float x, float y) { return x * y; });
        }
        KS_INLINE friend F8 operator/(F8 a, F8 b)
        {
            return both(a, b, [](float x, float y) { return x / y; });
        }
    };
    struct W8 {
        uint32_t v[8];
        KS_INLINE friend W8 operator+(W8 a, W8 b)
        {
            return both(a, b, [](uint32_t x, uint32_t y) { return x + y; });
        }
        KS_INLINE friend W8 operator-(W8 a, W8 b)
        {
            return both(a, b, [](uint32_t x, uint32_t y) { return x - y; });
        }
        KS_INLINE friend W8 operator&(W8 a, W8 b)
        {
            return both(a, b, [](uint32_t x, uint32_t y) { return x & y; });
        }
        KS_INLINE friend W8 operator|(W8 a, W8 b)
        {
            return both(a, b, [](uint32_t x, uint32_t y) { return x | y; });
        }
        KS_INLINE friend W8 operator^(W8 a, W8 b)
        {
            return both(a, b, [](uint32_t x, uint32_t y) { return x ^ y; });
        }
        KS_INLINE friend W8 operator<<(W8 a, int n)
        {
            return both(a, a, [n](uint32_t x, uint32_t) { return x << n; });
        }
        KS_INLINE friend W8 operator>>(W8 a, int n)
        {
            return both(a, a, [n](uint32_t x, uint32_t) { return x >> n; });
        }
    };

    using F = F8;
    using W = W8;
    template <class V, class Op>
    KS_INLINE static V both(V a, V b, Op op)
    {
        for (int i = 0; i < 8; i++) a.v[i] = op(a.v[i], b.v[i]);
        return a;
    }
    template <class V, class Op>
    KS_INLINE static V make(Op op)
    {
        V a;
        for (int i = 0; i < 8; i++) a.v[i] = op(i);
        return a;
    }

    KS_INLINE static F8 zero() { return broadcast(0.f); }
    KS_INLINE static F8 broadcast(float x)
    {
        return make<F8>([=](int) { return x; });
    }
    KS_INLINE static F8 load(const float* p)
    {
        return make<F8>([=](int i) { return p[i]; });
    }
    KS_INLINE static void store(float* p, F8 x) { memcpy(p, x.v, sizeof x.v); }
    KS_INLINE static void store_first(float* p, F8 x, uint32_t n) { memcpy(p, x.v, 4 * n); }
    KS_INLINE static F8 fma(F8 a, F8 b, F8 c) { return a * b + c; }
    KS_INLINE static F8 max(F8 a, F8 b)
    {
        return both(a, b, [](float x, float y) { return x > y ? x : y; });
    }
    KS_INLINE static F8 min(F8 a, F8 b)
    {
        return both(a, b, [](float x, float y) { return x < y ? x : y; });
    }
    KS_INLINE static F8 abs(F8 a)
    {
        return make<F8>([=](int i) { return fabsf(a.v[i]); });
    }
    KS_INLINE static F8 zero_where_less(F8 x, F8 a, F8 b)
    {
        return make<F8>([=](int i) { return a.v[i] < b.v[i] ? 0.f : x.v[i]; });
    }
    KS_INLINE static W8 less(F8 a, F8 b)
    {
        return make<W8>([=](int i) { return a.v[i] < b.v[i] ? ~0u : 0u; });
    }
    KS_INLINE static F8 negate(F8 a, W8 top_bits)
    {
        return make<F8>([=](int i) {
            return BITS_TO_FLOAT(FLOAT_TO_BITS(a.v[i]) ^ (top_bits.v[i] & 0x80000000u));
        });
    }
    KS_INLINE static F8 lookup8(const float* eight, W8 index)
    {
        return make<F8>([=](int i) { return eight[index.v[i] & 7]; });
    }
    KS_INLINE static F8 lookup16_signed(const float* sixteen, W8 index)
    {
        return negate(lookup8(sixteen, index), index << 28);
    }
    KS_INLINE static F8 lookup4(const float* twice, W8 index) { return lookup8(twice, index); }
    KS_INLINE static F8 load_half(const uint16_t* p)
    {
        return make<F8>([=](int i) { return HALF_TO_FLOAT(p[i]); });
    }
    KS_INLINE static F8 broadcast_half(uint32_t half) { return broadcast(HALF_TO_FLOAT(half)); }
    KS_INLINE static void store_half(uint16_t* p, F8 x)
    {
        for (int i = 0; i < 8; i++) p[i] = uint16_t(FLOAT_TO_HALF(x.v[i]));
    }
    KS_INLINE static F8 load_bf16(const uint16_t* p)
    {
        return make<F8>([=](int i) { return BITS_TO_FLOAT(uint(p[i]) << 16); });
    }

    template <bool half>
    KS_INLINE static F8 load_rows(const uint8_t* const* rows, size_t d)
    {
        return half ? load_half(reinterpret_cast<const uint16_t*>(rows[0]) + d)
                    : load(reinterpret_cast<const float*>(rows[0]) + d);
    }
    KS_INLINE static F8 load_repeated(const float* p) { return load(p); }

    KS_INLINE static W8 words(const uint32_t* p) { return repeat<8>(p); }
    template <uint32_t n>
    KS_INLINE static W8 repeat(const uint32_t* p)
    {
        return make<W8>([=](int i) { return p[uint32_t(i) % n]; });
    }
    KS_INLINE static W8 shift_each(W8 a, const uint32_t* right)
    {
        return make<W8>([=](int i) { return a.v[i] >> right[i]; });
    }
    KS_INLINE static W8 load_bytes(const int8_t* p)
    {
        return make<W8>([=](int i) { return uint32_t(int(p[i])); });
    }
    KS_INLINE static void store_words(uint32_t* p, W8 a) { memcpy(p, a.v, sizeof a.v); }
    KS_INLINE static W8 each(uint32_t word)
    {
        return make<W8>([=](int) { return word; });
    }
    KS_INLINE static W8 sign_extend_byte(W8 a)
    {
        return make<W8>([=](int i) { return uint32_t(int8_t(a.v[i])); });
    }
    KS_INLINE static F8 to_float(W8 a)
    {
        return make<F8>([=](int i) { return float(int32_t(a.v[i])); });
    }
    // Rounds to nearest even for |a| < 2^22: a float above 1.5 * 2^23 has no fraction bits.
    KS_INLINE static W8 to_int(F8 a)
    {
        return make<W8>([=](int i) { return FLOAT_TO_BITS(a.v[i] + 12582912.f) - 0x4b400000u; });
    }
    KS_INLINE static F8 times_power_of_two(F8 a, W8 n)
    {
        return make<F8>(
            [=](int i) { return BITS_TO_FLOAT(FLOAT_TO_BITS(a.v[i]) + (n.v[i] << 23)); });
    }

    KS_INLINE static void half2(W8 w, F8* low, F8* high)
    {
        *low = make<F8>([=](int i) { return HALF_TO_FLOAT(w.v[i] & 0xffffu); });
        *high = make<F8>([=](int i) { return HALF_TO_FLOAT(w.v[i] >> 16); });
    }

    KS_INLINE static W8 look_up(W8 bytes, const int8_t* levels)
    {
        return make<W8>([=](int i) {
            uint32_t word = 0;
            for (int j = 0; j < 4; j++)
                word |= uint32_t(uint8_t(levels[(bytes.v[i] >> (8 * j)) & 15])) << (8 * j);
            return word;
        });
    }

    KS_INLINE static W8 gather(const uint32_t* table, W8 index)
    {
        return make<W8>([=](int i) { return table[index.v[i]]; });
    }
    KS_INLINE static W8 negate_bytes(W8 bytes, W8 signs, int j)
    {
        return make<W8>([=](int i) { return ::negate_bytes(bytes.v[i], signs.v[i] >> (4 * j)); });
    }

    // Byte: signedness of the weights (int8_t or uint8_t).
    template <class Byte, int n, uint32_t n_tokens>
    KS_INLINE static void dot_bytes(const W8* q, const ActBlock* a, uint32_t from, W8* dots)
    {
        for (uint32_t t = 0; t < n_tokens; t++) {
            dots[t] = each(0);
            for (int j = 0; j < n; j++)
                for (int r = 0; r < 8; r++)
                    for (int i = 0; i < 4; i++)
                        dots[t].v[r] += uint32_t(int(Byte(q[j].v[r] >> (8 * i))) *
                                                 a[t].q[int(from) + 4 * j + i]);
        }
    }
    template <int max_q, int n, uint32_t n_tokens>
    KS_INLINE static void dot(const W8* q, const ActBlock* a, uint32_t from, W8* dots)
    {
        dot_bytes<uint8_t, n, n_tokens>(q, a, from, dots);
    }
    template <int n, uint32_t n_tokens>
    KS_INLINE static void dot_signed(const W8* q, const ActBlock* a, uint32_t from, W8* dots)
    {
        dot_bytes<int8_t, n, n_tokens>(q, a, from, dots);
    }
    template <int max_q, uint32_t n_tokens>
    KS_INLINE static void dot_halves(const W8* q, W8 scale, const ActBlock* a, W8* dots)
    {
        W8 second[n_tokens];
        dot<max_q, 4, n_tokens>(q, a, 0, dots);
        dot<max_q, 4, n_tokens>(q + 4, a, 16, second);
        for (uint32_t t = 0; t < n_tokens; t++)
            for (int r = 0; r < 8; r++)
                dots[t].v[r] = dots[t].v[r] * uint32_t(int16_t(scale.v[r])) +
                               second[t].v[r] * uint32_t(int16_t(scale.v[r] >> 16));
    }
    KS_INLINE static W8 signed_pair(W8 bytes, uint32_t first)
    {
        return make<W8>([=](int i) {
            const uint32_t x = bytes.v[i] >> (8 * first);
            return (uint32_t(int8_t(x)) & 0xffffu) | uint32_t(int8_t(x >> 8)) << 16;
        });
    }
    KS_INLINE static W8 dot_pair(W8 halves, const int16_t* pair)
    {
        return make<W8>([=](int i) {
            return uint32_t(int16_t(halves.v[i]) * pair[0] + int16_t(halves.v[i] >> 16) * pair[1]);
        });
    }

    KS_INLINE static void store_bytes(int8_t* p, const W8* a)
    {
        for (int i = 0; i < 32; i++) p[i] = int8_t(a[i / 8].v[i % 8]);
    }
    KS_INLINE static int sum(W8 a)
    {
        uint32_t x = 0;
        for (uint32_t word : a.v) x += word;
        return int(x);
    }
    KS_INLINE static float sum(F8 a)
    {
        return ((a.v[0] + a.v[4]) + (a.v[2] + a.v[6])) + ((a.v[1] + a.v[5]) + (a.v[3] + a.v[7]));
    }
    KS_INLINE static float largest(F8 a)
    {
        float x = a.v[0];
        for (float y : a.v) x = y > x ? y : x;
        return x;
    }
    KS_INLINE static F8 sums8(const F8* a)
    {
        return make<F8>([=](int i) {
            const float* v = a[i].v;
            return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
        });
    }
    KS_INLINE static void transpose(F8* a)
    {
        for (int i = 0; i < 8; i++)
            for (int j = 0; j < i; j++) {
                const float x = a[i].v[j];
                a[i].v[j] = a[j].v[i];
                a[j].v[i] = x;
            }
    }
    KS_INLINE static W8 gather_words(const uint8_t* const* at)
    {
        return make<W8>([=](int i) {
            uint32_t word;
            memcpy(&word, at[i], 4);
            return word;
        });
    }
    KS_INLINE static void transpose_words(const uint32_t* const* rows, uint32_t begin, W8* words)
    {
        for (uint32_t w = 0; w < 4; w++)
            words[w] = make<W8>([=](int i) { return rows[i][begin + w]; });
    }
    static constexpr uint32_t n_digits = 3, digit_words = 3, above_code = 0;
    struct Bytes {
        W8 codes;
        KS_INLINE explicit Bytes(W8 x) : codes(x) {}
        KS_INLINE void add_products(const uint32_t* digits, W8* sums) const
        {
            for (int k = 0; k < 3; k++)
                for (int i = 0; i < 8; i++)
                    for (int j = 0; j < 32; j += 8)
                        sums[k].v[i] += uint32_t(int8_t(codes.v[i] >> j) * int8_t(digits[k] >> j));
        }
    };
    KS_INLINE static void load_pairs(const float* p, F8* even, F8* odd)
    {
        *even = make<F8>([=](int i) { return p[2 * i]; });
        *odd = make<F8>([=](int i) { return p[2 * i + 1]; });
    }
    KS_INLINE static void store_pairs(float* p, F8 even, F8 odd)
    {
        for (int i = 0; i < 8; i++) {
            p[2 * i] = even.v[i];
            p[2 * i + 1] = odd.v[i];
        }
    }
};

} // namespace
} // namespace ks
