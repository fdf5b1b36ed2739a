// Any text as a recipe, planned for a small model with any budget. Parsing its printed form gives
// the same recipe, and the plan stays within the budget.
#include "runtime/kv/cache.h"
#include "runtime/model/gguf.h"
#include "runtime/model/tensor_names.h"
#include "runtime/plan/plan.h"
#include "runtime/text/sampler.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/small_model.h"

#include <cstring>

using namespace ks;

namespace
{

struct Planner {
    Gguf gguf;
    Config config;
    std::vector<TensorPart> parts; // of gguf
    std::unique_ptr<Backend> backend = std::move(open_backend({"cpu", 1, nullptr}).value());

    explicit Planner(const char* family)
    {
        TempFile file("fuzz.gguf", smallest_model(family).bytes());
        gguf = std::move(Gguf::open(file.path()).value());
        config = read_config(gguf).value();
        parts = bind_tensors(gguf, config).value();
        config.n_context = 2048;
    }
    Result<Plan> plan(const Recipe& recipe, const PlanRequest& request) const
    {
        return make_plan(config, parts, 4096, Sampler::bytes_needed(config.n_vocab), *backend,
                         recipe, request);
    }
};

void check_plan(const Planner& planner, const Recipe& recipe, PlanRequest request)
{
    const Result<Plan> made = planner.plan(recipe, request);
    if (!made.ok()) return check_sentence(made.status());
    const Plan& plan = made.value();
    const uint64_t cache = plan.region_bytes("cache") + plan.region_bytes("cache tables");
    uint64_t sum = 0;
    for (const PlanRegion& region : plan.regions) sum += region.bytes;
    KS_CHECK(sum == plan.total_bytes && sum >= plan.smallest_bytes, "%llu bytes",
             (unsigned long long)sum);
    if (!plan.fits) {
        check_sentence(no_fit(plan));
        if (request.kv_memory_bytes) return;
        KS_CHECK(plan.smallest_bytes > request.memory_bytes, "%llu bytes would do",
                 (unsigned long long)plan.smallest_bytes);
        request.memory_bytes = plan.smallest_bytes;
        const Result<Plan> again = planner.plan(recipe, request);
        KS_CHECK(again.ok() && again.value().fits, "%llu bytes do not do: %s",
                 (unsigned long long)plan.smallest_bytes, plan.recipe_text.c_str());
        return;
    }
    KS_CHECK(plan.total_bytes <= request.memory_bytes, "%llu bytes",
             (unsigned long long)plan.total_bytes);
    KS_CHECK(!request.kv_memory_bytes || cache <= request.kv_memory_bytes + 2 * kRegionAlign,
             "%llu bytes", (unsigned long long)cache);
    KS_CHECK(plan.slots >= 1 && plan.chunk >= 1 && plan.context >= 1, "%u slots", plan.slots);
    KS_CHECK(!recipe.slots || plan.recipe.exact() || plan.slots == recipe.slots, "%u slots",
             plan.slots);
    const Result<Recipe> chosen = parse_recipe(plan.recipe_text);
    KS_CHECK(chosen.ok() && recipe_text(chosen.value()) == plan.recipe_text, "%s",
             plan.recipe_text.c_str());
}

} // namespace

// Two bytes are the budget, two the cache budget, one selects model and context; the rest is the
// recipe.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    static const Planner planners[] = {Planner("llama"), Planner("gemma3"), Planner("qwen2")};
    const Deadline deadline;
    Input in = input_of(data, size);
    PlanRequest request;
    request.memory_bytes = 1 + 64ull * (in.byte() | uint64_t(in.byte()) << 8);
    request.kv_memory_bytes = 64ull * (in.byte() | uint64_t(in.byte()) << 8);
    const uint8_t choice = in.byte();
    request.context = choice & 4 ? choice * 9 : choice & 8 ? 0 : -1;
    const Result<Recipe> recipe = parse_recipe(in.rest);
    if (!recipe.ok()) return check_sentence(recipe.status()), 0;
    const std::string full = recipe_text(recipe.value());
    const Result<Recipe> again = parse_recipe(full);
    KS_CHECK(again.ok(), "'%s' became %s: %s", printable(in.rest, 200).c_str(), full.c_str(),
             again.status().message().c_str());
    KS_CHECK(recipe_text(again.value()) == full, "%s became %s", full.c_str(),
             recipe_text(again.value()).c_str());
    check_plan(planners[(choice & 3) % 3], recipe.value(), request);
    g_accepted++;
    return 0;
}

std::vector<std::string> fuzz_seeds()
{
    std::vector<std::string> seeds;
    for (const char* text :
         {"auto", "exact,k=f32", "h2o,slots=512,victims=merge,decay=0.99,delta=1,recent=100",
          "window,slots=40,sink=0", "ada,seed=77,observe=16", "pyramid,slots=128,pool=3",
          "subgen,slots=200,chunk=32", "mix,lifetime=0,k=turbo4,v=turbo3",
          "tokenselect,read=512,reuse=0.95", "mix,select=quest,read=1024,positions=compact,k=q8",
          "h2o,slots=500,select=infllm,read=200", "sink,rope=ntk,stretch=1.5,positions=offset",
          "kivi2,v=q8,boundary=2", "scissorhands", "tova", "keydiff", "kcenter", "polar",
          "retain=snapkv,split=pyramid"}) {
        const size_t n = seeds.size();
        seeds.push_back({char(n * 13), char(n % 5 * 40), 0, char(n % 4 == 3), char(n)});
        seeds.back() += text;
    }
    return seeds;
}
