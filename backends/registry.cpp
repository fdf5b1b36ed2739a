// The only place that knows which backends exist.
#include "backends/cpu/cpu_backend.h"
#include "backends/reference/reference_backend.h"

namespace ks
{

struct BackendRow {
    const char* id;
    std::unique_ptr<Backend> (*make)(const BackendOptions&);
};

// The best first.
static const BackendRow kBackends[] = {
    {"cpu", make_cpu_backend},
    {"reference", make_reference_backend},
};

Result<std::unique_ptr<Backend>> open_backend(const BackendOptions& options)
{
    std::string known;
    for (const BackendRow& row : kBackends) {
        if (options.device.empty() || options.device == row.id) return row.make(options);
        known += known.empty() ? row.id : std::string(", ") + row.id;
    }
    return fail(Code::device, "there is no device '%s' here; there are: %s", printable(options.device).c_str(), known.c_str());
}

std::vector<DeviceInfo> list_devices()
{
    std::vector<DeviceInfo> devices;
    for (const BackendRow& row : kBackends) devices.push_back(row.make({})->info());
    return devices;
}

} // namespace ks
