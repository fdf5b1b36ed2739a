// What the kernels of select share: the units of a head, their scores, and the norms of logits.
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

// What KV heads choose together.
DEVICE Scores scores_of(const CudaSelect& c, uint set)
{
    const uint n = n_units(c.s, before_of(c, set));
    return {c.scratch.votes + uint64_t(set) * c.scratch.stride, n,
            count_taken(c.s.n_read, c.s.n_first, c.s.n_last, c.s.unit)};
}

// What a share's logits of each of a KV head's query heads come to: a warp for each. All of the
// block have written them.
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

} // namespace ks
