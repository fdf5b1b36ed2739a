// AVX-512 with VNNI, for two tiles at once: lanes 0..7 are the rows of the first, lanes 8..15 of
// the second. All integer sums are exact, so the results equal those of AVX2 bit for bit.
#pragma once

#include "kernels/cpu/simd_avx512.h"
#include "kernels/cpu/simd_vnni.h"

namespace ks
{
namespace // as in simd_avx2.h
{

struct Avx512Vnni : Avx512Wide {
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

    KS_INLINE static W signed_pair(W bytes, uint32_t first)
    {
        const __m512i pattern = _mm512_broadcast_i32x4(Avx2::pair_pattern(first));
        return {_mm512_srai_epi16(_mm512_shuffle_epi8(bytes.v, pattern), 8)};
    }
    KS_INLINE static W four(const int8_t* a)
    {
        int32_t word;
        __builtin_memcpy(&word, a, 4);
        return {_mm512_set1_epi32(word)};
    }
    KS_INLINE static W add_product(W sums, W q, const int8_t* a)
    {
        return {_mm512_dpbusd_epi32(sums.v, q.v, four(a).v)};
    }
    KS_INLINE static W dot_pairs(W a, W b) { return {_mm512_madd_epi16(a.v, b.v)}; }
    KS_INLINE static W multiply(W a, W b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
    KS_INLINE static W low_and_high(W a, W b) { return chosen(each(0xffff), a, b); }
    KS_INLINE static W sign_extend(W a) { return {_mm512_srai_epi32(a.v, 16)}; }

    // Per row: low 16 bits * pair[0] + high 16 bits * pair[1], as int16.
    KS_INLINE static W dot_pair(W halves, const int16_t* pair)
    {
        return dot_pairs(halves, four(reinterpret_cast<const int8_t*>(pair)));
    }
};
using Vnni512 = VnniDots<Avx512Vnni>;

} // namespace
} // namespace ks
