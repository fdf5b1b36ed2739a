// The only place that knows which backends exist.
#include "backends/cpu/cpu_backend.h"
#include "backends/reference/reference_backend.h"
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

// Vulkan's come after the processor, until they have met hardware: what nobody asked for by name is not taken.
std::vector<DeviceInfo> list_devices()
{
    std::vector<DeviceInfo> devices;
    for (const BackendRow& row : kBackends) devices.push_back(row.make({})->info());
#ifdef KS_VULKAN
    const std::vector<DeviceInfo> found = find_vulkan_devices();
    devices.insert(devices.end() - 1, found.begin(), found.end());
#endif
    return devices;
}

Result<std::unique_ptr<Backend>> open_backend(const BackendOptions& options)
{
    const std::string& id = options.device;
    for (const BackendRow& row : kBackends)
        if (id.empty() || id == row.id) return row.make(options);
    std::string known;
    for (const DeviceInfo& device : list_devices()) {
#ifdef KS_VULKAN
        if (device.backend == "vulkan" && (id == device.id || id == "vulkan")) return make_vulkan_backend(device.id);
#endif
        known += known.empty() ? device.id : ", " + device.id;
    }
    return fail(Code::device, "there is no device '%s' here; there are: %s", printable(options.device).c_str(), known.c_str());
}

} // namespace ks
