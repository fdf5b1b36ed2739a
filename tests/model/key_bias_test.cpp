// Keys are stored without the bias of their projection. Attention adds the bias again, with RoPE at
// the key's position. The result is the same, and the error of codes does not depend on the size of
// the bias.
#include "tests/model/opened_model.h"

using namespace ks;

static std::vector<uint32_t> some_ids(uint32_t n)
{
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < n; i++) ids.push_back((i * 37 + 11) % 256);
    return ids;
}

// The logits after every chunk. Chunks have 8 tokens at first, later 1.
static Rows read_all(Opened& opened, const std::vector<uint32_t>& ids)
{
    Rows rows;
    for (uint32_t at = 0, n; at < ids.size(); at += n) {
        n = at < 48 ? 8 : 1;
        std::vector<float> row = opened.read(&ids[at], n, at);
        rows.emplace_back(row.begin(), row.end());
    }
    return rows;
}

static double rms(const Rows& a, const Rows& b)
{
    double sum = 0, n = 0;
    for (size_t r = 0; r < a.size(); r++)
        for (size_t i = 0; i < a[r].size(); i++, n++)
            sum += (a[r][i] - b[r][i]) * (a[r][i] - b[r][i]);
    return std::sqrt(sum / n);
}

TEST_CASE("key bias: removed from the slots and added by position, the forward pass is the same")
{
    for (std::string arch : {"qwen2", "llama"})
        for (std::string device : {"reference", "cpu"}) {
            TinyShape shape;
            shape.arch = arch;
            shape.key_bias = 6;
            const TinyModel tiny = make_tiny_model(shape);
            const std::vector<uint32_t> ids = some_ids(64);
            const Rows want = Naive{tiny, tiny.shape}.logits(ids);
            for (uint32_t chunk : {1u, 7u, 16u}) {
                Opened opened(tiny, device.c_str(), 64, chunk, parse_recipe("q8").value(), false,
                              true);
                REQUIRE(opened.cache.layer(0).spec.n_bias_dims == 16);
                REQUIRE(opened.cache.layer(0).spec.n_coded > 0);
                for (uint32_t at = 0; at < ids.size(); at += chunk) {
                    const uint32_t n = std::min<uint32_t>(chunk, uint32_t(ids.size()) - at);
                    CAPTURE(arch);
                    CAPTURE(device);
                    CAPTURE(chunk);
                    CAPTURE(at);
                    CHECK(largest_difference(opened.read(&ids[at], n, at), want[at + n - 1]) <
                          0.02);
                }
            }
        }
}

// The query gain makes attention logits so small that the output is proportional to their noise.
TEST_CASE("key bias: codes without the bias have a thirtieth of the error")
{
    TinyShape shape;
    shape.arch = "qwen2";
    shape.head_dim = 64;
    shape.n_layers = 1;
    shape.query_gain = 1e-3f;
    shape.key_bias = 150; // a bias of length 366 on keys of length 12
    const TinyModel tiny = make_tiny_model(shape);
    const std::vector<uint32_t> ids = some_ids(90);
    for (std::string recipe : {"exact,k=turbo3", "exact,k=turbo4", "exact,k=q8", "exact,k=polar"}) {
        Opened exact(tiny, "cpu", 90, 8, parse_recipe("exact,k=f32,v=f16").value());
        Opened apart(tiny, "cpu", 90, 8, parse_recipe(recipe).value()),
            within(tiny, "cpu", 90, 8, parse_recipe(recipe).value(), true);
        Opened reference(tiny, "reference", 90, 8, parse_recipe(recipe).value());
        const Rows want = read_all(exact, ids), got = read_all(apart, ids);
        const double noise = rms(got, want), noise_within = rms(read_all(within, ids), want);
        MESSAGE(recipe << ": " << noise << " without the bias in the codes, " << noise_within
                       << " with it");
        CHECK(noise_within > 20 * noise);
        CHECK(rms(got, read_all(reference, ids)) < 1e-4);
    }
}

TEST_CASE(
    "key bias: eviction, merging and clamped queries work, samples without a position are refused")
{
    TinyShape shape;
    shape.arch = "qwen2";
    shape.key_bias = 6;
    shape.context = 64; // the trained context; pinned tokens are soon farther away
    const TinyModel tiny = make_tiny_model(shape);
    const std::vector<uint32_t> ids = some_ids(150);
    for (std::string recipe : {"mix,k=q8,v=q8,slots=48", "h2o,k=turbo4,v=turbo4,slots=48",
                               "snapkv,victims=merge,k=q8,v=q8,slots=48"}) {
        CAPTURE(recipe);
        Opened cpu(tiny, "cpu", 48, 8, parse_recipe(recipe).value()),
            reference(tiny, "reference", 48, 8, parse_recipe(recipe).value());
        for (Opened* one : {&cpu, &reference})
            one->cache.set_text(ids.data(), uint32_t(ids.size()), 64);
        const Rows a = read_all(cpu, ids), b = read_all(reference, ids);
        CHECK(rms(a, b) < 0.02); // the usual bound: f16 may round either way
        CHECK(cpu.cache.evicted() > 0);
    }
    TempFile file("tiny.gguf", tiny.file);
    const Gguf gguf = std::move(Gguf::open(file.path()).value());
    const Config config = read_config(gguf).value();
    const std::vector<TensorPart> parts = bind_tensors(gguf, config).value();
    const auto backend = std::move(open_backend({"cpu", 1, nullptr}).value());
    PlanRequest request;
    request.memory_bytes = 64 << 20;
    for (std::string recipe : {"subgen,k=turbo3,slots=64", "subgen,v=turbo3,slots=64",
                               "mix,k=turbo3,slots=64", "tokenselect,k=turbo3"}) {
        const Result<Plan> plan =
            make_plan(config, parts, 0, 0, *backend, parse_recipe(recipe).value(), request);
        const bool subgen = recipe.find("subgen,k") == 0, select = recipe.find("tokenselect") == 0;
        CHECK(plan.ok() == (!subgen && !select));
        if (subgen) CHECK(plan.status().message().find("samples have none") != std::string::npos);
        if (select)
            CHECK(plan.status().message().find("a choice by keys would miss") != std::string::npos);
    }
}
