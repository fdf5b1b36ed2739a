// Activations in int8, as the kernels that make them and the one that only converts them write them.
#pragma once

#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

// 32 neighbours of one token, of which this lane has one: a block with a scale for each half.
DEVICE void put_acts(float v, ActGroup* out)
{
    const uint lane = threadIdx.x % 32u;
    float top = fabsf(v);
    KS_UNROLL
    for (int apart = 8; apart > 0; apart /= 2) top = fmaxf(top, __shfl_xor_sync(all_lanes, top, apart));
    float scale = top / 127.f;
    int q = top > 0.f ? __float2int_rn(v * (127.f / top)) : 0, sum = q;
    KS_UNROLL
    for (int apart = 8; apart > 0; apart /= 2) sum += __shfl_xor_sync(all_lanes, sum, apart);
    uint word = uint(q & 255) << (8u * (lane & 3u));
    word |= __shfl_xor_sync(all_lanes, word, 1);
    word |= __shfl_xor_sync(all_lanes, word, 2);
    if (lane % 4u == 0u) out->q[lane / 4u] = int(word);
    if (lane % 16u == 0u) {
        out->scale[lane / 16u] = scale;
        out->sum[lane / 16u] = scale * float(sum);
    }
}

// The block of a token's value i, of (cols / 32, n_tokens).
DEVICE ActGroup* acts_of(ActGroup* acts, uint n_tokens, uint t, uint i) { return acts + uint64_t(i / 32u) * n_tokens + t; }

} // namespace ks
