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

using MakeBackend = Result<std::unique_ptr<Backend>> (*)(const std::string& id);

struct FoundDevices {
    std::vector<DeviceInfo> devices;
    MakeBackend make = nullptr;       // null: the backend is not built in
    std::vector<std::string> refused; // a sentence for each device that cannot be used
    std::string missing;              // why no device was found
};

// CUDA devices. open_backend prefers them, because they are faster than the processor.
static FoundDevices find_cuda()
{
    FoundDevices found;
#ifdef KS_CUDA
    for (const CudaFound& device : find_cuda_devices(&found.missing))
        found.devices.push_back(device.info);
    found.make = make_cuda_backend;
#endif
    return found;
}

// Vulkan devices. They may be software, or slower than the processor, so open_backend takes one
// only if it is named.
static FoundDevices find_vulkan()
{
    FoundDevices found;
#ifdef KS_VULKAN
    found.devices = find_vulkan_devices(&found.refused, &found.missing);
    found.make = make_vulkan_backend;
#endif
    return found;
}

static void append(std::vector<DeviceInfo>& to, const std::vector<DeviceInfo>& from)
{
    to.insert(to.end(), from.begin(), from.end());
}

std::vector<DeviceInfo> list_devices(std::vector<std::string>* refused)
{
    std::vector<DeviceInfo> devices = find_cuda().devices;
    devices.push_back(make_cpu_backend({})->info());
    const FoundDevices vulkan = find_vulkan();
    append(devices, vulkan.devices);
    devices.push_back(make_reference_backend({})->info());
    if (refused) *refused = vulkan.refused;
    return devices;
}

std::vector<BackendState> list_backends()
{
    std::string kernels;
    for (int i = 0; const char* name = built_cpu_kernels(i); i++)
        kernels += kernels.empty() ? name : std::string(" ") + name;
    const FoundDevices cuda = find_cuda(), vulkan = find_vulkan();
    return {{"cuda", cuda.make != nullptr, cuda.missing, ""},
            {"cpu", true, "", kernels},
            {"vulkan", vulkan.make != nullptr, vulkan.missing, ""},
            {"reference", true, "", ""}};
}

// The error for an id that names no usable device.
static Status no_device(const std::string& id)
{
    std::vector<std::string> refused;
    std::string known, reason = "there is no such device here";
    for (const DeviceInfo& device : list_devices(&refused))
        known += known.empty() ? device.id : ", " + device.id;
    for (const BackendState& backend : list_backends()) {
        if (id.substr(0, id.find(':')) != backend.name) continue;
        if (!backend.built_in)
            reason = backend.name + " is not built in";
        else if (!backend.missing.empty())
            reason = backend.name + " is built in, " + backend.missing;
    }
    for (const std::string& sentence : refused)
        if (sentence.compare(0, id.size() + 1, id + " ") == 0)
            reason = sentence.substr(sentence.find("): ") + 3);
    return fail(Code::device, "device '%s' cannot be used: %s; there are: %s",
                printable(id).c_str(), printable(reason, 200).c_str(), known.c_str());
}

Result<std::unique_ptr<Backend>> open_backend(const BackendOptions& options)
{
    const std::string& id = options.device;
    if (id == "reference") return make_reference_backend(options);
    if (id == "cpu") return make_cpu_backend(options);
    for (const FoundDevices& found : {find_cuda(), id.empty() ? FoundDevices() : find_vulkan()})
        for (const DeviceInfo& info : found.devices)
            if (id.empty() || id == info.id || id == info.backend) return found.make(info.id);
    if (id.empty()) return make_cpu_backend(options);
    return no_device(id);
}

} // namespace ks
