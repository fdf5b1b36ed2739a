#include "runtime/kv/policies/policies.h"

#include <algorithm>
#include <new>

namespace ks
{

// score[i] = max(score[i], rank of i in `part` / n). scratch: (4 * n)
static void raise_to_rank(const float* part, uint32_t n, float* scratch, float* score)
{
    // Radix sort by the bits of the values, from the lowest 8 bits up. It is stable, so of equal
    // values the newer one has the higher rank.
    struct Entry {
        uint32_t bits, index;
    };
    Entry *order = new (scratch) Entry[n],
          *sorted = new (scratch + 2 * n) Entry[n]; // same alignment
    uint32_t begin[4][257] = {};
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t bits = order_bits(part[i]);
        order[i] = {bits, i};
        for (uint32_t k = 0; k < 4; k++) begin[k][(bits >> 8 * k & 255) + 1]++;
    }
    for (uint32_t k = 0; k < 4; k++) {
        if (begin[k][(order[0].bits >> 8 * k & 255) + 1] == n) continue; // all have the same digit
        for (uint32_t d = 0; d < 255; d++) begin[k][d + 1] += begin[k][d];
        for (uint32_t i = 0; i < n; i++)
            sorted[begin[k][order[i].bits >> 8 * k & 255]++] = order[i];
        std::swap(order, sorted);
    }
    for (uint32_t rank = 0; rank < n; rank++) {
        float& of = score[order[rank].index];
        of = std::max(of, float(rank) / float(n));
    }
}

// A token's score is its best rank by three criteria: attention (snapkv), an unusual key (keydiff),
// and a rare id at the token or beside it. Attention keeps the flow of the text; the others keep
// facts that no question has needed yet.
void score_mix(const Candidates& c, const RetainOptions& o, float* scratch, float* score)
{
    float *part = scratch, *rest = scratch + c.n; // (n), (4 * n)
    if (c.n == 0) return;
    std::fill_n(score, c.n, 0.0f);
    if (c.has_keys()) {
        score_keydiff(c, o, rest, part);
        raise_to_rank(part, c.n, rest, score);
    }
    if (c.scores) {
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
