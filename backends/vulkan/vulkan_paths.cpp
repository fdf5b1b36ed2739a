#include "backends/vulkan/vulkan_paths.h"

#include "backends/vulkan/vulkan_texels.h"

#include <algorithm>
#include <cstring>

namespace ks
{

constexpr uint32_t kDecodeTokens = 4, kDecodeQueries = 16; // most of attention_decode
// Most queries of a KV head for which coded values are read in place (shaders/attention.comp).
constexpr uint32_t kInPlaceQueries = 4;

uint32_t attention_rows(uint32_t head_dim)
{
    return head_dim <= 64    ? 16
           : head_dim <= 128 ? 8
           : head_dim <= 256 ? 4
           : head_dim <= 512 ? 2
                             : 1;
}

// Why attention_decode cannot run. Null: it can. In it, eight lanes of a subgroup share a row, and
// registers keep the sums of each query.
static const char* why_not_decode(const VulkanLimits& limits, const AttentionArgs& a, bool weighted)
{
    if (a.n_rope_on_read || a.n_bias_dims)
        return "attention itself applies RoPE or the bias to keys";
    if (weighted) return "slots have log-weights";
    if (a.softcap != 0) return "logits have a softcap";
    if (a.n_tokens > kDecodeTokens) return "prefill, more than 4 tokens";
    if (a.n_tokens * (a.n_heads / a.n_kv_heads) > kDecodeQueries)
        return "more than 16 queries a key head";
    if (limits.lanes) return "lanes of a subgroup read texels together";
    if (!(limits.uses & use_subgroup_reduce))
        return "this device's sums over subgroups are not used";
    if (a.head_dim != 64 && a.head_dim != 128 && a.head_dim != 256)
        return "heads are not of 64, 128 or 256 values";
    return nullptr;
}

VulkanAttention choose_attention(const VulkanLimits& limits, const AttentionArgs& a, bool weighted)
{
    const uint32_t n = a.n_tokens * (a.n_heads / a.n_kv_heads);
    const char* why_not = why_not_decode(limits, a, weighted);
    if (!why_not) {
        const uint32_t rows = a.head_dim == 256 || n == 2 ? std::min(n, 2u) : n == 1 ? 1 : 4;
        return {"attention_decode", rows, false,
                "decode, at most 4 tokens and 16 queries a key head, subgroups add"};
    }
    const char* fast =
        lanes_shader(limits, limits.uses & use_subgroup_reduce ? "attention_sums" : "attention",
                     "attention_lanes", a.head_dim);
    const char* shader = is_plain(a, weighted) ? fast : "attention";
    return {shader, 0, n > std::min(attention_rows(a.head_dim), kInPlaceQueries), why_not};
}

KernelChoice explain_attention(const VulkanAttention& chosen, bool coded)
{
    return {chosen.decode_rows ? "attention_decode" : chosen.shader,
            chosen.dequantizes && coded ? "after attention_dequantize" : "", chosen.reason};
}

} // namespace ks
