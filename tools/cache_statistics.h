// Statistics of a cache after n_seen tokens, for people.
#pragma once

#include "runtime/kv/cache.h"

#include <algorithm>

namespace ks
{

// A layer's slots by what they hold, summed over its heads.
struct CacheTiers {
    uint64_t pinned = 0, kept = 0, merged = 0, recent = 0, free = 0;
};

inline CacheTiers tiers_of(const Cache& cache, uint32_t il, uint32_t n_seen)
{
    const CacheLayer& layer = cache.layer(il);
    const CacheLayerSpec& s = layer.spec;
    CacheTiers t;
    for (uint32_t h = 0; h < s.n_kv_heads; h++) {
        const uint32_t held = s.table ? layer.held[h] : std::min(n_seen, s.n_slots),
                       pinned = std::min(s.n_pinned, held);
        const uint32_t newest = s.local     ? held
                                : s.table   ? layer.recipe.recent_of(s.n_slots)
                                : s.bounded ? held
                                            : 0;
        const uint32_t recent = std::min(newest, held - pinned);
        uint32_t merged = 0;
        for (uint32_t i = pinned; s.table && i < held - recent; i++) {
            const uint32_t at = layer.begin[h] + i;
            merged += layer.positions[at] == kNoPosition ||
                      (layer.counts && layer.counts[layer.slots[at]] > 1);
        }
        t.pinned += pinned;
        t.merged += merged;
        t.recent += recent;
        t.kept += held - pinned - recent - merged;
        t.free += (s.table ? layer.capacity[h] : s.n_slots) - held;
    }
    return t;
}

// Calls each(i) for every i < n whose position first + i has a slot of its own in this head.
template <class Each>
void held_positions(const CacheLayer& layer, uint32_t head, uint32_t n_seen, uint32_t first,
                    uint32_t n, Each each)
{
    const CacheLayerSpec& s = layer.spec;
    for (uint32_t i = 0; s.table && i < layer.held[head]; i++) {
        const uint32_t offset = layer.positions[layer.begin[head] + i] - first;
        if (offset < n) each(offset); // an earlier position wraps and is larger
    }
    for (uint32_t i = 0; !s.table && i < n; i++)
        if (first + i < s.n_pinned || first + i >= ring_oldest(n_seen, s.n_slots, s.n_pinned))
            each(i);
}

inline bool evicts(const CacheLayer& layer)
{
    return layer.spec.bounded && !layer.spec.local;
}

// Adds to heads[i] the number of heads that hold position first + i. Returns the number of heads in
// the layers that evict; only these count.
inline uint32_t count_holders(const Cache& cache, uint32_t n_seen, uint32_t first, uint32_t n,
                              uint32_t* heads)
{
    uint32_t n_heads = 0;
    for (uint32_t il = 0; il < cache.n_layers(); il++) {
        const CacheLayer& layer = cache.layer(il);
        const uint32_t n_here = evicts(layer) ? layer.spec.n_kv_heads : 0;
        n_heads += n_here;
        for (uint32_t h = 0; h < n_here; h++)
            held_positions(layer, h, n_seen, first, n, [&](uint32_t i) { heads[i]++; });
    }
    return n_heads;
}

// The share of these heads that hold at least the share `most` of the n positions from `first` on;
// 1 if no layer evicts.
inline double share_holding(const Cache& cache, uint32_t n_seen, uint32_t first, uint32_t n,
                            double most)
{
    uint32_t n_heads = 0, n_holding = 0;
    for (uint32_t il = 0; il < cache.n_layers(); il++) {
        const CacheLayer& layer = cache.layer(il);
        const uint32_t n_here = evicts(layer) ? layer.spec.n_kv_heads : 0;
        n_heads += n_here;
        for (uint32_t h = 0; h < n_here; h++) {
            uint32_t n_held = 0;
            held_positions(layer, h, n_seen, first, n, [&](uint32_t) { n_held++; });
            n_holding += n_held >= most * n;
        }
    }
    return n_heads ? double(n_holding) / n_heads : 1;
}

} // namespace ks
