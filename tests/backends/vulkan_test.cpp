// The Vulkan backend: its errors are a Status of one sentence, command lists, kernel times, names
// of pipelines, optional features, and the pipeline cache on disk.
#include "tests/devices.h"
#ifdef KS_VULKAN
#include "backends/vulkan/spirv.h"
#include "backends/vulkan/vulkan_backend.h"
#endif

#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <doctest/doctest.h>
#include <set>

using namespace ks;

// Sets an environment variable. The destructor restores the previous value.
struct Environment {
    const char* name;
    std::string before;
    bool was_there;
    Environment(const char* variable, const char* value)
        : name(variable), was_there(getenv(variable))
    {
        if (was_there) before = getenv(variable);
        setenv(variable, value, 1);
    }
    ~Environment()
    {
        if (was_there)
            setenv(name, before.c_str(), 1);
        else
            unsetenv(name);
    }
};

// Pretends the limits of another device, until the destructor
// (backends/vulkan/vulkan_device.cpp).
struct Pretended : Environment {
    explicit Pretended(const char* limits) : Environment("KNAPSACK_VULKAN_LIMITS", limits) {}
};

static std::string vulkan_device()
{
    for (const DeviceInfo& device : list_devices())
        if (device.backend == "vulkan") return device.id;
    MESSAGE("skipped: there is no Vulkan device here");
    return "";
}

// Adds one to each of n values, n_times. Returns the Status of sync.
static Status count(Backend& backend, const Buffer& buffer, uint32_t n, int n_times)
{
    Tensor x{buffer, 0, 1, n}, one{buffer, 4096, 1, n};
    for (int i = 0; i < n_times; i++) {
        backend.add({1, n, 1}, x, one);
        if (Status status = backend.sync(); !status.ok()) return status;
    }
    return {};
}

#ifdef KS_VULKAN
// KS_PRINT_SHADERS=1 prints a table with tabs between its fields.
TEST_CASE("vulkan: no op pushes more than 96 bytes or binds more than 7 buffers")
{
    uint32_t push = 0, buffers = 0;
    for (size_t i = 0; i < kVulkanShaderCount; i++) {
        const VulkanShader& shader = kVulkanShaders[i];
        const SpirvInfo info = read_spirv(shader.words, shader.n_words);
        CAPTURE(shader.op);
        CAPTURE(shader.variant);
        CHECK(info.push_bytes > 0);
        CHECK(info.push_bytes % 4 == 0);
        CHECK(info.push_bytes <= 96);
        CHECK(info.n_bindings >= 1);
        CHECK(info.n_bindings <= 7);
        if (getenv("KS_PRINT_SHADERS"))
            printf("%s\t%s\t%u\t%u\n", shader.op, shader.variant, info.push_bytes, info.n_bindings);
        if (std::string(shader.op) == "select") push = info.push_bytes;
        if (std::string(shader.op) == "attention") buffers = info.n_bindings;
    }
    // The sizes read from SPIR-V are the sizes of the structs.
    CHECK(push == sizeof(SelectArgs) + sizeof(SelectShape) + sizeof(SelectPass));
    CHECK(buffers == 7);
}
#endif

TEST_CASE("vulkan: a device that is lost stays lost, another one works")
{
    const std::string id = vulkan_device();
    if (id.empty()) return;
    std::unique_ptr<Backend> lost;
    {
        Pretended device("lost");
        lost = std::move(open_backend({id, 0, nullptr}).value());
    }
    std::unique_ptr<Backend> other = std::move(open_backend({id, 0, nullptr}).value());
    for (Backend* backend : {lost.get(), other.get()}) {
        Buffer buffer = backend->alloc(8192).value();
        backend->fill(buffer, 0, 4096, 0);
        backend->fill(buffer, 4096, 4096, 0x3f800000u);
        const Status status = count(*backend, buffer, 100, 20);
        float found = 0;
        backend->download(&found, buffer, 0, 4);
        if (backend == lost.get()) {
            CHECK(status.code() == Code::device);
            CHECK(status.message().find("VK_ERROR_DEVICE_LOST") != std::string::npos);
            CHECK(backend->sync().code() == Code::device);
            CHECK(!backend->alloc(100).ok());
        } else {
            CHECK(status.ok());
            CHECK(found == 20.f);
        }
        backend->free(buffer);
    }
}

