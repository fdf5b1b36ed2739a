#include "runtime/kv/retain/policies.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

namespace ks
{

// score[i] = max(score[i], rank of i in `part` / n). part is used up. scratch: (2 * n)
static void raise_to_rank(float* part, uint32_t n, float* scratch, float* score)
{
    // Sorted by the bits of the values, eight at a time, from the last; equal ones stay in order, so the newer outranks.
    uint32_t* order = new (scratch) uint32_t[n]; // same size, same alignment
    uint32_t* sorted = new (scratch + n) uint32_t[n];
    uint32_t begin[4][257] = {};
    std::iota(order, order + n, 0u);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t bits = order_bits(part[i]);
        memcpy(part + i, &bits, 4);
        for (uint32_t k = 0; k < 4; k++) begin[k][(bits >> 8 * k & 255) + 1]++;
    }
    for (uint32_t k = 0; k < 4; k++) {
        for (uint32_t d = 0; d < 255; d++) begin[k][d + 1] += begin[k][d];
        for (uint32_t i = 0, bits; i < n; i++) {
            memcpy(&bits, part + order[i], 4);
            sorted[begin[k][bits >> 8 * k & 255]++] = order[i];
        }
        std::swap(order, sorted);
    }
    for (uint32_t rank = 0; rank < n; rank++) score[order[rank]] = std::max(score[order[rank]], float(rank) / float(n));
}

// A token stays for whichever reason is the best: looked at (snapkv), unlike the other keys (keydiff), a rare id beside it
// or itself (rarity). Attention keeps the flow of the text, the other two keep facts that nobody has asked about yet.
void score_mix(const Candidates& c, const RetainOptions& o, float* scratch, float* score)
{
    float *part = scratch, *rest = scratch + c.n; // (n), (2 * n)
    if (c.n == 0) return;
    std::fill_n(score, c.n, 0.0f);
    if (c.has_keys()) {
        score_keydiff(c, o, rest, part);
        raise_to_rank(part, c.n, rest, score);
    }
    if (c.signal) {
        score_snapkv(c, o, rest, part);
        raise_to_rank(part, c.n, rest, score);
    }
    if (c.counts) {
        for (uint32_t i = 0; i < c.n; i++) {
            const uint32_t first = i - std::min(i, 1u), last = std::min(c.n - 1, i + 1);
            part[i] = -float(*std::min_element(c.counts + first, c.counts + last + 1));
        }
        raise_to_rank(part, c.n, rest, score);
    }
}

} // namespace ks
