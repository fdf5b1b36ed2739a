// Places the cache's tensors and host arrays. The same pass counts their bytes.
#include "runtime/kv/cache.h"

#include <algorithm>

namespace ks
{

// The keys of one head as floats may take 1 / kKeyShare of the bytes of the slots.
constexpr uint64_t kKeyShare = 16;

struct Cache::Places {
    Placer device, host;
    bool shares;
    Placer shared_device, shared_host;

    Placer& workspace() { return shares ? shared_device : device; }
    Placer& host_workspace() { return shares ? shared_host : host; }
};

// Maxima over all layers, which size what the layers share.
struct Cache::Largest {
    uint32_t n_heads = 0, n_kv_heads = 0, kv_cols = 0;
    std::vector<uint32_t> chunk_cols = {0}; // kv_cols by chunk
    uint32_t n_rope_on_read = 0;
    uint32_t n_rope_rows = 0;  // rows of the RoPE table
    uint32_t n_plain_rows = 0; // rows per head of a plain pool beside a coded one
    uint32_t group = 1;        // rows that a codec encodes together
    uint64_t plane = 0;        // bytes
    bool stages = false;       // some layer stages chunks
    bool sinks = false, values_in_keys = false;
};

// Places the scratch of evictions, for the largest table layer.
void Cache::place_decisions(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe,
                            uint32_t chunk, Placer& device, Placer& host)
{
    const bool writes = recipe.victims == Victims::merge || recipe.retain->estimates,
               reads = writes || recipe.retain->keys;
    const bool heads_compete = recipe.split == Split::ada;
    uint32_t most = 0, n_heads = 0, n_slots = 0, head_dim = 0;
    uint64_t slot_bytes = 0;
    for (const CacheLayerSpec& s : specs) {
        if (!s.table) continue;
        slot_bytes += uint64_t(s.n_kv_heads) * s.n_slots *
                      (codec_info(s.k).row_bytes(s.head_dim) +
                       (s.values_in_keys ? 0 : codec_info(s.v).row_bytes(s.head_dim)));
        n_heads = std::max(n_heads, s.n_kv_heads);
        n_slots = std::max(n_slots, s.n_slots);
        head_dim = std::max(head_dim, s.head_dim);
        most = std::max(most, s.n_slots * (heads_compete ? s.n_kv_heads : 1) + chunk);
    }
    if (!most) return;
    // All keys of a head are held as floats if they are small beside the slots. Otherwise a policy
    // reads them in parts.
    const bool all_keys =
        writes || recipe.retain->all_keys || kKeyShare * 4ull * most * head_dim <= slot_bytes;
    const uint32_t n_at_once =
        std::min(most, std::max(32u, std::min(RowTransfer::kMostAtOnce, most / 8)));
    m_gatherer.place(recipe, n_heads, n_slots, chunk, most, head_dim, all_keys, host);
    m_decider.place(n_heads, most, heads_compete, host);
    m_applier.place(recipe, n_heads, n_slots, most, head_dim, host);
    m_keys = host.array<float>(reads ? uint64_t(all_keys ? most : n_at_once) * head_dim : 0);
    m_rows.place(reads ? n_at_once : 0, head_dim, device);
}

// Places the layers' own tensors and returns the maxima over all layers.
Cache::Largest Cache::place_layers(const std::vector<CacheLayerSpec>& specs, uint32_t chunk,
                                   uint32_t context, Places& p)
{
    Largest largest;
    m_layers.assign(specs.size(), {});
    for (size_t il = 0; il < specs.size(); il++) {
        const CacheLayerSpec& spec = specs[il];
        CacheLayer& layer = m_layers[il];
        layer.spec = spec;
        layer.recipe = spec.local ? m_recipe.for_window_layer() : m_recipe;
        pin_layer(layer.spec, m_recipe, 0);
        layer.place(chunk, p.device, p.host);
        const Tensor& end = layer.kv.coded_k;
        largest.plane = std::max(largest.plane, end.offset - layer.kv.k.offset +
                                                    coded_bytes(end.format, end.rows, end.cols));
        largest.n_heads = std::max(largest.n_heads, spec.n_heads);
        largest.n_kv_heads = std::max(largest.n_kv_heads, spec.n_kv_heads);
        largest.kv_cols = std::max(largest.kv_cols, spec.n_kv_heads * spec.head_dim);
        if (spec.n_readers > 1) {
            layer.chunk_index = uint32_t(largest.chunk_cols.size());
            largest.chunk_cols.push_back(0);
        }
        uint32_t& chunk_cols = largest.chunk_cols[layer.chunk_index];
        chunk_cols = std::max(chunk_cols, spec.n_kv_heads * spec.head_dim);
        largest.n_rope_on_read = std::max(largest.n_rope_on_read, spec.n_rope_on_read);
        if (spec.n_rope_on_read) {
            const bool selects = spec.n_read && m_recipe.select->prompts;
            largest.n_rope_rows =
                std::max(largest.n_rope_rows,
                         selects ? read_stride(spec, m_recipe, chunk) : spec.n_slots + chunk);
        }
        if (spec.n_bias_dims && !m_phasors)
            m_phasors = p.workspace().take(phasor_digits * phasor_base, spec.n_bias_dims);
        if (spec.n_bias_dims) layer.kv.bias_phasors = m_phasors;
        largest.sinks |= spec.sinks;
        largest.values_in_keys |= spec.values_in_keys;
        largest.group = std::max(largest.group, spec.group());
        if (spec.n_coded) largest.n_plain_rows = std::max(largest.n_plain_rows, spec.n_plain());
        largest.stages |= context == 0 || spec.n_plain() < context;
    }
    return largest;
}

// Places the head layouts of all layers, one row per layer, so that one copy sends them.
void Cache::place_layouts(uint32_t n_kv_heads, Places& p)
{
    const uint32_t n_layers = uint32_t(m_layers.size());
    m_layouts =
        p.device.take(n_layers, uint32_t(align_up(n_kv_heads * layout_words, p.device.align / 4)));
    m_host_layouts = p.host.array<uint32_t>(uint64_t(m_layouts.rows) * m_layouts.cols);
    for (uint32_t il = 0; il < n_layers; il++)
        m_layers[il].kv.head_layout = {m_layouts.buffer,
                                       m_layouts.offset + 4ull * il * m_layouts.cols,
                                       m_layers[il].spec.n_kv_heads, layout_words};
}

// Places the staged chunks, and the moves that bring their rows to their slots. A chunk that
// several layers read outlives a layer, so it is not part of the workspace.
void Cache::place_chunk(const Largest& largest, uint32_t chunk, Places& p)
{
    const uint32_t n = largest.n_kv_heads * chunk;
    for (size_t i = 0; i < m_chunks.size(); i++) {
        Placer& device = i ? p.device : p.workspace();
        m_chunks[i].n_rows = chunk;
        m_chunks[i].k = device.take(chunk, largest.chunk_cols[i], plain_format(m_recipe.k));
        m_chunks[i].v = largest.values_in_keys
                            ? m_chunks[i].k
                            : device.take(chunk, largest.chunk_cols[i], plain_format(m_recipe.v));
        if (m_recipe.scores()) m_chunks[i].scores = device.take(1, n);
    }
    const uint32_t n_gathered = largest.group > 1 ? largest.n_kv_heads * largest.group : 0;
    const uint32_t group = n_gathered ? largest.group : 0;
    m_gathered_k = p.workspace().take(group, largest.kv_cols, plain_format(m_recipe.k));
    m_gathered_v = p.workspace().take(group, largest.kv_cols, plain_format(m_recipe.v));
    const uint32_t max_moves[Moves::n_ways] = {largest.n_kv_heads * largest.n_plain_rows,
                                               largest.n_plain_rows ? n : 0,
                                               n_gathered,
                                               n_gathered,
                                               n_gathered,
                                               n};
    for (int way = 0; way < Moves::n_ways; way++) {
        m_device_moves[way] = p.workspace().take(max_moves[way], 2);
        m_moves.list[way] = p.host_workspace().array<uint32_t>(2ull * max_moves[way]);
    }
}

CacheBytes Cache::place_all(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe,
                            uint32_t chunk, uint32_t context, Places p)
{
    const uint64_t begin = p.device.offset, shared_begin = p.shared_device.offset;
    m_recipe = recipe;
    const Largest largest = place_layers(specs, chunk, context, p);
    m_rope_table = p.workspace().take(largest.n_rope_rows, largest.n_rope_on_read);
    for (CacheLayer& layer : m_layers)
        if (layer.spec.n_rope_on_read) layer.kv.rope_table = m_rope_table;
    if (recipe.scores() || largest.sinks) m_lse = p.workspace().take(chunk, largest.n_heads);
    place_layouts(largest.n_kv_heads, p);
    m_chunks.resize(largest.chunk_cols.size());
    if (largest.stages) {
        place_chunk(largest, chunk, p);
        m_text.counts = p.host.array<uint16_t>(recipe.retain->counts ? TextSeen::kBuckets : 0);
        place_decisions(specs, recipe, chunk, p.workspace(), p.host_workspace());
    }
    return {p.device.offset - begin,
            p.host.offset,
            p.shared_device.offset - shared_begin,
            p.shared_host.offset,
            largest.plane,
            std::max(p.device.largest, p.shared_device.largest)};
}

CacheBytes Cache::bytes_needed(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe,
                               uint32_t chunk, uint32_t context, const Placer& device,
                               bool shares_workspace)
{
    Cache cache;
    Placer shared;
    shared.align = device.align;
    return cache.place_all(specs, recipe, chunk, context,
                           {device, {}, shares_workspace, shared, {}});
}

void Cache::place(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe, uint32_t chunk,
                  uint32_t context, Backend& backend, const CacheMemory& m)
{
    m_backend = &backend;
    m_memory = m;
    const uint64_t align = backend.align();
    m_bytes = place_all(specs, recipe, chunk, context,
                        {{m.buffer, m.at, align},
                         {{m.host, 0}},
                         m.shares,
                         {m.buffer, m.workspace_at, align},
                         {{m.host_workspace, 0}}});
}

} // namespace ks
