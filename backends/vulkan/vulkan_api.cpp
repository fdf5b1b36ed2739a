#include "backends/vulkan/vulkan_api.h"

#include <dlfcn.h>

namespace ks
{

Status VulkanApi::load()
{
    // The library is never closed, because drivers have threads that outlive their devices.
    void* library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen("libvulkan.so", RTLD_NOW | RTLD_LOCAL);
    if (!library) return Status(Code::device, "libvulkan.so.1 is not installed");
    GetInstanceProcAddr =
        reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
    if (!GetInstanceProcAddr)
        return Status(Code::device, "libvulkan.so.1 has no vkGetInstanceProcAddr");
#define KS_VK_LOAD(name)                                                                           \
    name = reinterpret_cast<PFN_vk##name>(GetInstanceProcAddr(nullptr, "vk" #name));
    KS_VK_GLOBAL(KS_VK_LOAD)
#undef KS_VK_LOAD
    if (!EnumerateInstanceVersion)
        return Status(Code::device, "libvulkan.so.1 knows Vulkan 1.0 only, 1.1 is needed");
    return {};
}

void VulkanApi::load_instance(VkInstance instance)
{
#define KS_VK_LOAD(name)                                                                           \
    name = reinterpret_cast<PFN_vk##name>(GetInstanceProcAddr(instance, "vk" #name));
    KS_VK_INSTANCE(KS_VK_LOAD)
#undef KS_VK_LOAD
}

void VulkanApi::load_device(VkDevice device)
{
#define KS_VK_LOAD(name)                                                                           \
    name = reinterpret_cast<PFN_vk##name>(GetDeviceProcAddr(device, "vk" #name));
    KS_VK_DEVICE(KS_VK_LOAD)
#undef KS_VK_LOAD
}

std::string vulkan_error(VkResult result)
{
    switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
        return "VK_ERROR_OUT_OF_HOST_MEMORY";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
        return "VK_ERROR_OUT_OF_DEVICE_MEMORY";
    case VK_ERROR_INITIALIZATION_FAILED:
        return "VK_ERROR_INITIALIZATION_FAILED";
    case VK_ERROR_DEVICE_LOST:
        return "VK_ERROR_DEVICE_LOST";
    case VK_ERROR_INCOMPATIBLE_DRIVER:
        return "VK_ERROR_INCOMPATIBLE_DRIVER";
    default:
        return "VkResult " + std::to_string(int(result));
    }
}

} // namespace ks
