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

struct BackendRow {
    const char* id;
    std::unique_ptr<Backend> (*make)(const BackendOptions&);
};

// Those that every machine has, the best first.
static const BackendRow kBackends[] = {
    {"cpu", make_cpu_backend},
    {"reference", make_reference_backend},
};

struct FoundDevice {
    DeviceInfo info;
    Result<std::unique_ptr<Backend>> (*make)(const std::string& id);
};

// Those that are there or not. They come after the processor until they have met hardware: what nobody asked for by name is not taken.
static std::vector<FoundDevice> find_devices(std::vector<std::string>* refused = nullptr)
{
    (void)refused; // by what was not built
    std::vector<FoundDevice> devices;
#ifdef KS_CUDA
    for (const CudaFound& found : find_cuda_devices()) devices.push_back({found.info, make_cuda_backend});
#endif
#ifdef KS_VULKAN
    for (const DeviceInfo& found : find_vulkan_devices(refused)) devices.push_back({found, make_vulkan_backend});
#endif
    return devices;
}

std::vector<DeviceInfo> list_devices(std::vector<std::string>* refused)
{
    std::vector<DeviceInfo> devices;
    for (const BackendRow& row : kBackends) devices.push_back(row.make({})->info());
    for (const FoundDevice& found : find_devices(refused)) devices.insert(devices.end() - 1, found.info);
    return devices;
}

Result<std::unique_ptr<Backend>> open_backend(const BackendOptions& options)
{
    const std::string& id = options.device;
    for (const BackendRow& row : kBackends)
        if (id.empty() || id == row.id) return row.make(options);
    for (const FoundDevice& found : find_devices())
        if (id == found.info.id || id == found.info.backend) return found.make(found.info.id);
    std::string known;
    for (const DeviceInfo& device : list_devices()) known += known.empty() ? device.id : ", " + device.id;
    return fail(Code::device, "there is no device '%s' here; there are: %s", printable(options.device).c_str(), known.c_str());
}

} // namespace ks
