#include "backends/vulkan/vulkan_device.h"

#include "backends/kernel_choice.h"
#include "backends/reference/reference_backend.h"
#include "backends/vulkan/vulkan_paths.h"
#include "backends/vulkan/vulkan_texels.h"

#include <algorithm>
#include <cstring>
#include <mutex>

namespace ks
{

// Pretended devices for tests. KNAPSACK_VULKAN_LIMITS=NAME lowers the limits of the real device.
struct LimitsClamp {
    const char* name;
    uint64_t range_bytes, allocation_bytes;
    bool discrete; // the device's memory is not visible to the host
    uint32_t align = 64;
    uint32_t uses = 0;            // features that are used even if they are not fast
    uint32_t storage_buffers = 8; // per shader
    uint64_t n_submits = ~0ull, n_blocks = ~0ull;
    bool has_clock = true;
};
static const LimitsClamp kClamps[] = {
    {"pi5", 128ull << 20, 1ull << 30, false},  // V3D: the guarantees of Vulkan 1.1, unified memory
    {"mali", 256ull << 20, 4ull << 30, false}, // unified memory
    {"dozen", 128ull << 20, 1ull << 30, true}, // Vulkan on D3D12
    {"discrete", ~0ull, ~0ull, true},          // a card with its own memory
    {"coarse", 128ull << 20, 1ull << 30, false,
     256},                                    // SwiftShader: the largest alignment of tensors
    {"tiny", 64ull << 10, 1ull << 30, false}, // small ranges, so that every test has several parts
    {"tiny_discrete", 64ull << 10, 1ull << 30, true, 256},
    {"small_blocks", ~0ull, 1ull << 20, false}, // small blocks, so that every model has several
    {"small_discrete", 64ull << 10, 1ull << 20, true, 256},
    {"int8_dot", ~0ull, ~0ull, false, 64, use_int8_dot},
    {"f16", ~0ull, ~0ull, false, 64, use_f16},
    {"subgroup_reduce", ~0ull, ~0ull, false, 64, use_subgroup_reduce},
    {"matrices", ~0ull, ~0ull, false, 64, use_matrices},
    {"fast", ~0ull, ~0ull, true, 64, ~0u}, // a card with all features of the device
    {"featureless", ~0ull, ~0ull, false, 64, 0, 4},
    {"lost", ~0ull, ~0ull, false, 64, 0, 8, 8}, // lost after a few submits
    {"refusing", ~0ull, ~0ull, false, 64, 0, 8, ~0ull, 4},
    {"no_clock", ~0ull, ~0ull, false, 64, 0, 8, ~0ull, ~0ull, false},
};

static void clamp(VulkanLimits& limits, const VulkanFeatures& faster)
{
    const char* wanted = getenv("KNAPSACK_VULKAN_LIMITS");
    for (const LimitsClamp& c : kClamps) {
        if (!wanted || strcmp(wanted, c.name) != 0) continue;
        limits.range_bytes = std::min(limits.range_bytes, c.range_bytes);
        limits.allocation_bytes = std::min(limits.allocation_bytes, c.allocation_bytes);
        limits.unified = limits.unified && !c.discrete;
        limits.storage_buffers = std::min(limits.storage_buffers, c.storage_buffers);
        limits.lanes = 0; // as on a GPU
        limits.uses = faster.has & c.uses;
        limits.n_submits = c.n_submits;
        if (!c.has_clock) limits.timestamp_bits = 0;
        limits.n_blocks = c.n_blocks;
        limits.align = std::max(limits.align, c.align);
    }
}

// One instance per process, which is never destroyed. Destroying the last instance unloads the
// drivers. NVIDIA's driver fails or ends the process when it is loaded again some dozen times.
static std::mutex s_instance_lock;
static VkInstance s_instance = VK_NULL_HANDLE;
// Whether objects can have names, which profilers and validation layers show.
static bool s_has_names = false;

static bool can_name_objects(const VulkanApi& vk)
{
    uint32_t n = 0;
    if (vk.EnumerateInstanceExtensionProperties(nullptr, &n, nullptr) != VK_SUCCESS) return false;
    VulkanExtensions all(n);
    if (vk.EnumerateInstanceExtensionProperties(nullptr, &n, all.data()) != VK_SUCCESS)
        return false;
    return has_extension(all, VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
}

Status VulkanInstance::open()
{
    KS_TRY(m_vk.load());
    const std::lock_guard<std::mutex> lock(s_instance_lock);
    VkApplicationInfo app{};
    app.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
    app.pApplicationName = "knapsack";
    app.apiVersion = VK_API_VERSION_1_1;
    VkInstanceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &app;
    const char* const names = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    if (!s_instance) s_has_names = can_name_objects(m_vk);
    info.enabledExtensionCount = s_has_names;
    info.ppEnabledExtensionNames = &names;
    const VkResult result =
        s_instance ? VK_SUCCESS : m_vk.CreateInstance(&info, nullptr, &s_instance);
    if (result == VK_ERROR_INCOMPATIBLE_DRIVER) return Status(Code::device, "no driver found");
    if (result != VK_SUCCESS)
        return fail(Code::device, "Vulkan cannot start: %s", vulkan_error(result).c_str());
    m_instance = s_instance;
    m_vk.load_instance(m_instance);
    return {};
}

void VulkanInstance::load_device(VkDevice device)
{
    m_vk.load_device(device);
    if (!s_has_names) m_vk.SetDebugUtilsObjectNameEXT = nullptr;
}

std::vector<VulkanCandidate> VulkanInstance::candidates()
{
    uint32_t n = 0;
    std::vector<VulkanCandidate> out;
    if (m_vk.EnumeratePhysicalDevices(m_instance, &n, nullptr) != VK_SUCCESS) return out;
    std::vector<VkPhysicalDevice> devices(n);
    if (m_vk.EnumeratePhysicalDevices(m_instance, &n, devices.data()) < VK_SUCCESS) return out;
    for (uint32_t i = 0; i < n; i++) out.push_back(probe_device(devices[i], i));
    return out;
}

static uint32_t compute_family(const VulkanApi& vk, VkPhysicalDevice physical,
                               uint32_t* timestamp_bits)
{
    uint32_t n = 0;
    vk.GetPhysicalDeviceQueueFamilyProperties(physical, &n, nullptr);
    std::vector<VkQueueFamilyProperties> families(n);
    vk.GetPhysicalDeviceQueueFamilyProperties(physical, &n, families.data());
    for (uint32_t i = 0; i < n; i++) {
        if (!(families[i].queueFlags & VK_QUEUE_COMPUTE_BIT)) continue;
        *timestamp_bits = families[i].timestampValidBits;
        return i;
    }
    return ~0u;
}

static VulkanExtensions extensions_of(const VulkanApi& vk, VkPhysicalDevice physical)
{
    uint32_t n = 0;
    vk.EnumerateDeviceExtensionProperties(physical, nullptr, &n, nullptr);
    VulkanExtensions all(n);
    vk.EnumerateDeviceExtensionProperties(physical, nullptr, &n, all.data());
    return all;
}

// The heap that buffers come from, and its free bytes. For unified memory these are the host's.
static void measure_memory(const VulkanApi& vk, VulkanCandidate& c)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{};
    budget.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
    VkPhysicalDeviceMemoryProperties2 memory{};
    memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
    if (c.has_memory_budget) memory.pNext = &budget;
    vk.GetPhysicalDeviceMemoryProperties2(c.physical, &memory);
    uint64_t total = 0, unused = 0;
    for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; i++) {
        const VkMemoryHeap& heap = memory.memoryProperties.memoryHeaps[i];
        if (!(heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) || heap.size <= total) continue;
        total = heap.size;
        const uint64_t taken = c.has_memory_budget ? budget.heapUsage[i] : 0;
        const uint64_t allowed =
            c.has_memory_budget ? std::min<uint64_t>(budget.heapBudget[i], total) : total;
        unused = allowed - std::min(taken, allowed);
    }
    if (c.limits.unified) {
        uint64_t host_total = 0, host_free = 0;
        host_memory(&host_total, &host_free);
        total = std::min(total, host_total);
        unused = std::min(unused, host_free);
    }
    c.info.memory_bytes = total;
    c.info.free_bytes = unused;
}

