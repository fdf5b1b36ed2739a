// What the searches of a plan have in common.
#pragma once

#include "runtime/kv/cache.h"

namespace ks
{

// The regions of the caches, in the order of CacheBytes.
constexpr const char* kCacheRegions[] = {"cache", "cache tables", "workspace", "eviction"};

// The bytes of these regions.
inline uint64_t bytes_of_caches(const CacheBytes& bytes, uint64_t align, uint32_t n_sessions)
{
    return n_sessions * (align_up(bytes.device, align) + align_up(bytes.host, kRegionAlign)) +
           bytes.workspace + bytes.host_workspace;
}

// The largest number from `low` to `high` that fits; 0: `low` does not.
template <class Fits>
uint32_t largest(uint32_t low, uint32_t high, Fits fits)
{
    if (low > high || !fits(low)) return 0;
    while (low < high) {
        const uint32_t middle = low + (high - low + 1) / 2;
        if (fits(middle))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

} // namespace ks
