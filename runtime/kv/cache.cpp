#include "runtime/kv/cache.h"

#include "runtime/base/arena.h"

namespace ks
{

static uint64_t tensor_bytes(const CacheLayerSpec& spec, Format codec)
{
    return align_up(uint64_t(spec.n_kv_heads) * spec.n_slots * spec.head_dim * (codec == Format::f32 ? 4 : 2), kRegionAlign);
}

uint64_t Cache::bytes_needed(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe)
{
    uint64_t bytes = 0;
    for (const CacheLayerSpec& spec : specs) bytes += tensor_bytes(spec, recipe.k) + tensor_bytes(spec, recipe.v);
    return bytes;
}

void Cache::place(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe, const Buffer& buffer, uint64_t offset)
{
    m_layers.clear();
    m_layers.reserve(specs.size());
    auto take = [&](const CacheLayerSpec& spec, Format codec) {
        Tensor t{buffer, offset, spec.n_kv_heads * spec.n_slots, spec.head_dim, codec};
        offset += tensor_bytes(spec, codec);
        return t;
    };
    for (const CacheLayerSpec& spec : specs) {
        Tensor k = take(spec, recipe.k);
        Tensor v = take(spec, recipe.v);
        m_layers.push_back({spec, k, v});
    }
}

bool Cache::can_rewind(uint32_t n_written, uint32_t n_tokens) const
{
    for (const CacheLayer& layer : m_layers) {
        uint64_t oldest = n_written > layer.spec.n_slots ? n_written - layer.spec.n_slots : 0; // position still held
        uint64_t visible = layer.spec.window && n_tokens + 1 > layer.spec.window ? n_tokens + 1 - layer.spec.window : 0;
        if (oldest > visible) return false;
    }
    return true;
}

} // namespace ks
