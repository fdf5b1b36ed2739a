// Top-k of n scores for each of several sets, by radix select over several blocks and launches.
// Each of the first launches counts one digit, from the highest digit down, of the scores that
// share the digits found so far. The next launch counts, per block's share, the scores above the
// key and the scores equal to it. From these counts each block of the last launch knows how many
// scores of earlier shares are taken. All sums are sums of integers, so the order of the atomic
// additions does not matter.
#pragma once

#include "kernels/cuda/slots.cuh"

namespace ks
{

constexpr uint select_warps = select_threads / 32u;
constexpr uint digits_each = select_digits / select_threads; // per thread

DEVICE uint ordered_bits(float score)
{
    return ordered_key(FLOAT_TO_BITS(score));
}

// The lowest bit of a pass's 11-bit digit. The last two digits share bit 10, which is equal in all
// scores of the last pass.
DEVICE uint digit_shift(uint pass)
{
    return pass == 0u ? 21u : pass == 1u ? 10u : 0u;
}

struct Scores {
    float* at;
    uint n, k;
    DEVICE_MEMBER bool has_choice() const { return k != 0u && k < n; }
};

// The share of n items of this block. The gridDim.x blocks share n items in whole rounds of
// select_threads.
DEVICE Span score_share(uint n)
{
    const uint rounds = (n + select_threads - 1u) / select_threads,
               each = (rounds + gridDim.x - 1u) / gridDim.x * select_threads;
    const uint begin = min(blockIdx.x * each, n);
    return {begin, min(begin + each, n)};
}

// The rule is in_top_k: scores above the key are taken, and of the scores equal to it all but the
// first n_left_out. Before the last pass, `key` has the digits found so far, and `wanted` of the
// scores with these digits are to be taken.
struct TopK {
    uint key, wanted, n_left_out;
};

struct TopKScratch {
    uint digits[select_digits];
    uint sums[select_warps];
    TopK found;
};

// The result of pass n_passes - 1, from its counts and from the result of the pass before. All
// threads of a block call this.
DEVICE TopK find_digit(const CudaSelectScratch& all, uint set, uint n_passes, uint k,
                       TopKScratch& scratch)
{
    if (n_passes == 0u) return {0u, k, 0u};
    const uint pass = n_passes - 1u, lane = threadIdx.x % 32u,
               first = select_digits - digits_each * (threadIdx.x + 1u);
    uint* notes = all.found + (set * select_passes + pass) * 3u;
    const uint key = pass != 0u ? notes[-3] : 0u, wanted = pass != 0u ? notes[-2] : k;
    const uint* digits = all.digits + (set * select_passes + pass) * select_digits + first;
    uint mine[digits_each], n_mine = 0u;
    KS_UNROLL
    for (uint i = 0u; i < digits_each; i += 4u) {
        const uint4 four = *reinterpret_cast<const uint4*>(digits + i);
        mine[i] = four.x, mine[i + 1u] = four.y, mine[i + 2u] = four.z, mine[i + 3u] = four.w;
        n_mine += four.x + four.y + four.z + four.w;
    }
    uint sum = n_mine; // scores with one of this thread's digits or a higher one
    KS_UNROLL
    for (uint distance = 1u; distance < 32u; distance *= 2u) {
        const uint other = __shfl_up_sync(all_lanes, sum, distance);
        sum += lane >= distance ? other : 0u;
    }
    if (lane == 31u) scratch.sums[threadIdx.x / 32u] = sum;
    __syncthreads();
    for (uint w = 0u; w < threadIdx.x / 32u; w++) sum += scratch.sums[w];
    if (sum >= wanted && sum - n_mine < wanted) {
        uint left = wanted - (sum - n_mine);
        bool found = false;
        KS_UNROLL
        for (uint i = digits_each; i-- > 0u;) {
            if (!found && mine[i] >= left)
                scratch.found = {key | (first + i) << digit_shift(pass), left, mine[i] - left};
            found = found || mine[i] >= left;
            left -= found ? 0u : mine[i];
        }
    }
    __syncthreads();
    if (blockIdx.x == 0u && threadIdx.x == 0u) {
        notes[0] = scratch.found.key;
        notes[1] = scratch.found.wanted;
        notes[2] = scratch.found.n_left_out;
    }
    return scratch.found;
}

// The result of the last pass, which an earlier launch stored.
DEVICE TopK top_k_of(const CudaSelectScratch& all, uint set, const Scores& scores)
{
    if (scores.k == 0u) return {~0u, 0u, ~0u};
    if (scores.k >= scores.n) return {0u, 0u, 0u};
    const uint* notes = all.found + (set * select_passes + select_passes - 1u) * 3u;
    return {notes[0], notes[1], notes[2]};
}

// A block's counts of one pass: cleared, filled, and added to the counts of all blocks.
DEVICE void begin_digits(TopKScratch& scratch)
{
    for (uint i = threadIdx.x; i < select_digits; i += select_threads) scratch.digits[i] = 0u;
}

DEVICE void count_digit(TopKScratch& scratch, uint pass, float score, uint key)
{
    const uint u = ordered_bits(score), known = pass == 0u ? 0u : ~0u << digit_shift(pass - 1u);
    if ((u & known) == key)
        atomicAdd(&scratch.digits[u >> digit_shift(pass) & (select_digits - 1u)], 1u);
}

DEVICE void add_digits(const CudaSelectScratch& all, uint set, uint pass,
                       const TopKScratch& scratch)
{
    uint* digits = all.digits + (set * select_passes + pass) * select_digits;
    for (uint i = threadIdx.x; i < select_digits; i += select_threads)
        if (scratch.digits[i] != 0u) atomicAdd(&digits[i], scratch.digits[i]);
}

// Clears the counts of all passes of n_sets. All blocks of a launch before the first pass share the
// work.
DEVICE void clear_digits(const CudaSelectScratch& all, uint n_sets)
{
    const uint n = n_sets * select_passes * select_digits,
               step = gridDim.x * gridDim.y * select_threads;
    for (uint i = (blockIdx.y * gridDim.x + blockIdx.x) * select_threads + threadIdx.x; i < n;
         i += step)
        all.digits[i] = 0u;
}

// Packs the number of scores above the key and the number of scores equal to it.
DEVICE uint64_t two_counts(uint above, uint equal)
{
    return uint64_t(above) << 32 | equal;
}

// The sum of x over a block. The scratch has one number per warp.
DEVICE uint64_t add_counts(uint64_t x, uint64_t* scratch)
{
    KS_UNROLL
    for (int distance = 16; distance > 0; distance /= 2)
        x += __shfl_xor_sync(all_lanes, x, distance);
    if (threadIdx.x % 32u == 0u) scratch[threadIdx.x / 32u] = x;
    __syncthreads();
    x = 0u;
    for (uint w = 0u; w < select_warps; w++) x += scratch[w];
    return x;
}

// Goes through a share's scores in order, select_threads at a time.
// takes() tells whether this thread's score is taken. *rank is the number of taken scores before
// it.
struct Taking {
    TopK best;
    uint64_t before;   // counts of all scores before this round
    uint64_t* scratch; // two numbers per warp: this round's and the next round's
    uint round = 0u;

