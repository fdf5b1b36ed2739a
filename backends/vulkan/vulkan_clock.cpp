#include "backends/vulkan/vulkan_clock.h"

namespace ks
{

Status VulkanClock::start(VulkanDevice& device, uint32_t n_buffers, uint32_t n_commands)
{
    if (device.limits().timestamp_bits == 0)
        return fail(
            Code::device,
            "%s has no timestamps (its queue has 0 valid bits), so its kernels cannot be timed",
            device.candidate().info.id.c_str());
    m_device = &device;
    VkQueryPoolCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = n_commands + 1;
    for (uint32_t i = 0; i < n_buffers; i++) {
        VkQueryPool pool = VK_NULL_HANDLE;
        const VkResult result = device.vk().CreateQueryPool(device.handle(), &info, nullptr, &pool);
        if (result != VK_SUCCESS) {
            stop();
            return fail(Code::device, "Vulkan cannot make timestamps: %s",
                        vulkan_error(result).c_str());
        }
        m_pools.push_back(pool);
    }
    m_ticks.resize(n_commands + 1);
    return {};
}

void VulkanClock::stop()
{
    for (VkQueryPool pool : m_pools)
        m_device->vk().DestroyQueryPool(m_device->handle(), pool, nullptr);
    m_pools.clear();
    m_sums.clear();
}

// The first timestamp waits for the previous buffer. Otherwise the time of its last command would
// count twice.
void VulkanClock::begin(VkCommandBuffer commands, uint32_t buffer)
{
    m_next = 0;
    m_device->vk().CmdResetQueryPool(commands, m_pools[buffer], 0, uint32_t(m_ticks.size()));
    stamp(commands, buffer);
}

void VulkanClock::stamp(VkCommandBuffer commands, uint32_t buffer)
{
    m_device->vk().CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
                                     m_pools[buffer], m_next++);
}

VkResult VulkanClock::read(uint32_t buffer, uint32_t n_commands)
{
    return m_device->vk().GetQueryPoolResults(m_device->handle(), m_pools[buffer], 0,
                                              n_commands + 1, 8 * (n_commands + 1), m_ticks.data(),
                                              8, VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
}

double VulkanClock::seconds(uint32_t nth) const
{
    const uint64_t mask = ~0ull >> (64 - m_device->limits().timestamp_bits);
    return double((m_ticks[nth + 1] - m_ticks[nth]) & mask) *
           m_device->candidate().properties.limits.timestampPeriod * 1e-9;
}

void VulkanClock::add(uint32_t op, const char* kernel, double seconds)
{
    for (Sum& sum : m_sums)
        if (sum.op == op && sum.kernel == kernel) {
            sum.n++;
            sum.seconds += seconds;
            return;
        }
    m_sums.push_back({op, kernel, 1, seconds});
}

std::vector<KernelTime> VulkanClock::take()
{
    std::vector<KernelTime> times;
    for (const Sum& sum : m_sums) times.push_back({sum.op, sum.kernel, sum.n, sum.seconds});
    m_sums.clear();
    return times;
}

} // namespace ks
