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
