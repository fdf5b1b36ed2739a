// The choice of attention's shader, and its reason.
#pragma once

#include "backends/vulkan/vulkan_device.h"

namespace ks
{

struct VulkanAttention {
    const char* shader;
    uint32_t decode_rows; // queries of a workgroup of attention_decode; 0: another shader runs
    bool dequantizes;     // coded keys and values are dequantized to the scratch first
    const char* reason;
};

// Queries of a workgroup of attention.comp (shaders/logits.glsl).
uint32_t attention_rows(uint32_t head_dim);
// Whether slots have no log-weights, logits have no softcap, and keys are stored after RoPE and
// with their bias. Otherwise only the variants "attention" and "kv_score" run.
inline bool is_plain(const AttentionArgs& a, bool weighted)
{
    return !weighted && !a.n_rope_on_read && !a.n_bias_dims && a.softcap == 0;
}
VulkanAttention choose_attention(const VulkanLimits& limits, const AttentionArgs& a, bool weighted);
// coded: the layer has coded slots.
KernelChoice explain_attention(const VulkanAttention& chosen, bool coded);

} // namespace ks
