// Finds Vulkan devices, reads their limits, opens one, and allocates its memory.
#pragma once

#include "backends/vulkan/vulkan_features.h"
#include "runtime/base/backend.h"

#include <memory>

namespace ks
{

constexpr uint64_t kBlockBytes = 1ull << 30; // largest block: systems often refuse larger ones

// The limits that the backend respects. The defaults are the guarantees of Vulkan 1.1 or the needs
// of the shaders.
struct VulkanLimits {
    uint64_t range_bytes = 128ull << 20;    // per binding
    uint64_t allocation_bytes = 1ull << 30; // per block
    uint32_t align = 64;                    // of every tensor and of every bound part of a tensor
    uint32_t shared_bytes = 16384;          // per workgroup; shaders use no more
    uint32_t invocations = 128;             // per workgroup; shaders use this many
    uint32_t max_groups = 65535;            // per dimension of a dispatch
    uint32_t storage_buffers = 8;           // per shader
    uint32_t lanes = 0;                     // subgroup size that shaders may rely on; 0: unknown
    uint32_t uses = 0;                      // features in use (vulkan_features.h)
    uint32_t timestamp_bits = 0;            // of the queue; 0: no timestamps
    bool unified = false;                   // device and host share memory, and buffers are mapped
    uint64_t n_submits = ~0ull;             // for tests: submits before the device is lost
    uint64_t n_blocks = ~0ull;              // for tests: blocks before memory is refused
};

// A device of the machine before it is opened.
struct VulkanCandidate {
    VkPhysicalDevice physical;
    VkPhysicalDeviceProperties properties;
    VulkanLimits limits;
    VulkanFeatures faster;
    bool software; // runs on the CPU
    bool has_memory_budget;
    uint32_t queue_family;
    std::string refusal; // why the device cannot be used; empty: it can
    DeviceInfo info;
};

class VulkanInstance
{
public:
    Status open();
    const VulkanApi& api() const { return m_vk; }
    void load_device(VkDevice device);
    // In the loader's order, which the ids follow.
    std::vector<VulkanCandidate> candidates();

private:
    VulkanCandidate probe_device(VkPhysicalDevice physical, uint32_t index);

    VulkanApi m_vk;
    VkInstance m_instance = VK_NULL_HANDLE;
};

// A block of device memory and the buffer that spans it.
struct VulkanBlock {
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    uint64_t bytes = 0;
    uint8_t* mapped = nullptr; // null: not visible to the host
};

class VulkanDevice
{
public:
    VulkanDevice() = default;
    ~VulkanDevice();
    VulkanDevice(const VulkanDevice&) = delete;
    VulkanDevice& operator=(const VulkanDevice&) = delete;

    // "vulkan" is the first usable device, "vulkan:1" the second device of the list.
    Status open(const std::string& id);
    const VulkanCandidate& candidate() const { return m_candidate; }
    const VulkanLimits& limits() const { return m_candidate.limits; }
    const VulkanApi& vk() const { return m_instance.api(); }
    VkDevice handle() const { return m_device; }
    VkQueue queue() const { return m_queue; }
    DeviceInfo info() const;

    // host: the block must be visible to the host.
    Status make_block(uint64_t bytes, bool host, VulkanBlock* out);
    void free_block(VulkanBlock& block);

private:
    std::vector<uint32_t> memory_types(uint32_t allowed, bool host) const;

    VulkanInstance m_instance;
    VulkanCandidate m_candidate;
    VkPhysicalDeviceMemoryProperties m_memory{};
    VkDevice m_device = VK_NULL_HANDLE;
    VkQueue m_queue = VK_NULL_HANDLE;
    uint64_t m_n_blocks = 0; // blocks requested so far
};

} // namespace ks
