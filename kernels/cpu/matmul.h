// y = W x over tiles of eight rows. A tile is read once, front to back. Each group of 32 columns is
// unpacked into registers and multiplied with that group of every token. For up to matvec_tokens
// tokens (decode, limited by memory bandwidth) the sums stay in registers. For more tokens
// (prefill) they are in a small array in the L1 cache. A sum is never split, so the number of
// threads does not change a bit.
#pragma once

#include "kernels/cpu/unpack_grids.h"

namespace ks
{

// add_dots adds the value of a group's products to sums[t], for n tokens. dots[t]: the integer dot
// product of the group's q with a[t].
template <class S, uint32_t n, int max_q>
KS_INLINE void add_dots(typename S::F8* sums, const OffsetGroup<S, max_q>& w, const ActBlock* a,
                        const typename S::W8* dots, uint32_t)
{
    KS_UNROLL(4)
    for (uint32_t t = 0; t < n; t++) {
        sums[t] = S::fma(w.d * S::broadcast(a[t].scale[0]), S::to_float(dots[t]), sums[t]);
        sums[t] = S::fma(w.m, S::broadcast(a[t].scaled_sum), sums[t]);
    }
}

// Here dots[t] and dots[n + t] are of the first and of the second half block.
template <class S, uint32_t n, int max_q>
KS_INLINE void add_dots(typename S::F8* sums, const SmallGroup<S, max_q>& w, const ActBlock* a,
                        const typename S::W8* dots, uint32_t)
{
    KS_UNROLL(4)
    for (uint32_t t = 0; t < n; t++) {
        typename S::F8 first = S::broadcast(a[t].scale[0]) * S::to_float(dots[t]);
        sums[t] = S::fma(w.d, S::fma(S::broadcast(a[t].scale[1]), S::to_float(dots[n + t]), first),
                         sums[t]);
        sums[t] = S::fma(w.m, S::broadcast(a[t].scaled_sum), sums[t]);
    }
}

template <class S, uint32_t n>
KS_INLINE void add_dots(typename S::F8* sums, const SignedGroup<S>& w, const ActBlock* a,
                        const typename S::W8* dots, uint32_t part)
{
    KS_UNROLL(4)
    for (uint32_t t = 0; t < n; t++)
        sums[t] = S::fma(w.d * S::broadcast(a[t].scale[part]), S::to_float(dots[t]), sums[t]);
}

// Here dots[t] is already the sum over both half blocks, each times its integer scale.
template <class S, uint32_t n, int max_q>
KS_INLINE void add_dots(typename S::F8* sums, const HalvesGroup<S, max_q>& w, const ActBlock* a,
                        const typename S::W8* dots, uint32_t)
{
    KS_UNROLL(4)
    for (uint32_t t = 0; t < n; t++)
        sums[t] = S::fma(w.d * S::broadcast(a[t].scale[0]),
                         S::to_float(dots[t] + S::dot_pair(w.offset, a[t].sums)), sums[t]);
}

template <class S, uint32_t n, int max_q>
KS_INLINE void add_dots(typename S::F8* sums, const HalvesMinGroup<S, max_q>& w, const ActBlock* a,
                        const typename S::W8* dots, uint32_t)
{
    KS_UNROLL(4)
    for (uint32_t t = 0; t < n; t++) {
        typename S::F8 scale = S::broadcast(a[t].scale[0]);
        sums[t] = S::fma(w.d * scale, S::to_float(dots[t]), sums[t]);
        sums[t] = S::fma(w.m * scale, S::to_float(S::dot_pair(w.offset, a[t].sums)), sums[t]);
    }
}

// sums[t] += w * a[t] for n tokens.
template <class S, uint32_t n, class Group>
KS_INLINE void add_group(typename S::F8* sums, const Group& w, const ActBlock* a, uint32_t part)
{
    // Each element is set before it is read. Compilers see that only in unrolled loops.
    typename S::W8 dots[2 * n] = {};
    if constexpr (Group::kind == group_offset) {
        S::template dot<Group::max_q, 8, n>(w.q, a, 0, dots);
    } else if constexpr (Group::kind == group_small) {
        S::template dot<Group::max_q, 4, n>(w.q, a, 0, dots);
        S::template dot<Group::max_q, 4, n>(w.q + 4, a, 16, dots + n);
    } else if constexpr (Group::kind == group_signed) {
        S::template dot_signed<4, n>(w.q, a, 16 * part, dots);
    } else {
        S::template dot_scaled<Group::max_q, 4, n, false>(w.q, w.scale[0], a, 0, dots);
        S::template dot_scaled<Group::max_q, 4, n, true>(w.q + 4, w.scale[1], a, 16, dots);
    }
    add_dots<S, n>(sums, w, a, dots, part);
}

// Writes the sums of one token and one tile to y. The last tile may have fewer than eight rows.
template <class S>
KS_INLINE void write_rows(const MatmulTask& m, uint32_t tile, uint32_t token, typename S::F8 sum)
{
    float* y = m.y + size_t(token) * m.y_stride + tile * tile_rows;
    uint32_t n_rows = m.n_rows - tile * tile_rows;
    if (n_rows >= tile_rows) {
        S::store(y, m.accumulate ? S::load(y) + sum : sum);
        return;
    }
    float rows[tile_rows];
    S::store(rows, sum);
    for (uint32_t r = 0; r < n_rows; r++) y[r] = m.accumulate ? y[r] + rows[r] : rows[r];
}

template <class F>
KS_INLINE const uint32_t* tile_begin(const MatmulTask& m, uint32_t tile)
{
    return m.tiles + size_t(tile) * (m.cols / F::block) * (F::half_words + tile_rows * F::words);
}

// Prefetches the part of the weights that is read some blocks later, in equal shares for every
// group g. The hardware prefetcher loses track of blocks whose fields are not read in order, and
// stops at pages. Measured gain: 15% to 80% more bytes per second.
template <class F>
KS_INLINE void prefetch_group(const uint32_t* at, uint32_t g)
{
    constexpr uint32_t block_bytes = 4 * (F::half_words + tile_rows * F::words),
                       share = block_bytes / (F::block / 32);
    constexpr uint32_t distance = 2 * block_bytes > 1536 ? 2 * block_bytes : 1536;
    const uintptr_t from = reinterpret_cast<uintptr_t>(at) + distance + g * share;
    KS_UNROLL(8)
    for (uint32_t i = 0; i < share; i += 64)
        __builtin_prefetch(reinterpret_cast<const void*>(from + i));
}

// Products of n_tokens tokens whose sums stay in registers. noinline, here and below: the compiler
// then allocates registers for one loop at a time.
template <class S, class F, uint32_t n_tokens>
__attribute__((noinline)) void matvec(const MatmulTask& m)
{
    const uint32_t n_blocks = m.cols / F::block;
    const uint32_t* at = m.tiles;
    for (uint32_t tile = 0; tile < m.n_tiles; tile++) {
        typename S::F8 sums[n_tokens];
        KS_UNROLL(4)
        for (uint32_t t = 0; t < n_tokens; t++) sums[t] = S::zero();
        const ActBlock* acts = m.acts;
        for (uint32_t b = 0; b < n_blocks; b++) {
            Unpack<S, F>::groups(at, [&](const auto& w, uint32_t g, uint32_t part) KS_INLINED {
                if (part == 0) prefetch_group<F>(at, g);
                add_group<S, n_tokens>(sums, w, acts + g * n_tokens, part);
            });
            at += F::half_words + tile_rows * F::words;
            acts += F::block / 32 * n_tokens;
        }
        KS_UNROLL(4)
        for (uint32_t t = 0; t < n_tokens; t++) write_rows<S>(m, tile, t, sums[t]);
    }
}

// add_group with sums in memory, (n, 8).
template <class S, uint32_t n, class Group>
KS_INLINE void add_to_stored(float* sums, const Group& w, const ActBlock* a, uint32_t part)
{
    typename S::F8 loaded[n];
    KS_UNROLL(4)
    for (uint32_t t = 0; t < n; t++) loaded[t] = S::load(sums + tile_rows * t);
    add_group<S, n>(loaded, w, a, part);
    KS_UNROLL(4)
    for (uint32_t t = 0; t < n; t++) S::store(sums + tile_rows * t, loaded[t]);
}

// Adds the products of one group with n_tokens tokens.
template <class S, class Group>
KS_INLINE void accumulate_tokens(float* sums, const Group& w, const ActBlock* a, uint32_t part,
                                 uint32_t n_tokens)
{
    // A signed group has half as many weights, which leaves registers for four tokens.
    constexpr uint32_t n = Group::kind == group_signed ? 4 : S::stored_tokens;
    for (; n_tokens >= n; n_tokens -= n, a += n, sums += n * tile_rows)
        add_to_stored<S, n>(sums, w, a, part);
    for (; n_tokens; n_tokens--, a++, sums += tile_rows) add_to_stored<S, 1>(sums, w, a, part);
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
    const uint32_t n_blocks = m.cols / F::block;
    const uint32_t* at = m.tiles;
    for (uint32_t tile = 0; tile < m.n_tiles; tile++) {
        for (uint32_t t = 0; t < m.n_tokens; t++) S::store(m.sums + tile_rows * t, S::zero());
        const ActBlock* acts = m.acts;
        for (uint32_t b = 0; b < n_blocks; b++) {
            Unpack<S, F>::groups(at, [&](const auto& w, uint32_t g, uint32_t part) KS_INLINED {
                const ActBlock* a = acts + size_t(g) * m.n_tokens;
                if constexpr (F::block > 32)
                    accumulate_tokens_outlined<S>(m.sums, w, a, part, m.n_tokens);
                else
                    accumulate_tokens<S>(m.sums, w, a, part, m.n_tokens);
            });
            at += F::half_words + tile_rows * F::words;
            acts += size_t(F::block / 32) * m.n_tokens;
        }
        for (uint32_t t = 0; t < m.n_tokens; t++)
            write_rows<S>(m, tile, t, S::load(m.sums + tile_rows * t));
    }
}

template <class S, class F>
void matmul_quantized(const MatmulTask& m)
{
    if (m.n_tokens == 1) return matvec<S, F, 1>(m);
    if constexpr (S::matvec_tokens == 4) {
        if (m.n_tokens == 2) return matvec<S, F, 2>(m);
        if (m.n_tokens == 3) return matvec<S, F, 3>(m);
        if (m.n_tokens == 4) return matvec<S, F, 4>(m);
    }
    matmul_tiled<S, F>(m);
}

// One column of a tile, eight rows, as floats.
template <class S>
KS_INLINE typename S::F8 column(const uint32_t* at, format_f32)
{
    return S::load(reinterpret_cast<const float*>(at));
}
template <class S>
KS_INLINE typename S::F8 column(const uint32_t* at, format_f16)
{
    return S::load_half(reinterpret_cast<const uint16_t*>(at));
}
template <class S>
KS_INLINE typename S::F8 column(const uint32_t* at, format_bf16)
{
    return S::load_bf16(reinterpret_cast<const uint16_t*>(at));
}

// One or two tiles times n_tokens tokens. Up to twelve independent sums hide the latency of a
// multiply-add. Each sum runs over k in order.
template <class S, class F, uint32_t n_tiles, uint32_t n_tokens>
KS_INLINE void float_block(const MatmulTask& m, uint32_t tile, uint32_t token)
{
    constexpr uint32_t stride = F::half_words + tile_rows * F::words;
    const float* x = m.x + size_t(token) * m.cols;
    const uint32_t* at = tile_begin<F>(m, tile);
    typename S::F8 sums[n_tiles][n_tokens];
    KS_UNROLL(2)
    for (uint32_t i = 0; i < n_tiles; i++) KS_UNROLL(6)
    for (uint32_t t = 0; t < n_tokens; t++) sums[i][t] = S::zero();
    for (uint32_t k = 0; k < m.cols; k++, at += stride) {
        typename S::F8 w[n_tiles];
        KS_UNROLL(2)
        for (uint32_t i = 0; i < n_tiles; i++)
            w[i] = column<S>(at + size_t(i) * stride * m.cols, F());
        KS_UNROLL(6)
        for (uint32_t t = 0; t < n_tokens; t++) {
            typename S::F8 value = S::broadcast(x[size_t(t) * m.cols + k]);
            KS_UNROLL(2)
            for (uint32_t i = 0; i < n_tiles; i++) sums[i][t] = S::fma(w[i], value, sums[i][t]);
        }
    }
    KS_UNROLL(2)
    for (uint32_t i = 0; i < n_tiles; i++) KS_UNROLL(6)
    for (uint32_t t = 0; t < n_tokens; t++) write_rows<S>(m, tile + i, token + t, sums[i][t]);
}

template <class S, class F, uint32_t n_tokens>
__attribute__((noinline)) void float_tiles(const MatmulTask& m, uint32_t token)
{
    uint32_t tile = 0;
    for (; tile + 2 <= m.n_tiles; tile += 2) float_block<S, F, 2, n_tokens>(m, tile, token);
    if (tile < m.n_tiles) float_block<S, F, 1, n_tokens>(m, tile, token);
}

template <class S, class F>
void matmul_float(const MatmulTask& m)
{
    uint32_t t = 0;
    for (; t + 6 <= m.n_tokens; t += 6) float_tiles<S, F, 6>(m, t);
    if constexpr (S::matvec_tokens == 1) {
        for (; t < m.n_tokens; t++) float_tiles<S, F, 1>(m, t);
    } else {
        switch (m.n_tokens - t) {
        case 1:
            return float_tiles<S, F, 1>(m, t);
        case 2:
            return float_tiles<S, F, 2>(m, t);
        case 3:
            return float_tiles<S, F, 3>(m, t);
        case 4:
            return float_tiles<S, F, 4>(m, t);
        case 5:
            return float_tiles<S, F, 5>(m, t);
        }
    }
}

template <class S, class F>
constexpr MatmulKernel matmul_kernel()
{
    if constexpr (F::block == 1)
        return matmul_float<S, F>;
    else
        return matmul_quantized<S, F>;
}

template <class S>
void quantize(const float* x, uint32_t cols, ActBlock* out, uint32_t out_stride, bool half_scales)
{
    for (uint32_t k = 0; k < cols; k += 32, x += 32, out += out_stride) {
        typename S::F8 v[4];
        typename S::W8 q[4];
        for (int i = 0; i < 4; i++) v[i] = S::load(x + 8 * i);
        float first = S::largest(S::max(S::abs(v[0]), S::abs(v[1]))),
              second = S::largest(S::max(S::abs(v[2]), S::abs(v[3])));
        if (!half_scales) first = second = first > second ? first : second;
        // 127 / largest must be finite; smaller blocks become zero.
        const typename S::F8 inverse[2] = {S::broadcast(first < 1e-30f ? 0.f : 127.f / first),
                                           S::broadcast(second < 1e-30f ? 0.f : 127.f / second)};
        for (int i = 0; i < 4; i++) q[i] = S::to_int(v[i] * inverse[i / 2]);
        S::store_bytes(out->q, q);
        const int sums[2] = {S::sum(q[0] + q[1]), S::sum(q[2] + q[3])};
        out->scale[0] = first * (1.f / 127.f);
        out->scale[1] = second * (1.f / 127.f);
        out->scaled_sum = out->scale[0] * float(sums[0]) + out->scale[1] * float(sums[1]);
        out->sums[0] = int16_t(sums[0]);
        out->sums[1] = int16_t(sums[1]);
    }
}

// Runs the fastest dot product, on a group of 4-bit levels, and returns the number of products. The
// second half of the group repeats the first, so all operands fit into registers.
template <class S>
uint64_t dot_peak(uint32_t n_rounds)
{
    constexpr uint32_t n_words = 8, n_tokens = S::matvec_tokens;
    uint32_t levels[n_words / 2][tile_rows];
    ActBlock acts[n_tokens];
    memset(levels, 7, sizeof levels);
    memset(acts, 1, sizeof acts);
    asm volatile("" : : "r"(levels), "r"(acts) : "memory"); // hides the values from the compiler
    typename S::W8 q[n_words], total = S::each(0);
    KS_UNROLL(8)
    for (uint32_t j = 0; j < n_words; j++) q[j] = S::words(levels[j % (n_words / 2)]);
    for (uint32_t i = 0; i < n_rounds; i++) {
        asm volatile("" : : "r"(acts) : "memory"); // hides that all rounds are equal
        typename S::W8 dots[n_tokens] = {};
        S::template dot<15, n_words, n_tokens>(q, acts, 0, dots);
        KS_UNROLL(4)
        for (uint32_t t = 0; t < n_tokens; t++) total = total + dots[t];
    }
    float sums[tile_rows];
    S::store(sums, S::to_float(total));
    asm volatile("" : : "r"(sums) : "memory");
    return uint64_t(n_rounds) * n_tokens * tile_rows * n_words * 4;
}

template <class S, class F>
constexpr bool has_half_scales()
{
    if constexpr (F::block == 1)
        return true; // such a format uses no ActBlock
    else
        return Unpack<S, F>::Group::half_scales;
}

// The kernel table of one instruction set.
#define KS_MATMUL_ENTRY(name) matmul_kernel<KS_SIMD, format_##name>(),
#define KS_HALVES_ENTRY(name) has_half_scales<KS_SIMD, format_##name>(),
#define KS_MATMUL_KERNELS                                                                          \
    {                                                                                              \
        quantize<KS_SIMD>, {FORMATS(KS_HALVES_ENTRY)}, {FORMATS(KS_MATMUL_ENTRY)},                 \
            dot_peak<KS_SIMD>                                                                      \
    }

} // namespace ks
