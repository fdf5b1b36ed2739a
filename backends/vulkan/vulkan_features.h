// What a device may have beyond Vulkan 1.1, and which of it shaders use.
#pragma once

#include "backends/vulkan/vulkan_api.h"

#include <vector>

namespace ks
{

using VulkanExtensions = std::vector<VkExtensionProperties>;
bool has_extension(const VulkanExtensions& all, const char* name);

// Bits of what is used. Of a way of computing that a device has and is not known to be fast at, nothing is used.
enum : uint32_t {
    use_dots = 1,     // integer dot products of four bytes
    use_halves = 2,   // arithmetic in f16
    use_sums = 4,     // sums over the threads of a subgroup
    use_matrices = 8, // cooperative matrices of f16 with sums in f32
};

struct VulkanFaster {
    uint32_t has = 0;             // what the device has, in shapes that our shaders can use
    uint32_t fast = 0;            // of it, what it says or is known to be faster with
    uint32_t width = 0;           // threads of a subgroup, where pipelines can ask for it; 0: nothing is known
    uint32_t m = 0, n = 0, k = 0; // the shape of its matrices: sums are (m, n) over k products
};

// shared_bytes: of a workgroup.
VulkanFaster find_faster(const VulkanApi& vk, VkPhysicalDevice physical, const VulkanExtensions& extensions,
                         const VkPhysicalDeviceSubgroupProperties& subgroups, uint32_t shared_bytes);

// The structures and names that a device is asked with, or opened with, for what is in `uses`. Stays where it is: it points to itself.
struct FeatureChain {
    VkPhysicalDeviceFeatures2 first{};
    VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR dots{};
    VkPhysicalDeviceShaderFloat16Int8FeaturesKHR halves{};
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT widths{};
    VkPhysicalDeviceVulkanMemoryModelFeaturesKHR memory_model{};
#ifdef VK_KHR_cooperative_matrix
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices{};
#endif
    std::vector<const char*> extensions;

    explicit FeatureChain(uint32_t uses);
    FeatureChain(const FeatureChain&) = delete;
    FeatureChain& operator=(const FeatureChain&) = delete;
};

} // namespace ks