TEST_CASE("vulkan: memory that is refused is an error, and what there is stays usable")
{
    const std::string id = vulkan_device();
    if (id.empty()) return;
    Pretended device("refusing");
    std::unique_ptr<Backend> backend = std::move(open_backend({id, 0, nullptr}).value());
    Buffer buffer = backend->alloc(8192).value();
    backend->fill(buffer, 0, 8192, 0);
    Result<Buffer> second = backend->alloc(4096), third = backend->alloc(4096);
    CHECK(second.ok());
    REQUIRE(!third.ok());
    CHECK(third.status().code() == Code::no_fit);
    CHECK(third.status().message().find("VK_ERROR_OUT_OF_DEVICE_MEMORY") != std::string::npos);
    CHECK(count(*backend, buffer, 100, 2).ok());
    backend->free(second.value());
    backend->free(buffer);
}

TEST_CASE("vulkan: a device that lacks what is needed is not listed, and refused by name")
{
    const std::string id = vulkan_device();
    if (id.empty()) return;
    Pretended device("featureless");
    for (const DeviceInfo& info : list_devices()) CHECK(info.backend != "vulkan");
    const Result<std::unique_ptr<Backend>> backend = open_backend({id, 0, nullptr});
    REQUIRE(!backend.ok());
    CHECK(backend.status().code() == Code::device);
    const Result<std::unique_ptr<Backend>> best = open_backend({});
    REQUIRE(best.ok());
    CHECK(best.value()->info().backend != "vulkan");
}

TEST_CASE("vulkan: a buffer is put together from small blocks, no tensor of which is cut")
{
    const std::string id = vulkan_device();
    if (id.empty()) return;
    for (const char* name : {"small_blocks", "small_discrete"}) {
        Pretended device(name);
        std::unique_ptr<Backend> backend = std::move(open_backend({id, 0, nullptr}).value());
        CHECK(backend->info().free_bytes > 1u << 20);
        std::vector<uint64_t> split_points;
        const uint32_t n = 9984;
        const uint64_t bytes = 4 * n;
        std::vector<float> ones(n, 1.f), found(n);
        REQUIRE(bytes % backend->align() == 0);
        for (uint64_t nth = 0; nth < 40; nth++) split_points.push_back(nth * bytes);
        Result<Buffer> taken = backend->alloc(40 * bytes, split_points);
        REQUIRE_MESSAGE(taken.ok(), taken.status().message());
        Buffer buffer = taken.value();
        for (uint64_t at : split_points) backend->upload(buffer, at, ones.data(), bytes);
        for (size_t i = 1; i < split_points.size(); i++)
            backend->add({1, n, 1}, {buffer, split_points[i], 1, n},
                         {buffer, split_points[i - 1], 1, n});
        for (size_t i = 0; i < split_points.size(); i++) {
            backend->download(found.data(), buffer, split_points[i], bytes);
            CHECK(found == std::vector<float>(n, float(i + 1)));
        }
        CHECK(backend->sync().ok());
        backend->free(buffer);
        const Result<Buffer> larger = backend->alloc(3 << 20, {0, 60000, 2 << 20});
        REQUIRE(!larger.ok());
        CHECK(larger.status().code() == Code::no_fit);
        CHECK(larger.status().message().find("gives blocks of at most") != std::string::npos);
    }
}

TEST_CASE("vulkan: what cannot be used is named with the reason")
{
    const std::string id = vulkan_device();
    if (id.empty()) return;
    std::vector<std::string> refused;
    list_devices(&refused);
    CHECK(refused.empty());
    Pretended device("featureless");
    list_devices(&refused);
    REQUIRE(!refused.empty());
    CHECK(refused[0].find(id) == 0);
    CHECK(refused[0].find("storage buffers") != std::string::npos);
}

