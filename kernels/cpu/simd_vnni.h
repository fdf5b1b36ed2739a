// AVX2 with the int8 dot product of VNNI: AVX-VNNI or AVX-512 VNNI, by the compiler flags of the
// including file. All integer sums are exact, so the results equal those of AVX2 bit for bit.
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

struct Vnni : Avx2 {
    // dots[t] += per row, the sum over k of q * a[t].q[from + k] for n words of unsigned q.
    template <int n, uint32_t n_tokens>
    KS_INLINE static void add_products(const __m256i* q, const ActBlock* a, uint32_t from, W8* dots)
    {
        KS_UNROLL(8)
        for (int j = 0; j < n; j++) {
            KS_UNROLL(4)
            for (uint32_t t = 0; t < n_tokens; t++)
                dots[t].v = KS_DPBUSD(dots[t].v, q[j], four(a[t].q + from + 4 * j));
        }
    }

    template <int max_q, int n, uint32_t n_tokens>
    KS_INLINE static void dot(const W8* q, const ActBlock* a, uint32_t from, W8* dots)
    {
        __m256i bytes[n];
        KS_UNROLL(8)
        for (int j = 0; j < n; j++) bytes[j] = q[j].v;
        KS_UNROLL(4)
        for (uint32_t t = 0; t < n_tokens; t++) dots[t].v = _mm256_setzero_si256();
        add_products<n, n_tokens>(bytes, a, from, dots);
    }

    template <int max_q, uint32_t n_tokens>
    KS_INLINE static void dot_halves(const W8* q, W8 scale, const ActBlock* a, W8* dots)
    {
        W8 second[n_tokens];
        dot<max_q, 4, n_tokens>(q, a, 0, dots);
        dot<max_q, 4, n_tokens>(q + 4, a, 16, second);
        if constexpr (max_q * 127 * 16 <= 32767) { // the two dots fit into the halves of a word
            KS_UNROLL(4)
            for (uint32_t t = 0; t < n_tokens; t++)
                dots[t].v = _mm256_madd_epi16(
                    scale.v,
                    _mm256_blend_epi16(dots[t].v, _mm256_slli_epi32(second[t].v, 16), 0xaa));
        } else {
            const __m256i low = _mm256_srai_epi32(_mm256_slli_epi32(scale.v, 16), 16),
                          high = _mm256_srai_epi32(scale.v, 16);
            KS_UNROLL(4)
            for (uint32_t t = 0; t < n_tokens; t++)
                dots[t].v = _mm256_add_epi32(_mm256_mullo_epi32(dots[t].v, low),
                                             _mm256_mullo_epi32(second[t].v, high));
        }
    }

    // Signed q: q + 128 is unsigned. The excess, 128 times the sum of a, is subtracted; ActBlock
    // has that sum for each half.
    template <int n, uint32_t n_tokens>
    KS_INLINE static void dot_signed(const W8* q, const ActBlock* a, uint32_t from, W8* dots)
    {
        static_assert(n == 4, "half a block");
        // -128 for the sum of the half block that begins at `from`, 0 for the other.
        const W8 minus_128 = each(from == 0 ? 0x0000ff80u : 0xff800000u);
        __m256i bytes[n];
        KS_UNROLL(4)
        for (int j = 0; j < n; j++)
            bytes[j] = _mm256_xor_si256(q[j].v, _mm256_set1_epi8(char(0x80)));
        KS_UNROLL(4)
        for (uint32_t t = 0; t < n_tokens; t++) dots[t] = dot_pair(minus_128, a[t].sums);
        add_products<n, n_tokens>(bytes, a, from, dots);
    }
};

} // namespace
} // namespace ks
