// libvulkan, opened at run time. So a program that was built with Vulkan also starts where Vulkan
// is not installed.
#pragma once

#include "runtime/base/status.h"

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

namespace ks
{

// clang-format off
#ifdef VK_KHR_cooperative_matrix // headers of Vulkan 1.3.255 and later
#define KS_VK_MATRICES(X) X(GetPhysicalDeviceCooperativeMatrixPropertiesKHR)
#else
#define KS_VK_MATRICES(X)
#endif
#define KS_VK_GLOBAL(X) \
    X(CreateInstance) X(EnumerateInstanceVersion) X(EnumerateInstanceExtensionProperties)
#define KS_VK_INSTANCE(X) \
    X(EnumeratePhysicalDevices) X(GetPhysicalDeviceProperties2) X(GetPhysicalDeviceFeatures2) \
    X(GetPhysicalDeviceMemoryProperties2) X(GetPhysicalDeviceQueueFamilyProperties) \
    X(EnumerateDeviceExtensionProperties) X(CreateDevice) X(GetDeviceProcAddr) KS_VK_MATRICES(X)
#define KS_VK_DEVICE(X) \
    X(DestroyDevice) X(GetDeviceQueue) X(DeviceWaitIdle) X(AllocateMemory) X(FreeMemory) \
    X(MapMemory) X(CreateBuffer) X(DestroyBuffer) X(CreateBufferView) X(DestroyBufferView) \
    X(GetBufferMemoryRequirements) X(BindBufferMemory) X(CreateShaderModule) \
    X(DestroyShaderModule) X(CreatePipelineCache) X(DestroyPipelineCache) \
    X(GetPipelineCacheData) X(CreateComputePipelines) X(DestroyPipeline) \
    X(CreateDescriptorSetLayout) X(DestroyDescriptorSetLayout) X(CreatePipelineLayout) \
    X(DestroyPipelineLayout) X(CreateDescriptorPool) X(DestroyDescriptorPool) \
    X(AllocateDescriptorSets) X(UpdateDescriptorSets) X(CreateCommandPool) X(DestroyCommandPool) \
    X(AllocateCommandBuffers) X(BeginCommandBuffer) X(EndCommandBuffer) X(CmdBindPipeline) \
    X(CmdBindDescriptorSets) X(CmdPushConstants) X(CmdDispatch) X(CreateQueryPool) \
    X(DestroyQueryPool) X(GetQueryPoolResults) X(CmdResetQueryPool) X(CmdWriteTimestamp) \
    X(SetDebugUtilsObjectNameEXT) X(CmdPipelineBarrier) X(CmdCopyBuffer) X(CmdFillBuffer) \
    X(CreateFence) X(DestroyFence) X(ResetFences) X(WaitForFences) X(QueueSubmit)
// clang-format on

struct VulkanApi {
#define KS_VK_MEMBER(name) PFN_vk##name name = nullptr;
    KS_VK_GLOBAL(KS_VK_MEMBER)
    KS_VK_INSTANCE(KS_VK_MEMBER)
    KS_VK_DEVICE(KS_VK_MEMBER)
#undef KS_VK_MEMBER
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr = nullptr;

    Status load();
    void load_instance(VkInstance instance);
    void load_device(VkDevice device);
};

// The name of a result ("VK_ERROR_DEVICE_LOST"), or its number if it has no name here.
std::string vulkan_error(VkResult result);

} // namespace ks
