#include "backends/vulkan/vulkan_pipelines.h"

#include "backends/vulkan/spirv.h"
#include "runtime/base/hash.h"

#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

namespace ks
{

constexpr size_t kMaxCacheBytes = 64u << 20;
constexpr size_t kMostKnown = 64; // most pipelines in the file, unless this run used more
// Reserved entries for new pipelines: several times the number that a model needs.
constexpr size_t kReservedPipelines = 128;

const VulkanShader* find_shader(const char* op, const char* variant)
{
    const VulkanShader *end = kVulkanShaders + kVulkanShaderCount, *shader = kVulkanShaders;
    while (shader < end && (strcmp(shader->op, op) != 0 || strcmp(shader->variant, variant) != 0))
        shader++;
    return shader < end ? shader : nullptr;
}

// ~/.cache/knapsack/vulkan-<vendor>-<device>-<driver>-<lanes>-<uses>.bin, or empty if there is no
// such folder. Other lanes or uses mean other shaders or another pipeline layout. A driver may
// crash when a pipeline needs features that the device was not opened with.
static std::string cache_path(const VkPhysicalDeviceProperties& p, const VulkanLimits& limits)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    std::string folder = base && base[0] == '/'   ? base
                         : home && home[0] == '/' ? std::string(home) + "/.cache"
                                                  : "";
    if (folder.empty()) return "";
    mkdir(folder.c_str(), 0700);
    folder += "/knapsack";
    mkdir(folder.c_str(), 0700);
    char name[80];
    snprintf(name, sizeof name, "/vulkan-%08x-%08x-%08x-%u-%x.bin", p.vendorID, p.deviceID,
             p.driverVersion, limits.lanes, limits.uses);
    return folder + name;
}

static std::vector<char> read_file(const std::string& path)
{
    std::vector<char> bytes;
    FILE* file = path.empty() ? nullptr : fopen(path.c_str(), "rb");
    if (!file) return bytes;
    char part[65536];
    for (size_t n; bytes.size() < kMaxCacheBytes && (n = fread(part, 1, sizeof part, file)) > 0;)
        bytes.insert(bytes.end(), part, part + n);
    fclose(file);
    return bytes;
}

// FNV-1a of all shader words, stored at the start of the file. Other versions of the program number
// their shaders differently.
static uint64_t shaders_hash()
{
    uint64_t hash = kFnvStart;
    for (size_t i = 0; i < kVulkanShaderCount; i++)
        for (size_t k = 0; k < kVulkanShaders[i].n_words; k++)
            hash = fnv_step(hash, kVulkanShaders[i].words[k]);
    return hash;
}

struct CacheHeader {
    char magic[8];
    uint64_t hash, n_pipelines;
};
struct CacheEntry {
    uint32_t shader;
    VulkanSpecial special;
};
constexpr char kMagic[8] = {'k', 's', 'v', 'k', '0', '0', '0', '1'};

// Adds the pipelines in the file as wanted and returns the driver's bytes. A file of another
// version counts as empty.
std::vector<char> VulkanPipelines::read_cache_file()
{
    std::vector<char> bytes = read_file(m_path);
    CacheHeader header{};
    if (bytes.size() < sizeof header) return {};
    memcpy(&header, bytes.data(), sizeof header);
    const uint64_t max_pipelines = (bytes.size() - sizeof header) / sizeof(CacheEntry);
    if (memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.hash != shaders_hash() ||
        header.n_pipelines > max_pipelines)
        return {};
    const char* at = bytes.data() + sizeof header;
    for (uint64_t i = 0; i < header.n_pipelines; i++, at += sizeof(CacheEntry)) {
        CacheEntry entry;
        memcpy(&entry, at, sizeof entry);
        if (entry.shader < kVulkanShaderCount)
            m_entries.emplace_back(new PipelineEntry{
                entry.shader, entry.special, {}, State::wanted, VK_SUCCESS, false});
    }
    m_n_known = m_n_entries = m_entries.size();
    return std::vector<char>(at, const_cast<const char*>(bytes.data()) + bytes.size());
}

