// The backend beside its ops: steps that come again become graphs, machines without a device have none, one pool of memory is counted
// as such.
#include "backends/cuda/cuda_backend.h"
#include "backends/reference/reference_backend.h"
#include "runtime/base/backend.h"

#include <cstdlib>
#include <doctest/doctest.h>

using namespace ks;

static Tensor row(const Buffer& buffer, uint64_t offset, uint32_t n)
{
    Tensor t;
    t.buffer = buffer;
    t.offset = offset;
    t.rows = 1;
    t.cols = n;
    return t;
}

static bool is_listed()
{
    for (const DeviceInfo& device : list_devices())
        if (device.backend == "cuda") return true;
    return false;
}

TEST_CASE("cuda: steps that are alike become a graph, and see what is new in the buffers")
{
    CudaBackend backend;
    REQUIRE(backend.open(find_cuda_devices()[0]).ok());
    Buffer buffer = backend.alloc(4096).value();
    const Tensor x = row(buffer, 0, 64), b = row(buffer, 1024, 64);
    std::vector<float> ones(64, 1.f), in(64), out(64);
    backend.upload(buffer, 1024, ones.data(), 256);
    CHECK(backend.sync().ok());
    for (int step = 0; step < 12; step++) {
        // Two kinds of steps in turn; another in between does not make them forgotten.
        const int n_adds = step == 7 ? 9 : step % 2 ? 20 : 30;
        in.assign(64, float(100 * step));
        backend.upload(buffer, 0, in.data(), 256);
        for (int i = 0; i < n_adds; i++) backend.add({1, 64, 1}, x, b);
        backend.download(out.data(), buffer, 0, 256);
        CHECK(out == std::vector<float>(64, float(100 * step + n_adds)));
    }
    CHECK(backend.stream().n_graphs_launched() == 12 - 3); // the first of each kind was only seen
    // A step that is too long for one segment, and uploads that are too many for the staging block.
    std::vector<float> large(3u << 20, 2.f), back(large.size());
    Buffer more = backend.alloc(4 * large.size()).value();
    for (int i = 0; i < 4000; i++) backend.add({1, 64, 1}, x, b);
    backend.upload(more, 0, large.data(), 4 * large.size());
    backend.download(back.data(), more, 0, 4 * back.size());
    CHECK(back == large);
    backend.download(out.data(), buffer, 0, 256);
    CHECK(out[5] == 1100 + 20 + 4000);
    CHECK(backend.sync().ok());
    backend.free(more);
    backend.free(buffer);
}

TEST_CASE("cuda: a machine without a device, or without a driver, has none")
{
    CHECK(is_listed());
    setenv("CUDASHIM_DEVICES", "0", 1);
    CHECK(!is_listed());
    Result<std::unique_ptr<Backend>> opened = open_backend({"cuda", 0, nullptr});
    CHECK(opened.status().code() == Code::device);
    unsetenv("CUDASHIM_DEVICES");
    CHECK(open_backend({"cuda", 0, nullptr}).ok());
}

TEST_CASE("cuda: where memory is one pool, what is free is what the system can give, and no more is asked for")
{
    setenv("CUDASHIM_INTEGRATED", "1", 1);
    const CudaFound found = find_cuda_devices()[0];
    uint64_t total_bytes, free_bytes;
    host_memory(&total_bytes, &free_bytes);
    CHECK(found.info.unified);
    CHECK(found.info.memory_bytes == total_bytes);
    CHECK(found.info.free_bytes > free_bytes / 2);
    CHECK(found.info.free_bytes < free_bytes * 2);
    CudaBackend backend;
    REQUIRE(backend.open(found).ok());
    Result<Buffer> buffer = backend.alloc(total_bytes + 1);
    CHECK(buffer.status().code() == Code::no_fit);
    unsetenv("CUDASHIM_INTEGRATED");
}
