// Dequantized rows for the tensor cores. A float is split into two f16: the nearest f16, and the
// nearest f16 of the residual.
// A row in the scratch (DequantScratch in ops.h) has d f16 of the key, their residuals, d f16 of
// the value, their residuals.
#pragma once

#include "kernels/cuda/slots.cuh"

namespace ks
{

// The difference of a value and its nearest f16. The value must be in range: in_range clamps it to
// the finite f16.
DEVICE float residual_of(float x)
{
    return x - HALF_TO_FLOAT(to_f16(x));
}
DEVICE float in_range(float x)
{
    return fminf(65504.f, fmaxf(-65504.f, x));
}

// Words per row: d of the key and d of the value.
DEVICE uint dequantized_words(const AttentionArgs& a)
{
    return 2u * a.head_dim;
}

// The row of slot i of this block's split and round.
DEVICE uint* dequantized_row(const AttentionArgs& a, const DequantScratch& scratch, uint head,
                             uint i)
{
    return scratch.words +
           ((uint64_t(blockIdx.z) * a.n_kv_heads + head) * scratch.slots_per_round + i) *
               dequantized_words(a);
}

// The slots of a split that belong to the round.
DEVICE Span round_of(const DequantScratch& scratch, const Span& share)
{
    const uint begin = min(share.begin + scratch.round * scratch.slots_per_round, share.end);
    return {begin, min(begin + scratch.slots_per_round, share.end)};
}

// The part of `slots` that some tokens of the chunk see. Slots are numbered as in `all`, the head
// of all tokens; `some` is the head of those tokens. If the part begins among the pinned slots, it
// also has the unpinned slots that the tokens no longer see.
DEVICE Span visible_of(const Head& all, const Head& some, const Span& slots)
{
    const uint end = some.b_end < all.a_end
                         ? some.b_end
                         : all.a_end + max(some.b_end, all.b_begin) - all.b_begin;
    const uint begin =
        slots.begin < all.a_end
            ? slots.begin
            : max(slots.begin, all.a_end + max(some.b_begin, all.b_begin) - all.b_begin);
    return {begin, max(begin, min(end, slots.end))};
}

} // namespace ks
