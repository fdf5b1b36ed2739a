// Sessions of tiny models that climb.
#pragma once

#include "tests/api/session_file_bed.h"
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

inline const PlanRung& first_rung(const Session& s)
{
    size_t i = 0;
    while (!s.plan().rungs[i].slots) i++;
    return s.plan().rungs[i];
}

} // namespace ks
