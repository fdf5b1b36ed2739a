// y = W x for weights in f32, f16 and bf16.
#pragma once

#include "kernels/cpu/tiles.h"

namespace ks
{

// One column of each row as floats.
template <class S>
KS_INLINE typename S::F column(Blocks<S> at, format_f32)
{
    auto* floats = reinterpret_cast<const float*>(at.first);
    if constexpr (at.n_tiles == 2)
        return S::floats_of_two(floats, floats + at.stride);
    else
        return S::load(floats);
}
template <class S>
KS_INLINE typename S::F column(Blocks<S> at, format_f16)
{
    return tile_half<S>(at);
}
template <class S>
KS_INLINE typename S::F column(Blocks<S> at, format_bf16)
{
    auto* halves = reinterpret_cast<const uint16_t*>(at.first);
    if constexpr (at.n_tiles == 2)
        return S::bf16_of_two(halves, halves + 2 * at.stride);
    else
        return S::load_bf16(halves);
}

// One or two vectors of rows times n_tokens tokens. Up to twelve independent sums hide the latency
// of a multiply-add. Each sum runs over k in order.
template <class S, class F, uint32_t n, uint32_t n_tokens>
KS_INLINE void float_block(const MatmulTask& m, uint32_t tile, uint32_t token)
{
    const float* x = m.x + size_t(token) * m.cols;
    const uint32_t n_ahead = prefetch_distance<F>(m);
    Blocks<S> at[n];
    typename S::F sums[n][n_tokens];
    KS_UNROLL(2)
    for (uint32_t i = 0; i < n; i++) {
        at[i] = first_blocks<S, F>(m, tile + i * Blocks<S>::n_tiles);
        KS_UNROLL(6)
        for (uint32_t t = 0; t < n_tokens; t++) sums[i][t] = S::zero();
    }
    for (uint32_t k = 0; k < m.cols; k++) {
        typename S::F w[n];
        KS_UNROLL(2)
        for (uint32_t i = 0; i < n; i++) {
            if (k % 4 == 0) {
                const Blocks<S> ahead =
                    blocks_ahead<S, F>(at[i], n_ahead, k, m.cols, n * Blocks<S>::n_tiles);
                prefetch_blocks<S>(m, ahead, 0, 16 * block_words<F>);
            }
            w[i] = column<S>(at[i], F());
            at[i].first += block_words<F>;
        }
        KS_UNROLL(6)
        for (uint32_t t = 0; t < n_tokens; t++) {
            typename S::F value = S::broadcast(x[size_t(t) * m.cols + k]);
            KS_UNROLL(2)
            for (uint32_t i = 0; i < n; i++) sums[i][t] = S::fma(w[i], value, sums[i][t]);
        }
    }
    KS_UNROLL(2)
    for (uint32_t i = 0; i < n; i++) KS_UNROLL(6)
    for (uint32_t t = 0; t < n_tokens; t++)
        write_rows<S>(m, tile + i * Blocks<S>::n_tiles, token + t, sums[i][t]);
}

template <class S, class F, uint32_t n_tokens>
__attribute__((noinline)) void float_tiles(const MatmulTask& m, uint32_t token)
{
    constexpr uint32_t n = Blocks<S>::n_tiles;
    uint32_t tile = 0;
    for (; tile + n < m.n_tiles; tile += 2 * n) float_block<S, F, 2, n_tokens>(m, tile, token);
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

} // namespace ks
