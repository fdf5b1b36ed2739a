// Dot products with VNNI: AVX-VNNI or AVX-512 VNNI, by the compiler flags of the including file.
// All integer sums are exact, so the results equal those of AVX2 bit for bit.
#pragma once

#include "kernels/cpu/simd_avx2.h"

// Tests that run without such a processor define the instruction themselves.
#ifndef KS_DPBUSD
#ifdef __AVX512VNNI__
#define KS_DPBUSD _mm256_dpbusd_epi32
#else
#define KS_DPBUSD _mm256_dpbusd_avx_epi32
#endif
#endif

namespace ks
{
namespace // as in simd_avx2.h
{

// The dot products of an instruction set whose add_product multiplies bytes as VNNI does.
template <class B>
struct VnniDots : B {
    using typename B::W;

    // dots[t] += per row, the sum over k of q * a[t].q[from + k] for n words of unsigned q. Few
    // tokens have two partial sums each, to hide the latency of a product.
    template <int n, uint32_t n_tokens>
    KS_INLINE static void add_products(const W* q, const ActBlock* a, uint32_t from, W* dots)
    {
        constexpr int n_parts = n_tokens <= 2 ? 2 : 1;
        W parts[n_tokens][n_parts];
        KS_UNROLL(8)
        for (uint32_t t = 0; t < n_tokens; t++) {
            parts[t][0] = dots[t];
            if constexpr (n_parts == 2) parts[t][1] = B::each(0);
        }
        KS_UNROLL(8)
        for (int j = 0; j < n; j++) {
            KS_UNROLL(8)
            for (uint32_t t = 0; t < n_tokens; t++) {
                W& part = parts[t][j % n_parts];
                part = B::add_product(part, q[j], a[t].q + from + 4 * j);
            }
        }
        KS_UNROLL(8)
        for (uint32_t t = 0; t < n_tokens; t++) {
            dots[t] = parts[t][0];
            if constexpr (n_parts == 2) dots[t] = dots[t] + parts[t][1];
        }
    }

    template <int max_q, int n, uint32_t n_tokens>
    KS_INLINE static void dot(const W* q, const ActBlock* a, uint32_t from, W* dots)
    {
        KS_UNROLL(8)
        for (uint32_t t = 0; t < n_tokens; t++) dots[t] = B::each(0);
        add_products<n, n_tokens>(q, a, from, dots);
    }

    template <int max_q, uint32_t n_tokens>
    KS_INLINE static void dot_halves(const W* q, W scale, const ActBlock* a, W* dots)
    {
        W second[n_tokens];
        dot<max_q, 4, n_tokens>(q, a, 0, dots);
        dot<max_q, 4, n_tokens>(q + 4, a, 16, second);
        if constexpr (max_q * 127 * 16 <= 32767) { // the two dots fit into the halves of a word
            KS_UNROLL(8)
            for (uint32_t t = 0; t < n_tokens; t++)
                dots[t] = B::dot_pairs(scale, B::low_and_high(dots[t], second[t] << 16));
        } else {
            const W low = B::sign_extend(scale << 16), high = B::sign_extend(scale);
            KS_UNROLL(8)
            for (uint32_t t = 0; t < n_tokens; t++)
                dots[t] = B::multiply(dots[t], low) + B::multiply(second[t], high);
        }
    }

    // Signed q: q + 128 is unsigned. The excess, 128 times the sum of a, is subtracted; ActBlock
    // has that sum for each half.
    template <int n, uint32_t n_tokens>
    KS_INLINE static void dot_signed(const W* q, const ActBlock* a, uint32_t from, W* dots)
    {
        static_assert(n == 4, "half a block");
        // -128 for the sum of the half block that begins at `from`, 0 for the other.
        const W minus_128 = B::each(from == 0 ? 0x0000ff80u : 0xff800000u);
        W bytes[n];
        KS_UNROLL(4)
        for (int j = 0; j < n; j++) bytes[j] = q[j] ^ B::each(0x80808080u);
        KS_UNROLL(8)
        for (uint32_t t = 0; t < n_tokens; t++) dots[t] = B::dot_pair(minus_128, a[t].sums);
        add_products<n, n_tokens>(bytes, a, from, dots);
    }
};

struct Avx2Vnni : Avx2 {
    // sums + q * the four bytes at a
    KS_INLINE static W8 add_product(W8 sums, W8 q, const int8_t* a)
    {
        return {KS_DPBUSD(sums.v, q.v, four(a))};
    }
    // Per word, the sum of both products of int16.
    KS_INLINE static W8 dot_pairs(W8 a, W8 b) { return {_mm256_madd_epi16(a.v, b.v)}; }
    KS_INLINE static W8 multiply(W8 a, W8 b) { return {_mm256_mullo_epi32(a.v, b.v)}; }
    // The low 16 bits of a beside the high ones of b.
    KS_INLINE static W8 low_and_high(W8 a, W8 b) { return {_mm256_blend_epi16(a.v, b.v, 0xaa)}; }
    // The int16 in the high half of each word.
    KS_INLINE static W8 sign_extend(W8 a) { return {_mm256_srai_epi32(a.v, 16)}; }
};
using Vnni = VnniDots<Avx2Vnni>;

} // namespace
} // namespace ks
