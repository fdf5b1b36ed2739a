// The queue of commands: a list with a barrier wherever a command depends on an earlier one.
// submit() records a command buffer from the list, or reuses the command buffer of an equal list (a
// replay). Decode replays every token. Nothing is allocated after open(): command buffers,
// descriptor sets and lists are reused.
#pragma once

#include "backends/vulkan/vulkan_clock.h"
#include "backends/vulkan/vulkan_texels.h"

namespace ks
{

constexpr uint32_t kThreads = 128;   // threads of every workgroup (shaders/util.glsl)
constexpr uint32_t kBatches = 4;     // recorded command buffers, which may all run
constexpr uint32_t kMaxBindings = 7; // storage buffers of a shader and of the descriptor set layout
constexpr uint32_t kMaxPush = 96;    // bytes of push constants

struct VulkanBinding {
    VkBuffer buffer = VK_NULL_HANDLE;
    uint64_t offset = 0, bytes = 0;
    uint64_t buffer_bytes = 0; // size of the whole buffer
};

struct VulkanPipeline {
    VkPipeline handle = VK_NULL_HANDLE;
    uint32_t n_bindings = 0;
    uint32_t written = 0; // bit per binding that the shader writes
    uint32_t texels = 0;  // bit per binding that the shader reads as texels
    char name[96] = "";   // the shader and its specialisation constants
};

struct VulkanDispatch {
    const VulkanPipeline* pipeline;
    const VulkanBinding* bindings;
    const void* push;
    uint32_t push_bytes;
    uint32_t groups[3];
    double work; // approximate number of multiply-adds
};

class VulkanStream
{
public:
    VulkanStream() = default;
    ~VulkanStream();
    VulkanStream(const VulkanStream&) = delete;
    VulkanStream& operator=(const VulkanStream&) = delete;

    Status open(VulkanDevice& device);
    // Bound where a shader does not use a binding.
    void bind_dummy(const VulkanBinding& bytes) { m_dummy_buffer = bytes; }
    VkPipelineLayout layout() const { return m_layout; }

    void dispatch(const VulkanDispatch& d);
    void copy(const VulkanBinding& to, const VulkanBinding& from);
    void fill(const VulkanBinding& to, uint32_t word);
    // Whether a command that may not have run yet uses these bytes. Check before the host writes
    // them.
    bool uses(const VulkanBinding& bytes) const;
    // Submits all commands and waits until they have run. After an error no command runs any more.
    Status wait();
    // Records every later command buffer with or without timestamps.
    Status time_kernels(bool on);
    void begin_op(uint32_t op) { m_op = op; } // the op of the following commands
    std::vector<KernelTime> take_kernel_times() { return m_clock.take(); }
    void forget(VkBuffer buffer);                   // call before a buffer is destroyed
    void set_error(VkResult why, const char* what); // later commands do not run
    uint64_t n_submits() const { return m_n_submits; }
    // Submits of a command buffer that was recorded earlier.
    uint64_t n_replays() const { return m_n_replays; }

private:
    enum class Kind : uint32_t { dispatch, copy, fill };
    struct Command {
        Kind kind;
        uint32_t waits; // 1: a barrier before this command
        // Bindings and push constants are stored behind the command. A copy has the bindings to and
        // from.
        uint16_t n_bindings, n_push_bytes;
        uint32_t op;
        const VulkanPipeline* pipeline;
        uint32_t groups[3];
        uint32_t word; // the value of a fill
    };
    // A command buffer and the list that it was recorded from. The list is empty if there is no
    // recording.
    struct Batch {
        VkCommandBuffer commands = VK_NULL_HANDLE;
        VkFence fence = VK_NULL_HANDLE;
        std::vector<VkDescriptorSet> sets;
        std::vector<uint8_t> list;
        uint64_t last_used = 0;
        bool running = false;
    };
    struct Access {
        VulkanBinding bytes;
        bool writes;
    };

    Status make_layouts();
    Status make_batches();
    bool begin(uint32_t n_accesses);
    void append(Command command, const VulkanBinding* bindings, uint32_t written,
                const void* push = nullptr);
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
    std::vector<uint8_t> m_list;    // commands that are not submitted yet
    uint32_t m_n_dispatches = 0;    // dispatches in m_list
    double m_work = 0;              // work in m_list
    std::vector<Access> m_accesses; // since the last wait
    size_t m_ordered = 0;           // accesses before this index are ordered by a barrier
    VulkanBinding m_dummy_buffer;
    VulkanTexels m_texels;
    uint64_t m_n_submits = 0, m_n_replays = 0;
    VulkanClock m_clock;
    uint32_t m_op = 0;
    Status m_status;
};

} // namespace ks
