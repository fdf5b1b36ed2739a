// Helpers of the kernels of select: the units of a head, their votes, and the norms of logits.
#pragma once

#include "kernels/cuda/top_k.cuh"

namespace ks
{

DEVICE uint n_units(const SelectArgs& s, uint before)
{
    return count_units(before, s.n_read, s.n_first, s.n_last, s.unit);
}

DEVICE uint unit_begin(const SelectArgs& s, uint before, uint nth)
{
    return unit_bound(nth, before, s.n_first, s.n_last, s.unit);
}

DEVICE uint before_of(const CudaSelect& c, uint head)
{
    return c.slots.head_layout[head * layout_words + layout_n_held];
}

// The votes of a set. A set is one KV head, or all KV heads if they choose together.
DEVICE Scores scores_of(const CudaSelect& c, uint set)
{
    const uint n = n_units(c.s, before_of(c, set));
    return {c.scratch.votes + uint64_t(set) * c.scratch.stride, n,
            count_taken(c.s.n_read, c.s.n_first, c.s.n_last, c.s.unit)};
}

// Stores the maximum of a share's logits and the sum of exp(logit - maximum), for each query head
// of a KV head. A warp has one query head at a time. The caller has synchronised the block after it
// wrote the logits.
DEVICE void note_norms(const CudaSelect& c, uint head, const Span& share)
{
    const uint group = c.a.n_heads / c.a.n_kv_heads, lane = threadIdx.x % 32u;
    for (uint h = head * group + threadIdx.x / 32u; h < (head + 1u) * group; h += select_warps) {
        const float* logits = c.scratch.logits + uint64_t(h) * c.scratch.stride;
        float top = masked_logit, sum = 0.f;
        for (uint i = share.begin + lane; i < share.end; i += 32u) top = fmaxf(top, logits[i]);
        top = warp_max(top);
        for (uint i = share.begin + lane; i < share.end; i += 32u) sum += expf(logits[i] - top);
        sum = warp_sum(sum);
        float* norm = c.scratch.norms + (uint64_t(h) * c.scratch.n_shares + blockIdx.x) * 2u;
        if (lane < 2u) norm[lane] = lane == 0u ? top : sum;
    }
}

// Scores the units of all heads, for a new choice: pages and their votes, or the logits of keys or
// of blocks.
void select_units_launch(const CudaSelect& c, cudaStream_t stream);

} // namespace ks
