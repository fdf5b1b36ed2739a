// The devices that tests go over.
#pragma once

#include "runtime/base/backend.h"

#include <algorithm>
#include <cstdlib>

namespace ks
{

// All, but Vulkan's only where KS_TEST_VULKAN says so: a Vulkan device that is a program takes minutes for what others do at once.
// KS_TEST_BACKEND: of that backend only.
inline std::vector<DeviceInfo> tested_devices()
{
    std::vector<DeviceInfo> devices = list_devices();
    const char* only = getenv("KS_TEST_BACKEND");
    const auto left_out = [&](const DeviceInfo& device) {
        return only ? device.backend != only : device.backend == "vulkan" && !getenv("KS_TEST_VULKAN");
    };
    devices.erase(std::remove_if(devices.begin(), devices.end(), left_out), devices.end());
    return devices;
}

// The ids of reference and of those tested that have an ability.
inline std::vector<const char*> ids_of_those_with(bool DeviceInfo::*ability)
{
    static const std::vector<DeviceInfo> devices = tested_devices();
    std::vector<const char*> ids = {"reference"};
    for (const DeviceInfo& device : devices)
        if (device.*ability && device.backend != "reference") ids.push_back(device.id.c_str());
    return ids;
}

} // namespace ks
