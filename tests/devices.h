// The devices that tests go over.
#pragma once

#include "runtime/base/backend.h"

#include <algorithm>
#include <cstdlib>

namespace ks
{

// All, but Vulkan's only where KS_TEST_VULKAN says so: a Vulkan device that is a program takes minutes for what others do at once.
inline std::vector<DeviceInfo> tested_devices()
{
    std::vector<DeviceInfo> devices = list_devices();
    const auto left_out = [](const DeviceInfo& device) { return device.backend == "vulkan" && !getenv("KS_TEST_VULKAN"); };
    devices.erase(std::remove_if(devices.begin(), devices.end(), left_out), devices.end());
    return devices;
}

} // namespace ks
