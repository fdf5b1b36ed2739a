// polar with vectors. Bits equal the specification's (kernels/common/codecs/polar.h), except for
// logits (polar_fold.h). The angles of one level lie side by side, for all blocks of a row.
#pragma once

#include "kernels/cpu/codecs/polar_fold.h"
#include "kernels/cpu/codecs/polar_row.h"

namespace ks
{

// Codes of level 1 of eight pairs.
template <class S>
KS_INLINE typename S::W8 polar_first_codes(typename S::F8 u, typename S::F8 v)
{
    using W8 = typename S::W8;
    const typename S::F8 x = S::abs(u), y = S::abs(v);
    const W8 sector = S::each(0) - S::less(x, y) - S::less(S::broadcast(0.41421356f) * x, y) -
                      S::less(S::broadcast(2.4142136f) * x, y);
    return sector | (S::less(u, S::zero()) & S::each(4)) | (S::less(v, S::zero()) & S::each(8));
}

template <class S>
void encode_polar(const float* x, uint32_t d, uint32_t* words, uint8_t* tail)
{
    using F8 = typename S::F8;
    using W8 = typename S::W8;
    RowWords row(polar_bytes(d));
    // Squared radii of a level and of the next level.
    float squares[codec_max_dim / 2], next[codec_max_dim / 2];
    for (uint32_t base = 0, size; base < d / 2; base += size) {
        const PlaneGroup<4> group(d / 2 - base);
        size = group.size;
        W8 codes = S::each(0);
        for (uint32_t j = 0; j < size / 8; j++) {
            float values[16];
            S::store(values, CodedValues<S>(x + 2 * base + 16 * j).v);
            S::store(values + 8, CodedValues<S>(x + 2 * base + 16 * j + 8).v);
            F8 u, v;
            S::load_pairs(values, &u, &v);
            S::store(squares + base + 8 * j, u * u + v * v);
            codes = codes | (polar_first_codes<S>(u, v) << int(group.step * j));
        }
        group.template write<S>(row.word + base / 8, codes);
    }
    uint32_t n = d / 2;
    for (uint32_t level = 2; level <= 4; level++) {
        n /= 2;
        for (uint32_t i = 2 * n; i < (2 * n + 15) / 16 * 16 && i < codec_max_dim / 2; i++)
            squares[i] = 0.f;
        for (uint32_t base = 0; base < n; base += 8) {
            F8 low, high;
            S::load_pairs(squares + 2 * base, &low, &high);
            W8 code = S::each(0);
            for (uint32_t q = 0; q < 3; q++)
                code = code - S::less(S::broadcast(polar_square(level, q)) * low, high);
            uint32_t codes[8];
            S::store_words(codes, code);
            S::store(next + base, low + high);
            for (uint32_t j = 0; j < 8 && base + j < n; j++)
                put_field(row.word, polar_bit(d, level, base + j), codes[j]);
        }
        memcpy(squares, next, 4 * n);
    }
    for (uint32_t b = 0; b < d / 16; b++) {
        const uint32_t radius = half_root(squares[b], 1.f);
        if (radius == 0) return encode_row<codec_polar>(x, d, words, tail);
        put_field(row.word, 2 * d + 16 * b, radius);
    }
    row.store(words, tail);
}

// Cosine and sine by level and code.
struct PolarFactors {
    float of[3][2][4];
    PolarFactors()
    {
        for (uint32_t level = 2; level <= 4; level++)
            for (uint32_t q = 0; q < 4; q++)
                for (uint32_t sine = 0; sine < 2; sine++)
                    of[level - 2][sine][q] = polar_factor(level, q, sine != 0);
    }
};

template <class S>
void decode_polar(const uint32_t* words, const uint8_t* tail, uint32_t d, float* x)
{
    using F8 = typename S::F8;
    using W8 = typename S::W8;
    static const PolarFactors factors;
    const RowWords row(polar_bytes(d), words, tail);
    float radii[2][codec_max_dim / 2]; // of a level and of the level below, alternating
    uint32_t n = d / 16;
    for (uint32_t b = 0; b < n; b++) radii[0][b] = row.scale_at(2 * d + 16 * b);
    const float* from = radii[0];
    for (uint32_t level = 4; level > 1; level--, n *= 2) {
        float* to = from == radii[0] ? radii[1] : radii[0];
        const uint32_t first = polar_begin(d, level);
        for (uint32_t j = 0; j < n; j++) {
            const uint32_t code = row.word[(first + 2 * j) / 32] >> ((first + 2 * j) & 31) & 3u;
            to[2 * j] = from[j] * factors.of[level - 2][0][code];
            to[2 * j + 1] = from[j] * factors.of[level - 2][1][code];
        }
        from = to;
    }
    const float first[8] = {polar_first_factor(0, false),
                            polar_first_factor(1, false),
                            polar_first_factor(2, false),
                            polar_first_factor(3, false),
                            0,
                            0,
                            0,
                            0};
    for (uint32_t base = 0, size; base < d / 2; base += size) {
        const PlaneGroup<4> group(d / 2 - base);
        size = group.size;
        const W8 codes = group.template read<S>(row.word + base / 8);
        for (uint32_t j = 0; j < size / 8; j++) {
            const W8 code = codes >> int(group.step * j), sector = code & S::each(3),
                     one = S::each(1);
            const F8 r = S::load(from + base + 8 * j);
            // n = 2^8 adds 2^31 to the bits: it flips the sign.
            const F8 cosine =
                S::times_power_of_two(S::lookup8(first, sector), ((code >> 2) & one) << 8);
            const F8 sine = S::times_power_of_two(S::lookup8(first, S::each(3) - sector),
                                                  ((code >> 3) & one) << 8);
            S::store_pairs(x + 2 * base + 16 * j, r * cosine, r * sine);
        }
    }
}

// Decodes whole vectors of rows. Rows left over, and heads that are no multiple of 64, are decoded
// one by one.
template <class S>
void decode_polar_rows(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n,
                       uint32_t d, float* x, const PrefetchRows& ahead)
{
    uint32_t i = decode_polar_lanes<typename S::Wide>(from, rows, first, n, d, x, ahead);
    i += decode_polar_lanes<S>(from, rows + i, first, n - i, d, x + size_t(i) * d, after(ahead, i));
    for (; i < n; i++) {
        const size_t row = rows[i] - first;
        prefetch(ahead, i);
        decode_polar<S>(from.words + row * from.row_words, from.tails + row * from.row_tail, d,
                        x + size_t(i) * d);
    }
}

// Sixteen lanes decode one row at a time, since vectors of rows would need a transpose.
template <class S>
uint32_t polar_outputs(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n,
                       uint32_t d, const float* weights, uint32_t n_heads, float* sums,
                       uint32_t stride, const PrefetchRows& ahead)
{
    if constexpr (S::Wide::lanes == 16) {
        using Row = PolarRow<S>;
        const auto outputs = d == 64    ? row_outputs<Row, 64>
                             : d == 128 ? row_outputs<Row, 128>
                             : d == 256 ? row_outputs<Row, 256>
                                        : row_outputs<Row, 0>;
        return outputs(from, rows, first, n, d, weights, n_heads, sums, stride, ahead);
    } else {
        return polar_lane_outputs<S>(from, rows, first, n, d, weights, n_heads, sums, stride,
                                     ahead);
    }
}

template <class S>
struct CpuCodec<codec_polar, S> {
    static constexpr EncodeKernel encode = encode_polar<S>;
    static constexpr DecodeKernel decode = decode_polar_rows<S>;
    static constexpr PrepareKernel prepare = fold_first<S>;
    static constexpr LogitsKernel logits = polar_logits<S>;
    static constexpr OutputsKernel outputs = polar_outputs<S>;
};

} // namespace ks
