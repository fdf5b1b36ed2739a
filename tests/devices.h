// The devices that tests go over.
#pragma once

#include "runtime/base/backend.h"

#include <algorithm>
#include <cstdlib>

namespace ks
{

// All but Vulkan's: one that is a program takes minutes for what others do at once. KS_TEST_BACKEND=vulkan (or another): of that backend
// only, and the reference.
inline std::vector<DeviceInfo> tested_devices()
{
    std::vector<DeviceInfo> devices = list_devices();
    const char* only = getenv("KS_TEST_BACKEND");
    const auto left_out = [&](const DeviceInfo& d) { return only ? d.backend != only && d.backend != "reference" : d.backend == "vulkan"; };
    devices.erase(std::remove_if(devices.begin(), devices.end(), left_out), devices.end());
    return devices;
}

inline std::vector<std::string> tested_names()
{
    std::vector<std::string> names;
    for (const DeviceInfo& device : tested_devices()) names.push_back(device.id);
    return names;
}

// Elsewhere, and with keys in groups or in polar codes, sums have another order where there are more tokens: a prompt and the same tokens
// one by one are not equal to the bit.
inline bool sums_keep_order(const std::string& device)
{
    return device == "cpu" || device == "reference";
}

} // namespace ks
