// A Vulkan device: found, measured, opened; and its memory.
#pragma once

#include "backends/vulkan/vulkan_features.h"
#include "runtime/base/backend.h"

#include <memory>

namespace ks
{

constexpr uint64_t kBlockBytes = 1ull << 30; // of memory at most: systems rarely refuse as much, and often more

// What the backend asks of a device: no more than Vulkan 1.1 guarantees, except where a number is said to be needed.
struct VulkanLimits {
    uint64_t range_bytes = 128ull << 20;    // that one binding may span
    uint64_t allocation_bytes = 1ull << 30; // in one block
    uint32_t align = 64;                    // of every tensor and every part of one in its buffer
    uint32_t shared_bytes = 16384;          // of a workgroup; shaders take no more than this
    uint32_t invocations = 128;             // in a workgroup; shaders have as many
    uint32_t max_groups = 65535;            // in one dimension of a dispatch
    uint32_t storage_buffers = 8;           // of a shader
    uint32_t lanes = 0;                     // threads that shaders may take a subgroup to have; 0: nothing is known
    uint32_t uses = 0;                      // of what is faster (vulkan_features.h)
    uint32_t timestamp_bits = 0;            // of its queue; 0: it has no clock
    bool unified = false;                   // device and host memory are one pool, buffers are mapped
    uint64_t n_submits = ~0ull;             // before the device is lost, and
    uint64_t n_blocks = ~0ull;              // before memory is refused: for tests
};

// One of the machine's devices that can be used, before it is opened.
struct VulkanCandidate {
    VkPhysicalDevice physical;
    VkPhysicalDeviceProperties properties;
    VulkanLimits limits;
    VulkanFaster faster;
    bool software; // runs on the processor
    bool has_memory_budget;
    uint32_t queue_family;
    std::string refusal; // why it cannot be used; empty: it can
    DeviceInfo info;
};

class VulkanInstance
{
public:
    Status open();
    const VulkanApi& api() const { return m_vk; }
    void load_device(VkDevice device);
    // In the loader's order, which is that of the ids.
    std::vector<VulkanCandidate> candidates();

private:
    VulkanCandidate look_at(VkPhysicalDevice physical, uint32_t index);

    VulkanApi m_vk;
    VkInstance m_instance = VK_NULL_HANDLE;
};

// A block of device memory and the buffer that spans it.
struct VulkanBlock {
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    uint64_t bytes = 0;
    uint8_t* mapped = nullptr; // where the host sees it; null: it does not
};

class VulkanDevice
{
public:
    VulkanDevice() = default;
    ~VulkanDevice();
    VulkanDevice(const VulkanDevice&) = delete;
    VulkanDevice& operator=(const VulkanDevice&) = delete;

    // "vulkan" is the first device that can be used, "vulkan:1" the second of the list.
    Status open(const std::string& id);
    const VulkanCandidate& candidate() const { return m_candidate; }
    const VulkanLimits& limits() const { return m_candidate.limits; }
    const VulkanApi& vk() const { return m_instance.api(); }
    VkDevice handle() const { return m_device; }
    VkQueue queue() const { return m_queue; }
    DeviceInfo info() const;

    // host: visible to the host whatever the device is.
    Status make_block(uint64_t bytes, bool host, VulkanBlock* out);
    void free_block(VulkanBlock& block);

private:
    std::vector<uint32_t> memory_types(uint32_t allowed, bool host) const;

    VulkanInstance m_instance;
    VulkanCandidate m_candidate;
    VkPhysicalDeviceMemoryProperties m_memory{};
    VkDevice m_device = VK_NULL_HANDLE;
    VkQueue m_queue = VK_NULL_HANDLE;
    uint64_t m_n_blocks = 0; // that were ever asked for
};

} // namespace ks
