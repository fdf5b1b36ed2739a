// Logits of q8 keys by int8 products. A query's 32 dims that share a block become 23-bit integers
// with one step, then three digits of base 256, or two of 16 bits. Integer sums have no order, so
// bits are the same on every processor. They are as exact as float sums, unless one value is far
// larger than the others of its block. A lane is a row.
#pragma once

#include "kernels/cpu/codecs/lanes.h"

namespace ks
{

constexpr float kMostOfQuery = 4194303; // the largest integer that S::to_int rounds exactly

// One block of one query: digits for the codes of four dims, the start value of the sums, and the
// step.
template <class S>
struct ByteQuery {
    uint32_t digits[8][S::digit_words];
    uint32_t start[3];
    float step;
};

// Writes 32 integers as three signed bytes each, highest first. `above` is the offset that an
// instruction adds to the codes; the sums start below zero to cancel it.
template <class S, uint32_t above>
KS_INLINE void put_bytes(typename S::W8* integers, uint32_t (*digits)[3], uint32_t* start)
{
    for (int k = 2; k >= 0; k--) {
        int8_t bytes[32];
        typename S::W8 digit[4];
        for (uint32_t i = 0; i < 4; i++) {
            digit[i] = S::sign_extend_byte(integers[i]);
            integers[i] = (integers[i] - digit[i]) >> 8;
        }
        S::store_bytes(bytes, digit);
        for (uint32_t i = 0; i < 8; i++) memcpy(&digits[i][k], bytes + 4 * i, 4);
        start[k] = 0 - above * uint32_t(S::sum((digit[0] + digit[1]) + (digit[2] + digit[3])));
    }
}

// Writes ByteQuery (d / 32, n_heads) to `to`, from q (n_heads, d).
template <class S>
void byte_queries(const float* q, uint32_t n_heads, uint32_t d, float* to)
{
    static_assert(4 * sizeof(ByteQuery<S>) <= 32 * kPreparedFloats * sizeof(float),
                  "32 dims of four queries");
    if (d % 64) return;
    ByteQuery<S>* query = reinterpret_cast<ByteQuery<S>*>(to);
    for (uint32_t base = 0; base < d; base += 32)
        for (uint32_t h = 0; h < n_heads; h++, query++) {
            const float* values = q + size_t(h) * d + base;
            typename S::F8 tops = S::zero(), zeros = S::zero();
            for (uint32_t i = 0; i < 32; i += 8) {
                const typename S::F8 x = S::load(values + i);
                tops = S::max(S::abs(x), tops);
                zeros = S::fma(x, S::zero(), zeros); // NaN if a value is not finite
            }
            const float top = S::largest(tops), scale = top > 1e-30f ? kMostOfQuery / top : 0;
            typename S::W8 integers[4];
            for (uint32_t i = 0; i < 4; i++)
                integers[i] = S::to_int(S::load(values + 8 * i) * S::broadcast(scale));
            if constexpr (S::n_digits == 2)
                S::store_digit_pairs(integers, query->digits);
            else
                put_bytes<S, S::above_code>(integers, query->digits, query->start);
            query->step = top * (1 / kMostOfQuery) + S::sum(zeros);
        }
}

// Logits of rows of a multiple of 64 values. known_d as in decode_groups.
template <class S, uint32_t n_heads, uint32_t known_d>
void byte_logits(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n,
                 uint32_t d, const float* queries, float* logits, const PrefetchRows& ahead)
{
    using V = typename S::Wide;
    using F = typename V::F;
    using W = typename V::W;
    if (known_d) d = known_d;
    for (uint32_t begin = 0; begin < n; begin += V::lanes) {
        const uint32_t here = n - begin < V::lanes ? n - begin : V::lanes;
        const RowsAt<V> at(from, FullRows<V>(rows + begin, here).at, first,
                           codec_q8::row_bytes(d) / 4);
        prefetch(ahead, begin, here);
        const ByteQuery<S>* query = reinterpret_cast<const ByteQuery<S>*>(queries);
        F all[n_heads], scale[2];
        KS_UNROLL(4)
        for (uint32_t h = 0; h < n_heads; h++) all[h] = V::zero();
        for (uint32_t base = 0; base < d; base += 64) {
            V::half2(at.word(d / 4 + base / 64), &scale[0], &scale[1]);
            KS_UNROLL(2)
            for (uint32_t b = 0; b < 2; b++, query += n_heads) {
                W sums[n_heads][S::n_digits];
                KS_UNROLL(4)
                for (uint32_t h = 0; h < n_heads; h++) KS_UNROLL(3)
                for (uint32_t k = 0; k < S::n_digits; k++)
                    sums[h][k] = V::each(S::n_digits == 2 ? 0 : query[h].start[k]);
                KS_UNROLL(2)
                for (uint32_t quad = 0; quad < 8; quad += 4) {
                    W words[4]; // four words at a time, to save registers
                    V::transpose_words(at.row, base / 4 + 8 * b + quad, words);
                    KS_UNROLL(4)
                    for (uint32_t i = 0; i < 4; i++) {
                        const typename S::Bytes bytes(words[i]);
                        KS_UNROLL(4)
                        for (uint32_t h = 0; h < n_heads; h++)
                            bytes.add_products(query[h].digits[quad + i], sums[h]);
                    }
                }
                KS_UNROLL(4)
                for (uint32_t h = 0; h < n_heads; h++) {
                    const W* s = sums[h];
                    const F high = V::to_float(S::n_digits == 2 ? s[0] : (s[0] << 8) + s[1]),
                            low = V::to_float(s[S::n_digits - 1]);
                    all[h] = V::fma(V::fma(V::broadcast(256), high, low),
                                    scale[b] * V::broadcast(query[h].step), all[h]);
                }
            }
        }
        for (uint32_t h = 0; h < n_heads; h++)
            V::store_first(logits + h * kAttentionTile + begin, all[h], here);
    }
}

template <class S, uint32_t known_d>
KS_INLINE auto byte_logits_of(uint32_t n_heads)
{
    return n_heads == 1   ? byte_logits<S, 1, known_d>
           : n_heads == 2 ? byte_logits<S, 2, known_d>
           : n_heads == 3 ? byte_logits<S, 3, known_d>
                          : byte_logits<S, 4, known_d>;
}

template <class S>
uint32_t q8_logits(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n,
                   uint32_t d, const float* queries, uint32_t n_heads, float* logits, float*,
                   const PrefetchRows& ahead)
{
    if (d % 64) return 0;
    const auto kernel = d == 64    ? byte_logits_of<S, 64>(n_heads)
                        : d == 128 ? byte_logits_of<S, 128>(n_heads)
                        : d == 256 ? byte_logits_of<S, 256>(n_heads)
                                   : byte_logits_of<S, 0>(n_heads);
    kernel(from, rows, first, n, d, queries, logits, ahead);
    return n;
}

} // namespace ks
