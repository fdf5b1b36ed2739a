// The list of backends, and the part of Backend besides the ops: buffers and scratch.
#include "runtime/base/backend.h"

#include <algorithm>
#include <cstring>
#include <doctest/doctest.h>

using namespace ks;

TEST_CASE("registry: every listed device opens under its id")
{
    std::vector<DeviceInfo> devices = list_devices();
    auto has = [&](const char* id) {
        return std::any_of(devices.begin(), devices.end(),
                           [&](const DeviceInfo& d) { return d.id == id; });
    };
    CHECK(has("reference"));
    CHECK(has("cpu"));
    for (const DeviceInfo& device : devices) {
        CAPTURE(device.id);
        CHECK(!device.name.empty());
        CHECK(device.free_bytes > 0);
        CHECK(device.free_bytes <= device.memory_bytes);
        Result<std::unique_ptr<Backend>> backend = open_backend({device.id, 0, nullptr});
        REQUIRE(backend.ok());
        CHECK(backend.value()->info().id == device.id);
    }
    Result<std::unique_ptr<Backend>> best = open_backend({});
    REQUIRE(best.ok());
    CHECK(best.value()->info().id == devices[0].id);
    CHECK(best.value()->info().id != "reference");
}

TEST_CASE("registry: an unknown device is an error that names the existing ones")
{
    for (const char* id :
         {"gpu", "cpu2", "CPU", "reference:0", "cuda:99", "vulkan:", "\x1b[31m", " cpu"}) {
        CAPTURE(id);
        Result<std::unique_ptr<Backend>> backend = open_backend({id, 0, nullptr});
        REQUIRE(!backend.ok());
        CHECK(backend.status().code() == Code::device);
        const std::string& message = backend.status().message();
        CHECK(message.find(printable(id)) != std::string::npos);
        for (const DeviceInfo& device : list_devices())
            CHECK(message.find(device.id) != std::string::npos);
        CHECK(message.size() < 400);
        CHECK(std::all_of(message.begin(), message.end(),
                          [](char c) { return c >= ' ' && c <= '~'; }));
    }
}

TEST_CASE("buffers: uploads and fills change only their range")
{
    for (const DeviceInfo& device : list_devices()) {
        CAPTURE(device.id);
        std::unique_ptr<Backend> backend = std::move(open_backend({device.id, 2, nullptr}).value());
        Buffer a = backend->alloc(1 << 20).value(), b = backend->alloc(1).value();
        CHECK(a.bytes == 1 << 20);
        std::vector<uint8_t> in(5000), out(in.size());
        for (size_t i = 0; i < in.size(); i++) in[i] = uint8_t(i * 7 + i / 256);
        backend->fill(a, 0, a.bytes, 0x11223344);
        backend->upload(a, 4096, in.data(), in.size());
        backend->upload(b, 0, "x", 1);
        backend->fill(a, 4096 + 256, 64, 0xdeadbeef);
        for (size_t i = 256; i < 256 + 64; i += 4) memcpy(&in[i], "\xef\xbe\xad\xde", 4);
        backend->download(out.data(), a, 4096, out.size());
        CHECK(out == in);
        uint32_t around[2] = {};
        backend->download(&around[0], a, 4092, 4);
        backend->download(&around[1], a, 4096 + 5000, 4);
        CHECK(around[0] == 0x11223344);
        CHECK(around[1] == 0x11223344);
        CHECK(backend->sync().ok());
        backend->free(a);
        backend->free(b);
        CHECK(a.data == nullptr);
        CHECK(a.bytes == 0);
    }
}

TEST_CASE("buffers: too large an allocation is an error")
{
    for (const DeviceInfo& device : list_devices()) {
        CAPTURE(device.id);
        std::unique_ptr<Backend> backend = std::move(open_backend({device.id, 1, nullptr}).value());
        Result<Buffer> buffer = backend->alloc(1ull << 60);
        REQUIRE(!buffer.ok());
        CHECK(buffer.status().code() == Code::no_fit);
    }
}

TEST_CASE("buffers: from the caller's memory where device and host share it")
{
    std::vector<uint8_t> block(1 << 20);
    for (const DeviceInfo& device : list_devices()) {
        if (!device.unified || device.backend == "vulkan" || device.backend == "cuda")
            continue; // a driver allocates their memory
        CAPTURE(device.id);
        MemorySource memory(block.data(), block.size());
        std::unique_ptr<Backend> backend = std::move(open_backend({device.id, 1, &memory}).value());
        Buffer a = backend->alloc(300000).value();
        CHECK(a.data >= block.data());
        CHECK(static_cast<uint8_t*>(a.data) + a.bytes <= block.data() + block.size());
        CHECK(!backend->alloc(800000).ok());
        backend->free(a);
    }
}

TEST_CASE("scratch: grows with the shape of a step and is a multiple of the alignment")
{
    for (const DeviceInfo& device : list_devices()) {
        CAPTURE(device.id);
        std::unique_ptr<Backend> backend = std::move(open_backend({device.id, 2, nullptr}).value());
        ScratchShape small{1, 576, 9, 3, 64}, large{512, 8192, 64, 8, 256};
        CHECK(backend->scratch_bytes(small) % backend->align() == 0);
        CHECK(backend->scratch_bytes(small) <= backend->scratch_bytes(large));
        CHECK(backend->scratch_bytes(large) < 256u << 20);
    }
}
