// The only place that knows which backends exist.
#include "backends/cpu/cpu_backend.h"
#include "backends/reference/reference_backend.h"
#ifdef KS_CUDA
#include "backends/cuda/cuda_backend.h"
#endif
#ifdef KS_VULKAN
#include "backends/vulkan/vulkan_backend.h"
#endif

namespace ks
{

struct FoundDevice {
    DeviceInfo info;
    Result<std::unique_ptr<Backend>> (*make)(const std::string& id);
};

// What CUDA finds is faster than the processor.
static std::vector<FoundDevice> find_faster()
{
    std::vector<FoundDevice> devices;
#ifdef KS_CUDA
    for (const CudaFound& found : find_cuda_devices()) devices.push_back({found.info, make_cuda_backend});
#endif
    return devices;
}

// What Vulkan finds may be a program, or slower than the processor beside it: it is taken where it is named.
static std::vector<FoundDevice> find_others(std::vector<std::string>* refused = nullptr)
{
    (void)refused; // by what was not built
    std::vector<FoundDevice> devices;
#ifdef KS_VULKAN
    for (const DeviceInfo& found : find_vulkan_devices(refused)) devices.push_back({found, make_vulkan_backend});
#endif
    return devices;
}

// The best first.
std::vector<DeviceInfo> list_devices(std::vector<std::string>* refused)
{
    std::vector<DeviceInfo> devices;
    for (const FoundDevice& found : find_faster()) devices.push_back(found.info);
    devices.push_back(make_cpu_backend({})->info());
    for (const FoundDevice& found : find_others(refused)) devices.push_back(found.info);
    devices.push_back(make_reference_backend({})->info());
    return devices;
}

Result<std::unique_ptr<Backend>> open_backend(const BackendOptions& options)
{
    const std::string& id = options.device;
    const auto is_wanted = [&](const DeviceInfo& info) { return id == info.id || id == info.backend; };
    if (id == "reference") return make_reference_backend(options);
    if (id != "cpu")
        for (const FoundDevice& found : find_faster())
            if (id.empty() || is_wanted(found.info)) return found.make(found.info.id);
    if (id.empty() || id == "cpu") return make_cpu_backend(options);
    for (const FoundDevice& found : find_others())
        if (is_wanted(found.info)) return found.make(found.info.id);
    std::string known;
    for (const DeviceInfo& device : list_devices()) known += known.empty() ? device.id : ", " + device.id;
    return fail(Code::device, "there is no device '%s' here; there are: %s", printable(options.device).c_str(), known.c_str());
}

} // namespace ks
