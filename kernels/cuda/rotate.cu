// Rotates heads in place by H D, or back: one warp per head
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

#include "kernels/common/codecs.h"

namespace ks
{

constexpr uint rotate_warps = 4u;

// The block that dim i is in: they are powers of two in falling order.
DEVICE uint block_of(uint i, uint d, uint* base)
{
    *base = 0u;
    uint block = rotate_block(0u, d);
    while (i >= *base + block) {
        *base += block;
        block = rotate_block(*base, d);
    }
    return block;
}

__global__ void rotate_kernel(RotateArgs a, float* y) // (n_tokens, n_heads * head_dim)
{
    begin_kernel();
    KS_SHARED(float, heads, [rotate_warps][codec_max_dim]);
    uint lane = threadIdx.x % 32u, row = blockIdx.x * rotate_warps + threadIdx.x / 32u, base;
    if (row >= a.n_tokens * a.n_heads) return; // a whole warp; there is no barrier of the block
    float *head = heads[threadIdx.x / 32u], *at = y + uint64_t(row) * a.head_dim;
    for (uint i = lane; i < a.head_dim; i += 32u) head[i] = a.inverse != 0u ? at[i] : at[i] * rotate_sign(i);
    __syncwarp();
    // Neighbours 1, 2, 4, ... apart, in all blocks that are so long.
    for (uint apart = 1u; 2u * apart <= a.head_dim; apart *= 2u) {
        for (uint i = lane; i < a.head_dim; i += 32u) {
            uint block = block_of(i, a.head_dim, &base);
            if (2u * apart > block || ((i - base) & apart) != 0u) continue;
            float u = head[i], v = head[i + apart];
            head[i] = u + v;
            head[i + apart] = u - v;
        }
        __syncwarp();
    }
    for (uint i = lane; i < a.head_dim; i += 32u) {
        float v = MUL(head[i], rotate_scale(block_of(i, a.head_dim, &base)));
        at[i] = a.inverse != 0u ? v * rotate_sign(i) : v;
    }
}

// The same for heads that are a power of two and of n values for each lane, in registers: sums of the same values in the same order.
template <uint n> __global__ void rotate_whole_kernel(RotateArgs a, float* y) // (n_tokens, n_heads * head_dim)
{
    begin_kernel();
    const uint lane = threadIdx.x % 32u, row = blockIdx.x * rotate_warps + threadIdx.x / 32u;
    if (row >= a.n_tokens * a.n_heads) return; // a whole warp; there is no barrier of the block
    float *at = y + uint64_t(row) * a.head_dim, head[n];
    KS_UNROLL
    for (uint j = 0u; j < n; j++) head[j] = a.inverse != 0u ? at[32u * j + lane] : at[32u * j + lane] * rotate_sign(32u * j + lane);
    KS_UNROLL
    for (uint apart = 1u; apart < 32u; apart *= 2u)
        KS_UNROLL
        for (uint j = 0u; j < n; j++) {
            const float other = __shfl_xor_sync(all_lanes, head[j], int(apart));
            head[j] = (lane & apart) != 0u ? other - head[j] : head[j] + other;
        }
    KS_UNROLL
    for (uint apart = 1u; apart < n; apart *= 2u)
        KS_UNROLL
        for (uint j = 0u; j < n; j++) {
            if ((j & apart) != 0u) continue;
            const float u = head[j], v = head[j + apart];
            head[j] = u + v;
            head[j + apart] = u - v;
        }
    const float scale = rotate_scale(a.head_dim);
    KS_UNROLL
    for (uint j = 0u; j < n; j++) {
        const float v = MUL(head[j], scale);
        at[32u * j + lane] = a.inverse != 0u ? v * rotate_sign(32u * j + lane) : v;
    }
}

void rotate_launch(const RotateArgs& a, float* y, cudaStream_t stream)
{
    const uint blocks = (a.n_tokens * a.n_heads + rotate_warps - 1u) / rotate_warps;
    if (a.head_dim == 64u) return KS_LAUNCH(rotate_whole_kernel<2u>, blocks, 32u * rotate_warps, stream, a, y);
    if (a.head_dim == 128u) return KS_LAUNCH(rotate_whole_kernel<4u>, blocks, 32u * rotate_warps, stream, a, y);
    if (a.head_dim == 256u) return KS_LAUNCH(rotate_whole_kernel<8u>, blocks, 32u * rotate_warps, stream, a, y);
    KS_LAUNCH(rotate_kernel, blocks, 32u * rotate_warps, stream, a, y);
}

} // namespace ks