// Describes how matmul computes products, and why.
static std::string products_of(const VulkanCandidate& c)
{
    const VulkanFeatures& f = c.faster;
    const uint32_t uses = c.limits.uses, unused = f.has & ~uses;
    const char *plain = "in f32", *int8_dot = "by integer dot products of four bytes";
    std::string by_vectors = uses & use_int8_dot ? int8_dot : plain, by_tiles = by_vectors;
    if (!(uses & use_int8_dot) && uses & use_f16) by_tiles = "in f16, two at a time";
    if (uses & use_matrices)
        by_tiles = "by cooperative matrices of " + std::to_string(f.m) + " x " +
                   std::to_string(f.n) + " x " + std::to_string(f.k) + " in f16, summed in f32";
    std::string text = "multiplies in f32, which every device has";
    if (by_tiles != plain)
        text =
            "multiplies many tokens with quantised weights " + by_tiles + ", a few " + by_vectors;
    if (unused && c.software)
        return text + "; a software driver gains nothing by its other features";
    if (unused & use_int8_dot) return text + "; the device reports slow integer dot products";
    return text;
}

// Describes a device for users, and why it is used in this way.
static std::vector<std::string> describe(const VulkanCandidate& c,
                                         const VkPhysicalDeviceSubgroupProperties& subgroups)
{
    static const char* const kNames[] = {"integer dot products", "f16 arithmetic",
                                         "sums over subgroups", "cooperative matrices"};
    const VulkanLimits& limits = c.limits;
    const uint32_t version = c.properties.apiVersion, lanes = subgroups.subgroupSize;
    const bool shuffles = subgroups.supportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
    std::string able = "has Vulkan " + std::to_string(VK_VERSION_MAJOR(version)) + "." +
                       std::to_string(VK_VERSION_MINOR(version)) + ", subgroups of " +
                       std::to_string(lanes) + (shuffles ? " with" : " without") + " shuffles, " +
                       human_bytes(limits.shared_bytes) + " of shared memory";
    for (uint32_t i = 0; i < 4; i++)
        if (c.faster.has >> i & 1) able += std::string(", ") + kNames[i];
    std::string reads = "reads words, which suits hardware's caches, and adds ";
    reads += limits.uses & use_subgroup_reduce
                 ? "over subgroups of " + std::to_string(c.faster.width) + " threads"
                 : "through shared memory, which works with subgroups of any size";
    if (limits.lanes)
        reads = "reads texels, " + std::to_string(limits.lanes) +
                " at once, shared by shuffles: a software driver loads words lane by lane";
    else if (c.software)
        reads += "; its texels or subgroups cannot be read together";
    return {able,
            reads,
            products_of(c),
            "binds " + human_bytes(limits.range_bytes) + " at a time, from multiples of " +
                std::to_string(limits.align) + " bytes on: what is larger is used in parts",
            limits.unified
                ? "keeps memory mapped: one pool with the host's, nothing is copied"
                : "keeps memory of its own, filled through staging: the host does not see it",
            "takes blocks of at most " +
                human_bytes(std::min(limits.allocation_bytes, kBlockBytes)) +
                (limits.allocation_bytes < kBlockBytes ? ": the device gives no larger ones" : "")};
}

