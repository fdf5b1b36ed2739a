#include "backends/vulkan/vulkan_stream.h"

#include <algorithm>
#include <cstring>

namespace ks
{

constexpr uint32_t kSets = 1024;          // per batch: more than a decoded token needs
constexpr size_t kListBytes = 320u << 10; // per batch's list: more than a decoded token needs
constexpr size_t kMaxCommand = 512;       // bytes of one command
constexpr size_t kShortList = 16384;      // bytes: about one layer
constexpr uint32_t kAccesses = 16384;     // tracked between two waits
// Multiply-adds per submit, so that a submit ends before the system's GPU timeout.
constexpr double kMaxWork = 2e9;
constexpr VkPipelineStageFlags kStages =
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr VkAccessFlags kWrites = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr VkAccessFlags kReads = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;

static Status cannot(const char* what, VkResult result)
{
    return fail(Code::device, "Vulkan cannot make %s: %s", what, vulkan_error(result).c_str());
}

VulkanStream::~VulkanStream()
{
    if (!m_device || !m_device->handle()) return;
    const VulkanApi& vk = m_device->vk();
    const VkDevice device = m_device->handle();
    vk.DeviceWaitIdle(device);
    for (Batch& b : m_batches)
        if (b.fence) vk.DestroyFence(device, b.fence, nullptr);
    if (m_commands) vk.DestroyCommandPool(device, m_commands, nullptr);
    if (m_sets) vk.DestroyDescriptorPool(device, m_sets, nullptr);
    m_texels.close();
    if (m_layout) vk.DestroyPipelineLayout(device, m_layout, nullptr);
    if (m_set_layout) vk.DestroyDescriptorSetLayout(device, m_set_layout, nullptr);
}

Status VulkanStream::open(VulkanDevice& device)
{
    m_device = &device;
    m_accesses.reserve(kAccesses);
    m_list.reserve(kListBytes);
    for (Batch& b : m_batches) b.list.reserve(kListBytes);
    m_texels.open(device);
    KS_TRY(make_layouts());
    return make_batches();
}

// One layout for all shaders: kMaxBindings storage buffers and push constants, and as many texel
// buffers where shaders read texels. A shader uses the first buffers.
Status VulkanStream::make_layouts()
{
    const VulkanApi& vk = m_device->vk();
    VkDescriptorSetLayoutBinding bindings[2 * kMaxBindings] = {};
    for (uint32_t i = 0; i < kMaxBindings; i++)
        bindings[i] = {i, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT,
                       nullptr};
    VkDescriptorSetLayoutCreateInfo set{};
    set.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO;
    set.bindingCount = kMaxBindings + m_texels.add_layout(bindings + kMaxBindings);
    set.pBindings = bindings;
    VkResult result =
        vk.CreateDescriptorSetLayout(m_device->handle(), &set, nullptr, &m_set_layout);
    if (result != VK_SUCCESS) return cannot("a set layout", result);
    const VkPushConstantRange push{VK_SHADER_STAGE_COMPUTE_BIT, 0, kMaxPush};
    VkPipelineLayoutCreateInfo layout{};
    layout.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
    layout.setLayoutCount = 1;
    layout.pSetLayouts = &m_set_layout;
    layout.pushConstantRangeCount = 1;
    layout.pPushConstantRanges = &push;
    result = vk.CreatePipelineLayout(m_device->handle(), &layout, nullptr, &m_layout);
    return result == VK_SUCCESS ? Status() : cannot("a pipeline layout", result);
}

Status VulkanStream::make_batches()
{
    const VulkanApi& vk = m_device->vk();
    const VkDevice device = m_device->handle();
    const VkDescriptorPoolSize size[] = {
        {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, kBatches * kSets * kMaxBindings},
        {VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER, kBatches * kSets * kMaxBindings}};
    VkDescriptorPoolCreateInfo sets{};
    sets.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
    sets.maxSets = kBatches * kSets;
    sets.poolSizeCount = m_texels.on() ? 2 : 1;
    sets.pPoolSizes = size;
    VkResult result = vk.CreateDescriptorPool(device, &sets, nullptr, &m_sets);
    if (result != VK_SUCCESS) return cannot("descriptor sets", result);
    VkCommandPoolCreateInfo commands{};
    commands.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
    commands.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
    commands.queueFamilyIndex = m_device->candidate().queue_family;
    result = vk.CreateCommandPool(device, &commands, nullptr, &m_commands);
    if (result != VK_SUCCESS) return cannot("a command pool", result);
    for (Batch& b : m_batches) {
        VkCommandBufferAllocateInfo buffer{};
        buffer.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
        buffer.commandPool = m_commands;
        buffer.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
        buffer.commandBufferCount = 1;
        result = vk.AllocateCommandBuffers(device, &buffer, &b.commands);
        if (result != VK_SUCCESS) return cannot("a command buffer", result);
        VkFenceCreateInfo fence{};
        fence.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
        result = vk.CreateFence(device, &fence, nullptr, &b.fence);
        if (result != VK_SUCCESS) return cannot("a fence", result);
        b.sets.resize(kSets);
        const std::vector<VkDescriptorSetLayout> layouts(kSets, m_set_layout);
        VkDescriptorSetAllocateInfo some{};
        some.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
        some.descriptorPool = m_sets;
        some.descriptorSetCount = kSets;
        some.pSetLayouts = layouts.data();
        result = vk.AllocateDescriptorSets(device, &some, b.sets.data());
        if (result != VK_SUCCESS) return cannot("descriptor sets", result);
    }
    return {};
}

void VulkanStream::set_error(VkResult why, const char* what)
{
    if (m_status.ok())
        m_status = fail(Code::device, "%s failed while %s: %s",
                        m_device->candidate().info.id.c_str(), what, vulkan_error(why).c_str());
}

// Submits or waits if there is no space for another command. False: there was an error, and no
// command runs any more.
bool VulkanStream::begin(uint32_t n_accesses)
{
    if (m_accesses.size() + n_accesses > kAccesses) (void)wait();
    if (m_n_dispatches == kSets || m_list.size() + kMaxCommand > kListBytes || m_work > kMaxWork)
        submit();
    return m_status.ok();
}

static bool overlap(const VulkanBinding& a, const VulkanBinding& b)
{
    return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

bool VulkanStream::conflicts(const VulkanBinding& bytes, bool writes) const
{
    for (size_t i = m_ordered; i < m_accesses.size(); i++)
        if ((writes || m_accesses[i].writes) && overlap(m_accesses[i].bytes, bytes)) return true;
    return false;
}

bool VulkanStream::uses(const VulkanBinding& bytes) const
{
    for (const Access& access : m_accesses)
        if (overlap(access.bytes, bytes)) return true;
    return false;
}

// written: bit per binding that the command writes.
void VulkanStream::append(Command command, const VulkanBinding* bindings, uint32_t written,
                          const void* push)
{
    for (uint32_t i = 0; i < command.n_bindings; i++)
        command.waits |= conflicts(bindings[i], written >> i & 1);
    if (command.waits) m_ordered = m_accesses.size();
    for (uint32_t i = 0; i < command.n_bindings; i++)
        m_accesses.push_back({bindings[i], (written >> i & 1) != 0});
    auto add = [&](const void* data, size_t bytes) {
        const uint8_t* from = static_cast<const uint8_t*>(data);
        m_list.insert(m_list.end(), from, from + bytes);
    };
    add(&command, sizeof command);
    add(bindings, command.n_bindings * sizeof *bindings);
    add(push, command.n_push_bytes);
}

void VulkanStream::dispatch(const VulkanDispatch& d)
{
    static_assert(sizeof(Command) + kMaxBindings * sizeof(VulkanBinding) + kMaxPush <= kMaxCommand,
                  "");
    const VulkanPipeline& pipeline = *d.pipeline;
    if (!pipeline.handle || !begin(pipeline.n_bindings)) return;
    for (uint32_t i = 0; i < pipeline.n_bindings; i++)
        KS_CHECK(d.bindings[i].bytes <= m_device->limits().range_bytes &&
                     d.bindings[i].offset % m_device->limits().align == 0,
                 "binding %u of %llu bytes at %llu", i, (unsigned long long)d.bindings[i].bytes,
                 (unsigned long long)d.bindings[i].offset);
    append({Kind::dispatch,
            0,
            uint16_t(pipeline.n_bindings),
            uint16_t(d.push_bytes),
            m_op,
            &pipeline,
            {d.groups[0], d.groups[1], d.groups[2]},
            0},
           d.bindings, pipeline.written, d.push);
    m_n_dispatches++;
    m_work += d.work;
}

void VulkanStream::copy(const VulkanBinding& to, const VulkanBinding& from)
{
    const VulkanBinding both[] = {to, from};
    if (begin(2)) append({Kind::copy, 0, 2, 0, m_op, nullptr, {}, 0}, both, 1);
}

void VulkanStream::fill(const VulkanBinding& to, uint32_t word)
{
    if (begin(1)) append({Kind::fill, 0, 1, 0, m_op, nullptr, {}, word}, &to, 1);
}

void VulkanStream::barrier(VkCommandBuffer commands, bool to_host) const
{
    VkMemoryBarrier memory{};
    memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
    memory.srcAccessMask = kWrites;
    memory.dstAccessMask = kWrites | kReads | (to_host ? VK_ACCESS_HOST_READ_BIT : 0);
    m_device->vk().CmdPipelineBarrier(commands, kStages,
                                      kStages | (to_host ? VK_PIPELINE_STAGE_HOST_BIT : 0), 0, 1,
                                      &memory, 0, nullptr, 0, nullptr);
}

void VulkanStream::forget(VkBuffer buffer)
{
    for (Batch& b : m_batches) b.list.clear(); // a later buffer may get the same handle
    m_texels.forget(buffer);
}

void VulkanStream::bind(VkDescriptorSet set, const VulkanPipeline& pipeline,
                        const VulkanBinding* bindings)
{
    VkDescriptorBufferInfo buffers[kMaxBindings];
    VkBufferView views[kMaxBindings];
    VkWriteDescriptorSet writes[2 * kMaxBindings] = {};
    uint32_t n_writes = kMaxBindings;
    for (uint32_t i = 0; i < kMaxBindings; i++) {
        // Every binding is written, because lavapipe also reads bindings that the shader does not
        // have.
        const VulkanBinding& bound = bindings[i < pipeline.n_bindings ? i : 0];
        buffers[i] = {bound.buffer, bound.offset, bound.bytes};
        writes[i].sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
        writes[i].dstSet = set;
        writes[i].dstBinding = i;
        writes[i].descriptorCount = 1;
        writes[i].descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
        writes[i].pBufferInfo = &buffers[i];
    }
    if (m_texels.on()) {
        const VkResult result =
            m_texels.bind(set, pipeline, bindings, m_dummy_buffer, writes + n_writes, views);
        if (result != VK_SUCCESS) set_error(result, "looking at a buffer");
        n_writes += kMaxBindings;
    }
    if (m_status.ok())
        m_device->vk().UpdateDescriptorSets(m_device->handle(), n_writes, writes, 0, nullptr);
}

void VulkanStream::record(Batch& b)
{
    const VulkanApi& vk = m_device->vk();
    VkCommandBufferBeginInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    const VkResult begun = vk.BeginCommandBuffer(b.commands, &info);
    if (begun != VK_SUCCESS) return set_error(begun, "recording");
    uint32_t n_sets = 0;
    const uint32_t nth = uint32_t(&b - m_batches);
    if (m_clock.runs()) m_clock.begin(b.commands, nth);
    for (size_t at = 0; at < m_list.size();) {
        Command c;
        VulkanBinding bindings[kMaxBindings];
        memcpy(&c, &m_list[at], sizeof c);
        memcpy(bindings, &m_list[at + sizeof c], c.n_bindings * sizeof *bindings);
        at += sizeof c + c.n_bindings * sizeof *bindings;
        if (c.waits) barrier(b.commands, false);
        const VulkanBinding& to = bindings[0];
        if (c.kind == Kind::dispatch) {
            const VkDescriptorSet set = b.sets[n_sets++];
            bind(set, *c.pipeline, bindings);
            vk.CmdBindPipeline(b.commands, VK_PIPELINE_BIND_POINT_COMPUTE, c.pipeline->handle);
            vk.CmdBindDescriptorSets(b.commands, VK_PIPELINE_BIND_POINT_COMPUTE, m_layout, 0, 1,
                                     &set, 0, nullptr);
            vk.CmdPushConstants(b.commands, m_layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                                c.n_push_bytes, &m_list[at]);
            vk.CmdDispatch(b.commands, c.groups[0], c.groups[1], c.groups[2]);
        } else if (c.kind == Kind::copy) {
            const VkBufferCopy region{bindings[1].offset, to.offset, to.bytes};
            vk.CmdCopyBuffer(b.commands, bindings[1].buffer, to.buffer, 1, &region);
        } else {
            vk.CmdFillBuffer(b.commands, to.buffer, to.offset, to.bytes, c.word);
        }
        if (m_clock.runs()) m_clock.stamp(b.commands, nth);
        at += c.n_push_bytes;
    }
    barrier(b.commands, true);
    const VkResult ended = vk.EndCommandBuffer(b.commands);
    if (ended != VK_SUCCESS) set_error(ended, "recording");
}

// Returns the batch whose recording equals the list. If there is none, records over the least
// recently used batch, short ones first. A step with eviction submits many short lists, which must
// not replace the long recordings of decode.
VulkanStream::Batch& VulkanStream::recorded()
{
    Batch* oldest = m_batches;
    for (Batch& b : m_batches) {
        if (b.list == m_list) {
            if (b.running) finish(b);
            m_n_replays++;
            return b;
        }
        const bool is_short = b.list.size() < kShortList,
                   was_short = oldest->list.size() < kShortList;
        if (is_short != was_short ? is_short : b.last_used < oldest->last_used) oldest = &b;
    }
    if (oldest->running) finish(*oldest);
    oldest->list.clear();
    record(*oldest);
    if (m_status.ok()) oldest->list = m_list; // within the reserved capacity
    return *oldest;
}

void VulkanStream::submit()
{
    if (m_list.empty()) return;
    Batch& b = recorded();
    VkSubmitInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
    info.commandBufferCount = 1;
    info.pCommandBuffers = &b.commands;
    VkResult result =
        m_n_submits >= m_device->limits().n_submits ? VK_ERROR_DEVICE_LOST : VK_SUCCESS;
    if (result == VK_SUCCESS && m_status.ok())
        result = m_device->vk().QueueSubmit(m_device->queue(), 1, &info, b.fence);
    if (result != VK_SUCCESS) set_error(result, "submitting");
    b.running = m_status.ok();
    b.last_used = ++m_n_submits;
    m_list.clear();
    m_n_dispatches = 0;
    m_work = 0;
    m_ordered = m_accesses.size();
}

void VulkanStream::finish(Batch& b)
{
    const VulkanApi& vk = m_device->vk();
    VkResult result = vk.WaitForFences(m_device->handle(), 1, &b.fence, VK_TRUE, ~0ull);
    if (result == VK_SUCCESS) result = vk.ResetFences(m_device->handle(), 1, &b.fence);
    if (result != VK_SUCCESS) set_error(result, "running");
    b.running = false;
    if (m_clock.runs() && result == VK_SUCCESS) read_times(b);
}

void VulkanStream::read_times(const Batch& b)
{
    auto for_commands = [&](const auto& body) {
        Command c;
        uint32_t n = 0;
        for (size_t at = 0; at < b.list.size();
             at += sizeof c + c.n_bindings * sizeof(VulkanBinding) + c.n_push_bytes) {
            memcpy(&c, &b.list[at], sizeof c);
            body(n++, c);
        }
        return n;
    };
    const uint32_t n = for_commands([](uint32_t, const Command&) {});
    const VkResult result = m_clock.read(uint32_t(&b - m_batches), n);
    if (result != VK_SUCCESS) return set_error(result, "reading timestamps");
    for_commands([&](uint32_t nth, const Command& c) {
        const char* name = c.kind == Kind::dispatch ? c.pipeline->name
                           : c.kind == Kind::copy   ? "copy"
                                                    : "fill";
        m_clock.add(c.op, name, m_clock.seconds(nth));
    });
}

Status VulkanStream::time_kernels(bool on)
{
    KS_TRY(wait());
    for (Batch& b : m_batches) b.list.clear(); // command buffers are recorded again
    m_clock.stop();
    return on ? m_clock.start(*m_device, kBatches,
                              kListBytes / (sizeof(Command) + sizeof(VulkanBinding)))
              : Status();
}

Status VulkanStream::wait()
{
    submit();
    for (Batch& b : m_batches)
        if (b.running) finish(b);
    m_accesses.clear();
    m_ordered = 0;
    return m_status;
}

} // namespace ks
