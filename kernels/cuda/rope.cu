// RoPE of heads, then optionally the Hadamard transform. One warp per head.
#include "kernels/cuda/hadamard.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

constexpr uint rope_warps = n_threads / 32u;

// twin: one launch covers heads of several tensors, with and without the Hadamard transform
__global__ void rope_kernel(RopeTargets to)
{
    begin_kernel();
    KS_SHARED(float, scratches, [rope_warps][codec_max_dim]);
    const uint lane = threadIdx.x % 32u;
    uint row = blockIdx.x * rope_warps + threadIdx.x / 32u, which = 0u;
    while (which < to.n && row >= to.a[which].n_tokens * to.a[which].n_heads) {
        row -= to.a[which].n_tokens * to.a[which].n_heads;
        which++;
    }
    if (which == to.n) return; // the whole warp returns, and no block barrier follows
    const RopeArgs a = to.a[which];
    const uint n_pairs = a.n_rot / 2u,
               by = a.n_groups == 0u ? row / a.n_heads : row % a.n_heads / (a.n_heads / a.n_groups);
    const float *x = to.x[which] + uint64_t(row) * a.head_dim,
                *angles = to.angles[which] + uint64_t(by) * a.n_rot;
    float *y = to.y[which] + uint64_t(row) * a.head_dim, *scratch = scratches[threadIdx.x / 32u],
          *roped = a.hadamard != 0u ? scratch : y;
    // y may be x: no other lane reads this pair
    for (uint i = lane; i < n_pairs; i += 32u) {
        const uint first = first_of_pair(a.pairs, i), second = second_of_pair(a.pairs, i, a.n_rot);
        const float c = angles[2u * i], s = angles[2u * i + 1u], u = x[first], v = x[second];
        roped[first] = u * c - v * s;
        roped[second] = u * s + v * c;
    }
    for (uint i = a.n_rot + lane; i < a.head_dim; i += 32u) roped[i] = x[i];
    if (a.hadamard == 0u) return; // the whole warp returns
    __syncwarp();
    hadamard_head(scratch, a.head_dim, lane, false);
    for (uint i = lane; i < a.head_dim; i += 32u) y[i] = scratch[i];
}

void rope_launch(const RopeTargets& to, cudaStream_t stream)
{
    uint rows = 0u;
    for (uint i = 0u; i < to.n; i++) rows += to.a[i].n_tokens * to.a[i].n_heads;
    KS_LAUNCH(rope_kernel, (rows + rope_warps - 1u) / rope_warps, n_threads, stream, to);
}

} // namespace ks