#ifdef KS_VULKAN
TEST_CASE("vulkan: steps that are alike are recorded once, and see what is new in the buffers")
{
    const std::string id = vulkan_device();
    if (id.empty()) return;
    for (const char* limits : {"", "discrete"}) {
        Pretended device(limits);
        VulkanBackend backend;
        REQUIRE(backend.open(id).ok());
        const uint32_t n = 64;
        const std::vector<float> ones(n, 1.f);
        std::vector<float> in(n), out(n);
        // The second round has another buffer, which may get the handle of the first.
        for (int round = 0; round < 2; round++) {
            Buffer buffer = backend.alloc(8192).value();
            const Tensor x{buffer, 0, 1, n}, b{buffer, 4096, 1, n};
            backend.upload(buffer, 4096, ones.data(), 4 * n);
            CHECK(backend.sync().ok());
            const uint64_t before = backend.stream().n_replays();
            for (int step = 0; step < 12; step++) {
                // Two kinds of steps alternate. A third kind once, or many short lists, do not
                // replace their recordings.
                const int n_adds = step == 7 ? 190 : step % 2 ? 200 : 300;
                for (uint32_t i = 1; i < 6; i++) {
                    backend.fill(buffer, 1024, 4 * i, step);
                    CHECK(backend.sync().ok());
                }
                in.assign(n, float(100 * step));
                backend.upload(buffer, 0, in.data(), 4 * n);
                for (int i = 0; i < n_adds; i++) {
                    if (i == 5)
                        backend.upload(buffer, 4096, ones.data(), 4 * n); // while commands use it
                    backend.add({1, n, 1}, x, b);
                }
                backend.download(out.data(), buffer, 0, 4 * n);
                CHECK(out == std::vector<float>(n, float(100 * step + n_adds)));
            }
            // The first step of each kind is recorded, the others are replayed.
            CHECK(backend.stream().n_replays() - before == 12 - 3);
            for (int i = 0; i < 4000; i++) backend.add({1, n, 1}, x, b); // more than a list holds
            backend.download(out.data(), buffer, 0, 4 * n);
            CHECK(out[5] == 1100 + 200 + 4000);
            backend.free(buffer);
        }
    }
}

// Alternates add and glu on x, several times in one batch, then returns x.
static std::vector<float> add_and_multiply(VulkanBackend& backend, const Buffer& buffer, uint32_t n)
{
    const Tensor x{buffer, 0, 1, n}, one{buffer, 4096, 1, n};
    std::vector<float> out(n);
    for (int i = 0; i < 10; i++) {
        backend.begin_op(1);
        backend.add({1, n, 1}, x, one);
        backend.begin_op(2);
        backend.glu({n, act_silu, 1, 1, 0, 0, 0, 0}, x, x, one);
    }
    backend.download(out.data(), buffer, 0, 4 * n);
    return out;
}

TEST_CASE("vulkan: kernels are timed by name, with the same results and replays as without")
{
    const std::string id = vulkan_device();
    if (id.empty()) return;
    VulkanBackend backend;
    REQUIRE(backend.open(id).ok());
    const uint32_t n = 64;
    const std::vector<float> start(n, 0.25f);
    Buffer buffer = backend.alloc(8192).value();
    backend.upload(buffer, 4096, start.data(), 4 * n);
    std::vector<float> plain;
    for (bool timed : {false, true, true, false}) {
        CAPTURE(timed);
        REQUIRE(backend.time_kernels(timed).ok());
        uint64_t replays = 0, submits = 0;
        for (int step = 0; step < 4; step++) {
            backend.upload(buffer, 0, start.data(), 4 * n);
            if (step == 1)
                replays = backend.stream().n_replays(), submits = backend.stream().n_submits();
            const std::vector<float> out = add_and_multiply(backend, buffer, n);
            if (plain.empty()) plain = out;
            CHECK(out == plain);
        }
        CHECK(backend.stream().n_submits() - submits == 3); // one per step, not one per op
        CHECK(backend.stream().n_replays() - replays == 3);
        const std::vector<KernelTime> times = backend.take_kernel_times();
        CHECK(times.size() == (timed ? 2 : 0));
        for (const KernelTime& t : times) {
            CHECK(t.kernel == (t.op == 1 ? "add" : "glu"));
            CHECK(t.n_dispatches == 40);
            CHECK(t.seconds > 0);
            CHECK(t.seconds < 10);
        }
        CHECK(backend.take_kernel_times().empty());
    }
    backend.free(buffer);
}

