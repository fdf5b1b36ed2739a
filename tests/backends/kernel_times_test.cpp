// Kernel times have the names of kernels, and attention runs the kernel of attention_choice().
#include "tests/backends/op_harness.h"
#include "tests/devices.h"

#include <cstring>
#include <doctest/doctest.h>

using namespace ks;

static bool begins(const std::string& text, const char* with)
{
    return text.compare(0, strlen(with), with) == 0;
}

TEST_CASE("kernel times: attention runs the chosen kernel, and timing changes no bit")
{
    for (const std::string& device : tested_names())
        for (uint32_t head_dim : {64u, 80u})
            for (uint32_t n : {1u, 3u, 40u}) {
                CAPTURE(device);
                CAPTURE(head_dim);
                CAPTURE(n);
                Bench bench(device, 1);
                ScratchShape shape;
                shape.n_tokens = n;
                shape.max_cols = 6 * head_dim;
                shape.n_heads = 6;
                shape.n_kv_heads = 2;
                shape.head_dim = head_dim;
                shape.coded_slots = n; // CUDA also converts f32 slots
                bench.scratch(shape);
                Random random(n);
                KvSlots slots;
                slots.k = bench.input(2 * n, head_dim, random.normals(2 * n * head_dim));
                slots.v = bench.input(2 * n, head_dim, random.normals(2 * n * head_dim));
                slots.head_layout = bench.words(std::vector<uint32_t>(2 * layout_words));
                const Tensor q = bench.input(n, 6 * head_dim, random.normals(n * 6 * head_dim));
                const Tensor plain = bench.output(n, 6 * head_dim),
                             timed = bench.output(n, 6 * head_dim);
                AttentionArgs a{};
                a.n_tokens = n;
                a.n_heads = 6;
                a.n_kv_heads = 2;
                a.head_dim = head_dim;
                a.n_rows = n;
                a.scale = 0.125f;
                Backend& backend = bench.backend();
                backend.attention(a, plain, {q, {}}, slots, Tensor());
                const KernelChoice choice = backend.attention_choice(a, slots);
                const Result<bool> by_device = backend.time_kernels(true);
                REQUIRE(by_device.ok());
                backend.begin_op(7);
                backend.attention(a, timed, {q, {}}, slots, Tensor());
                size_t n_found = 0;
                for (const KernelTime& t : backend.take_kernel_times()) {
                    CHECK(t.op == 7);
                    CHECK(t.seconds > 0);
                    n_found += begins(t.kernel, (choice.kernel + std::string(" f32 f32")).c_str());
                }
                CHECK(n_found == by_device.value());
                CHECK((!*choice.kernel || *choice.reason));
                CHECK(bench.read(plain) == bench.read(timed));
            }
}
