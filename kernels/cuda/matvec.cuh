// The sums of a matvec: one block per tile of eight rows, sixteen threads per row. Each thread adds
// its share of the row's products with up to eight tokens.
#pragma once

#include "kernels/cuda/acts.cuh"
#include "kernels/cuda/unpack.cuh"

#include <type_traits>

namespace ks
{

constexpr uint max_matvec_tokens = 8u;

// The address of tile-block b of a tile.
template <class F>
DEVICE const uint* block_at(uint cols, const uint* w, uint tile, uint b)
{
    return w + (uint64_t(tile) * (cols / F::block) + b) * (F::half_words + tile_rows * F::words);
}

// Sums in f32, as in matvec.glsl. Token t has row rows[t] of x.
template <class F, uint n_vec_tokens>
DEVICE void add_values(float (&sum)[n_vec_tokens], uint cols, const uint* w, uint tile,
                       const float* x, const uint (&rows)[n_vec_tokens])
{
    constexpr uint unit = F::block < 32u ? F::block : 32u;
    const uint r = threadIdx.x % tile_rows;
    for (uint k0 = threadIdx.x / tile_rows * unit; k0 < cols; k0 += n_threads / tile_rows * unit) {
        const uint* at = block_at<F>(cols, w, tile, k0 / F::block);
        for (uint k = 0u; k < unit; k++) {
            float v = F::value(at, 0u, r, k0 % F::block + k);
            KS_UNROLL
            for (uint t = 0u; t < n_vec_tokens; t++)
                sum[t] += v * x[uint64_t(rows[t]) * cols + k0 + k];
        }
    }
}

// The number of groups of 32 that one thread takes in one iteration, because they share words.
// iq4_xs has 34 words, q4_k 36, q5_k 44. The groups of smaller blocks and of formats with a grid
// share few words.
template <class F>
struct GroupsTogether {
    static constexpr bool has_grid = std::is_base_of<GridUnpack<F>, Unpack<F>>::value;
    static constexpr uint n = F::block < 256u || F::words == 34u || has_grid ? 1u
                              : F::words == 36u || F::words == 44u           ? 2u
                                                                             : 4u;
};

// The dot product of 32 weights and 32 activations.
DEVICE float product(const Group& g, const ActGroup& x)
{
    int sum[2] = {0, 0};
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) sum[i / 4u] = __dp4a(int(g.q[i]), x.q[i], sum[i / 4u]);
    return (g.d[0] * x.scale[0] * float(sum[0]) + g.d[1] * x.scale[1] * float(sum[1])) +
           (g.m[0] * x.sum[0] + g.m[1] * x.sum[1]);
}

// Sums of int8 products. Every byte of the weight is read once. Eight neighbouring threads read the
// same word of eight rows, which lie together. acts: (cols / 32, n_rows).
template <class F, uint n_vec_tokens>
DEVICE void add_int8(float (&sum)[n_vec_tokens], uint cols, const uint* w, uint tile,
                     const ActGroup* __restrict__ acts, uint n_rows,
                     const uint (&rows)[n_vec_tokens])
{
    constexpr uint together = GroupsTogether<F>::n, per_block = F::block / 32u;
    const uint r = threadIdx.x % tile_rows;
    for (uint g0 = threadIdx.x / tile_rows * together; g0 < cols / 32u;
         g0 += n_threads / tile_rows * together) {
        const uint* at = block_at<F>(cols, w, tile, g0 / per_block);
        KS_UNROLL
        for (uint g = 0u; g < together; g++) {
            const Group group = Unpack<F>::group(at, r, g0 % per_block + g);
            const ActGroup* x = acts + uint64_t(g0 + g) * n_rows;
            KS_UNROLL
            for (uint t = 0u; t < n_vec_tokens; t++) sum[t] += product(group, x[rows[t]]);
        }
    }
}

// Adds the sixteen partial sums of each of eight rows and calls put(token, row of the tile, total).
// The order of additions is fixed, so every run gives the same bits.
template <uint n_vec_tokens, class Put>
DEVICE void store_vectors(const float (&sum)[n_vec_tokens], float* scratch, const Put& put)
{
    KS_UNROLL
    for (uint t = 0u; t < n_vec_tokens; t++) scratch[t * n_threads + threadIdx.x] = sum[t];
    __syncthreads();
    for (uint i = threadIdx.x; i < n_vec_tokens * tile_rows; i += n_threads) {
        const uint t = i / tile_rows;
        float total = 0.f;
        for (uint j = i % tile_rows; j < n_threads; j += tile_rows)
            total += scratch[t * n_threads + j];
        put(t, i % tile_rows, total);
    }
}

} // namespace ks
