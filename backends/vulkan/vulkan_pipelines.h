// Pipelines: made of the embedded shaders when an op first needs them, kept, and remembered on disk for the next start.
#pragma once

#include "backends/vulkan/vulkan_stream.h"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace ks
{

// A compiled shader; the table is written by CMake. What shaders/matmul.comp is for format q8_0 is {"matmul", "q8_0"}.
struct VulkanShader {
    const char* op;
    const char* variant; // "" where there is one only
    const uint32_t* words;
    size_t n_words;
};
extern const VulkanShader kVulkanShaders[];
extern const size_t kVulkanShaderCount;
const VulkanShader* find_shader(const char* op, const char* variant); // null: there is none, or none could be compiled

constexpr uint32_t kMaxSpecial = 6; // specialisation constants of a shader: constant_id 0 to 3 are its own, then hides_args and lanes

struct VulkanSpecial {
    uint32_t value[kMaxSpecial] = {};
};

// Writes a pipeline's name: its op, its variant, and its constants without the zeros that they end with ("attention_decode q8 q8 64 1025").
void name_pipeline(const char* op, const char* variant, const VulkanSpecial& special, char* name, size_t room);

class VulkanPipelines
{
public:
    VulkanPipelines() = default;
    ~VulkanPipelines();
    VulkanPipelines(const VulkanPipelines&) = delete;
    VulkanPipelines& operator=(const VulkanPipelines&) = delete;

    // What earlier programs needed, the last one's first, is made in the background, in the order in which they needed it.
    void open(VulkanDevice& device, VkPipelineLayout layout);
    // What cannot be made has no handle; result says why.
    const VulkanPipeline& get(const char* op, const char* variant, const VulkanSpecial& special, VkResult* result);

private:
    enum class State { wanted, making, made };
    struct Made {
        uint32_t shader; // of kVulkanShaders
        VulkanSpecial special;
        VulkanPipeline pipeline;
        State state;
        VkResult result;
        bool used; // by this program
    };
    Made& find(uint32_t shader, const VulkanSpecial& special);
    void make_wanted();
    VkResult make(Made& made);
    std::vector<char> read_known();
    std::vector<const Made*> to_remember() const;
    void save();

    VulkanDevice* m_device = nullptr;
    VkPipelineLayout m_layout = VK_NULL_HANDLE;
    VkPipelineCache m_cache = VK_NULL_HANDLE;
    std::string m_path;                        // of the cache on disk; empty: none
    size_t m_n_known = 0, m_n_known_bytes = 0; // pipelines and driver's bytes of the cache as it was read
    std::vector<std::unique_ptr<Made>> m_made; // the known ones, then others as they were needed; behind m_lock, and their states
    size_t m_n_made = 0;                       // of m_made; the rest is room, for nothing is allocated while tokens are decoded
    std::vector<const Made*> m_used;           // in the order of their first use
    std::mutex m_lock;
    std::condition_variable m_has_made;
    bool m_stops = false; // the background is to end
    std::thread m_background;
};

} // namespace ks
