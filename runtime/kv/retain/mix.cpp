#include "runtime/kv/retain/policies.h"

#include <algorithm>
#include <new>
#include <numeric>

namespace ks
{

// score[i] = max(score[i], rank of i in `part` / n)
static void raise_to_rank(const float* part, uint32_t n, float* scratch, float* score)
{
    uint32_t* order = new (scratch) uint32_t[n]; // same size, same alignment
    std::iota(order, order + n, 0u);
    std::sort(order, order + n, [&](uint32_t a, uint32_t b) { return outranks(part, b, a); });
    for (uint32_t rank = 0; rank < n; rank++) score[order[rank]] = std::max(score[order[rank]], float(rank) / float(n));
}

// A token stays for whichever reason is the best: looked at (snapkv), unlike the other keys (keydiff), a rare id beside it
// or itself (rarity). Attention keeps the flow of the text, the other two keep facts that nobody has asked about yet.
void score_mix(const Candidates& c, const RetainOptions& o, float* scratch, float* score)
{
    float *part = scratch, *rest = scratch + c.n; // (n), (n + head_dim)
    if (c.n == 0) return;
    std::fill_n(score, c.n, 0.0f);
    if (c.keys) {
        score_keydiff(c, o, rest + c.n, part);
        raise_to_rank(part, c.n, rest, score);
    }
    if (c.signal) {
        score_snapkv(c, o, rest + c.n, part);
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
