// y = W x over tiles of eight rows. Tiles are read once, front to back, two at a time. Each group
// of 32 columns is unpacked into registers and multiplied with that group of every token. For up to
// matvec_tokens tokens (decode, limited by memory bandwidth) the sums stay in registers. For more
// tokens (prefill) they are in a small array in the L1 cache. A sum is never split, so the number
// of threads does not change a bit.
#pragma once

#include "kernels/cpu/matmul_float.h"
#include "kernels/cpu/unpack_few_bits.h"
#include "kernels/cpu/unpack_grids.h"

namespace ks
{

// add_dots adds the value of a group's products to sums[t], for n tokens. dots[t]: the integer dot
// product of the group's q with a[t].
template <class S, uint32_t n, int max_q>
KS_INLINE void add_dots(typename S::F* sums, const OffsetGroup<S, max_q>& w, const ActBlock* a,
                        const typename S::W* dots, uint32_t)
{
    KS_UNROLL(8)
    for (uint32_t t = 0; t < n; t++) {
        sums[t] = S::fma(w.d * S::broadcast(a[t].scale[0]), S::to_float(dots[t]), sums[t]);
        sums[t] = S::fma(w.m, S::broadcast(a[t].scaled_sum), sums[t]);
    }
}

// Here dots[t] and dots[n + t] are of the first and of the second half block.
template <class S, uint32_t n, int max_q>
KS_INLINE void add_dots(typename S::F* sums, const SmallGroup<S, max_q>& w, const ActBlock* a,
                        const typename S::W* dots, uint32_t)
{
    KS_UNROLL(8)
    for (uint32_t t = 0; t < n; t++) {
        typename S::F first = S::broadcast(a[t].scale[0]) * S::to_float(dots[t]);
        sums[t] = S::fma(w.d, S::fma(S::broadcast(a[t].scale[1]), S::to_float(dots[n + t]), first),
                         sums[t]);
        sums[t] = S::fma(w.m, S::broadcast(a[t].scaled_sum), sums[t]);
    }
}

template <class S, uint32_t n>
KS_INLINE void add_dots(typename S::F* sums, const SignedGroup<S>& w, const ActBlock* a,
                        const typename S::W* dots, uint32_t part)
{
    KS_UNROLL(8)
    for (uint32_t t = 0; t < n; t++)
        sums[t] = S::fma(w.d * S::broadcast(a[t].scale[part]), S::to_float(dots[t]), sums[t]);
}

// Here dots[t] is already the sum over both half blocks, each times its integer scale.
template <class S, uint32_t n, int max_q, int zero_bit>
KS_INLINE void add_dots(typename S::F* sums, const HalvesGroup<S, max_q, zero_bit>& w,
                        const ActBlock* a, const typename S::W* dots, uint32_t)
{
    KS_UNROLL(8)
    for (uint32_t t = 0; t < n; t++) {
        const typename S::W zeros = S::dot_pair(w.scale, a[t].sums) << zero_bit;
        sums[t] = S::fma(w.d * S::broadcast(a[t].scale[0]), S::to_float(dots[t] - zeros), sums[t]);
    }
}

template <class S, uint32_t n, int max_q>
KS_INLINE void add_dots(typename S::F* sums, const HalvesMinGroup<S, max_q>& w, const ActBlock* a,
                        const typename S::W* dots, uint32_t)
{
    KS_UNROLL(8)
    for (uint32_t t = 0; t < n; t++) {
        typename S::F scale = S::broadcast(a[t].scale[0]);
        sums[t] = S::fma(w.d * scale, S::to_float(dots[t]), sums[t]);
        sums[t] = S::fma(w.m * scale, S::to_float(S::dot_pair(w.offset, a[t].sums)), sums[t]);
    }
}

// sums[t] += w * a[t] for n tokens.
template <class S, uint32_t n, class Group>
KS_INLINE void add_group(typename S::F* sums, const Group& w, const ActBlock* a, uint32_t part)
{
    // Each element is set before it is read. Compilers see that only in unrolled loops.
    typename S::W dots[2 * n] = {};
    if constexpr (Group::kind == group_offset) {
        S::template dot<Group::max_q, 8, n>(w.q, a, 0, dots);
    } else if constexpr (Group::kind == group_small) {
        S::template dot<Group::max_q, 4, n>(w.q, a, 0, dots);
        S::template dot<Group::max_q, 4, n>(w.q + 4, a, 16, dots + n);
    } else if constexpr (Group::kind == group_signed) {
        S::template dot_signed<4, n>(w.q, a, 16 * part, dots);
    } else {
        S::template dot_halves<Group::max_q, n>(w.q, w.scale, a, dots);
    }
    add_dots<S, n>(sums, w, a, dots, part);
}

// Adds the products of blocks [begin, end) of the tiles at `tile` to sums (n_tokens, lanes).
template <class S, class F, uint32_t n_tokens>
KS_INLINE void add_blocks(const MatmulTask& m, uint32_t n_ahead, uint32_t tile, uint32_t begin,
                          uint32_t end, float* sums)
{
    constexpr uint32_t share = 4 * block_words<F> / (F::block / 32); // bytes of a group
    const uint32_t n_blocks = m.cols / F::block;
    Blocks<S> at = first_blocks<S, F>(m, tile);
    at.first += begin * block_words<F>;
    typename S::F sum[n_tokens];
    KS_UNROLL(8)
    for (uint32_t t = 0; t < n_tokens; t++) sum[t] = S::load(sums + S::lanes * t);
    const uint32_t act_stride = n_tokens == 1 ? 1 : m.n_tokens;
    const ActBlock* acts = m.acts + begin * (F::block / 32) * act_stride;
    for (uint32_t b = begin; b < end; b++) {
        const Blocks<S> ahead = blocks_ahead<S, F>(at, n_ahead, b, n_blocks, 2);
        Unpack<S, F>::groups(at, [&](const auto& w, uint32_t g, uint32_t part) KS_INLINED {
            if (part == 0) prefetch_blocks<S>(m, ahead, share * g, share * (g + 1));
            add_group<S, n_tokens>(sum, w, acts + g * act_stride, part);
        });
        at.first += block_words<F>;
        acts += F::block / 32 * act_stride;
    }
    KS_UNROLL(8)
    for (uint32_t t = 0; t < n_tokens; t++) S::store(sums + S::lanes * t, sum[t]);
}

// Products of up to n_tokens tokens whose sums stay in registers for 256 columns. Two tiles are
// read at a time: more reads are in flight, and both profit from the activations in the L1 cache.
// noinline, here and below: the compiler then allocates registers for one loop at a time.
template <class S, class F, uint32_t n_tokens>
__attribute__((noinline)) void matvec(const MatmulTask& m)
{
    constexpr uint32_t n_tiles = Blocks<S>::n_tiles, n_turns = 2 / n_tiles,
                       step = F::block < 256 ? 256 / F::block : 1;
    const uint32_t n_blocks = m.cols / F::block, n_ahead = prefetch_distance<F>(m);
    for (uint32_t tile = 0; tile < m.n_tiles; tile += 2) {
        const uint32_t end = tile + 2 < m.n_tiles ? tile + 2 : m.n_tiles;
        float sums[n_turns][n_tokens * S::lanes] = {};
        for (uint32_t b = 0; b < n_blocks; b += step)
            for (uint32_t i = tile; i < end; i += n_tiles)
                add_blocks<S, F, n_tokens>(m, n_ahead, i, b,
                                           b + step < n_blocks ? b + step : n_blocks,
                                           sums[(i - tile) / n_tiles]);
        for (uint32_t i = tile; i < end; i += n_tiles)
            for (uint32_t t = 0; t < n_tokens && t < m.n_tokens; t++)
                write_rows<S>(m, i, t, S::load(sums[(i - tile) / n_tiles] + S::lanes * t));
    }
}

// add_group with sums in memory, (n, lanes).
template <class S, uint32_t n, class Group>
KS_INLINE void add_to_stored(float* sums, const Group& w, const ActBlock* a, uint32_t part)
{
    typename S::F loaded[n];
    KS_UNROLL(8)
    for (uint32_t t = 0; t < n; t++) loaded[t] = S::load(sums + S::lanes * t);
    add_group<S, n>(loaded, w, a, part);
    KS_UNROLL(8)
    for (uint32_t t = 0; t < n; t++) S::store(sums + S::lanes * t, loaded[t]);
}

// Adds the products of one group with n_tokens tokens.
template <class S, class Group>
KS_INLINE void accumulate_tokens(float* sums, const Group& w, const ActBlock* a, uint32_t part,
                                 uint32_t n_tokens)
{
    // A signed group has half as many weights, which leaves registers for four tokens.
    constexpr uint32_t n = Group::kind == group_signed ? 4 : S::stored_tokens;
    for (; n_tokens >= n; n_tokens -= n, a += n, sums += n * S::lanes)
        add_to_stored<S, n>(sums, w, a, part);
    for (; n_tokens; n_tokens--, a++, sums += S::lanes) add_to_stored<S, 1>(sums, w, a, part);
}

// accumulate_tokens as a call. The eight groups of a large block share one function, and so do
// formats with the same kind of group. That halves the compile time at no measurable cost. Small
// blocks are too short for a call.
template <class S, class Group>
__attribute__((noinline)) void accumulate_tokens_outlined(float* sums, const Group& group,
                                                          const ActBlock* a, uint32_t part,
                                                          uint32_t n_tokens)
{
    const Group w = group; // a copy in registers, because stores could alias `group`
    accumulate_tokens<S>(sums, w, a, part, n_tokens);
}

template <class S, class F>
__attribute__((noinline)) void matmul_tiled(const MatmulTask& m)
{
    static_assert(S::lanes <= max_lanes, "m.sums has max_lanes sums of a token");
    constexpr uint32_t share = 4 * block_words<F> / (F::block / 32); // bytes of a group
    const uint32_t n_blocks = m.cols / F::block, n_ahead = prefetch_distance<F>(m);
    for (uint32_t tile = 0; tile < m.n_tiles; tile += Blocks<S>::n_tiles) {
        Blocks<S> at = first_blocks<S, F>(m, tile);
        for (uint32_t t = 0; t < m.n_tokens; t++) S::store(m.sums + S::lanes * t, S::zero());
        const ActBlock* acts = m.acts;
        for (uint32_t b = 0; b < n_blocks; b++) {
            const Blocks<S> ahead = blocks_ahead<S, F>(at, n_ahead, b, n_blocks, at.n_tiles);
            prefetch_rows(m, tile, b, n_blocks);
            Unpack<S, F>::groups(at, [&](const auto& w, uint32_t g, uint32_t part) KS_INLINED {
                if (part == 0) prefetch_blocks<S>(m, ahead, share * g, share * (g + 1));
                const ActBlock* a = acts + size_t(g) * m.n_tokens;
                if constexpr (F::block > 32)
                    accumulate_tokens_outlined<S>(m.sums, w, a, part, m.n_tokens);
                else
                    accumulate_tokens<S>(m.sums, w, a, part, m.n_tokens);
            });
            at.first += block_words<F>;
            acts += size_t(F::block / 32) * m.n_tokens;
        }
        for (uint32_t t = 0; t < m.n_tokens; t++)
            write_rows<S>(m, tile, t, S::load(m.sums + S::lanes * t));
    }
}

template <class S, class F>
void matmul_quantized(const MatmulTask& m)
{
    if (m.n_tokens == 1) return matvec<S, F, 1>(m);
    if constexpr (S::matvec_tokens >= 4) {
        if (m.n_tokens == 2) return matvec<S, F, 2>(m);
        if (m.n_tokens == 3) return matvec<S, F, 3>(m);
        if (m.n_tokens == 4) return matvec<S, F, 4>(m);
    }
    if constexpr (S::matvec_tokens == 8)
        if (m.n_tokens <= 8) return matvec<S, F, 8>(m);
    matmul_tiled<S, F>(m);
}

template <class S, class F>
constexpr MatmulKernel matmul_kernel()
{
    if constexpr (F::block == 1)
        return matmul_float<S, F>;
    else
        return matmul_quantized<S, F>;
}

// Four blocks at a time: their eight halves share the vectors of factors and of sums.
template <class S>
void quantize(const float* x, uint32_t cols, ActBlock* out, uint32_t out_stride, bool half_scales)
{
    for (uint32_t left = cols / 32, n; left; left -= n, x += 32 * n, out += n * out_stride) {
        n = left < 4 ? left : 4;
        typename S::F8 largest[8];
        KS_UNROLL(8)
        for (uint32_t h = 0; h < 8; h++) {
            const float* half = x + 16 * (h < 2 * n ? h : 0);
            largest[h] = S::max(S::abs(S::load(half)), S::abs(S::load(half + 8)));
        }
        if (!half_scales) {
            KS_UNROLL(4)
            for (uint32_t h = 0; h < 8; h += 2)
                largest[h] = largest[h + 1] = S::max(largest[h], largest[h + 1]);
        }
        S::transpose(largest);
        KS_UNROLL(8)
        for (uint32_t h = 1; h < 8; h++) largest[0] = S::max(largest[0], largest[h]);
        // 127 / largest must be finite; smaller halves become zero.
        float factors[8], scales[8], sums[8], products[8];
        S::store(factors, S::zero_where_less(S::broadcast(127.f) / largest[0], largest[0],
                                             S::broadcast(1e-30f)));
        const typename S::F8 scale = largest[0] * S::broadcast(1.f / 127.f);
        S::store(scales, scale);

        typename S::F8 parts[8] = {};
        for (uint32_t h = 0; h < 2 * n; h += 2) {
            typename S::W8 q[4];
            KS_UNROLL(4)
            for (uint32_t i = 0; i < 4; i++)
                q[i] = S::to_int(S::load(x + 16 * h + 8 * i) * S::broadcast(factors[h + i / 2]));
            S::store_bytes(out[h / 2 * out_stride].q, q);
            parts[h] = S::to_float(q[0] + q[1]);
            parts[h + 1] = S::to_float(q[2] + q[3]);
        }
        const typename S::F8 sum = S::sums8(parts); // of integers, exact
        S::store(sums, sum);
        S::store(products, scale * sum);
        for (uint32_t h = 0; h < 2 * n; h += 2) {
            ActBlock& block = out[h / 2 * out_stride];
            for (uint32_t i = 0; i < 2; i++) {
                block.scale[i] = scales[h + i];
                block.sums[i] = int16_t(sums[h + i]);
            }
            block.scaled_sum = products[h] + products[h + 1];
        }
    }
}

// Runs the fastest dot product, on a group of 4-bit levels, and returns the number of products. The
// second half of the group repeats the first, so all operands fit into registers.
template <class S>
uint64_t dot_peak(uint32_t n_rounds)
{
    constexpr uint32_t n_words = 8, n_tokens = S::matvec_tokens;
    uint32_t levels[n_words / 2][S::lanes];
    ActBlock acts[n_tokens];
    memset(levels, 7, sizeof levels);
    memset(acts, 1, sizeof acts);
    asm volatile("" : : "r"(levels), "r"(acts) : "memory"); // hides the values from the compiler
    typename S::W q[n_words], total = S::each(0);
    KS_UNROLL(8)
    for (uint32_t j = 0; j < n_words; j++) q[j] = S::words(levels[j % (n_words / 2)]);
    for (uint32_t i = 0; i < n_rounds; i++) {
        asm volatile("" : : "r"(acts) : "memory"); // hides that all rounds are equal
        typename S::W dots[n_tokens] = {};
        S::template dot<15, n_words, n_tokens>(q, acts, 0, dots);
        KS_UNROLL(8)
        for (uint32_t t = 0; t < n_tokens; t++) total = total + dots[t];
    }
    float sums[S::lanes];
    S::store(sums, S::to_float(total));
    asm volatile("" : : "r"(sums) : "memory");
    return uint64_t(n_rounds) * n_tokens * S::lanes * n_words * 4;
}

template <class S, class F>
constexpr bool has_half_scales()
{
    if constexpr (F::block == 1)
        return true; // such a format uses no ActBlock
    else
        return Unpack<S, F>::Group::half_scales;
}

// The kernel table of KS_SIMD, whose activations are quantised with Eight, of eight lanes.
#define KS_MATMUL_ENTRY(name) matmul_kernel<KS_SIMD, format_##name>(),
#define KS_HALVES_ENTRY(name) has_half_scales<KS_SIMD, format_##name>(),
#define KS_MATMUL_KERNELS(Eight)                                                                   \
    {                                                                                              \
        quantize<Eight>, {FORMATS(KS_HALVES_ENTRY)}, {FORMATS(KS_MATMUL_ENTRY)}, dot_peak<KS_SIMD> \
    }

} // namespace ks
