// The dispatch of an op's shader.
#pragma once

#include "backends/vulkan/vulkan_backend.h"
#include "kernels/common/codecs.h"
#include "kernels/common/formats.h"

namespace ks
{

constexpr uint64_t kDummyBytes = 256;

inline uint64_t divide_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

// The division of a matvec (shaders/matvec.glsl).
struct MatvecShape {
    uint32_t n_vec_tokens; // tokens of a workgroup
    uint32_t splits;       // threads that share a row
    uint32_t n_tiles;      // per thread
};
// With few rows, more splits keep all cores busy. With lanes, several tiles share the cost of
// reading x. The split of a row's sum does not depend on the number of tokens. So a prompt and the
// same tokens one by one give the same bits.
MatvecShape matvec_shape(uint32_t lanes, uint32_t n_tokens, uint32_t rows, uint32_t cols);
uint64_t matvec_groups(const MatvecShape& s, uint32_t rows); // workgroups for so many rows

template <class Push>
void VulkanBackend::run(const char* op, const char* variant, const VulkanSpecial& special,
                        const Push& push, const VulkanBinding* bindings, Groups groups, double work)
{
    static_assert(sizeof(Push) <= kMaxPush, "push constants");
    KS_CHECK(groups.x && groups.y && groups.z && groups.x <= m_device.limits().max_groups &&
                 groups.y <= m_device.limits().max_groups &&
                 groups.z <= m_device.limits().max_groups,
             "%s: (%llu, %llu, %llu) workgroups", op, (unsigned long long)groups.x,
             (unsigned long long)groups.y, (unsigned long long)groups.z);
    VkResult result;
    const VulkanPipeline& pipeline = m_pipelines.get(op, variant, special, &result);
    if (result != VK_SUCCESS) return m_stream.set_error(result, op);
    m_stream.dispatch({&pipeline,
                       bindings,
                       &push,
                       sizeof push,
                       {uint32_t(groups.x), uint32_t(groups.y), uint32_t(groups.z)},
                       work});
}

} // namespace ks
