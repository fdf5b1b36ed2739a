// The vector operations that kernels need from an instruction set, here AVX2 with FMA and F16C.
// Only *_avx2.cpp and extensions of AVX2 may include this file.
//   F8     eight floats: one per row of a tile, or eight adjacent values
//   W8     eight words, one per row of a tile: an int32 each, or the four bytes of four adjacent k
//   Wide   the same operations (types F and W) on all lanes of the instruction set, for kernels of
//          any width; eight lanes here
#pragma once

#include "kernels/cpu/cpu_kernels.h"

#include <immintrin.h>

namespace ks
{
namespace // internal linkage: the linker must not merge kernels of different instruction sets
{

struct Avx2 {
    using Wide = Avx2;
    static constexpr uint32_t lanes = 8;
    static constexpr uint32_t matvec_tokens = 4; // tokens whose sums all fit into registers
    // Tokens at a time if there are more than that: enough sums to hide the latency of a product.
    static constexpr uint32_t stored_tokens = 4;
    struct F8 {
        __m256 v;
        KS_INLINE friend F8 operator+(F8 a, F8 b) { return {_mm256_add_ps(a.v, b.v)}; }
        KS_INLINE friend F8 operator-(F8 a, F8 b) { return {_mm256_sub_ps(a.v, b.v)}; }
        KS_INLINE friend F8 operator*(F8 a, F8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
        KS_INLINE friend F8 operator/(F8 a, F8 b) { return {_mm256_div_ps(a.v, b.v)}; }
    };
    struct W8 {
        __m256i v;
        KS_INLINE friend W8 operator+(W8 a, W8 b) { return {_mm256_add_epi32(a.v, b.v)}; }
        KS_INLINE friend W8 operator-(W8 a, W8 b) { return {_mm256_sub_epi32(a.v, b.v)}; }
        KS_INLINE friend W8 operator&(W8 a, W8 b) { return {_mm256_and_si256(a.v, b.v)}; }
        KS_INLINE friend W8 operator|(W8 a, W8 b) { return {_mm256_or_si256(a.v, b.v)}; }
        KS_INLINE friend W8 operator^(W8 a, W8 b) { return {_mm256_xor_si256(a.v, b.v)}; }
        KS_INLINE friend W8 operator<<(W8 a, int n) { return {_mm256_slli_epi32(a.v, n)}; }
        KS_INLINE friend W8 operator>>(W8 a, int n) { return {_mm256_srli_epi32(a.v, n)}; }
    };
    using F = F8;
    using W = W8;

