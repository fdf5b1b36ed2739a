// Keys about layers that depend on each other, or have inputs of their own.
#include "runtime/model/gguf.h"
#include "runtime/model/tensor_names.h"

namespace ks
{

// Layers that store no keys read those of the last layer of their kind that does.
Status read_shared_kv(const Keys& keys, Config& c)
{
    uint32_t n_shared = 0, n_cached = 0;
    const LayerConfig* last[2] = {}; // by LayerConfig::window
    if (c.family->shared_kv)
        KS_TRY(keys.integer("attention.shared_kv_layers", 0, c.n_layers() - 1, &n_shared));
    for (uint32_t il = 0; il < c.n_layers(); il++) {
        LayerConfig& layer = c.layers[il];
        layer.owns_kv = il < c.n_layers() - n_shared;
        const LayerConfig*& source = last[layer.window];
        if (layer.stores()) {
            layer.il_cache = n_cached++;
            source = &layer;
            continue;
        }
        if (layer.owns_kv) continue;
        if (!source)
            return fail(Code::invalid, "%s: layer %u has no earlier %s layer whose keys it reads",
                        keys.label().c_str(), il, layer.window ? "window" : "full");
        if (layer.n_heads != source->n_heads || layer.n_kv_heads != source->n_kv_heads)
            return fail(Code::unsupported,
                        "%s: layer %u has %u heads over %u KV heads and reads the keys of a layer "
                        "with %u over %u, only equal numbers are supported",
                        keys.label().c_str(), il, layer.n_heads, layer.n_kv_heads, source->n_heads,
                        source->n_kv_heads);
        layer.il_cache = source->il_cache;
    }
    return {};
}

Status read_layer_inputs(const Keys& keys, Config& c)
{
    constexpr uint32_t kMaxLayerDim = 1u << 14;
    if (!c.family->layer_inputs) return {};
    KS_TRY(keys.integer("embedding_length_per_layer_input", 0, kMaxLayerDim, &c.layer_dim));
    const GgufTensor* rows = keys.gguf.find_tensor(kLayerEmbeddings);
    if (c.layer_dim && rows && rows->known)
        c.layer_table = {rows->format, rows->file, rows->offset, rows->bytes};
    const uint32_t block = format_info(c.layer_table.format).block;
    if (c.layer_dim % block == 0) return {};
    return fail(Code::unsupported, "%s is in blocks of %u values, which layers of %u cannot share",
                keys.gguf.location_of(*rows).c_str(), block, c.layer_dim);
}

} // namespace ks
