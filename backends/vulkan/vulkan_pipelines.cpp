#include "backends/vulkan/vulkan_pipelines.h"

#include "backends/vulkan/spirv.h"

#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

namespace ks
{

constexpr size_t kMaxCacheBytes = 64u << 20;

// ~/.cache/knapsack/vulkan-<vendor>-<device>-<driver>.bin; empty where there is no such place.
static std::string cache_path(const VkPhysicalDeviceProperties& p)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    std::string folder = base && base[0] == '/' ? base : home && home[0] == '/' ? std::string(home) + "/.cache" : "";
    if (folder.empty()) return "";
    mkdir(folder.c_str(), 0700);
    folder += "/knapsack";
    mkdir(folder.c_str(), 0700);
    char name[80];
    snprintf(name, sizeof name, "/vulkan-%08x-%08x-%08x.bin", p.vendorID, p.deviceID, p.driverVersion);
    return folder + name;
}

static std::vector<char> read_file(const std::string& path)
{
    std::vector<char> bytes;
    FILE* file = path.empty() ? nullptr : fopen(path.c_str(), "rb");
    if (!file) return bytes;
    char part[65536];
    for (size_t n; bytes.size() < kMaxCacheBytes && (n = fread(part, 1, sizeof part, file)) > 0;) bytes.insert(bytes.end(), part, part + n);
    fclose(file);
    return bytes;
}

void VulkanPipelines::open(VulkanDevice& device, VkPipelineLayout layout)
{
    m_device = &device;
    m_layout = layout;
    m_path = cache_path(device.candidate().properties);
    const std::vector<char> known = read_file(m_path);
    VkPipelineCacheCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
    info.initialDataSize = known.size(); // a driver looks at the header and ignores what is another's
    info.pInitialData = known.data();
    if (device.vk().CreatePipelineCache(device.handle(), &info, nullptr, &m_cache) != VK_SUCCESS) m_cache = VK_NULL_HANDLE;
    m_n_known = known.size();
}

VulkanPipelines::~VulkanPipelines()
{
    if (!m_device || !m_device->handle()) return;
    save();
    for (const auto& made : m_made)
        if (made->pipeline.handle) m_device->vk().DestroyPipeline(m_device->handle(), made->pipeline.handle, nullptr);
    if (m_cache) m_device->vk().DestroyPipelineCache(m_device->handle(), m_cache, nullptr);
}

// Written beside and renamed, so that no other process ever reads half of it. Nothing is lost where it cannot be written.
void VulkanPipelines::save()
{
    size_t n = 0;
    if (!m_cache || m_path.empty()) return;
    if (m_device->vk().GetPipelineCacheData(m_device->handle(), m_cache, &n, nullptr) != VK_SUCCESS) return;
    if (n <= m_n_known || n > kMaxCacheBytes) return;
    std::vector<char> bytes(n);
    if (m_device->vk().GetPipelineCacheData(m_device->handle(), m_cache, &n, bytes.data()) != VK_SUCCESS) return;
    const std::string part = m_path + "." + std::to_string(getpid());
    FILE* file = fopen(part.c_str(), "wb");
    if (!file) return;
    const bool written = fwrite(bytes.data(), 1, n, file) == n;
    if (fclose(file) != 0 || !written || rename(part.c_str(), m_path.c_str()) != 0) remove(part.c_str());
}

const VulkanPipeline& VulkanPipelines::get(const char* op, const char* variant, const VulkanSpecial& special, VkResult* result)
{
    *result = VK_SUCCESS;
    for (const auto& made : m_made)
        if (strcmp(made->shader->op, op) == 0 && strcmp(made->shader->variant, variant) == 0 &&
            memcmp(&made->special, &special, sizeof special) == 0)
            return made->pipeline;
    const VulkanShader* shader = nullptr;
    for (size_t i = 0; i < kVulkanShaderCount; i++)
        if (strcmp(kVulkanShaders[i].op, op) == 0 && strcmp(kVulkanShaders[i].variant, variant) == 0) shader = &kVulkanShaders[i];
    KS_CHECK(shader, "there is no shader %s %s", op, variant);
    m_made.emplace_back(new Made{shader, special, {}});
    *result = make(*m_made.back());
    return m_made.back()->pipeline;
}

VkResult VulkanPipelines::make(Made& made)
{
    const VulkanApi& vk = m_device->vk();
    const SpirvInfo spirv = read_spirv(made.shader->words, made.shader->n_words);
    KS_CHECK(spirv.n_bindings <= kMaxBindings && spirv.local_size == kThreads, "%s %s: %u bindings, %u threads", made.shader->op,
             made.shader->variant, spirv.n_bindings, spirv.local_size);
    made.pipeline.n_bindings = spirv.n_bindings;
    made.pipeline.written = spirv.written;
    VkShaderModuleCreateInfo code{};
    code.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
    code.codeSize = 4 * made.shader->n_words;
    code.pCode = made.shader->words;
    VkShaderModule module = VK_NULL_HANDLE;
    VkResult result = vk.CreateShaderModule(m_device->handle(), &code, nullptr, &module);
    if (result != VK_SUCCESS) return result;
    VkSpecializationMapEntry entries[kMaxSpecial];
    for (uint32_t i = 0; i < kMaxSpecial; i++) entries[i] = {i, 4 * i, 4};
    VulkanSpecial values = made.special;
    values.value[kMaxSpecial - 2] = m_device->candidate().software;
    values.value[kMaxSpecial - 1] = m_device->limits().lanes;
    const VkSpecializationInfo special{kMaxSpecial, entries, sizeof values, &values};
    VkComputePipelineCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
    info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
    info.stage.module = module;
    info.stage.pName = "main";
    info.stage.pSpecializationInfo = &special;
    info.layout = m_layout;
    result = vk.CreateComputePipelines(m_device->handle(), m_cache, 1, &info, nullptr, &made.pipeline.handle);
    vk.DestroyShaderModule(m_device->handle(), module, nullptr);
    return result;
}

} // namespace ks
