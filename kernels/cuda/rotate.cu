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

void rotate_launch(const RotateArgs& a, float* y, cudaStream_t stream)
{
    KS_LAUNCH(rotate_kernel, (a.n_tokens * a.n_heads + rotate_warps - 1u) / rotate_warps, 32u * rotate_warps, stream, a, y);
}

} // namespace ks
