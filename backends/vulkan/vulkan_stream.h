// What was enqueued: a list of commands, with a barrier wherever one needs what one before it wrote. When it is submitted a command buffer
// is recorded of it, or the one that was recorded of the same list, byte for byte, is submitted again: a decoded token's is, every time.
// Nothing is allocated after open(): command buffers, descriptor sets and lists are used in turn.
#pragma once

#include "backends/vulkan/vulkan_clock.h"

namespace ks
{

constexpr uint32_t kThreads = 128;   // of every workgroup (shaders/util.glsl)
constexpr uint32_t kBatches = 4;     // that are recorded and may run
constexpr uint32_t kMaxBindings = 8; // storage buffers of a shader, and of the one set layout

struct VulkanBinding {
    VkBuffer buffer = VK_NULL_HANDLE;
    uint64_t offset = 0, bytes = 0;
    uint64_t buffer_bytes = 0; // of all of the buffer
};

struct VulkanPipeline {
    VkPipeline handle = VK_NULL_HANDLE;
    uint32_t n_bindings = 0;
    uint32_t written = 0; // bit per binding
    uint32_t texels = 0;  // bit per binding that the shader sees as texels
    char name[96] = "";   // its shader and what it was specialised for
};

struct VulkanDispatch {
    const VulkanPipeline* pipeline;
    const VulkanBinding* bindings;
    const void* push;
    uint32_t push_bytes;
    uint32_t groups[3];
    double work; // multiply-adds, about
};

class VulkanStream
{
public:
    VulkanStream() = default;
    ~VulkanStream();
    VulkanStream(const VulkanStream&) = delete;
    VulkanStream& operator=(const VulkanStream&) = delete;

    Status open(VulkanDevice& device);
    void bind_nothing(const VulkanBinding& bytes) { m_nothing = bytes; } // where a shader wants nothing
    VkPipelineLayout layout() const { return m_layout; }

    void dispatch(const VulkanDispatch& d);
    void copy(const VulkanBinding& to, const VulkanBinding& from);
    void fill(const VulkanBinding& to, uint32_t word);
    // Whether something that was enqueued and may not have run yet uses these bytes; for a host that is about to write them.
    bool uses(const VulkanBinding& bytes) const;
    // Submits what was recorded and waits until all has run. A device that was lost stays lost: nothing runs any more.
    Status wait();
    // From now on every command buffer is recorded with or without timestamps.
    Status time_kernels(bool on);
    void begin_op(uint32_t op) { m_op = op; } // that what is enqueued belongs to
    std::vector<KernelTime> take_kernel_times() { return m_clock.take(); }
    void forget(VkBuffer buffer);                 // which is about to go
    void give_up(VkResult why, const char* what); // what was enqueued from now on does not run
    uint64_t n_submits() const { return m_n_submits; }
    uint64_t n_replays() const { return m_n_replays; } // submits of what had been recorded before

private:
    enum class Kind : uint32_t { dispatch, copy, fill };
    struct Command {
        Kind kind;
        uint32_t waits;                    // for what was enqueued before it: a barrier
        uint16_t n_bindings, n_push_bytes; // that follow it; a copy's bindings are to and from
        uint32_t op;
        const VulkanPipeline* pipeline;
        uint32_t groups[3];
        uint32_t word; // that fills
    };
    // A command buffer and the list that it was recorded of; an empty list: of none.
    struct Batch {
        VkCommandBuffer commands = VK_NULL_HANDLE;
        VkFence fence = VK_NULL_HANDLE;
        std::vector<VkDescriptorSet> sets;
        std::vector<uint8_t> list;
        uint64_t last_used = 0;
        bool running = false;
    };
    // A buffer from an offset on, as texels of a word.
    struct Texels {
        VkBuffer buffer;
        uint64_t offset;
        VkBufferView view;
    };
    struct Access {
        VulkanBinding bytes;
        bool writes;
    };

    Status make_layouts();
    Status make_batches();
    VkBufferView texels_of(const VulkanBinding& bytes);
    bool begin(uint32_t n_accesses);
    void append(Command command, const VulkanBinding* bindings, uint32_t written, const void* push = nullptr);
    bool conflicts(const VulkanBinding& bytes, bool writes) const;
    void barrier(VkCommandBuffer commands, bool to_host) const;
    void bind(VkDescriptorSet set, const VulkanPipeline& pipeline, const VulkanBinding* bindings);
    void record(Batch& batch);
    Batch& recorded();
    void submit();
    void finish(Batch& batch);
    void read_times(const Batch& batch);

    VulkanDevice* m_device = nullptr;
    VkDescriptorSetLayout m_set_layout = VK_NULL_HANDLE;
    VkPipelineLayout m_layout = VK_NULL_HANDLE;
    VkDescriptorPool m_sets = VK_NULL_HANDLE;
    VkCommandPool m_commands = VK_NULL_HANDLE;
    Batch m_batches[kBatches];
    std::vector<uint8_t> m_list;    // of commands that are not submitted
    uint32_t m_n_dispatches = 0;    // of them
    double m_work = 0;              // of them
    std::vector<Access> m_accesses; // since all had run
    size_t m_ordered = 0;           // those before it are behind a barrier
    VulkanBinding m_nothing;
    std::vector<Texels> m_texels; // made when they are first needed
    uint64_t m_n_submits = 0, m_n_replays = 0;
    VulkanClock m_clock;
    uint32_t m_op = 0;
    Status m_status;
};

} // namespace ks
