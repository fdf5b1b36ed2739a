// Pipelines, created from the embedded shaders at their first use. The pipeline cache and a list of
// used pipelines are kept on disk.
#pragma once

#include "backends/vulkan/vulkan_stream.h"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace ks
{

// A compiled shader. CMake writes the table. shaders/matmul.comp for format q8_0 is {"matmul",
// "q8_0"}.
struct VulkanShader {
    const char* op;
    const char* variant; // "" for a shader without variants
    const uint32_t* words;
    size_t n_words;
};
extern const VulkanShader kVulkanShaders[];
extern const size_t kVulkanShaderCount;
// Null: there is no such shader, or the build could not compile it.
const VulkanShader* find_shader(const char* op, const char* variant);

// Specialisation constants. constant_id 0 to 3 belong to the shader, 4 is args_through_shared, 5 is
// lanes.
constexpr uint32_t kMaxSpecial = 6;

struct VulkanSpecial {
    uint32_t value[kMaxSpecial] = {};
};

// Writes a pipeline's name: its op, its variant, and its constants without trailing zeros
// ("attention_decode q8 q8 64 1025").
void name_pipeline(const char* op, const char* variant, const VulkanSpecial& special, char* name,
                   size_t size);

class VulkanPipelines
{
public:
    VulkanPipelines() = default;
    ~VulkanPipelines();
    VulkanPipelines(const VulkanPipelines&) = delete;
    VulkanPipelines& operator=(const VulkanPipelines&) = delete;

    // Starts a thread that creates the pipelines that earlier runs used. Pipelines of the last run
    // come first, in the order of their use.
    void open(VulkanDevice& device, VkPipelineLayout layout);
    // A pipeline that cannot be created has no handle, and *result is the error.
    const VulkanPipeline& get(const char* op, const char* variant, const VulkanSpecial& special,
                              VkResult* result);

private:
    enum class State { wanted, making, ready };
    struct PipelineEntry {
        uint32_t shader; // index in kVulkanShaders
        VulkanSpecial special;
        VulkanPipeline pipeline;
        State state;
        VkResult result;
        bool used; // by this run
    };
    PipelineEntry& find(uint32_t shader, const VulkanSpecial& special);
    void make_wanted();
    VkResult make(PipelineEntry& entry);
    std::vector<char> read_cache_file();
    std::vector<const PipelineEntry*> to_remember() const;
    void save();

    VulkanDevice* m_device = nullptr;
    VkPipelineLayout m_layout = VK_NULL_HANDLE;
    VkPipelineCache m_cache = VK_NULL_HANDLE;
    std::string m_path; // the cache file; empty: none
    // Pipelines and driver's bytes in the cache file at the start.
    size_t m_n_known = 0, m_n_known_bytes = 0;
    // Known pipelines, then others by first use. m_lock guards the list and the states.
    std::vector<std::unique_ptr<PipelineEntry>> m_entries;
    // Entries in use. The rest is reserved, because decode must not allocate.
    size_t m_n_entries = 0;
    std::vector<const PipelineEntry*> m_used; // by first use
    std::mutex m_lock;
    std::condition_variable m_ready;
    bool m_stops = false; // the background thread must end
    std::thread m_background;
};

} // namespace ks
