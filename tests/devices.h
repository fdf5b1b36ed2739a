// The devices that tests go over.
#pragma once

#include "runtime/base/backend.h"

#include <algorithm>
#include <cstdlib>

namespace ks
{

// All, but Vulkan's only where KS_TEST_VULKAN says so: a Vulkan device that is a program takes minutes for what others do at once.
// KS_TEST_VULKAN=only: nothing beside them but the reference.
inline std::vector<DeviceInfo> tested_devices()
{
    std::vector<DeviceInfo> devices = list_devices();
    const char* vulkan = getenv("KS_TEST_VULKAN");
    const bool only = vulkan && std::string(vulkan) == "only";
    const auto left_out = [&](const DeviceInfo& d) { return d.backend == "vulkan" ? !vulkan : only && d.backend != "reference"; };
    devices.erase(std::remove_if(devices.begin(), devices.end(), left_out), devices.end());
    return devices;
}

inline std::vector<std::string> tested_names()
{
    std::vector<std::string> names;
    for (const DeviceInfo& device : tested_devices()) names.push_back(device.id);
    return names;
}

} // namespace ks
