// The Hadamard transform H D of a head and its inverse (kernels/common/codecs.h). One warp per
// head, in shared memory.
#pragma once

#include "kernels/cuda/cuda_util.cuh"

#include "kernels/common/codecs.h"

namespace ks
{

// The block with dim i. Block sizes are powers of two in falling order.
DEVICE uint block_of(uint i, uint d, uint* base)
{
    *base = 0u;
    uint block = hadamard_block(0u, d);
    while (i >= *base + block) {
        *base += block;
        block = hadamard_block(*base, d);
    }
    return block;
}

// Butterflies over distances 1, 2, 4, ..., in every block that is long enough.
DEVICE void transform_blocks(float* head, uint d, uint lane)
{
    uint base;
    for (uint distance = 1u; 2u * distance <= d; distance *= 2u) {
        for (uint i = lane; i < d; i += 32u) {
            uint block = block_of(i, d, &base);
            if (2u * distance > block || ((i - base) & distance) != 0u) continue;
            float u = head[i], v = head[i + distance];
            head[i] = u + v;
            head[i + distance] = u - v;
        }
        __syncwarp();
    }
}

// The same for a head of one block, n values per lane, in registers. It adds the same values in the
// same order.
template <uint n>
DEVICE void transform_block(float* head, uint lane)
{
    float x[n];
    KS_UNROLL
    for (uint j = 0u; j < n; j++) x[j] = head[32u * j + lane];
    KS_UNROLL
    for (uint distance = 1u; distance < 32u; distance *= 2u) KS_UNROLL
    for (uint j = 0u; j < n; j++) {
        const float other = __shfl_xor_sync(all_lanes, x[j], int(distance));
        x[j] = (lane & distance) != 0u ? other - x[j] : x[j] + other;
    }
    KS_UNROLL
    for (uint distance = 1u; distance < n; distance *= 2u) KS_UNROLL
    for (uint j = 0u; j < n; j++) {
        if ((j & distance) != 0u) continue;
        const float u = x[j], v = x[j + distance];
        x[j] = u + v;
        x[j + distance] = u - v;
    }
    KS_UNROLL
    for (uint j = 0u; j < n; j++) head[32u * j + lane] = x[j];
}

// Transforms a head in shared memory. The function synchronises the warp before and after.
DEVICE void hadamard_head(float* head, uint d, uint lane, bool inverse)
{
    uint base;
    if (!inverse)
        for (uint i = lane; i < d; i += 32u) head[i] *= hadamard_sign(i);
    __syncwarp();
    if (d == 64u)
        transform_block<2u>(head, lane);
    else if (d == 128u)
        transform_block<4u>(head, lane);
    else if (d == 256u)
        transform_block<8u>(head, lane);
    else
        transform_blocks(head, d, lane);
    __syncwarp();
    for (uint i = lane; i < d; i += 32u) {
        const float v = MUL(head[i], hadamard_scale(block_of(i, d, &base)));
        head[i] = inverse ? v * hadamard_sign(i) : v;
    }
    __syncwarp();
}

} // namespace ks
