// Texel reads, for devices that are programs on the CPU (lavapipe). Such a device runs the threads
// of a subgroup as SIMD lanes. It loads words of a storage buffer lane by lane, but fetches texels
// for all lanes at once. So the LANES variants of shaders (shaders/lanes.glsl) read buffers as
// texels. This makes whole models fast enough on lavapipe to be tested there.
// The switch is VulkanLimits::lanes. If it is 0, nothing here has an effect.
#pragma once

#include "backends/vulkan/vulkan_device.h"

namespace ks
{

struct VulkanBinding;
struct VulkanPipeline;

// The value of VulkanLimits::lanes: the subgroup size of a device on which the LANES variants run
// and are faster; else 0.
uint32_t usable_lanes(const VulkanCandidate& c,
                      const VkPhysicalDeviceSubgroupProperties& subgroups);

// Chooses lanes_op, the LANES variant of op, if the lanes are on and divide the heads evenly.
const char* lanes_shader(const VulkanLimits& limits, const char* op, const char* lanes_op,
                         uint32_t head_dim);

// The texel buffers of the descriptor sets. A texel is one word.
class VulkanTexels
{
public:
    void open(VulkanDevice& device);
    void close();
    bool on() const { return m_device && m_device->limits().lanes; }

    // Writes the texel buffers of the set layout. Returns their number: kMaxBindings, or 0 if off.
    uint32_t add_layout(VkDescriptorSetLayoutBinding* bindings) const;
    // Fills `writes` for the texel buffers that a pipeline reads, and with `dummy` for the others.
    // The writes point into `views`. Returns the first error.
    VkResult bind(VkDescriptorSet set, const VulkanPipeline& pipeline,
                  const VulkanBinding* bindings, const VulkanBinding& dummy,
                  VkWriteDescriptorSet* writes, VkBufferView* views);
    void forget(VkBuffer buffer); // call before a buffer is destroyed

private:
    // A view of a buffer, from an offset on.
    struct View {
        VkBuffer buffer;
        uint64_t offset;
        VkBufferView handle;
    };

    VkBufferView view_of(const VulkanBinding& bytes, VkResult* result);

    VulkanDevice* m_device = nullptr;
    std::vector<View> m_views; // created at their first use
};

} // namespace ks
