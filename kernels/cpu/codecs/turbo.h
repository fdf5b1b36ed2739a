// The turbo codecs with vectors. Bits equal the specification's (kernels/common/codecs/turbo.h).
#pragma once

#include "kernels/cpu/codecs/sums.h"

namespace ks
{

template <class S, uint32_t ranks, bool least_squares>
void encode_turbo(const float* x, uint32_t d, uint32_t* words, uint8_t* tail)
{
    using F8 = typename S::F8;
    using W8 = typename S::W8;
    constexpr uint32_t bits = ranks == 8 ? 4 : 2, sign_bit = ranks == 8 ? 3 : 1;
    RowWords row(turbo_bytes(ranks, d));
    F8 sums = S::zero(), squares = S::zero(), products = S::zero(), thresholds[ranks - 1];
    for (uint32_t i = 0; i < d; i += 8) {
        const F8 m = CodedValues<S>(x + i).magnitude;
        sums = sums + m * m;
    }
    const float sum = S::sum(sums);
    float magnitudes[8] = {};
    for (uint32_t t = 0; t < ranks; t++) magnitudes[t] = turbo_magnitude(ranks, t);
    for (uint32_t t = 0; t + 1 < ranks; t++)
        thresholds[t] = S::broadcast(turbo_square(ranks, t) * sum);
    for (uint32_t base = 0, size; base < d; base += size) {
        const PlaneGroup<bits> group(d - base);
        const PlaneGroup<1> sign_group(d - base);
        size = group.size;
        W8 codes = S::each(0), signs = S::each(0);
        for (uint32_t j = 0; j < size / 8; j++) {
            const CodedValues<S> value(x + base + 8 * j);
            const F8 square = value.magnitude * value.magnitude * S::broadcast(float(d));
            W8 rank = S::each(0);
            KS_UNROLL(8)
            for (uint32_t t = 0; t + 1 < ranks; t++) rank = rank - S::less(thresholds[t], square);
            const F8 c = S::lookup8(magnitudes, rank);
            squares = squares + c * c;
            products = products + value.magnitude * c;
            const W8 sign = S::less(value.v, S::zero()) >> 31;
            codes = codes |
                    ((ranks == 4 ? rank : rank | (sign << int(sign_bit))) << int(group.step * j));
            if (ranks == 4) signs = signs | (sign << int(sign_group.step * j));
        }
        group.template write<S>(row.word + base * bits / 32, codes);
        if (ranks == 4) sign_group.template write<S>(row.word + (2 * d + base) / 32, signs);
    }
    const float norm = S::sum(squares);
    const uint32_t g = least_squares ? half_quotient(S::sum(products), norm) : half_root(sum, norm);
    if (g == 0) clear_row(row.word, row.bytes);
    put_field(row.word, 8 * row.bytes - 16, g);
    row.store(words, tail);
}

template <class S, uint32_t ranks>
void decode_turbo(const uint32_t* words, const uint8_t* tail, uint32_t d, float* x)
{
    using W8 = typename S::W8;
    constexpr uint32_t bits = ranks == 8 ? 4 : 2, sign_bit = ranks == 8 ? 3 : 1;
    const RowWords row(turbo_bytes(ranks, d), words, tail);
    const typename S::F8 scale = S::broadcast(row.scale_at(8 * row.bytes - 16));
    float magnitudes[8] = {};
    for (uint32_t t = 0; t < ranks; t++) magnitudes[t] = turbo_magnitude(ranks, t);
    for (uint32_t base = 0, size; base < d; base += size) {
        const PlaneGroup<bits> group(d - base);
        const PlaneGroup<1> sign_group(d - base);
        size = group.size;
        const W8 codes = group.template read<S>(row.word + base * bits / 32);
        W8 signs = S::each(0);
        if (ranks == 4) signs = sign_group.template read<S>(row.word + (2 * d + base) / 32);
        for (uint32_t j = 0; j < size / 8; j++) {
            const W8 code = codes >> int(group.step * j);
            const W8 sign = ranks == 4 ? signs >> int(sign_group.step * j) : code >> int(sign_bit);
            const typename S::F8 c = S::lookup8(magnitudes, code & S::each(ranks - 1));
            // n = 2^8 adds 2^31 to the bits: it flips the sign.
            S::store(x + base + 8 * j, scale * S::times_power_of_two(c, (sign & S::each(1)) << 8));
        }
    }
}

template <class S, uint32_t ranks>
struct TurboRow : RowDecoder {
    using V = typename S::Wide;
    using W = typename V::W;
    static constexpr DecodeRowKernel any_dim = decode_turbo<S, ranks>;
    // Indexed by the low four bits of a code. Magnitudes only, if signs have a plane of their own.
    float levels[16];
    KS_INLINE TurboRow()
    {
        for (uint32_t i = 0; i < 16; i++) {
            levels[i] = ranks == 2 ? turbo_level(2, i % 4) : turbo_magnitude(ranks, i % ranks);
            if (ranks == 8 && i >= 8) levels[i] = -levels[i];
        }
    }
    struct Values {
        const float* levels;
        W codes, signs;
        typename V::F scale; // with sixteen lanes: the products of the scale with all levels
        Values() = default;
        KS_INLINE Values(const TurboRow& row, const OneRow<V>& in, uint32_t d, uint32_t base)
            : levels(row.levels),
              codes(in.template plane<(ranks == 8 ? 4 : 2)>(base / (ranks == 8 ? 8 : 16))),
              signs(codes), scale(in.tail_half())
        {
            if constexpr (ranks == 4) signs = in.template plane<1>(d / 16 + base / 32);
            if constexpr (V::lanes == 16) scale = scale * V::load(levels);
        }
        KS_INLINE typename V::F at(int nth) const
        {
            const int bit = nth * int(V::lanes) / 2;
            if constexpr (V::lanes == 16) {
                const typename V::F x = V::pick_of(scale, codes >> bit);
                return ranks == 4 ? V::negate(x, signs << (31 - bit)) : x;
            } else {
                const W code = codes >> bit;
                const typename V::F x =
                    ranks == 8 ? V::lookup16_signed(levels, code) : V::lookup8(levels, code);
                return scale * (ranks == 4 ? V::negate(x, signs << (31 - bit)) : x);
            }
        }
    };
};

template <class S, uint32_t ranks>
struct RowLanes<TurboRow<S, ranks>> {
    using V = typename S::Wide;
    static constexpr uint32_t bits = ranks == 8 ? 4 : 2;
    typename V::F levels, scale;
    uint32_t base, d;
    static uint32_t bytes(uint32_t d) { return turbo_bytes(ranks, d); }
    KS_INLINE RowLanes(const LaneRows<V>& row, uint32_t dims, uint32_t from) : base(from), d(dims)
    {
        float all[16];
        for (uint32_t i = 0; i < 16; i++) all[i] = turbo_level(ranks, i % (2 * ranks));
        levels = V::load(all);
        typename V::F unused;
        V::half2(row.word[turbo_bytes(ranks, d) / 4], &scale, &unused);
    }
    KS_INLINE typename V::F at(const LaneRows<V>& row, uint32_t i, uint32_t j) const
    {
        typename V::W code = lane_code<V, bits>(row, base * bits / 32, i, j);
        if constexpr (ranks == 4) {
            const int sign = int(4 * j + i / 2) - 2;
            const typename V::W signs = row.word[d / 16 + base / 32 + i % 2];
            code = V::chosen(V::each(4), sign < 0 ? signs << -sign : signs >> sign, code);
        }
        return scale * V::pick_of(levels, code);
    }
};

template <class S, uint32_t ranks, bool least_squares>
struct TurboCodec {
    using Row = TurboRow<S, ranks>;
    static constexpr EncodeKernel encode = encode_turbo<S, ranks, least_squares>;
    static constexpr DecodeKernel decode = decode_rows<Row>;
    static constexpr PrepareKernel prepare = nullptr;
    static constexpr LogitsKernel logits = row_logits<Row>;
    static constexpr OutputsKernel outputs = row_outputs<Row>;
};
template <class S>
struct CpuCodec<codec_turbo4, S> : TurboCodec<S, 8, false> {
};
template <class S>
struct CpuCodec<codec_turbo3, S> : TurboCodec<S, 4, false> {
};
template <class S>
struct CpuCodec<codec_turbo2, S> : TurboCodec<S, 2, false> {
};
template <class S>
struct CpuCodec<codec_turbo2v, S> : TurboCodec<S, 2, true> {
};

} // namespace ks
