// The cache of keys and values: per layer, slots for every KV head. A layer that sees everything has a slot for each
// token of the context; a window layer is a ring.
#pragma once

#include "runtime/base/tensor.h"
#include "runtime/kv/recipe.h"

#include <cstdint>
#include <vector>

namespace ks
{

struct CacheLayerSpec {
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t n_slots; // per head; position p lives in slot p % n_slots
    uint32_t window;  // tokens visible; 0: all
};

struct CacheLayer {
    CacheLayerSpec spec;
    Tensor k; // (n_kv_heads * n_slots, head_dim)
    Tensor v; // (n_kv_heads * n_slots, head_dim)
};

class Cache
{
public:
    static uint64_t bytes_needed(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe);
    // Lays the layers out in the buffer, from `offset` on, exactly bytes_needed().
    void place(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe, const Buffer& buffer, uint64_t offset);

    const CacheLayer& layer(uint32_t il) const { return m_layers[il]; }
    // Whether every layer still holds what the token after `n_tokens` may see, when `n_written` had been read.
    bool can_rewind(uint32_t n_written, uint32_t n_tokens) const;

private:
    std::vector<CacheLayer> m_layers;
};

} // namespace ks