    KS_INLINE static F8 zero() { return {_mm256_setzero_ps()}; }
    KS_INLINE static F8 broadcast(float x) { return {_mm256_set1_ps(x)}; }
    KS_INLINE static F8 load(const float* p) { return {_mm256_loadu_ps(p)}; }
    KS_INLINE static void store(float* p, F8 x) { _mm256_storeu_ps(p, x.v); }
    KS_INLINE static void store_first(float* p, F8 x, uint32_t n)
    {
        _mm256_maskstore_ps(p,
                            _mm256_cmpgt_epi32(_mm256_set1_epi32(int(n)),
                                               _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                            x.v);
    }
    KS_INLINE static F8 fma(F8 a, F8 b, F8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
    KS_INLINE static F8 max(F8 a, F8 b) { return {_mm256_max_ps(a.v, b.v)}; } // b if either is NaN
    KS_INLINE static F8 min(F8 a, F8 b) { return {_mm256_min_ps(a.v, b.v)}; } // b if either is NaN
    KS_INLINE static F8 abs(F8 a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.f), a.v)}; }
    KS_INLINE static F8 zero_where_less(F8 x, F8 a, F8 b)
    {
        return {_mm256_andnot_ps(_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ), x.v)};
    }
    // All bits are set where a < b, else none.
    KS_INLINE static W8 less(F8 a, F8 b)
    {
        return {_mm256_castps_si256(_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))};
    }
    // Flips the sign of a where the top bit is set.
    KS_INLINE static F8 negate(F8 a, W8 top_bits)
    {
        return {_mm256_xor_ps(
            a.v, _mm256_and_ps(_mm256_castsi256_ps(top_bits.v), _mm256_set1_ps(-0.f)))};
    }
    // Table lookup by the low three bits of each index.
    KS_INLINE static F8 lookup8(const float* eight, W8 index)
    {
        return {_mm256_permutevar8x32_ps(_mm256_loadu_ps(eight), index.v)};
    }
    // Table lookup by the low four bits. The top one is the sign: sixteen[8 + i] == -sixteen[i].
    KS_INLINE static F8 lookup16_signed(const float* sixteen, W8 index)
    {
        return negate(lookup8(sixteen, index), index << 28);
    }
    // Table lookup by the low two bits, in a table of four that is stored twice.
    KS_INLINE static F8 lookup4(const float* twice, W8 index)
    {
        return {_mm256_permutevar_ps(_mm256_loadu_ps(twice), index.v)};
    }
    KS_INLINE static F8 load_half(const uint16_t* p)
    {
        return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
    }
    KS_INLINE static F8 broadcast_half(uint32_t half)
    {
        return {_mm256_cvtph_ps(_mm_set1_epi16(short(half)))};
    }
    KS_INLINE static void store_half(uint16_t* p, F8 x)
    {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                         _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
    }
    KS_INLINE static F8 load_bf16(const uint16_t* p)
    {
        __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
        return {_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16))};
    }

    // Dims d .. d + 7 of one row per eight lanes, f16 or f32.
    template <bool half>
    KS_INLINE static F8 load_rows(const uint8_t* const* rows, size_t d)
    {
        return half ? load_half(reinterpret_cast<const uint16_t*>(rows[0]) + d)
                    : load(reinterpret_cast<const float*>(rows[0]) + d);
    }
    // Eight values, repeated to fill all lanes.
    KS_INLINE static F8 load_repeated(const float* p) { return load(p); }

    KS_INLINE static W8 words(const uint32_t* p)
    {
        return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
    }
    KS_INLINE static __m128i load_four(const uint32_t* p)
    {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    }
    // Repeats n words: a b a b ...
    template <uint32_t n>
    KS_INLINE static W8 repeat(const uint32_t* p)
    {
        if (n == 8) return words(p);
        if (n == 4) return {_mm256_broadcastsi128_si256(load_four(p))};
        return {_mm256_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
    }
    // Shifts lane i right by right[i].
    KS_INLINE static W8 shift_each(W8 a, const uint32_t* right)
    {
        return {_mm256_srlv_epi32(a.v, words(right).v)};
    }
    KS_INLINE static W8 load_bytes(const int8_t* p)
    {
        return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
    }
    KS_INLINE static void store_words(uint32_t* p, W8 a)
    {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v);
    }
    KS_INLINE static W8 each(uint32_t word) { return {_mm256_set1_epi32(int(word))}; }
    KS_INLINE static W8 sign_extend_byte(W8 a)
    {
        return {_mm256_srai_epi32(_mm256_slli_epi32(a.v, 24), 24)};
    }
    KS_INLINE static F8 to_float(W8 a) { return {_mm256_cvtepi32_ps(a.v)}; }
    KS_INLINE static W8 to_int(F8 a) { return {_mm256_cvtps_epi32(a.v)}; } // to nearest even
    // a * 2^n: adds n to the exponent.
    KS_INLINE static F8 times_power_of_two(F8 a, W8 n)
    {
        return {_mm256_castsi256_ps(
            _mm256_add_epi32(_mm256_castps_si256(a.v), _mm256_slli_epi32(n.v, 23)))};
    }

    // Converts the f16 values in the low and in the high 16 bits of each word.
    KS_INLINE static void half2(W8 w, F8* low, F8* high)
    {
        __m256i packed = _mm256_packus_epi32(_mm256_and_si256(w.v, _mm256_set1_epi32(0xffff)),
                                             _mm256_srli_epi32(w.v, 16));
        packed = _mm256_permute4x64_epi64(packed, 0xd8);
        *low = {_mm256_cvtph_ps(_mm256_castsi256_si128(packed))};
        *high = {_mm256_cvtph_ps(_mm256_extracti128_si256(packed, 1))};
    }

    // levels[b] for each byte b < 16
    KS_INLINE static W8 look_up(W8 bytes, const int8_t* levels)
    {
        __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels));
        return {_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), bytes.v)};
    }

    // table[i] for each word i
    KS_INLINE static W8 gather(const uint32_t* table, W8 i)
    {
        return {_mm256_i32gather_epi32(reinterpret_cast<const int*>(table), i.v, 4)};
    }
    // Negates byte i of each word where bit 4 j + i of `signs` is set, for j < 8.
    // Bits 4j .. 4j + 3 of the four signs are in byte j / 2 of each word.
    KS_INLINE static __m128i sign_pattern(int j)
    {
        return _mm_add_epi8(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c),
                            _mm_set1_epi8(int8_t(j / 2)));
    }
    KS_INLINE static int sign_bits(int j) { return j & 1 ? int(0x80402010u) : 0x08040201; }
    KS_INLINE static W8 negate_bytes(W8 bytes, W8 signs, int j)
    {
        const __m256i from = _mm256_broadcastsi128_si256(sign_pattern(j)),
                      bit = _mm256_set1_epi32(sign_bits(j));
        const __m256i mask =
            _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(signs.v, from), bit), bit);
        return {_mm256_sub_epi8(_mm256_xor_si256(bytes.v, mask), mask)};
    }

    // Four bytes in all words.
    KS_INLINE static __m256i four(const int8_t* a)
    {
        int32_t word;
        __builtin_memcpy(&word, a, 4);
        return _mm256_set1_epi32(word);
    }

    // The number of maddubs products that an int16 lane can sum, n divided by a power of two. A
    // product is at most max_q * 127 * 2.
    template <int max_q>
    static constexpr int summable(int n)
    {
        return max_q * 254 * n <= 32767 ? n : summable<max_q>(n / 2);
    }

    // Forces program order. The compiler would sum by pairs and run out of registers.
    KS_INLINE static void keep(__m256i& x) { asm("" : "+x"(x)); }

    // The signed bytes `first` and `first` + 1 of each word as two int16.
    KS_INLINE static __m128i pair_pattern(uint32_t first)
    {
        // Each int16 takes its byte as its high byte; 0x80 takes none.
        const int word = int(0x01800080 + 0x01000100 * first);
        return _mm_add_epi32(_mm_set1_epi32(word),
                             _mm_setr_epi32(0, 0x04000400, 0x08000800, 0x0c000c00));
    }
    KS_INLINE static W8 signed_pair(W8 bytes, uint32_t first)
    {
        const __m256i pattern = _mm256_broadcastsi128_si256(pair_pattern(first));
        return {_mm256_srai_epi16(_mm256_shuffle_epi8(bytes.v, pattern), 8)};
    }

    // Adds to dots[t], or sets it: per row, the sum over k of scale * q * a[t].q[from + k] for n
    // words of unsigned q <= max_q. `scale` has the same int16 in both halves of each word, |scale|
    // <= 128. With 16 values of q <= 63 a sum is below 2^24.
    template <int max_q, int n, uint32_t n_tokens, bool add>
    KS_INLINE static void dot_scaled(const W8* q, __m256i scale, const ActBlock* a, uint32_t from,
                                     W8* dots)
    {
        static_assert(max_q * 254 <= 32767, "one product must fit int16");
        constexpr int run = summable<max_q>(n);
        KS_UNROLL(8)
        for (int i = 0; i < n; i += run) {
            // The first product sets them. Compilers see that only in unrolled loops.
            __m256i parts[n_tokens] = {};
            KS_UNROLL(8)
            for (int j = i; j < i + run; j++) {
                KS_UNROLL(4)
                for (uint32_t t = 0; t < n_tokens; t++) {
                    __m256i product = _mm256_maddubs_epi16(q[j].v, four(a[t].q + from + 4 * j));
                    parts[t] = j == i ? product : _mm256_add_epi16(parts[t], product);
                    keep(parts[t]);
                }
            }
            KS_UNROLL(4)
            for (uint32_t t = 0; t < n_tokens; t++) {
                __m256i wide = _mm256_madd_epi16(parts[t], scale);
                dots[t].v = i == 0 && !add ? wide : _mm256_add_epi32(dots[t].v, wide);
            }
        }
    }

    // dots[t]: per row, the sum over k of q * a[t].q[from + k] for n words of unsigned q <= max_q.
    template <int max_q, int n, uint32_t n_tokens>
    KS_INLINE static void dot(const W8* q, const ActBlock* a, uint32_t from, W8* dots)
    {
        dot_scaled<max_q, n, n_tokens, false>(q, _mm256_set1_epi16(1), a, from, dots);
    }

    // dot of a whole block, whose halves have a factor each: the two int16 of each word.
    template <int max_q, uint32_t n_tokens>
    KS_INLINE static void dot_halves(const W8* q, W8 scale, const ActBlock* a, W8* dots)
    {
        const __m256i first = _mm256_blend_epi16(scale.v, _mm256_slli_epi32(scale.v, 16), 0xaa),
                      second = _mm256_blend_epi16(_mm256_srli_epi32(scale.v, 16), scale.v, 0xaa);
        dot_scaled<max_q, 4, n_tokens, false>(q, first, a, 0, dots);
        dot_scaled<max_q, 4, n_tokens, true>(q + 4, second, a, 16, dots);
    }

    // Signed q in -128..127: |q| times a with the sign of q. A product is at most 128 * 127 * 2 =
    // 32512, so each is widened alone.
    template <int n, uint32_t n_tokens>
    KS_INLINE static void dot_signed(const W8* q, const ActBlock* a, uint32_t from, W8* dots)
    {
        KS_UNROLL(8)
        for (int j = 0; j < n; j++) {
            __m256i magnitude = _mm256_abs_epi8(q[j].v);
            KS_UNROLL(4)
            for (uint32_t t = 0; t < n_tokens; t++) {
                __m256i product = _mm256_maddubs_epi16(
                    magnitude, _mm256_sign_epi8(four(a[t].q + from + 4 * j), q[j].v));
                __m256i wide = _mm256_madd_epi16(product, _mm256_set1_epi16(1));
                dots[t].v = j == 0 ? wide : _mm256_add_epi32(dots[t].v, wide);
                keep(dots[t].v);
            }
        }
    }

    // Per row: low 16 bits * pair[0] + high 16 bits * pair[1], as int16.
    KS_INLINE static W8 dot_pair(W8 halves, const int16_t* pair)
    {
        int32_t word;
        __builtin_memcpy(&word, pair, 4);
        return {_mm256_madd_epi16(halves.v, _mm256_set1_epi32(word))};
    }

    // Converts 32 int32 in -127..127 to int8, in order.
    KS_INLINE static void store_bytes(int8_t* p, const W8* a)
    {
        __m256i low = _mm256_packs_epi32(a[0].v, a[1].v), high = _mm256_packs_epi32(a[2].v, a[3].v);
        __m256i bytes =
            _mm256_packs_epi16(low, high); // dwords of the lanes: a0 a1 a2 a3 | a0 a1 a2 a3
        bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bytes);
    }

    KS_INLINE static int sum(W8 a)
    {
        __m128i x = _mm_add_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
        x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
        return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
    }

    KS_INLINE static float sum(F8 a)
    {
        __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
        x = _mm_add_ps(x, _mm_movehl_ps(x, x));
        return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
    }

    KS_INLINE static float largest(F8 a)
    {
        __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
        x = _mm_max_ps(x, _mm_movehl_ps(x, x));
        return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
    }

    // Lane i is the sum of a[i]: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)).
    KS_INLINE static F8 sums8(const F8* a)
    {
        __m256 s01 = _mm256_hadd_ps(a[0].v, a[1].v), s23 = _mm256_hadd_ps(a[2].v, a[3].v);
        __m256 s45 = _mm256_hadd_ps(a[4].v, a[5].v), s67 = _mm256_hadd_ps(a[6].v, a[7].v);
        __m256 low = _mm256_hadd_ps(s01, s23), high = _mm256_hadd_ps(s45, s67);
        return {_mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20),
                              _mm256_permute2f128_ps(low, high, 0x31))};
    }

    KS_INLINE static void transpose(F8* a)
    {
        __m256 t[8], u[8];
        KS_UNROLL(4)
        for (int i = 0; i < 8; i += 2) {
            t[i] = _mm256_unpacklo_ps(a[i].v, a[i + 1].v);
            t[i + 1] = _mm256_unpackhi_ps(a[i].v, a[i + 1].v);
        }
        KS_UNROLL(2)
        for (int i = 0; i < 8; i += 4) {
            u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
            u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
            u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
            u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
        }
        KS_UNROLL(4)
        for (int i = 0; i < 4; i++) {
            a[i].v = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
            a[i + 4].v = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
        }
    }

    // Loads words from arbitrary addresses. Words do not go through an array in memory: a vector
    // load right after narrow stores stalls, for lack of store forwarding.
    KS_INLINE static W8 gather_words(const uint8_t* const* at)
    {
        int x[8];
        KS_UNROLL(8)
        for (int i = 0; i < 8; i++) memcpy(x + i, at[i], 4);
        return {_mm256_setr_epi32(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7])};
    }
    // words[i]: word begin + i of each row
    KS_INLINE static void transpose_words(const uint32_t* const* rows, uint32_t begin, W8* words)
    {
        __m256i t[4];
        KS_UNROLL(4)
        for (int i = 0; i < 4; i++)
            t[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load_four(rows[i] + begin)),
                                           load_four(rows[4 + i] + begin), 1);
        const __m256i low01 = _mm256_unpacklo_epi32(t[0], t[1]),
                      high01 = _mm256_unpackhi_epi32(t[0], t[1]);
        const __m256i low23 = _mm256_unpacklo_epi32(t[2], t[3]),
                      high23 = _mm256_unpackhi_epi32(t[2], t[3]);
        words[0].v = _mm256_unpacklo_epi64(low01, low23);
        words[1].v = _mm256_unpackhi_epi64(low01, low23);
        words[2].v = _mm256_unpacklo_epi64(high01, high23);
        words[3].v = _mm256_unpackhi_epi64(high01, high23);
    }

    // Products of four signed bytes of each row with the integers of a query (byte_logits.h). Here
    // an integer has two digits of 16 bits; the low one is a signed byte. A word holds the digits
    // of dims 0 and 2, or of dims 1 and 3. High digits come first, then low digits.
    static constexpr uint32_t n_digits = 2, digit_words = 4;
    KS_INLINE static __m256i pair_dims(__m256i a) // words 0 and 2, words 1 and 3
    {
        return _mm256_blend_epi16(a, _mm256_shuffle_epi32(_mm256_slli_epi32(a, 16), 0xee), 0xaa);
    }
    KS_INLINE static void store_digit_pairs(const W8* integers, uint32_t (*digits)[4])
    {
        for (int i = 0; i < 4; i++) {
            const W8 low = sign_extend_byte(integers[i]), high = (integers[i] - low) >> 8;
            store_words(digits[2 * i],
                        {_mm256_unpacklo_epi64(pair_dims(high.v), pair_dims(low.v))});
        }
    }
    struct Bytes {
        __m256i even, odd;
        KS_INLINE explicit Bytes(W8 codes)
            : even(_mm256_srai_epi16(_mm256_slli_epi16(codes.v, 8), 8)),
              odd(_mm256_srai_epi16(codes.v, 8))
        {
        }
        KS_INLINE void add_products(const uint32_t* digits, W8* sums) const
        {
            KS_UNROLL(2)
            for (int k = 0; k < 2; k++) {
                sums[k].v = _mm256_add_epi32(
                    sums[k].v, _mm256_madd_epi16(even, _mm256_set1_epi32(int(digits[2 * k]))));
                sums[k].v = _mm256_add_epi32(
                    sums[k].v, _mm256_madd_epi16(odd, _mm256_set1_epi32(int(digits[2 * k + 1]))));
                keep(sums[k].v);
            }
        }
    };

    // Deinterleaves 16 floats: p[2i] and p[2i + 1].
    KS_INLINE static void load_pairs(const float* p, F8* even, F8* odd)
    {
        __m256 a = _mm256_loadu_ps(p), b = _mm256_loadu_ps(p + 8);
        __m256 low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
        even->v = _mm256_shuffle_ps(low, high, 0x88);
        odd->v = _mm256_shuffle_ps(low, high, 0xdd);
    }

    KS_INLINE static void store_pairs(float* p, F8 even, F8 odd)
    {
        __m256 low = _mm256_unpacklo_ps(even.v, odd.v), high = _mm256_unpackhi_ps(even.v, odd.v);
        _mm256_storeu_ps(p, _mm256_permute2f128_ps(low, high, 0x20));
        _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(low, high, 0x31));
    }
};

} // namespace
} // namespace ks
