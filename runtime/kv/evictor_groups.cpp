// Slots whose keys are coded in groups: they are given up, and written, by whole groups.
#include "runtime/kv/evictor.h"

#include <algorithm>

namespace ks
{

// As many tokens leave as are whole groups: then every head can keep exactly the target, whichever of its groups and single tokens it
// chooses. The candidates begin and end between two groups: what shares one with a pinned token is pinned; what shares one with the
// last tokens stays with them while there is room, else they may leave with it.
void Evictor::fit_groups(Case& c) const
{
    const CacheLayer& layer = c.layer;
    const uint32_t n = layer.held[0] + c.chunk.n, coded_end = c.plain_first + layer.coded[0];
    c.group = layer.spec.group();
    c.target = n - (n - c.target + c.group - 1) / c.group * c.group;
    if (c.pinned < coded_end) c.pinned += (coded_end - c.pinned) % c.group;
    c.recent = std::min(layer.rules.recent_of(layer.spec.n_rows), c.target - c.pinned - 1);
    const uint32_t end = n - c.recent;
    if (end < coded_end) {
        const uint32_t above = (coded_end - end) % c.group, below = above ? c.group - above : 0; // indexes of the group that `end` is in
        c.recent = c.pinned + c.recent + below <= c.target ? c.recent + below : c.recent - above;
    }
    const uint32_t grouped_end = std::min(coded_end, n - c.recent);
    c.n_grouped = grouped_end > c.pinned ? grouped_end - c.pinned : 0;
}

// What will be coded: all that stays between the first and the last tokens; of groups those that are whole and have slots, the oldest.
void Evictor::end_codes(const Case& c, uint32_t h)
{
    Head& head = m_heads[h];
    const uint32_t group = c.layer.spec.group(), held = c.layer.held[h];
    head.code_end = head.n - std::min(head.n, c.plain_last);
    head.mixed_begin = head.mixed_end = 0;
    if (group == 1) return;
    const uint32_t n_kept = head.n - uint32_t(std::count(head.keep + head.first, head.keep + head.n, uint8_t(0)));
    const uint32_t n_between = n_kept - std::min(n_kept, c.plain_first + c.plain_last);
    uint32_t n_from_pool = 0;
    head.code_end = std::max(c.plain_first, head.first);
    const uint32_t wanted = std::min(n_between / group * group, c.layer.spec.n_coded), done = head.code_end - c.plain_first;
    for (uint32_t left = wanted - std::min(wanted, done); left; head.code_end++) {
        const uint32_t i = head.code_end;
        if (!head.keep[i]) continue;
        left--;
        n_from_pool += i < held && !c.layer.in_coded_pool(head.rows[i]);
    }
    head.mixed_begin = n_from_pool / group * group; // from the pool and from the chunk
    head.mixed_end = (n_from_pool + group - 1) / group * group;
}

} // namespace ks
