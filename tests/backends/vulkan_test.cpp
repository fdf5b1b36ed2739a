// What goes wrong on a Vulkan device is a Status in one sentence, and the program goes on.
#include "tests/devices.h"

#include <cstdlib>
#include <cstring>
#include <doctest/doctest.h>

using namespace ks;

// Of the devices that tests pretend to have (backends/vulkan/vulkan_device.cpp), one for as long as it lives.
struct Pretended {
    explicit Pretended(const char* name) { setenv("KNAPSACK_VULKAN_LIMITS", name, 1); }
    ~Pretended() { unsetenv("KNAPSACK_VULKAN_LIMITS"); }
};

static std::string vulkan_device()
{
    for (const DeviceInfo& device : list_devices())
        if (device.backend == "vulkan") return device.id;
    MESSAGE("skipped: there is no Vulkan device here");
    return "";
}

// Adds one to each of n values, n_times. What sync says.
static Status count(Backend& backend, const Buffer& buffer, uint32_t n, int n_times)
{
    Tensor x{buffer, 0, 1, n}, one{buffer, 4096, 1, n};
    for (int i = 0; i < n_times; i++) {
        backend.add({1, n, 1}, x, one);
        if (Status status = backend.sync(); !status.ok()) return status;
    }
    return {};
}

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
