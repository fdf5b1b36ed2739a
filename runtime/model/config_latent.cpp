// The keys of latent attention.
#include "kernels/common/codecs.h"
#include "runtime/model/config.h"
#include "runtime/model/gguf.h"

#include <cmath>

namespace ks
{

constexpr uint32_t kMaxRank = 1u << 16;

static Status check_latent(const Keys& keys, const Config& c)
{
    const LatentConfig& l = c.latent;
    const std::string label = keys.label();
    for (const LayerConfig& layer : c.layers)
        if (layer.n_heads != c.n_heads || layer.n_kv_heads != 1)
            return fail(Code::invalid,
                        "%s: latent attention with %u heads over %u KV heads in a layer, %u over 1 "
                        "was expected",
                        label.c_str(), layer.n_heads, layer.n_kv_heads, c.n_heads);
    if (c.n_heads > route_max_experts)
        return fail(Code::unsupported,
                    "%s: latent attention with %u heads, at most %u are possible", label.c_str(),
                    c.n_heads, route_max_experts);
    if (l.dim % tile_rows != 0 || l.value_dim % tile_rows != 0)
        return fail(Code::unsupported,
                    "%s: latents of %u values and heads of %u, multiples of %u were expected",
                    label.c_str(), l.dim, l.value_dim, tile_rows);
    if (c.rope.n_rot % 2 == 0 && l.dim + c.rope.n_rot <= codec_max_dim) return {};
    return fail(Code::unsupported,
                "%s: latents of %u values beside keys of %u, at most %u values together and an "
                "even number of the latter were expected",
                label.c_str(), l.dim, c.rope.n_rot, codec_max_dim);
}

// Files before the split of attn_kv_b have its matrices in an order that cannot be multiplied by
// queries, and lack the keys of the sizes.
Status read_latent(const Keys& keys, Config& c)
{
    LatentConfig& l = c.latent;
    if (!keys.has("attention.key_length_mla"))
        return fail(Code::unsupported,
                    "%s has no key '%s', as files before April 2025 have, whose keys and values "
                    "share one matrix (attn_kv_b); newer files have two (attn_k_b, attn_v_b)",
                    keys.label().c_str(), keys.key("attention.key_length_mla").c_str());
    KS_TRY(keys.need(
        {"attention.kv_lora_rank", "attention.value_length_mla", "rope.dimension_count"}));
    KS_TRY(keys.integer("attention.kv_lora_rank", 1, codec_max_dim, &l.dim));
    KS_TRY(keys.integer("attention.q_lora_rank", 0, kMaxRank, &l.q_dim));
    KS_TRY(keys.integer("rope.dimension_count", 2, codec_max_dim, &c.rope.n_rot));
    KS_TRY(keys.integer("attention.key_length_mla", c.rope.n_rot + 1, kMaxRank, &l.key_dim));
    KS_TRY(keys.integer("attention.value_length_mla", 1, kMaxRank, &l.value_dim));
    KS_TRY(check_latent(keys, c));
    c.attention_scale = float(1 / std::sqrt(double(l.key_dim)));
    l.key_dim -= c.rope.n_rot;
    c.head_dim = l.dim + c.rope.n_rot;
    for (LayerConfig& layer : c.layers) layer.head_dim = c.head_dim;
    return {};
}

} // namespace ks
