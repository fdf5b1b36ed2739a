// Sessions of tiny models that climb.
#pragma once

#include "tests/api/session_file_bed.h"
#include "tests/fuzz/small_model.h"
#include "tests/model/state_model.h"

namespace ks
{

// A model whose rungs lie far apart, and a budget in which it has several.
struct Climber {
    TempFile file;
    ModelOptions options;

    explicit Climber(const std::string& arch, const std::string& device = "cpu", int n_threads = 2)
        : file(arch + "_climbs.gguf", bytes_of(arch))
    {
        options.model_path = file.path();
        options.device = device;
        options.n_threads = n_threads;
        options.context = 512;
        options.memory_bytes = 64 << 20;
        ModelOptions exact = options;
        exact.recipe = "exact";
        options.kv_memory_bytes =
            make_plan(exact).value().region_bytes("cache") * (arch == "gemma3" ? 5 : 4) / 10;
    }
    static Bytes bytes_of(const std::string& arch, uint32_t window = 40)
    {
        if (arch == "lfm2" || arch == "qwen35" || arch == "falcon-h1")
            return make_state_model(arch);
        TinyShape s;
        s.arch = arch;
        s.head_dim = 64;
        s.n_layers = arch == "gemma3" ? 6 : 2;
        s.window = window;
        return make_tiny_model(s).file;
    }
    std::unique_ptr<Session> open(const std::string& recipe = "auto", uint64_t memory = 0) const
    {
        ModelOptions o = options;
        o.recipe = recipe;
        if (memory) o.memory_bytes = memory;
        if (recipe != "auto") o.kv_memory_bytes = 0;
        Result<std::unique_ptr<Session>> result = open_session(o);
        REQUIRE_MESSAGE(result.ok(), result.status().message());
        return std::move(result.value());
    }
};

inline const char* const kWalkers[] = {"llama", "gemma3",    "deepseek2", "gemma4", "qwen3moe",
                                       "lfm2",  "falcon-h1", "qwen35",    "qwen2"};

// Latents of 24 values and 8 with RoPE.
inline GgufBuilder small_latent()
{
    GgufBuilder b = small_model("deepseek2");
    const std::string a = "deepseek2.attention.";
    add_smallest_tokenizer(b);
    b.u32(a + "kv_lora_rank", 24).u32(a + "key_length", 32).u32(a + "value_length", 24);
    b.u32(a + "key_length_mla", 16).u32(a + "value_length_mla", 8);
    b.u32("deepseek2.rope.dimension_count", 8);
    for (uint32_t il = 0; il < 2; il++) {
        const std::string p = "blk." + std::to_string(il) + ".attn_";
        for (const char* name : {"q", "k", "v"}) b.drop_tensor(p + name + ".weight");
        b.tensor(p + "q.weight", {32, 32}).tensor(p + "kv_a_mqa.weight", {32, 32});
        b.tensor(p + "kv_a_norm.weight", {24}).tensor(p + "output.weight", {16, 32});
        b.tensor(p + "k_b.weight", {8, 24, 2}).tensor(p + "v_b.weight", {24, 8, 2});
    }
    return with_values(b);
}

// Models with a context of 512 tokens of all kinds of layers.
inline Bytes walker(const std::string& arch)
{
    if (arch != "qwen3moe" && arch != "gemma4" && arch != "deepseek2")
        return Climber::bytes_of(arch, 200); // a window that small budgets cut
    GgufBuilder b = arch == "deepseek2" ? small_latent() : smallest_mixed(arch);
    return b.u32(arch + ".context_length", 512).bytes();
}

// The shape of a model most of whose layers are window layers.
inline TinyShape window_shape(uint32_t context, uint32_t window)
{
    TinyShape shape;
    shape.arch = "gemma3";
    shape.n_layers = 6;
    shape.context = context;
    shape.window = window;
    return shape;
}

inline ModelOptions cpu_options(const TempFile& file, const char* recipe)
{
    ModelOptions options;
    options.model_path = file.path();
    options.device = "cpu";
    options.recipe = recipe;
    options.memory_bytes = 64 << 20;
    return options;
}

inline const PlanRung& first_rung(const Session& s)
{
    size_t i = 0;
    while (!s.plan().rungs[i].slots) i++;
    return s.plan().rungs[i];
}

} // namespace ks
