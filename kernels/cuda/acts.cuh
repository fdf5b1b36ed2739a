// Activations in int8. The kernels that compute activations and quantize_kernel write them.
#pragma once

#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

// Writes 32 consecutive values of one token as an int8 block. Each lane has one value; each half of
// the block has a scale.
DEVICE void store_int8(float v, ActGroup* out)
{
    const uint lane = threadIdx.x % 32u;
    float top = fabsf(v);
    KS_UNROLL
    for (int distance = 8; distance > 0; distance /= 2)
        top = fmaxf(top, __shfl_xor_sync(all_lanes, top, distance));
    float scale = top / 127.f;
    int q = top > 0.f ? __float2int_rn(v * (127.f / top)) : 0, sum = q;
    KS_UNROLL
    for (int distance = 8; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(all_lanes, sum, distance);
    uint word = uint(q & 255) << (8u * (lane & 3u));
    word |= __shfl_xor_sync(all_lanes, word, 1);
    word |= __shfl_xor_sync(all_lanes, word, 2);
    if (lane % 4u == 0u) out->q[lane / 4u] = int(word);
    if (lane % 16u == 0u) {
        out->scale[lane / 16u] = scale;
        out->sum[lane / 16u] = scale * float(sum);
    }
}

// The block with value i of token t. acts has shape (cols / 32, n_tokens).
DEVICE ActGroup* int8_copy_of(ActGroup* acts, uint n_tokens, uint t, uint i)
{
    return acts + uint64_t(i / 32u) * n_tokens + t;
}

} // namespace ks
