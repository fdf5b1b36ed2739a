#include "backends/vulkan/vulkan_texels.h"

#include "backends/vulkan/spirv.h"
#include "backends/vulkan/vulkan_stream.h"

#include <algorithm>

namespace ks
{

constexpr uint32_t kReservedViews = 4096; // more views need an allocation

// Software devices have subgroups of the size that they report.
uint32_t usable_lanes(const VulkanCandidate& c, const VkPhysicalDeviceSubgroupProperties& subgroups)
{
    const VkPhysicalDeviceLimits& limits = c.properties.limits;
    const bool shuffles = (subgroups.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) &&
                          (subgroups.supportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT);
    const bool texels = limits.minTexelBufferOffsetAlignment <= c.limits.align &&
                        limits.maxTexelBufferElements >= c.limits.range_bytes / 4;
    const uint32_t n = subgroups.subgroupSize;
    return c.software && shuffles && texels && (n == 4 || n == 8 || n == 16) ? n : 0;
}

const char* lanes_shader(const VulkanLimits& limits, const char* op, const char* lanes_op,
                         uint32_t head_dim)
{
    return limits.lanes && head_dim % (2 * limits.lanes) == 0 ? lanes_op : op;
}

void VulkanTexels::open(VulkanDevice& device)
{
    m_device = &device;
    m_views.reserve(on() ? kReservedViews : 0);
}

void VulkanTexels::close()
{
    for (const View& v : m_views)
        m_device->vk().DestroyBufferView(m_device->handle(), v.handle, nullptr);
    m_views.clear();
}

uint32_t VulkanTexels::add_layout(VkDescriptorSetLayoutBinding* bindings) const
{
    for (uint32_t i = 0; on() && i < kMaxBindings; i++)
        bindings[i] = {kFirstTexels + i, VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER, 1,
                       VK_SHADER_STAGE_COMPUTE_BIT, nullptr};
    return on() ? kMaxBindings : 0;
}

// The view from the binding's offset to the end of the buffer or of the largest range. The
// binding's size does not matter.
VkBufferView VulkanTexels::view_of(const VulkanBinding& bytes, VkResult* result)
{
    for (const View& v : m_views)
        if (v.buffer == bytes.buffer && v.offset == bytes.offset) return v.handle;
    VkBufferViewCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO;
    info.buffer = bytes.buffer;
    info.format = VK_FORMAT_R32_UINT;
    info.offset = bytes.offset;
    info.range =
        std::min(bytes.buffer_bytes - bytes.offset, m_device->limits().range_bytes) / 4 * 4;
    VkBufferView view = VK_NULL_HANDLE;
    const VkResult made =
        m_device->vk().CreateBufferView(m_device->handle(), &info, nullptr, &view);
    if (made == VK_SUCCESS) m_views.push_back({bytes.buffer, bytes.offset, view});
    if (*result == VK_SUCCESS) *result = made;
    return view;
}

VkResult VulkanTexels::bind(VkDescriptorSet set, const VulkanPipeline& pipeline,
                            const VulkanBinding* bindings, const VulkanBinding& dummy,
                            VkWriteDescriptorSet* writes, VkBufferView* views)
{
    VkResult result = VK_SUCCESS;
    for (uint32_t i = 0; i < kMaxBindings; i++) {
        views[i] = view_of(pipeline.texels >> i & 1 ? bindings[i] : dummy, &result);
        writes[i].sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
        writes[i].dstSet = set;
        writes[i].dstBinding = kFirstTexels + i;
        writes[i].descriptorCount = 1;
        writes[i].descriptorType = VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER;
        writes[i].pTexelBufferView = &views[i];
    }
    return result;
}

void VulkanTexels::forget(VkBuffer buffer)
{
    for (const View& v : m_views)
        if (v.buffer == buffer)
            m_device->vk().DestroyBufferView(m_device->handle(), v.handle, nullptr);
    m_views.erase(std::remove_if(m_views.begin(), m_views.end(),
                                 [&](const View& v) { return v.buffer == buffer; }),
                  m_views.end());
}

} // namespace ks