void VulkanPipelines::open(VulkanDevice& device, VkPipelineLayout layout)
{
    m_device = &device;
    m_layout = layout;
    m_path = cache_path(device.candidate().properties, device.limits());
    const std::vector<char> known = read_cache_file();
    while (m_entries.size() < m_n_known + kReservedPipelines)
        m_entries.emplace_back(new PipelineEntry{});
    m_used.reserve(m_entries.size());
    VkPipelineCacheCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
    info.initialDataSize =
        known.size(); // a driver checks the header and ignores other drivers' data
    info.pInitialData = known.data();
    if (device.vk().CreatePipelineCache(device.handle(), &info, nullptr, &m_cache) != VK_SUCCESS)
        m_cache = VK_NULL_HANDLE;
    m_n_known_bytes = known.size();
    if (m_n_known) m_background = std::thread([this] { make_wanted(); });
}

VulkanPipelines::~VulkanPipelines()
{
    if (!m_device || !m_device->handle()) return;
    {
        std::lock_guard<std::mutex> lock(m_lock);
        m_stops = true;
    }
    if (m_background.joinable()) m_background.join();
    save();
    for (const auto& entry : m_entries)
        if (entry->pipeline.handle)
            m_device->vk().DestroyPipeline(m_device->handle(), entry->pipeline.handle, nullptr);
    if (m_cache) m_device->vk().DestroyPipelineCache(m_device->handle(), m_cache, nullptr);
}

// The pipelines that this run used, by first use, then other known ones.
std::vector<const VulkanPipelines::PipelineEntry*> VulkanPipelines::to_remember() const
{
    std::vector<const PipelineEntry*> list(m_used.begin(), m_used.end());
    for (size_t i = 0; i < m_n_known && list.size() < kMostKnown; i++)
        if (!m_entries[i]->used) list.push_back(m_entries[i].get());
    return list;
}

// Writes a temporary file and renames it, so that no process reads a partial file. Errors are
// ignored: the file is only a cache.
void VulkanPipelines::save()
{
    size_t n = 0;
    if (!m_cache || m_path.empty()) return;
    const VulkanApi& vk = m_device->vk();
    if (vk.GetPipelineCacheData(m_device->handle(), m_cache, &n, nullptr) != VK_SUCCESS) return;
    if ((n <= m_n_known_bytes && m_n_entries == m_n_known) || n > kMaxCacheBytes) return;
    const std::vector<const PipelineEntry*> list = to_remember();
    CacheHeader header{{}, shaders_hash(), list.size()};
    memcpy(header.magic, kMagic, sizeof kMagic);
    const size_t entries = sizeof header, data = entries + list.size() * sizeof(CacheEntry);
    std::vector<char> bytes(data + n);
    memcpy(bytes.data(), &header, sizeof header);
    for (size_t i = 0; i < list.size(); i++) {
        const CacheEntry entry{list[i]->shader, list[i]->special};
        memcpy(&bytes[entries + i * sizeof entry], &entry, sizeof entry);
    }
    if (vk.GetPipelineCacheData(m_device->handle(), m_cache, &n, bytes.data() + data) != VK_SUCCESS)
        return;
    const std::string part = m_path + "." + std::to_string(getpid());
    FILE* file = fopen(part.c_str(), "wb");
    if (!file) return;
    const bool written = fwrite(bytes.data(), 1, data + n, file) == data + n;
    if (fclose(file) != 0 || !written || rename(part.c_str(), m_path.c_str()) != 0)
        remove(part.c_str());
}

// Runs in the background thread. At exit the program waits only for the pipeline in progress.
void VulkanPipelines::make_wanted()
{
    for (size_t i = 0; i < m_n_known; i++) {
        PipelineEntry* entry;
        {
            std::lock_guard<std::mutex> lock(m_lock);
            if (m_stops) return;
            entry = m_entries[i].get();
            if (entry->state != State::wanted) continue;
            entry->state = State::making;
        }
        const VkResult result = make(*entry);
        std::lock_guard<std::mutex> lock(m_lock);
        entry->result = result;
        entry->state = State::ready;
        m_ready.notify_all();
    }
}

