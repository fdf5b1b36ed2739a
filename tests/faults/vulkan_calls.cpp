// Sits between the library and Vulkan: its functions fail when armed, and the objects they make are
// counted. The linker redirects dlsym to __wrap_dlsym (cmake/tests.cmake).
#ifdef KS_VULKAN
#include "backends/vulkan/vulkan_api.h"
#include "tests/faults/inject.h"

#include <cstring>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace ks
{

static constexpr bool begins(std::string_view name, std::string_view with)
{
    return name.substr(0, with.size()) == with;
}

template <class Name, class F>
struct Between;
template <class Name, class R, class... A>
struct Between<Name, R(VKAPI_PTR*)(A...)> {
    static inline R(VKAPI_PTR* real)(A...) = nullptr;
    static R VKAPI_CALL call(A... a)
    {
        if constexpr (std::is_same_v<R, VkResult>) {
            const bool failed = fails(Fault::driver);
            if (failed && !Name::waits) return VK_ERROR_OUT_OF_HOST_MEMORY;
            const VkResult result = real(a...);
            if (result == VK_SUCCESS && Name::makes) made_object(1);
            return failed ? VK_ERROR_DEVICE_LOST : result;
        } else {
            if constexpr (Name::destroys)
                made_object(std::get<sizeof...(A) - 2>(std::tie(a...)) ? -1 : 0);
            return real(a...);
        }
    }
};
#define KS_VK_NAME(name)                                                                           \
    struct Name##name {                                                                            \
        static constexpr std::string_view text = #name;                                            \
        static constexpr bool waits = text == "WaitForFences" || text == "DeviceWaitIdle";         \
        static constexpr bool makes = begins(text, "Create") || text == "AllocateMemory";          \
        static constexpr bool destroys = begins(text, "Destroy") || text == "FreeMemory";          \
    };
KS_VK_GLOBAL(KS_VK_NAME)
KS_VK_INSTANCE(KS_VK_NAME)
KS_VK_DEVICE(KS_VK_NAME)

static PFN_vkGetInstanceProcAddr real_instance_proc;

static PFN_vkVoidFunction between(const char* name, PFN_vkVoidFunction real)
{
    if (!real) return nullptr;
#define KS_VK_BETWEEN(n)                                                                           \
    if (!strcmp(name, "vk" #n)) {                                                                  \
        Between<Name##n, PFN_vk##n>::real = reinterpret_cast<PFN_vk##n>(real);                     \
        return reinterpret_cast<PFN_vkVoidFunction>(Between<Name##n, PFN_vk##n>::call);            \
    }
    KS_VK_GLOBAL(KS_VK_BETWEEN)
    KS_VK_INSTANCE(KS_VK_BETWEEN)
    KS_VK_DEVICE(KS_VK_BETWEEN)
    return real;
}

static PFN_vkVoidFunction VKAPI_CALL device_proc(VkDevice device, const char* name)
{
    return between(name,
                   Between<NameGetDeviceProcAddr, PFN_vkGetDeviceProcAddr>::real(device, name));
}

static PFN_vkVoidFunction VKAPI_CALL instance_proc(VkInstance instance, const char* name)
{
    const PFN_vkVoidFunction found = between(name, real_instance_proc(instance, name));
    return strcmp(name, "vkGetDeviceProcAddr") ? found
                                               : reinterpret_cast<PFN_vkVoidFunction>(device_proc);
}

} // namespace ks

extern "C" void* __real_dlsym(void* library, const char* name);
extern "C" void* __wrap_dlsym(void* library, const char* name)
{
    void* found = __real_dlsym(library, name);
    if (!found || strcmp(name, "vkGetInstanceProcAddr")) return found;
    ks::real_instance_proc = reinterpret_cast<PFN_vkGetInstanceProcAddr>(found);
    return reinterpret_cast<void*>(ks::instance_proc);
}
#endif
