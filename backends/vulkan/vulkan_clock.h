// Times kernels with the device's clock: a timestamp after each command of a command buffer, read
// after the buffer has run. A command's time is the time since the end of the command before it. So
// the times of overlapping commands add up to the busy time.
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

    void begin(VkCommandBuffer commands, uint32_t buffer); // before the buffer's first command
    void stamp(VkCommandBuffer commands, uint32_t buffer); // after each command
    // Reads the times of the first `n_commands` of a buffer for seconds().
    VkResult read(uint32_t buffer, uint32_t n_commands);
    double seconds(uint32_t nth) const;
    // Adds a command's time to the sum of its op and kernel. The name's pointer must stay valid.
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
    std::vector<VkQueryPool> m_pools; // one per command buffer
    uint32_t m_next = 0;              // next timestamp of the buffer in recording
    std::vector<uint64_t> m_ticks;    // of the buffer read last
    std::vector<Sum> m_sums;
};

} // namespace ks