VulkanCandidate VulkanInstance::probe_device(VkPhysicalDevice physical, uint32_t index)
{
    VulkanCandidate c{};
    c.physical = physical;
    VkPhysicalDeviceMaintenance3Properties blocks{};
    blocks.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES;
    VkPhysicalDeviceProperties2 properties{};
    properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    VkPhysicalDeviceSubgroupProperties subgroups{};
    subgroups.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES;
    properties.pNext = &blocks;
    blocks.pNext = &subgroups;
    m_vk.GetPhysicalDeviceProperties2(physical, &properties);
    c.properties = properties.properties;
    const VkPhysicalDeviceLimits& limits = c.properties.limits;
    c.software = c.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    c.limits.unified =
        c.software || c.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
    c.limits.align = std::max(c.limits.align, uint32_t(limits.minStorageBufferOffsetAlignment));
    c.limits.range_bytes = limits.maxStorageBufferRange / 256 * 256;
    c.limits.allocation_bytes = blocks.maxMemoryAllocationSize;
    c.limits.shared_bytes = limits.maxComputeSharedMemorySize;
    c.limits.invocations = limits.maxComputeWorkGroupInvocations;
    c.limits.max_groups = limits.maxComputeWorkGroupCount[0];
    c.limits.storage_buffers = limits.maxPerStageDescriptorStorageBuffers;
    c.limits.lanes = usable_lanes(c, subgroups);
    const VulkanExtensions extensions = extensions_of(m_vk, physical);
    c.faster = probe_features(m_vk, physical, extensions, subgroups, c.limits.shared_bytes);
    c.limits.uses = c.software ? 0 : c.faster.fast;
    c.queue_family = compute_family(m_vk, physical, &c.limits.timestamp_bits);
    clamp(c.limits, c.faster);
    c.has_memory_budget = has_extension(extensions, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    c.info = {"vulkan:" + std::to_string(index),
              c.properties.deviceName,
              "vulkan",
              0,
              0,
              c.limits.unified};
    c.info.range_bytes = c.limits.range_bytes;
    if (c.software) c.info.name += ", a software driver: cpu is faster";
    if (c.limits.lanes)
        c.info.name += ", its " + std::to_string(c.limits.lanes) + " lanes read texels together";
    c.info.paths = describe(c, subgroups);
    add_attention_lines(c.info.paths, [&](const AttentionArgs& a) {
        return explain_attention(choose_attention(c.limits, a, false), true);
    });
    measure_memory(m_vk, c);

    const VulkanLimits floor;
    if (c.properties.apiVersion < VK_API_VERSION_1_1)
        c.refusal = "it has Vulkan 1.0, 1.1 is needed";
    if (c.queue_family == ~0u) c.refusal = "it has no queue for compute shaders";
    if (c.limits.storage_buffers < floor.storage_buffers)
        c.refusal = "a shader may use " + std::to_string(c.limits.storage_buffers) +
                    " storage buffers, 8 are needed";
    return c;
}

VulkanDevice::~VulkanDevice()
{
    if (m_device) vk().DestroyDevice(m_device, nullptr);
}

Status VulkanDevice::open(const std::string& id)
{
    KS_TRY(m_instance.open());
    const std::vector<VulkanCandidate> all = m_instance.candidates();
    auto wanted = std::find_if(all.begin(), all.end(), [&](const VulkanCandidate& c) {
        return id == "vulkan" ? c.refusal.empty() : id == c.info.id;
    });
    if (wanted == all.end())
        return fail(Code::device, "there is no Vulkan device '%s' here", printable(id).c_str());
    if (!wanted->refusal.empty())
        return fail(Code::device, "%s (%s) cannot be used: %s", id.c_str(),
                    printable(wanted->info.name).c_str(), wanted->refusal.c_str());
    m_candidate = *wanted;

    const float priority = 1;
    VkDeviceQueueCreateInfo queue{};
    queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
    queue.queueFamilyIndex = m_candidate.queue_family;
    queue.queueCount = 1;
    queue.pQueuePriorities = &priority;
    VkDeviceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue;
    const FeatureChain features(limits().uses);
    if (!features.extensions.empty()) info.pNext = &features.first;
    info.enabledExtensionCount = uint32_t(features.extensions.size());
    info.ppEnabledExtensionNames = features.extensions.data();
    const VkResult result = vk().CreateDevice(m_candidate.physical, &info, nullptr, &m_device);
    if (result != VK_SUCCESS)
        return fail(Code::device, "%s cannot be opened: %s", id.c_str(),
                    vulkan_error(result).c_str());
    m_instance.load_device(m_device);
    vk().GetDeviceQueue(m_device, m_candidate.queue_family, 0, &m_queue);
    VkPhysicalDeviceMemoryProperties2 memory{};
    memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
    vk().GetPhysicalDeviceMemoryProperties2(m_candidate.physical, &memory);
    m_memory = memory.memoryProperties;
    return {};
}

DeviceInfo VulkanDevice::info() const
{
    VulkanCandidate now = m_candidate;
    measure_memory(vk(), now);
    return now.info;
}

// The memory types with all required properties, the preferred ones first. There are several,
// because the heap of one may be full.
std::vector<uint32_t> VulkanDevice::memory_types(uint32_t allowed, bool host) const
{
    constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    constexpr VkMemoryPropertyFlags kHost =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    constexpr VkMemoryPropertyFlags kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    const VkMemoryPropertyFlags unified[] = {kLocal | kHost | kCached, kLocal | kHost, kHost};
    const VkMemoryPropertyFlags staged[] = {kHost | kCached, kHost, kHost};
    const VkMemoryPropertyFlags discrete[] = {kLocal, kLocal, kLocal};
    const VkMemoryPropertyFlags* wanted = host ? staged : limits().unified ? unified : discrete;
    std::vector<uint32_t> types;
    for (int choice = 0; choice < 3; choice++)
        for (uint32_t i = 0; i < m_memory.memoryTypeCount; i++) {
            const bool fits = (allowed >> i & 1) && (m_memory.memoryTypes[i].propertyFlags &
                                                     wanted[choice]) == wanted[choice];
            if (fits && std::find(types.begin(), types.end(), i) == types.end()) types.push_back(i);
        }
    return types;
}

Status VulkanDevice::make_block(uint64_t bytes, bool host, VulkanBlock* out)
{
    const std::string size = human_bytes(bytes);
    if (bytes > limits().allocation_bytes)
        return fail(Code::no_fit, "%s gives blocks of at most %s, %s are needed",
                    m_candidate.info.id.c_str(), human_bytes(limits().allocation_bytes).c_str(),
                    size.c_str());
    VulkanBlock block;
    block.bytes = align_up(std::max<uint64_t>(bytes, 4), 256);
    VkBufferCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    info.size = block.bytes;
    info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT |
                 VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    VkResult result = vk().CreateBuffer(m_device, &info, nullptr, &block.buffer);
    VkMemoryRequirements needs{};
    if (result == VK_SUCCESS) {
        vk().GetBufferMemoryRequirements(m_device, block.buffer, &needs);
        VkMemoryAllocateInfo memory{};
        memory.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
        memory.allocationSize = needs.size;
        result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
        const bool refused = m_n_blocks++ >= limits().n_blocks;
        for (uint32_t type : memory_types(needs.memoryTypeBits, host)) {
            memory.memoryTypeIndex = type;
            if (!refused && result != VK_SUCCESS)
                result = vk().AllocateMemory(m_device, &memory, nullptr, &block.memory);
        }
    }
    if (result == VK_SUCCESS)
        result = vk().BindBufferMemory(m_device, block.buffer, block.memory, 0);
    void* mapped = nullptr;
    if (result == VK_SUCCESS && (host || limits().unified))
        result = vk().MapMemory(m_device, block.memory, 0, VK_WHOLE_SIZE, 0, &mapped);
    block.mapped = static_cast<uint8_t*>(mapped);
    if (result != VK_SUCCESS) {
        free_block(block);
        return fail(Code::no_fit, "%s refused a block of %s: %s", m_candidate.info.id.c_str(),
                    size.c_str(), vulkan_error(result).c_str());
    }
    *out = block;
    return {};
}

void VulkanDevice::free_block(VulkanBlock& block)
{
    if (block.buffer) vk().DestroyBuffer(m_device, block.buffer, nullptr);
    if (block.memory) vk().FreeMemory(m_device, block.memory, nullptr);
    block = {};
}

} // namespace ks
