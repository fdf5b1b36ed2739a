// AVX2 for F8 and W8; AVX-512 for Wide. Sums run in the same order as in AVX2, so the results are
// equal bit for bit.
#pragma once

#if defined(__GNUC__) &&                                                                           \
    !defined(                                                                                      \
        __clang__) // GCC's header initialises results with themselves, for which GCC then warns
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "kernels/cpu/simd_avx2.h"

namespace ks
{
namespace // as in simd_avx2.h
{

struct Avx512Wide {
    static constexpr uint32_t lanes = 16;
    struct F {
        __m512 v;
        KS_INLINE friend F operator+(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
        KS_INLINE friend F operator-(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
        KS_INLINE friend F operator*(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
    };
    struct W {
        __m512i v;
        KS_INLINE friend W operator+(W a, W b) { return {_mm512_add_epi32(a.v, b.v)}; }
        KS_INLINE friend W operator-(W a, W b) { return {_mm512_sub_epi32(a.v, b.v)}; }
        KS_INLINE friend W operator&(W a, W b) { return {_mm512_and_si512(a.v, b.v)}; }
        KS_INLINE friend W operator|(W a, W b) { return {_mm512_or_si512(a.v, b.v)}; }
        KS_INLINE friend W operator^(W a, W b) { return {_mm512_xor_si512(a.v, b.v)}; }
        KS_INLINE friend W operator<<(W a, int n) { return {_mm512_slli_epi32(a.v, unsigned(n))}; }
        KS_INLINE friend W operator>>(W a, int n) { return {_mm512_srli_epi32(a.v, unsigned(n))}; }
    };

    using F8 = F; // of vector_math.h
    using W8 = W;

    KS_INLINE static F zero() { return {_mm512_setzero_ps()}; }
    KS_INLINE static F broadcast(float x) { return {_mm512_set1_ps(x)}; }
    KS_INLINE static F load(const float* p) { return {_mm512_loadu_ps(p)}; }
    KS_INLINE static void store(float* p, F x) { _mm512_storeu_ps(p, x.v); }
    KS_INLINE static void store_first(float* p, F x, uint32_t n)
    {
        _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), x.v);
    }
    KS_INLINE static F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
    KS_INLINE static F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; } // b if either is NaN
    KS_INLINE static __m256i load_256(const void* p)
    {
        return _mm256_loadu_si256(static_cast<const __m256i*>(p));
    }
    KS_INLINE static __m512i both(__m256i low, __m256i high)
    {
        return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    KS_INLINE static F load_half(const uint16_t* p) { return {_mm512_cvtph_ps(load_256(p))}; }
    KS_INLINE static F broadcast_half(uint32_t half)
    {
        return {_mm512_cvtph_ps(_mm256_set1_epi16(short(half)))};
    }
    KS_INLINE static F load_repeated(const float* p)
    {
        return {_mm512_castpd_ps(_mm512_broadcast_f64x4(_mm256_castps_pd(_mm256_loadu_ps(p))))};
    }
    template <bool half>
    KS_INLINE static F load_rows(const uint8_t* const* rows, size_t d)
    {
        if (!half)
            return {
                _mm512_castsi512_ps(both(load_256(rows[0] + 4 * d), load_256(rows[1] + 4 * d)))};
        const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[0] + 2 * d));
        const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[1] + 2 * d));
        return {_mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1))};
    }

    KS_INLINE static W words(const uint32_t* p) { return {_mm512_loadu_si512(p)}; }
    template <uint32_t n>
    KS_INLINE static W repeat(const uint32_t* p)
    {
        if (n == 8) return {_mm512_broadcast_i64x4(load_256(p))};
        if (n == 4) return {_mm512_broadcast_i32x4(Avx2::load_four(p))};
        return {_mm512_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
    }
    KS_INLINE static W shift_each(W a, const uint32_t* right)
    {
        return {_mm512_srlv_epi32(a.v, words(right).v)};
    }
    // Bits of a where the mask has ones, of b elsewhere.
    KS_INLINE static W chosen(W mask, W a, W b)
    {
        return {_mm512_ternarylogic_epi32(mask.v, a.v, b.v, 0xca)};
    }
    KS_INLINE static W load_bytes(const int8_t* p)
    {
        return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
    }
    KS_INLINE static W each(uint32_t word) { return {_mm512_set1_epi32(int(word))}; }
    KS_INLINE static F to_float(W a) { return {_mm512_cvtepi32_ps(a.v)}; }
    KS_INLINE static W to_int(F a) { return {_mm512_cvtps_epi32(a.v)}; } // to nearest even
    KS_INLINE static F times_power_of_two(F a, W n)
    {
        return {_mm512_castsi512_ps(
            _mm512_add_epi32(_mm512_castps_si512(a.v), _mm512_slli_epi32(n.v, 23)))};
    }
    KS_INLINE static F zero_where_less(F x, F a, F b)
    {
        return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_NLT_UQ), x.v)};
    }
    KS_INLINE static Avx2::F8 low(F a) { return {_mm512_castps512_ps256(a.v)}; }
    KS_INLINE static Avx2::F8 high(F a)
    {
        return {_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.v), 1))};
    }
    KS_INLINE static F negate(F a, W top_bits)
    {
        return {_mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(a.v), top_bits.v,
                                                              _mm512_set1_epi32(INT32_MIN), 0x78))};
    }
    KS_INLINE static F lookup8(const float* eight, W index)
    {
        return {_mm512_permutexvar_ps(index.v, load_repeated(eight).v)};
    }
    KS_INLINE static F lookup4(const float* twice, W index)
    {
        return {_mm512_permutevar_ps(_mm512_broadcast_f32x4(_mm_loadu_ps(twice)), index.v)};
    }
    KS_INLINE static F lookup16_signed(const float* sixteen, W index)
    {
        return pick_of(load(sixteen), index);
    }
    // Table lookup by the low four bits.
    KS_INLINE static F pick_of(F sixteen, W index)
    {
        return {_mm512_permutexvar_ps(index.v, sixteen.v)};
    }
    KS_INLINE static Avx2::F8 load_two_fours(const float* low, const float* high)
    {
        return {
            _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1)};
    }
    // Four f16 values, each repeated twice.
    KS_INLINE static Avx2::F8 repeat_half4(const uint16_t* p)
    {
        const __m128i x = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
        return {_mm256_cvtph_ps(_mm_unpacklo_epi16(x, x))};
    }
    KS_INLINE static F permuted(Avx2::F8 a, const uint32_t* from)
    {
        return {_mm512_permutexvar_ps(words(from).v, _mm512_castps256_ps512(a.v))};
    }
    KS_INLINE static W permuted(W a, const uint32_t* from)
    {
        return {_mm512_permutexvar_epi32(words(from).v, a.v)};
    }
    // Four f16 values, each in all lanes of a vector of its own.
    KS_INLINE static void broadcast_half4(const uint16_t* p, F* x)
    {
        const __m512 all = _mm512_castps128_ps512(
            _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
        KS_UNROLL(4)
        for (int i = 0; i < 4; i++) x[i].v = _mm512_permutexvar_ps(_mm512_set1_epi32(i), all);
    }
    KS_INLINE static void half2(W w, F* low, F* high)
    {
        low->v = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(w.v));
        high->v = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(w.v, 16)));
    }

    // x[i] receives every fourth of 64 floats, from p[i] on.
    KS_INLINE static void deinterleave4(const float* p, F* x)
    {
        const __m512i even =
            _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        const __m512i odd =
            _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
        const __m512 a = load(p).v, b = load(p + 16).v, c = load(p + 32).v, d = load(p + 48).v;
        const __m512 even_low = _mm512_permutex2var_ps(a, even, b),
                     even_high = _mm512_permutex2var_ps(c, even, d);
        const __m512 odd_low = _mm512_permutex2var_ps(a, odd, b),
                     odd_high = _mm512_permutex2var_ps(c, odd, d);
        x[0].v = _mm512_permutex2var_ps(even_low, even, even_high);
        x[1].v = _mm512_permutex2var_ps(odd_low, even, odd_high);
        x[2].v = _mm512_permutex2var_ps(even_low, odd, even_high);
        x[3].v = _mm512_permutex2var_ps(odd_low, odd, odd_high);
    }
    KS_INLINE static void interleave4(float* p, const F* x)
    {
        const __m512i low =
            _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        const __m512i high =
            _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        const __m512 even_low = _mm512_permutex2var_ps(x[0].v, low, x[2].v),
                     even_high = _mm512_permutex2var_ps(x[0].v, high, x[2].v);
        const __m512 odd_low = _mm512_permutex2var_ps(x[1].v, low, x[3].v),
                     odd_high = _mm512_permutex2var_ps(x[1].v, high, x[3].v);
        store(p, {_mm512_permutex2var_ps(even_low, low, odd_low)});
        store(p + 16, {_mm512_permutex2var_ps(even_low, high, odd_low)});
        store(p + 32, {_mm512_permutex2var_ps(even_high, low, odd_high)});
        store(p + 48, {_mm512_permutex2var_ps(even_high, high, odd_high)});
    }

    // Adds adjacent lanes. In sums8, lanes 2i and 2i + 1 are the sums of the lower and the upper
    // eight lanes of a[i], added in the order of AVX2.
    KS_INLINE static __m512 add_neighbours(__m512 a, __m512 b)
    {
        return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
    }
    KS_INLINE static F sums8(const F* a)
    {
        const __m512 low =
            add_neighbours(add_neighbours(a[0].v, a[1].v), add_neighbours(a[2].v, a[3].v));
        const __m512 high =
            add_neighbours(add_neighbours(a[4].v, a[5].v), add_neighbours(a[6].v, a[7].v));
        const __m512 sums = _mm512_add_ps(_mm512_shuffle_f32x4(low, high, 0x88),
                                          _mm512_shuffle_f32x4(low, high, 0xdd));
        return {_mm512_permutexvar_ps(
            _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15), sums)};
    }

    KS_INLINE static void transpose(F* a)
    {
        __m512 t[16], u[16];
        KS_UNROLL(8)
        for (int i = 0; i < 16; i += 2) {
            t[i] = _mm512_unpacklo_ps(a[i].v, a[i + 1].v);
            t[i + 1] = _mm512_unpackhi_ps(a[i].v, a[i + 1].v);
        }
        KS_UNROLL(4)
        for (int i = 0; i < 16; i += 4) {
            // u[i + k]: column 4 q + k of rows i .. i + 3, in quarter q.
            u[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
            u[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
            u[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
            u[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
        }
        KS_UNROLL(4)
        for (int k = 0; k < 4; k++) {
            const __m512 even_low = _mm512_shuffle_f32x4(u[k], u[4 + k], 0x88),
                         odd_low = _mm512_shuffle_f32x4(u[k], u[4 + k], 0xdd);
            const __m512 even_high = _mm512_shuffle_f32x4(u[8 + k], u[12 + k], 0x88),
                         odd_high = _mm512_shuffle_f32x4(u[8 + k], u[12 + k], 0xdd);
            a[k].v = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
            a[4 + k].v = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
            a[8 + k].v = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
            a[12 + k].v = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
        }
    }
    // Sets one quarter of a to four words.
    KS_INLINE static __m512i insert_four(__m512i a, const uint32_t* p, const int quarter)
    {
        return quarter == 1   ? _mm512_inserti32x4(a, Avx2::load_four(p), 1)
               : quarter == 2 ? _mm512_inserti32x4(a, Avx2::load_four(p), 2)
                              : _mm512_inserti32x4(a, Avx2::load_four(p), 3);
    }
    KS_INLINE static W gather_words(const uint8_t* const* at)
    {
        return {both(Avx2::gather_words(at).v, Avx2::gather_words(at + 8).v)};
    }
    // words[i]: word begin + i of each row
    KS_INLINE static void transpose_words(const uint32_t* const* rows, uint32_t begin, W* words)
    {
        __m512i t[4];
        KS_UNROLL(4)
        for (int i = 0; i < 4; i++) {
            t[i] = _mm512_castsi128_si512(Avx2::load_four(rows[i] + begin));
            KS_UNROLL(4)
            for (int k = 1; k < 4; k++) t[i] = insert_four(t[i], rows[4 * k + i] + begin, k);
        }
        const __m512i low01 = _mm512_unpacklo_epi32(t[0], t[1]),
                      high01 = _mm512_unpackhi_epi32(t[0], t[1]);
        const __m512i low23 = _mm512_unpacklo_epi32(t[2], t[3]),
                      high23 = _mm512_unpackhi_epi32(t[2], t[3]);
        words[0].v = _mm512_unpacklo_epi64(low01, low23);
        words[1].v = _mm512_unpackhi_epi64(low01, low23);
        words[2].v = _mm512_unpacklo_epi64(high01, high23);
        words[3].v = _mm512_unpackhi_epi64(high01, high23);
    }
};

struct Avx512 : Avx2 {
    using Wide = Avx512Wide;
    // One factor of the instruction is unsigned, so 128 is added to codes.
    static constexpr uint32_t n_digits = 3, digit_words = 3, above_code = 128;
    struct Bytes {
        __m512i v;
        KS_INLINE explicit Bytes(Wide::W codes)
            : v(_mm512_xor_si512(codes.v, _mm512_set1_epi32(int(0x80808080u))))
        {
        }
        KS_INLINE void add_products(const uint32_t* digits, Wide::W* sums) const
        {
            KS_UNROLL(3)
            for (int k = 0; k < 3; k++)
                sums[k].v = _mm512_dpbusd_epi32(sums[k].v, v, _mm512_set1_epi32(int(digits[k])));
        }
    };
};

} // namespace
} // namespace ks
