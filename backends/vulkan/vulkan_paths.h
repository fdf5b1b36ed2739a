// Which of its shaders attention runs, and why.
#pragma once

#include "backends/vulkan/vulkan_device.h"

namespace ks
{

struct VulkanAttention {
    const char* shader;
    uint32_t decode_rows; // queries of a workgroup of attention_decode; 0: another shader runs
    bool dequantizes;     // coded keys and values become floats in the scratch first
    const char* reason;
};

// Queries of a KV head that a workgroup of the general shaders has (shaders/logits.glsl).
uint32_t attention_rows(uint32_t head_dim);
// Whether slots have no log-weights and keys are stored as queries meet them: all others have only
// the general shaders.
inline bool is_plain(const AttentionArgs& a, bool weighted)
{
    return !weighted && !a.n_rope_on_read && !a.n_wave;
}
VulkanAttention choose_attention(const VulkanLimits& limits, const AttentionArgs& a, bool weighted);
// coded: the layer has slots in codes.
KernelChoice explain_attention(const VulkanAttention& chosen, bool coded);
// The variant of a shader in which the lanes of a subgroup read texels together, where its heads
// can be read so.
const char* lanes_shader(const VulkanLimits& limits, const char* op, const char* lanes_op,
                         uint32_t head_dim);

} // namespace ks
