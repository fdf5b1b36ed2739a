// The devices that tests run on.
#pragma once

#include "runtime/base/backend.h"

#include <algorithm>
#include <cstdlib>

namespace ks
{

// All devices except Vulkan's, because a software driver (lavapipe) takes minutes for each test.
// KS_TEST_BACKEND=vulkan (or another backend): the devices of that backend, and reference.
inline std::vector<DeviceInfo> tested_devices()
{
    std::vector<DeviceInfo> devices = list_devices();
    const char* only = getenv("KS_TEST_BACKEND");
    const auto is_skipped = [&](const DeviceInfo& d) {
        return only ? d.backend != only && d.backend != "reference" : d.backend == "vulkan";
    };
    devices.erase(std::remove_if(devices.begin(), devices.end(), is_skipped), devices.end());
    return devices;
}

inline std::vector<std::string> tested_names()
{
    std::vector<std::string> names;
    for (const DeviceInfo& device : tested_devices()) names.push_back(device.id);
    return names;
}

// Whether prefill and decode of the same tokens give the same bits. On other devices the order of
// sums depends on the number of tokens. So it does on these devices for keys in group codecs or
// polar codes.
inline bool sums_keep_order(const std::string& device)
{
    return device == "cpu" || device == "reference";
}

} // namespace ks
