#include "runtime/model/plan.h"

#include "runtime/kv/cache.h"
#include "runtime/model/model.h"

#include <algorithm>
#include <cstring>

namespace ks
{

constexpr uint32_t kChunks[] = {512, 256, 128, 64, 32, 16};
constexpr uint32_t kSmallestChunk = 16;
constexpr uint32_t kSmallestContext = 256;     // tokens; below it nobody can talk
constexpr uint32_t kLargestContext = 1u << 24; // tokens; slots are counted in 32 bits
constexpr uint64_t kChunkShare = 8;            // a chunk's buffers take at most 1/8 of what the weights leave

uint64_t Plan::region_bytes(const char* name) const
{
    for (const PlanRegion& region : regions)
        if (strcmp(region.name, name) == 0) return region.bytes;
    return 0;
}

// What the regions would be for a context and a chunk.
struct Sizer {
    const Config& config;
    const Backend& backend;
    Recipe recipe;
    uint64_t weights, staging, tokenizer, sampler; // bytes
    uint64_t budget, kv_budget;                    // bytes; 0: none

    uint64_t cache(uint32_t context, uint32_t chunk) const { return Cache::bytes_needed(cache_specs(config, context, chunk), recipe); }

    std::vector<PlanRegion> regions(uint32_t context, uint32_t chunk) const
    {
        uint64_t step = StepInputs::bytes_needed(config, chunk);
        std::vector<PlanRegion> r = {
            {"weights", weights, true},
            {"cache", cache(context, chunk), true},
            {"activations", Activations::bytes_needed(config, chunk) + step, true},
            {"scratch", backend.scratch_bytes(scratch_shape(config, chunk)), true},
            {"tokenizer", tokenizer, false},
            {"tokens", 4ull * context, false},
            {"step inputs", step, false},
            {"logits", 4ull * config.n_vocab, false},
            {"sampler", sampler, false},
            {"staging", staging, false},
        };
        for (PlanRegion& region : r) region.bytes = align_up(region.bytes, kRegionAlign);
        return r;
    }

    uint64_t total(uint32_t context, uint32_t chunk) const
    {
        uint64_t bytes = 0;
        for (const PlanRegion& region : regions(context, chunk)) bytes += region.bytes;
        return bytes;
    }

    bool fits(uint32_t context, uint32_t chunk) const
    {
        return (!budget || total(context, chunk) <= budget) && (!kv_budget || cache(context, chunk) <= kv_budget);
    }

    // 0: not even one token
    uint32_t largest_context(uint32_t limit, uint32_t chunk) const
    {
        uint32_t low = 0, high = limit;
        while (low < high) {
            uint32_t middle = low + (high - low + 1) / 2;
            if (fits(middle, chunk))
                low = middle;
            else
                high = middle - 1;
        }
        return low;
    }
};

struct Choice {
    uint32_t context = 0, chunk = 0; // 0: nothing fits
};

static Choice choose_fixed(const Sizer& sizer, uint32_t context)
{
    for (uint32_t wanted : kChunks) {
        uint32_t chunk = std::min(wanted, context);
        if (sizer.fits(context, chunk)) return {context, chunk};
    }
    return {};
}

// The longest context, with the largest chunk that does not cost much of it.
static Choice choose_longest(const Sizer& sizer, uint32_t limit, uint32_t least)
{
    for (uint32_t wanted : kChunks) {
        uint32_t chunk = std::min(wanted, limit);
        uint32_t context = sizer.largest_context(limit, chunk);
        if (context < std::max(least, chunk)) continue; // a chunk longer than the context only wastes
        uint64_t fixed = sizer.total(least, kSmallestChunk);
        uint64_t extra = sizer.total(least, chunk) - std::min(fixed, sizer.total(least, chunk));
        bool cheap = !sizer.budget || extra <= (sizer.budget - std::min(sizer.budget, sizer.weights)) / kChunkShare;
        if (context == limit || cheap || wanted == kSmallestChunk) return {context, chunk};
    }
    return {};
}

Result<Plan> make_plan(const Config& config, const std::vector<TensorPart>& parts, uint64_t tokenizer_bytes, uint64_t sampler_bytes,
                       const Backend& backend, const Recipe& recipe, const PlanRequest& request)
{
    if (request.context > int64_t(kLargestContext))
        return fail(Code::usage, "a context of %lld tokens is too long, at most %u are possible", (long long)request.context,
                    kLargestContext);
    Plan plan;
    DeviceInfo device = backend.info();
    plan.budget_bytes = request.memory_bytes ? request.memory_bytes : device.free_bytes;
    plan.kv_budget_bytes = request.kv_memory_bytes;
    plan.recipe = recipe;
    plan.recipe_text = recipe_text(recipe);
    plan.device = device.id;
    Sizer sizer{config,
                backend,
                recipe,
                weights_bytes(parts),
                staging_bytes(parts),
                tokenizer_bytes,
                sampler_bytes,
                plan.budget_bytes,
                plan.kv_budget_bytes};

    uint32_t model_context = std::min(config.n_context, kLargestContext);
    bool fixed = request.context >= 0;
    uint32_t limit = request.context > 0 ? uint32_t(request.context) : model_context;
    uint32_t least = fixed ? limit : std::min(limit, plan.kv_budget_bytes ? kSmallestChunk : kSmallestContext);
    Choice choice = fixed ? choose_fixed(sizer, limit) : choose_longest(sizer, limit, least);
    plan.fits = choice.context != 0;
    if (!plan.fits) choice = {least, std::min(kSmallestChunk, least)};

    plan.context = plan.slots = choice.context;
    plan.chunk = choice.chunk;
    plan.regions = sizer.regions(choice.context, choice.chunk);
    plan.total_bytes = sizer.total(choice.context, choice.chunk);
    plan.smallest_bytes = sizer.total(least, std::min(kSmallestChunk, least));
    plan.bytes_per_token = (plan.region_bytes("cache") + choice.context - 1) / choice.context;
    return plan;
}

Status no_fit(const Plan& plan)
{
    uint64_t cache = plan.region_bytes("cache");
    if (plan.kv_budget_bytes && cache > plan.kv_budget_bytes)
        return fail(Code::no_fit, "the cache needs %llu bytes (%s) for a context of %u tokens, --kv-memory gives %llu",
                    (unsigned long long)cache, human_bytes(cache).c_str(), plan.context, (unsigned long long)plan.kv_budget_bytes);
    return fail(Code::no_fit, "a context of %u tokens needs at least %llu bytes (%s), the budget is %llu (%s): raise --memory or lower -c",
                plan.context, (unsigned long long)plan.smallest_bytes, human_bytes(plan.smallest_bytes).c_str(),
                (unsigned long long)plan.budget_bytes, human_bytes(plan.budget_bytes).c_str());
}

} // namespace ks
