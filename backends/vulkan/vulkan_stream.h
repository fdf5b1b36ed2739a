// What was enqueued: command buffers that are recorded and submitted in order, with a barrier wherever an op needs what one before
// it wrote. Nothing is allocated after open(): command buffers, descriptor sets and the list of accesses are used in turn.
#pragma once

#include "backends/vulkan/vulkan_device.h"

namespace ks
{

constexpr uint32_t kThreads = 128; // of every workgroup (shaders/util.glsl)
constexpr uint64_t kMaxUpdate = 65536;
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
    // A few bytes of the host's, which go into the command buffer; at most kMaxUpdate, a multiple of 4.
    void update(const VulkanBinding& to, const void* from);
    // Whether something that was enqueued and may not have run yet uses these bytes; for a host that is about to write them.
    bool uses(const VulkanBinding& bytes) const;
    // Submits what was recorded and waits until all has run. A device that was lost stays lost: nothing runs any more.
    Status wait();
    void forget(VkBuffer buffer);                 // which is about to go
    void give_up(VkResult why, const char* what); // what was enqueued from now on does not run
    uint64_t n_submits() const { return m_n_submits; }

private:
    struct Batch {
        VkCommandBuffer commands = VK_NULL_HANDLE;
        VkFence fence = VK_NULL_HANDLE;
        std::vector<VkDescriptorSet> sets;
        uint32_t n_sets = 0; // used
        bool recording = false, running = false;
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
    void touch(const VulkanBinding& bytes, bool writes);
    bool conflicts(const VulkanBinding& bytes, bool writes) const;
    void barrier();
    void submit();
    void finish(Batch& batch);
    Batch& batch() { return m_batches[m_at]; }

    VulkanDevice* m_device = nullptr;
    VkDescriptorSetLayout m_set_layout = VK_NULL_HANDLE;
    VkPipelineLayout m_layout = VK_NULL_HANDLE;
    VkDescriptorPool m_sets = VK_NULL_HANDLE;
    VkCommandPool m_commands = VK_NULL_HANDLE;
    Batch m_batches[2];
    int m_at = 0;
    double m_work = 0;              // recorded and not submitted
    std::vector<Access> m_accesses; // since all had run
    size_t m_ordered = 0;           // those before it are behind a barrier
    VulkanBinding m_nothing;
    std::vector<Texels> m_texels; // made when they are first needed
    uint64_t m_n_submits = 0;
    Status m_status;
};

} // namespace ks
