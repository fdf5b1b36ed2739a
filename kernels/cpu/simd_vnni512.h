// AVX-512 with VNNI, for two tiles at once: lanes 0..7 are the rows of the first, lanes 8..15 of
// the second. All integer sums are exact, so the results equal those of AVX2 bit for bit.
#pragma once

#include "kernels/cpu/simd_avx512.h"

namespace ks
{
namespace // as in simd_avx2.h
{

struct Vnni512 : Avx512Wide {
    static constexpr uint32_t matvec_tokens = 8; // as in simd_avx2.h, also the next one
    static constexpr uint32_t stored_tokens = 8;

    KS_INLINE static W words_of_two(const uint32_t* p, const uint32_t* q)
    {
        return {both(load_256(p), load_256(q))};
    }
    KS_INLINE static F floats_of_two(const float* p, const float* q)
    {
        return {_mm512_castsi512_ps(both(load_256(p), load_256(q)))};
    }
    // Eight 16-bit values from p and eight from q.
    KS_INLINE static __m256i shorts_of_two(const uint16_t* p, const uint16_t* q)
    {
        return _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(q)), 1);
    }
    KS_INLINE static F halves_of_two(const uint16_t* p, const uint16_t* q)
    {
        return {_mm512_cvtph_ps(shorts_of_two(p, q))};
    }
    KS_INLINE static F bf16_of_two(const uint16_t* p, const uint16_t* q)
    {
        return {
            _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(shorts_of_two(p, q)), 16))};
    }
    // Eight bytes from p and eight from q.
    KS_INLINE static W bytes_of_two(const uint8_t* p, const uint8_t* q)
    {
        const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)),
                      high = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(q));
        return {_mm512_cvtepu8_epi32(_mm_unpacklo_epi64(low, high))};
    }
    KS_INLINE static F times_power_of_two(F a, W n)
    {
        return {_mm512_castsi512_ps(
            _mm512_add_epi32(_mm512_castps_si512(a.v), _mm512_slli_epi32(n.v, 23)))};
    }
    KS_INLINE static W look_up(W bytes, const int8_t* levels)
    {
        const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels));
        return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), bytes.v)};
    }

    KS_INLINE static W gather(const uint32_t* table, W i)
    {
        return {_mm512_i32gather_epi32(i.v, table, 4)};
    }
    // Negates byte i of each word where bit 4 j + i of its word of `signs` is set.
    KS_INLINE static W negate_bytes(W bytes, W signs, int j)
    {
        const __m512i from = _mm512_broadcast_i32x4(Avx2::sign_pattern(j)),
                      bit = _mm512_set1_epi32(Avx2::sign_bits(j));
        const __mmask64 mask = _mm512_test_epi8_mask(_mm512_shuffle_epi8(signs.v, from), bit);
        return {_mm512_mask_sub_epi8(bytes.v, mask, _mm512_setzero_si512(), bytes.v)};
    }

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
            if constexpr (n_parts == 2) parts[t][1] = each(0);
        }
        KS_UNROLL(8)
        for (int j = 0; j < n; j++) {
            KS_UNROLL(8)
            for (uint32_t t = 0; t < n_tokens; t++) {
                int32_t word;
                __builtin_memcpy(&word, a[t].q + from + 4 * j, 4);
                W& part = parts[t][j % n_parts];
                part.v = _mm512_dpbusd_epi32(part.v, q[j].v, _mm512_set1_epi32(word));
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
        for (uint32_t t = 0; t < n_tokens; t++) dots[t] = each(0);
        add_products<n, n_tokens>(q, a, from, dots);
    }

    KS_INLINE static W signed_pair(W bytes, uint32_t first)
    {
        const __m512i pattern = _mm512_broadcast_i32x4(Avx2::pair_pattern(first));
        return {_mm512_srai_epi16(_mm512_shuffle_epi8(bytes.v, pattern), 8)};
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
                dots[t].v =
                    _mm512_madd_epi16(scale.v, chosen(each(0xffff), dots[t], second[t] << 16).v);
        } else {
            const __m512i low = _mm512_srai_epi32(_mm512_slli_epi32(scale.v, 16), 16),
                          high = _mm512_srai_epi32(scale.v, 16);
            KS_UNROLL(8)
            for (uint32_t t = 0; t < n_tokens; t++)
                dots[t].v = _mm512_add_epi32(_mm512_mullo_epi32(dots[t].v, low),
                                             _mm512_mullo_epi32(second[t].v, high));
        }
    }

    // As in simd_vnni.h.
    template <int n, uint32_t n_tokens>
    KS_INLINE static void dot_signed(const W* q, const ActBlock* a, uint32_t from, W* dots)
    {
        static_assert(n == 4, "half a block");
        const W minus_128 = each(from == 0 ? 0x0000ff80u : 0xff800000u);
        W bytes[n];
        KS_UNROLL(4)
        for (int j = 0; j < n; j++) bytes[j] = q[j] ^ each(0x80808080u);
        KS_UNROLL(8)
        for (uint32_t t = 0; t < n_tokens; t++) dots[t] = dot_pair(minus_128, a[t].sums);
        add_products<n, n_tokens>(bytes, a, from, dots);
    }

    // Per row: low 16 bits * pair[0] + high 16 bits * pair[1], as int16.
    KS_INLINE static W dot_pair(W halves, const int16_t* pair)
    {
        int32_t word;
        __builtin_memcpy(&word, pair, 4);
        return {_mm512_madd_epi16(halves.v, _mm512_set1_epi32(word))};
    }
};

} // namespace
} // namespace ks
