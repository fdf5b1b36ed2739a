// Times kernels by the device's clock: a timestamp after each command of a command buffer, read when the buffer has run. A command's time
// is what passed since the command before it ended, so the times of commands that overlap add up to the time that the device was busy.
#pragma once

#include "backends/vulkan/vulkan_device.h"

namespace ks
{

class VulkanClock
{
public:
    VulkanClock() = default;
    ~VulkanClock() { stop(); }
    VulkanClock(const VulkanClock&) = delete;
    VulkanClock& operator=(const VulkanClock&) = delete;

    // Makes timestamps for `n_commands` in each of `n_buffers` command buffers.
    Status start(VulkanDevice& device, uint32_t n_buffers, uint32_t n_commands);
    void stop();
    bool runs() const { return !m_pools.empty(); }

    void begin(VkCommandBuffer commands, uint32_t buffer); // before the first command of it
    void stamp(VkCommandBuffer commands, uint32_t buffer); // after each command
    // Reads what the first `n_commands` of a buffer took, for seconds().
    VkResult read(uint32_t buffer, uint32_t n_commands);
    double seconds(uint32_t nth) const;
    // Adds a command's time to those of its op and kernel; the name must stay where it is.
    void add(uint32_t op, const char* kernel, double seconds);
    std::vector<KernelTime> take();

private:
    struct Sum {
        uint32_t op;
        const char* kernel;
        uint64_t n;
        double seconds;
    };

    VulkanDevice* m_device = nullptr;
    std::vector<VkQueryPool> m_pools; // of each command buffer
    uint32_t m_next = 0;              // timestamp of the buffer that is being recorded
    std::vector<uint64_t> m_ticks;    // of the buffer that was read last
    std::vector<Sum> m_sums;
};

} // namespace ks
