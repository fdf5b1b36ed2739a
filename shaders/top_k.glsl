// Top-k of scores by one workgroup, with the order of kernels/common/order.h. Before it is
// included: the buffer `scratch`, which has the scores as bits of floats.
#include "kernels/common/order.h"

shared uint counts[256];
// The key of the k-th highest score; the scores equal to it that are not taken; the scores above
// it; the scores equal to it. Before the last pass `equal` counts the scores that share the digits
// found so far.
shared uint top_k_key, top_k_left_out, top_k_above, top_k_equal;

// Returns the number of threads before this one with `yes`. all: their number in the workgroup.
uint count_before(bool yes, out uint all)
{
    barrier();
    counts[THREAD] = yes ? 1u : 0u;
    barrier();
    for (uint n = 1u; n < n_threads; n *= 2u) {
        uint below = THREAD >= n ? counts[THREAD - n] : 0u;
        barrier();
        counts[THREAD] += below;
        barrier();
    }
    all = counts[n_threads - 1u];
    return counts[THREAD] - (yes ? 1u : 0u);
}

// Finds the key of the k highest of n scores by radix select, from the highest digit on. Each pass
// counts the scores that share the digits found so far.
void find_top_k(uint scores, uint n, uint k)
{
    if (THREAD == 0u) {
        top_k_key = top_k_left_out = top_k_above = 0u;
        top_k_equal = n;
    }
    barrier();
    if (k >= n) return;
    for (uint shift = 32u; shift > 0u;) {
        uint known = shift == 32u ? 0u : ~0u << shift;
        shift -= 8u;
        for (uint i = THREAD; i < 256u; i += n_threads) counts[i] = 0u;
        barrier();
        for (uint i = THREAD; i < n; i += n_threads) {
            uint u = ordered_key(scratch[scores + i]);
            if ((u & known) == top_k_key) atomicAdd(counts[u >> shift & 255u], 1u);
        }
        barrier();
        if (THREAD == 0u) {
            uint digit = 255u;
            while (top_k_above + counts[digit] < k && digit > 0u) {
                top_k_above += counts[digit];
                digit--;
            }
            top_k_key |= digit << shift;
            top_k_equal = counts[digit];
        }
        barrier();
    }
    if (THREAD == 0u) top_k_left_out = top_k_equal - (k - top_k_above);
    barrier();
}

// Whether score i of n is among the k highest. All threads call this together for neighbouring
// scores, in order from the first on. n_equal: the scores equal to the key so far.
bool takes(uint scores, uint i, uint n, inout uint n_equal)
{
    uint u = i < n ? ordered_key(scratch[scores + i]) : 0u, all;
    uint n_older_equal = n_equal + count_before(i < n && u == top_k_key, all);
    n_equal += all;
    return i < n && in_top_k(u, top_k_key, n_older_equal, top_k_left_out);
}
