// What rows of any format stand for, as the tensor cores take it: a float is two halves, the
// nearest one and what that leaves. Restored rows lie one after another in scratch (DequantScratch
// in ops.h): a key's d halves and what they leave, and its value's.
#pragma once

#include "kernels/cuda/slots.cuh"

namespace ks
{

// What the nearest half leaves of a value; values above the halves' range have none that is near.
DEVICE float residual_of(float x)
{
    return x - HALF_TO_FLOAT(to_f16(x));
}
DEVICE float in_range(float x)
{
    return fminf(65504.f, fmaxf(-65504.f, x));
}

// Of the words of a row, d of key and value each.
DEVICE uint dequantized_words(const AttentionArgs& a)
{
    return 2u * a.head_dim;
}

// The row of the i-th slot of this block's split and round.
DEVICE uint* dequantized_row(const AttentionArgs& a, const DequantScratch& scratch, uint head,
                             uint i)
{
    return scratch.words +
           ((uint64_t(blockIdx.z) * a.n_kv_heads + head) * scratch.slots_per_round + i) *
               dequantized_words(a);
}

// Of a split's slots, those of the round.
DEVICE Span round_of(const DequantScratch& scratch, const Span& share)
{
    const uint begin = min(share.begin + scratch.round * scratch.slots_per_round, share.end);
    return {begin, min(begin + scratch.slots_per_round, share.end)};
}

// Of some slots that all tokens' head has, those that some tokens' head has, too; with what is
// pinned, also what lies behind it.
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