    DEVICE_MEMBER bool takes(bool has, float score, uint* rank)
    {
        const uint u = ordered_bits(score), warp = threadIdx.x / 32u,
                   lanes_below = (1u << threadIdx.x % 32u) - 1u;
        const bool above = has && u > best.key, equal = has && u == best.key;
        const uint aboves = __ballot_sync(all_lanes, above ? 1 : 0),
                   equals = __ballot_sync(all_lanes, equal ? 1 : 0);
        uint64_t* counts = scratch + (round++ % 2u) * select_warps;
        if (threadIdx.x % 32u == 0u)
            counts[warp] = two_counts(uint(__popc(aboves)), uint(__popc(equals)));
        __syncthreads();
        uint64_t mine = before + two_counts(uint(__popc(aboves & lanes_below)),
                                            uint(__popc(equals & lanes_below)));
        for (uint w = 0u; w < select_warps; w++) {
            mine += w < warp ? counts[w] : 0u;
            before += counts[w];
        }
        const uint n_equal = uint(mine);
        *rank = uint(mine >> 32) + (n_equal > best.n_left_out ? n_equal - best.n_left_out : 0u);
        return has && in_top_k(u, best.key, n_equal, best.n_left_out);
    }
};

// The scratch has three numbers per warp. The first third is for the sum over the earlier shares.
DEVICE Taking begin_taking(const CudaSelectScratch& all, uint set, const Scores& scores,
                           uint64_t* scratch)
{
    const uint64_t* counts = all.counts + uint64_t(set) * all.n_shares;
    const uint64_t before =
        add_counts(threadIdx.x < blockIdx.x ? counts[threadIdx.x] : 0u, scratch);
    return {top_k_of(all, set, scores), before, scratch + select_warps};
}

} // namespace ks
