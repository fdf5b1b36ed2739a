// Optional features beyond Vulkan 1.1, and which of them the shaders use.
#pragma once

#include "backends/vulkan/vulkan_api.h"

#include <vector>

namespace ks
{

using VulkanExtensions = std::vector<VkExtensionProperties>;
bool has_extension(const VulkanExtensions& all, const char* name);

// Bits of features. A feature is used only if the device has it and is known to be fast with it.
enum : uint32_t {
    use_int8_dot = 1,        // integer dot products of four bytes
    use_f16 = 2,             // arithmetic in f16
    use_subgroup_reduce = 4, // reductions over a subgroup
    use_matrices = 8,        // cooperative matrices of f16 with sums in f32
};

struct VulkanFeatures {
    uint32_t has = 0;   // features of the device that the shaders can use
    uint32_t fast = 0;  // features in `has` that the device reports, or is known, to be fast with
    uint32_t width = 0; // subgroup size that pipelines request; 0: unknown
    uint32_t m = 0, n = 0, k = 0; // shape of the cooperative matrices: (m, n) sums over k products
};

// Finds the features of a device. shared_bytes: most shared memory of a workgroup.
VulkanFeatures probe_features(const VulkanApi& vk, VkPhysicalDevice physical,
                              const VulkanExtensions& extensions,
                              const VkPhysicalDeviceSubgroupProperties& subgroups,
                              uint32_t shared_bytes);

// The feature structures and extension names for the bits in `uses`, to query a device or to open
// it. It cannot be copied, because its pNext pointers point into it.
struct FeatureChain {
    VkPhysicalDeviceFeatures2 first{};
    VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR int8_dot{};
    VkPhysicalDeviceShaderFloat16Int8FeaturesKHR f16{};
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
