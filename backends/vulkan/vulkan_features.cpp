#include "backends/vulkan/vulkan_features.h"

#include "backends/vulkan/vulkan_pipelines.h"

#include <algorithm>
#include <cstring>

namespace ks
{

bool has_extension(const VulkanExtensions& all, const char* name)
{
    return std::any_of(all.begin(), all.end(), [&](const VkExtensionProperties& e) {
        return strcmp(e.extensionName, name) == 0;
    });
}

FeatureChain::FeatureChain(uint32_t uses)
{
    first.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    auto add = [&](auto& part, VkStructureType type, const char* extension) {
        part.sType = type;
        part.pNext = first.pNext;
        first.pNext = &part;
        extensions.push_back(extension);
    };
    if (uses & use_int8_dot) {
        add(int8_dot, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR,
            VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
        int8_dot.shaderIntegerDotProduct = VK_TRUE;
    }
    if (uses & (use_f16 | use_matrices)) {
        add(f16, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES_KHR,
            VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME);
        f16.shaderFloat16 = VK_TRUE;
    }
    if (uses & (use_subgroup_reduce | use_matrices)) {
        add(widths, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT,
            VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
        widths.subgroupSizeControl = widths.computeFullSubgroups = VK_TRUE;
    }
#ifdef VK_KHR_cooperative_matrix
    if (uses & use_matrices) {
        add(memory_model, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES_KHR,
            VK_KHR_VULKAN_MEMORY_MODEL_EXTENSION_NAME);
        memory_model.vulkanMemoryModel = VK_TRUE;
        add(matrices, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
            VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME);
        matrices.cooperativeMatrix = VK_TRUE;
    }
#endif
}

// Whether the device has every extension and every feature that `uses` needs.
static bool has_features(const VulkanApi& vk, VkPhysicalDevice physical,
                         const VulkanExtensions& extensions, uint32_t uses)
{
    const FeatureChain wanted(uses);
    FeatureChain found(uses);
    for (const char* name : wanted.extensions)
        if (!has_extension(extensions, name)) return false;
    vk.GetPhysicalDeviceFeatures2(physical, &found.first);
    bool all = found.int8_dot.shaderIntegerDotProduct == wanted.int8_dot.shaderIntegerDotProduct &&
               found.f16.shaderFloat16 == wanted.f16.shaderFloat16 &&
               found.widths.subgroupSizeControl == wanted.widths.subgroupSizeControl &&
               found.widths.computeFullSubgroups == wanted.widths.computeFullSubgroups &&
               found.memory_model.vulkanMemoryModel == wanted.memory_model.vulkanMemoryModel;
#ifdef VK_KHR_cooperative_matrix
    all = all && found.matrices.cooperativeMatrix == wanted.matrices.cooperativeMatrix;
#endif
    return all;
}

// Chooses the first matrix shape that divides the tile of shaders/matmul_f16.comp and whose results
// fit into shared memory beside it and the largest grid.
static void find_matrices(const VulkanApi& vk, VkPhysicalDevice physical, uint32_t shared_bytes,
                          VulkanFeatures& out)
{
#ifdef VK_KHR_cooperative_matrix
    constexpr uint32_t kSide = 64, kDepth = 32, kTileBytes = 2 * kSide * 80 + 256,
                       kGridBytes = 4096;
    uint32_t n = 0;
    if (!vk.GetPhysicalDeviceCooperativeMatrixPropertiesKHR ||
        !find_shader("matmul_f16_matrices", "q8_0"))
        return;
    if (vk.GetPhysicalDeviceCooperativeMatrixPropertiesKHR(physical, &n, nullptr) != VK_SUCCESS)
        return;
    VkCooperativeMatrixPropertiesKHR none{};
    none.sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    std::vector<VkCooperativeMatrixPropertiesKHR> all(n, none);
    if (vk.GetPhysicalDeviceCooperativeMatrixPropertiesKHR(physical, &n, all.data()) != VK_SUCCESS)
        return;
    for (const VkCooperativeMatrixPropertiesKHR& p : all) {
        const bool types = p.AType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
                           p.BType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
                           p.CType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
                           p.ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR;
        if (!types || p.scope != VK_SCOPE_SUBGROUP_KHR || kSide % p.MSize || kSide % p.NSize ||
            kDepth % p.KSize)
            continue;
        const uint32_t n_subgroups = kThreads / out.width,
                       n_matrices = kSide / p.MSize * (kSide / p.NSize);
        if (n_matrices % n_subgroups ||
            kTileBytes + kGridBytes + 4 * n_subgroups * p.MSize * p.NSize > shared_bytes)
            continue;
        const uint32_t n_each = n_matrices / n_subgroups, wide = kSide / p.NSize;
        if (n_each < wide ? wide % n_each : n_each % wide) continue;
        out.m = p.MSize;
        out.n = p.NSize;
        out.k = p.KSize;
        out.has |= use_matrices;
        return;
    }
#else
    (void)vk, (void)physical, (void)shared_bytes, (void)out;
#endif
}

VulkanFeatures probe_features(const VulkanApi& vk, VkPhysicalDevice physical,
                              const VulkanExtensions& extensions,
                              const VkPhysicalDeviceSubgroupProperties& subgroups,
                              uint32_t shared_bytes)
{
    VulkanFeatures out;
    VkPhysicalDeviceProperties2 properties{};
    properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    VkPhysicalDeviceShaderIntegerDotProductPropertiesKHR int8_dot{};
    int8_dot.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES_KHR;
    VkPhysicalDeviceSubgroupSizeControlPropertiesEXT widths{};
    widths.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES_EXT;
    for (uint32_t use : {use_int8_dot, use_f16, use_subgroup_reduce})
        if (has_features(vk, physical, extensions, use)) out.has |= use;
    if (out.has & use_int8_dot) {
        int8_dot.pNext = properties.pNext;
        properties.pNext = &int8_dot;
    }
    if (out.has & use_subgroup_reduce) {
        widths.pNext = properties.pNext;
        properties.pNext = &widths;
    }
    vk.GetPhysicalDeviceProperties2(physical, &properties);
    constexpr VkSubgroupFeatureFlags kReduce = VK_SUBGROUP_FEATURE_BASIC_BIT |
                                               VK_SUBGROUP_FEATURE_ARITHMETIC_BIT |
                                               VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
    // The smallest subgroup size of at least 8. Drivers with several sizes run cooperative matrices
    // at this size.
    const uint32_t width = std::max(8u, widths.minSubgroupSize);
    const bool has_width = (out.has & use_subgroup_reduce) &&
                           (widths.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT);
    if (has_width && width <= widths.maxSubgroupSize && kThreads % width == 0) out.width = width;
    const bool reduces = (subgroups.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) &&
                         (subgroups.supportedOperations & kReduce) == kReduce;
    if (!out.width || !reduces) out.has &= ~uint32_t(use_subgroup_reduce);
    if (out.width && has_features(vk, physical, extensions, use_matrices))
        find_matrices(vk, physical, shared_bytes, out);
    out.fast =
        out.has &
        (int8_dot.integerDotProduct4x8BitPackedSignedAccelerated ? ~0u : ~uint32_t(use_int8_dot));
    return out;
}

} // namespace ks