VulkanPipelines::PipelineEntry& VulkanPipelines::find(uint32_t shader, const VulkanSpecial& special)
{
    for (size_t i = 0; i < m_n_entries; i++)
        if (m_entries[i]->shader == shader &&
            memcmp(&m_entries[i]->special, &special, sizeof special) == 0)
            return *m_entries[i];
    if (m_n_entries == m_entries.size()) m_entries.emplace_back(new PipelineEntry{});
    PipelineEntry& entry = *m_entries[m_n_entries++];
    entry = {shader, special, {}, State::wanted, VK_SUCCESS, false};
    return entry;
}

const VulkanPipeline& VulkanPipelines::get(const char* op, const char* variant,
                                           const VulkanSpecial& special, VkResult* result)
{
    const VulkanShader* shader = find_shader(op, variant);
    KS_CHECK(shader, "there is no shader %s %s", op, variant);
    std::unique_lock<std::mutex> lock(m_lock);
    PipelineEntry& entry = find(uint32_t(shader - kVulkanShaders), special);
    if (entry.state == State::wanted) {
        entry.state = State::making;
        lock.unlock();
        entry.result = make(entry); // in state `making` no other thread uses it
        lock.lock();
        entry.state = State::ready;
    }
    m_ready.wait(lock, [&] { return entry.state == State::ready; });
    if (!entry.used) m_used.push_back(&entry);
    entry.used = true;
    *result = entry.result;
    return entry.pipeline;
}

VkResult VulkanPipelines::make(PipelineEntry& entry)
{
    const VulkanApi& vk = m_device->vk();
    const VulkanShader& shader = kVulkanShaders[entry.shader];
    const SpirvInfo spirv = read_spirv(shader.words, shader.n_words);
    KS_CHECK(spirv.n_bindings <= kMaxBindings && spirv.local_size == kThreads,
             "%s %s: %u bindings, %u threads", shader.op, shader.variant, spirv.n_bindings,
             spirv.local_size);
    entry.pipeline.n_bindings = spirv.n_bindings;
    entry.pipeline.written = spirv.written;
    entry.pipeline.texels = spirv.texels;
    name_pipeline(shader.op, shader.variant, entry.special, entry.pipeline.name,
                  sizeof entry.pipeline.name);
    VkShaderModuleCreateInfo code{};
    code.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
    code.codeSize = 4 * shader.n_words;
    code.pCode = shader.words;
    VkShaderModule module = VK_NULL_HANDLE;
    VkResult result = vk.CreateShaderModule(m_device->handle(), &code, nullptr, &module);
    if (result != VK_SUCCESS) return result;
    VkSpecializationMapEntry entries[kMaxSpecial];
    for (uint32_t i = 0; i < kMaxSpecial; i++) entries[i] = {i, 4 * i, 4};
    VulkanSpecial values = entry.special;
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
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT width{};
    width.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO_EXT;
    width.requiredSubgroupSize = m_device->candidate().faster.width;
    if (spirv.subgroups && m_device->limits().uses & (use_subgroup_reduce | use_matrices)) {
        info.stage.pNext = &width;
        info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT_EXT;
    }
    info.layout = m_layout;
    result = vk.CreateComputePipelines(m_device->handle(), m_cache, 1, &info, nullptr,
                                       &entry.pipeline.handle);
    vk.DestroyShaderModule(m_device->handle(), module, nullptr);
    if (result == VK_SUCCESS && vk.SetDebugUtilsObjectNameEXT) {
        VkDebugUtilsObjectNameInfoEXT named{};
        named.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_OBJECT_NAME_INFO_EXT;
        named.objectType = VK_OBJECT_TYPE_PIPELINE;
        named.objectHandle = uint64_t(entry.pipeline.handle);
        named.pObjectName = entry.pipeline.name;
        (void)vk.SetDebugUtilsObjectNameEXT(m_device->handle(),
                                            &named); // names are for debugging only
    }
    return result;
}

} // namespace ks