TEST_CASE("vulkan: a device without a clock says that it times nothing")
{
    const std::string id = vulkan_device();
    if (id.empty()) return;
    Pretended device("no_clock");
    VulkanBackend backend;
    REQUIRE(backend.open(id).ok());
    const Result<bool> timed = backend.time_kernels(true);
    CHECK(timed.status().code() == Code::device);
    CHECK(timed.status().message().find("no timestamps") != std::string::npos);
    Buffer buffer = backend.alloc(8192).value();
    CHECK(count(backend, buffer, 100, 2).ok());
    CHECK(backend.take_kernel_times().empty());
    backend.free(buffer);
}

TEST_CASE("vulkan: pipelines are named after their shader and what it was specialised for")
{
    char name[96];
    name_pipeline("matvec", "q8_0", {{1, 16, 1}}, name, sizeof name);
    CHECK(name == std::string("matvec q8_0 1 16 1"));
    name_pipeline("attention_decode", "",
                  {{codec_number(Format::q8), codec_number(Format::f16), 64, 1025}}, name,
                  sizeof name);
    CHECK(name == std::string("attention_decode q8 f16 64 1025"));
    name_pipeline("attention_dequantize", "", {{codec_number(Format::turbo4), 0, 64}}, name,
                  sizeof name);
    CHECK(name == std::string("attention_dequantize turbo4 0 64"));
    name_pipeline("kv_write", "", {}, name, sizeof name);
    CHECK(name == std::string("kv_write f32"));
    name_pipeline("select", "", {{3, 0, 64}}, name, sizeof name);
    CHECK(name == std::string("select logits f32 64"));
    name_pipeline("add", "", {}, name, 3);
    CHECK(name == std::string("ad"));
}
#endif

// The line of `knapsack devices` about products.
static std::string products_line(const Backend& backend)
{
    for (const std::string& path : backend.info().paths)
        if (path.find("multiplies ") == 0) return path;
    return "";
}

TEST_CASE("vulkan: what is faster is used where the device has it, and it says so")
{
    const std::string id = vulkan_device();
    if (id.empty()) return;
    const struct {
        const char *limits, *feature, *line;
    } ways[] = {{"pi5", "", "multiplies in f32"},
                {"int8_dot", "integer dot products", "a few by integer dot products"},
                {"f16", "f16 arithmetic", "in f16, two at a time, a few in f32"},
                {"matrices", "cooperative matrices", "by cooperative matrices of"}};
    for (const auto& way : ways) {
        Pretended device(way.limits);
        std::unique_ptr<Backend> backend = std::move(open_backend({id, 0, nullptr}).value());
        const bool has = backend->info().paths[0].find(way.feature) != std::string::npos;
        CHECK_MESSAGE(products_line(*backend).find(has ? way.line : "multiplies in f32") !=
                          std::string::npos,
                      way.limits);
        ScratchShape shape;
        const uint64_t none = backend->scratch_bytes(shape);
        shape.n_tokens = 64;
        shape.max_cols = 512;
        CHECK((backend->scratch_bytes(shape) > none) == (has && *way.feature));
    }
}

TEST_CASE("vulkan: pipelines are remembered for devices that read alike")
{
    const std::string id = vulkan_device();
    if (id.empty()) return;
    char folder[] = "/tmp/vulkan_test.XXXXXX";
    REQUIRE(mkdtemp(folder));
    std::set<std::string> ways, files;
    {
        Environment place("XDG_CACHE_HOME", folder);
        for (const char* limits : {"", "pi5", ""}) {
            Pretended device(limits);
            std::unique_ptr<Backend> backend = std::move(open_backend({id, 0, nullptr}).value());
            // The lines about reads and sums, and about products.
            ways.insert(backend->info().paths[1] + backend->info().paths[2]);
            Buffer buffer = backend->alloc(8192).value();
            CHECK(count(*backend, buffer, 100, 1).ok());
            backend->free(buffer);
        }
    }
    const std::string kept = std::string(folder) + "/knapsack";
    DIR* dir = opendir(kept.c_str());
    REQUIRE(dir);
    while (dirent* entry = readdir(dir))
        if (entry->d_name[0] != '.') files.insert(entry->d_name);
    closedir(dir);
    CHECK(files.size() == ways.size());
    // A driver may have files of its own in the folder.
    const std::string removal = std::string("rm -r ") + folder;
    CHECK(system(removal.c_str()) == 0);
}
