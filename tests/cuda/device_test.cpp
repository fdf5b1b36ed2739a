// The CUDA backend apart from its ops: repeated steps become graphs, machines without a device list
// none, and unified memory is reported.
#include "backends/cuda/cuda_backend.h"
#include "backends/reference/reference_backend.h"
#include "runtime/base/backend.h"
#include "tests/backends/op_harness.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
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

TEST_CASE("cuda: steps that repeat become a graph, and read the current buffers")
{
    CudaBackend backend;
    REQUIRE(backend.open(find_cuda_devices()[0]).ok());
    Buffer buffer = backend.alloc(4096).value();
    const Tensor x = row(buffer, 0, 64), b = row(buffer, 1024, 64);
    std::vector<float> ones(64, 1.f), in(64), out(64);
    backend.upload(buffer, 1024, ones.data(), 256);
    CHECK(backend.sync().ok());
    for (int step = 0; step < 12; step++) {
        // Two kinds of steps alternate. A third kind in between does not evict their graphs.
        const int n_adds = step == 7 ? 9 : step % 2 ? 20 : 30;
        in.assign(64, float(100 * step));
        backend.upload(buffer, 0, in.data(), 256);
        for (int i = 0; i < n_adds; i++) backend.add({1, 64, 1}, x, b);
        backend.download(out.data(), buffer, 0, 256);
        CHECK(out == std::vector<float>(64, float(100 * step + n_adds)));
    }
    CHECK(backend.stream().n_graphs_launched() ==
          12 - 3); // the first step of each kind is not a graph yet
    // A step that is too long for one segment, and an upload that is larger than the staging block.
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

TEST_CASE("cuda: kernels are timed by name, in graphs too, with the same results as without")
{
    CudaBackend backend;
    REQUIRE(backend.open(find_cuda_devices()[0]).ok());
    Buffer buffer = backend.alloc(4096).value();
    const Tensor x = row(buffer, 0, 64), b = row(buffer, 1024, 64);
    std::vector<float> start(64, 0.25f), out(64), plain;
    backend.upload(buffer, 1024, start.data(), 256);
    for (bool timed : {false, true, true, false}) {
        CAPTURE(timed);
        REQUIRE(backend.time_kernels(timed).ok());
        const uint64_t graphs = backend.stream().n_graphs_launched();
        for (int step = 0; step < 4; step++) {
            backend.begin_op(3);
            backend.upload(buffer, 0, start.data(), 256);
            for (int i = 0; i < 10; i++) {
                backend.begin_op(1);
                backend.add({1, 64, 1}, x, b);
                backend.begin_op(2);
                backend.softcap({64, 30.f}, x);
            }
            backend.begin_op(3);
            backend.download(out.data(), buffer, 0, 256);
            if (plain.empty()) plain = out;
            CHECK(out == plain);
            backend.add({1, 64, 1}, x, b); // a segment that is too short for a graph
            CHECK(backend.sync().ok());
        }
        CHECK(backend.stream().n_graphs_launched() - graphs == 3);
        const std::vector<KernelTime> times = backend.take_kernel_times();
        CHECK(times.size() == (timed ? 4 : 0));
        for (const KernelTime& t : times) {
            CHECK(t.kernel == (t.op == 1             ? "add"
                               : t.op == 2           ? "softcap"
                               : t.n_dispatches == 8 ? "copy"
                                                     : "add"));
            CHECK(t.n_dispatches == (t.op < 3 ? 40 : t.kernel == "copy" ? 8 : 4));
            CHECK(t.seconds > 0);
            CHECK(t.seconds < 10);
        }
        CHECK(backend.take_kernel_times().empty());
    }
    backend.free(buffer);
    CHECK(KernelLabel("matmul", Format::q8_0).text() == "matmul q8_0");
    CHECK(KernelLabel("attention_decode", Format::q8, Format::f16).text() ==
          "attention_decode q8 f16");
}

TEST_CASE("cuda: a machine without a device, or without a driver, has none")
{
    CHECK(is_listed());
    setenv("CUDASHIM_DEVICES", "0", 1);
    CHECK(!is_listed());
    Result<std::unique_ptr<Backend>> opened = open_backend({"cuda", 0, nullptr});
    CHECK(opened.status().code() == Code::device);
    CHECK(opened.status().message().find(
              "device 'cuda' cannot be used: cuda is built in, no NVIDIA GPU; there are: cpu") ==
          0);
    unsetenv("CUDASHIM_DEVICES");
    for (const char* version : {"0", "11000"}) {
        setenv("CUDASHIM_DRIVER", version, 1);
        const std::string expected =
            *version == '0' ? "no NVIDIA driver" : "its NVIDIA driver is too old for this build";
        CHECK(list_backends().front().missing == expected);
        CHECK(open_backend({"cuda:0", 0, nullptr}).status().message().find(expected) !=
              std::string::npos);
        unsetenv("CUDASHIM_DRIVER");
    }
    CHECK(list_backends().front().missing == "");
    CHECK(open_backend({"cuda", 0, nullptr}).ok());
}

TEST_CASE("cuda: with unified memory, what the system can give is free, and more is refused")
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

// Multiplies x twice. First with the int8 copy that `maker` left, after the floats are overwritten
// with zeros. Then after an upload, which makes the backend quantise x again. Both results must be
// equal.
static void check_int8_copy(Bench& bench, const char* maker, const Tensor& x, const Tensor& w,
                            const Tensor& first, const Tensor& second)
{
    CAPTURE(maker);
    const MatmulArgs a{x.rows, w.rows, w.cols, 0};
    const std::vector<float> values = bench.read(x);
    memset(x.ptr(), 0, 4 * values.size()); // the backend does not notice
    const MatmulTarget one{first, w}, other{second, w};
    bench.backend().matmul(a, &one, 1, x);
    bench.backend().upload(x.buffer, x.offset, values.data(), 4 * values.size());
    bench.backend().matmul(a, &other, 1, x);
    CHECK(bench.read(first) == bench.read(second));
    CHECK(std::fabs(bench.read(first)[1]) > 0);
}

TEST_CASE("cuda: kernels that write the input of a matmul also write its int8 copy")
{
    for (uint32_t n : {1u, 5u, 40u})
        for (uint32_t hadamard : {0u, 1u}) {
            CAPTURE(n);
            Bench bench("cuda", 1);
            bench.scratch({n, 384, 6, 2, 64, 0, 0, n});
            Random random(n);
            const Tensor w = bench.weight(random_matrix(Format::q8_0, 24, 384, 3)),
                         norm = bench.input(1, 384, random.normals(384));
            const Tensor x = bench.input(n, 384, random.normals(n * 384)),
                         y = bench.input(n, 384, random.normals(n * 384));
            const Tensor first = bench.output(n, 24), second = bench.output(n, 24);
            bench.will_change(y);
            bench.backend().norm({n, 384, 1e-5f, 0, norm_rms, 1}, y, x, norm);
            check_int8_copy(bench, "norm", y, w, first, second);
            bench.backend().glu({n * 384, act_silu, 1, 1, 0, 0, 0, 0}, y, y, x);
            check_int8_copy(bench, "glu", y, w, first, second);
            KvSlots slots;
            slots.k = bench.input(2 * n, 64, random.normals(2 * n * 64));
            slots.v = bench.input(2 * n, 64, random.normals(2 * n * 64));
            slots.head_layout = bench.words(std::vector<uint32_t>(2 * layout_words));
            AttentionArgs a{n, 6, 2, 64, n, 0, 0, 0, 0, 0.125f, 0, 0, 0, hadamard, 0};
            bench.backend().attention(a, y, {x, {}}, slots, Tensor());
            check_int8_copy(bench, "attention", y, w, first, second);
            bench.backend().norm({n, 384, 1e-5f, 0, norm_rms, 1}, y, x, norm);
            bench.backend().add(
                {n, 384, 1}, y,
                norm); // add writes y without an int8 copy, so matmul must quantise it again
            const MatmulTarget one{first, w}, other{second, w};
            bench.backend().matmul({n, 24, 384, 0}, &one, 1, y);
            bench.backend().matmul({n, 24, 384, 0}, &other, 1, bench.input(n, 384, bench.read(y)));
            CHECK(bench.read(first) == bench.read(second));
        }
}
