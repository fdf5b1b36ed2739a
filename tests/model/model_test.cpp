// The forward pass compared with an independent one in float64 without cache and chunks, written
// from the formulas.
#include "tests/devices.h"
#include "tests/model/opened_model.h"

using namespace ks;

TEST_CASE("model: the forward pass equals an independent one, with any chunks and full rings")
{
    Recipe exact;
    exact.k = exact.v = Format::f32;
    for (const char* arch : {"llama", "gemma3"}) {
        TinyShape shape;
        shape.arch = arch;
        shape.n_layers = shape.arch == "gemma3" ? 6 : 2; // gemma3's sixth layer is global
        TinyModel tiny = make_tiny_model(shape);
        std::vector<uint32_t> ids;
        for (uint32_t i = 0; i < 61; i++) ids.push_back((i * 37 + 11) % 256);
        Rows want = Naive{tiny, tiny.shape}.logits(ids);
        for (uint32_t chunk : {1u, 7u, 16u, 61u}) {
            Opened opened(tiny, "reference", 64, chunk, exact);
            for (uint32_t at = 0; at < ids.size(); at += chunk) {
                uint32_t n = std::min<uint32_t>(chunk, uint32_t(ids.size()) - at);
                std::vector<float> got = opened.read(&ids[at], n, at);
                CAPTURE(arch);
                CAPTURE(chunk);
                CAPTURE(at);
                CHECK(largest_difference(got, want[at + n - 1]) < 1e-4);
            }
        }
    }
}

TEST_CASE("model: a window in a table forgets the same tokens as a ring, with any chunks")
{
    TinyShape shape;
    shape.arch = "gemma3";
    shape.n_layers = 6;
    shape.window = 40; // enough for coded slots beside the f16 slots that wait for encoding
    TinyModel tiny = make_tiny_model(shape);
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < 230; i++) ids.push_back((i * 37 + 11) % 256);
    const Recipe ring = parse_recipe("exact").value();
    for (const char* text : {"retain=all,k=q8,v=q8", "retain=all,k=q8,v=q8,delta=7,recent=5"}) {
        const Recipe table = parse_recipe(text).value(); // lossless below: the codes are f16
        for (const DeviceInfo& device : tested_devices())
            for (uint32_t chunk : {1u, 7u, 64u}) {
                Opened a(tiny, device.id.c_str(), 256, chunk, ring),
                    b(tiny, device.id.c_str(), 256, chunk, table, false, true);
                REQUIRE(b.cache.layer(0).spec.n_coded > 0);
                for (uint32_t at = 0; at < ids.size(); at += chunk) {
                    const uint32_t n = std::min<uint32_t>(chunk, uint32_t(ids.size()) - at);
                    const std::vector<float> want = a.read(&ids[at], n, at),
                                             got = b.read(&ids[at], n, at);
                    CAPTURE(text);
                    CAPTURE(device.id);
                    CAPTURE(chunk);
                    CAPTURE(at);
                    // Activations are rounded to int8. Another order of sums sometimes changes a
                    // rounding.
                    CHECK(largest_difference(got, {want.begin(), want.end()}) <
                          (device.id == "reference" ? 2e-5 : 0.02));
                }
                CHECK(b.cache.evicted() == 0);
            }
    }
}

TEST_CASE("model: pinned tokens with positions in the cache are StreamingLLM")
{
    TinyModel tiny = make_tiny_model(TinyShape{});
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < 90; i++) ids.push_back((i * 53 + 7) % 256);
    const uint32_t slots = 24;
    const Rows want = Naive{tiny, tiny.shape, 4, slots}.logits(ids);
    Recipe recipe = parse_recipe("sink,sink=4,slots=24,positions=offset,k=f32,v=f32").value();
    for (const char* device : {"reference", "cpu"}) {
        for (uint32_t chunk : {1u, 7u, 40u}) {
            Opened opened(tiny, device, slots, chunk, recipe);
            for (uint32_t at = 0; at < ids.size(); at += chunk) {
                const uint32_t n = std::min<uint32_t>(chunk, uint32_t(ids.size()) - at);
                CAPTURE(device);
                CAPTURE(chunk);
                CAPTURE(at);
                CHECK(largest_difference(opened.read(&ids[at], n, at), want[at + n - 1]) < 1e-4);
            }
        }
    }
}

TEST_CASE("model: every backend follows the reference")
{
    for (const DeviceInfo& device : tested_devices()) {
        for (const char* arch : {"llama", "gemma3"}) {
            TinyShape shape;
            shape.arch = arch;
            shape.n_layers = shape.arch == "gemma3" ? 6 : 2;
            TinyModel tiny = make_tiny_model(shape);
            std::vector<uint32_t> ids;
            for (uint32_t i = 0; i < 50; i++) ids.push_back((i * 91 + 5) % 256);
            Opened reference(tiny, "reference", 64, 50, Recipe{}),
                other(tiny, device.id.c_str(), 64, 50, Recipe{});
            std::vector<float> a = reference.read(ids.data(), 50, 0),
                               b = other.read(ids.data(), 50, 0);
            CAPTURE(device.id);
            CAPTURE(arch);
            // With f32 weights only the order of sums and the rounding of the f16 cache differ.
            CHECK(largest_difference(b, std::vector<double>(a.begin(), a.end())) < 0.02);
        }
    }
}
