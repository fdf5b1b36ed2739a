#include "runtime/plan/plan.h"

#include "kernels/common/codecs.h"
#include "runtime/kv/cache.h"
#include "runtime/model/model.h"

#include <algorithm>
#include <cstring>

namespace ks
{

constexpr uint32_t kChunks[] = {512, 256, 128, 64, 32, 16, 8, 4};
constexpr uint32_t kSmallestChunk = 16;        // of an exact cache
constexpr uint32_t kSmallestContext = 256;     // tokens; below it nobody can talk
constexpr uint32_t kLargestContext = 1u << 24; // tokens; slots are counted in 32 bits
constexpr uint64_t kChunkShare = 8;            // a chunk's buffers take at most 1/8 of what the weights leave

uint64_t Plan::region_bytes(const char* name) const
{
    for (const PlanRegion& region : regions)
        if (strcmp(region.name, name) == 0) return region.bytes;
    return 0;
}

// Tokens of the text that are counted on, slots per KV head and tokens per chunk.
struct Choice {
    uint32_t context = 0, slots = 0, chunk = 0; // slots 0: nothing fits
};

// What the regions would be for a choice.
struct Sizer {
    const Config& config;
    const Backend& backend;
    Recipe recipe;
    uint64_t weights, staging, tokenizer, sampler; // bytes
    uint64_t budget, kv_budget;                    // bytes; 0: none

    CacheBytes cache(const Choice& c) const
    {
        return Cache::bytes_needed(cache_specs(config, recipe, c.slots), recipe, c.chunk, recipe.exact() ? c.context : 0,
                                   {{}, 0, backend.align()});
    }

    std::vector<PlanRegion> regions(const Choice& c) const
    {
        Placer step{{}, 0, backend.align()}, activations = step;
        StepInputs().place(config, recipe, c.chunk, step);
        Activations().place(config, recipe, c.chunk, activations);
        const CacheBytes bytes = cache(c);
        std::vector<PlanRegion> r = {
            {"weights", weights, true},
            {"cache", bytes.device, true},
            {"activations", activations.offset + step.offset, true},
            {"scratch", backend.scratch_bytes(scratch_shape(config, recipe, c.slots, c.chunk)), true},
            {"cache tables", bytes.host, false},
            {"tokenizer", tokenizer, false},
            {"tokens", 4ull * c.context, false},
            {"step inputs", step.offset, false},
            {"logits", 4ull * config.n_vocab, false},
            {"sampler", sampler, false},
            {"staging", staging, false},
        };
        for (PlanRegion& region : r) region.bytes = align_up(region.bytes, region.on_device ? backend.align() : kRegionAlign);
        return r;
    }

    uint64_t total(const Choice& c) const
    {
        uint64_t bytes = 0;
        for (const PlanRegion& region : regions(c)) bytes += region.bytes;
        return bytes;
    }

    bool fits(const Choice& c) const
    {
        const CacheBytes bytes = cache(c);
        return (!budget || total(c) <= budget) && (!kv_budget || bytes.device + bytes.host <= kv_budget);
    }

    // The most slots, from `least` to `most`; 0: not even the least.
    uint32_t largest(uint32_t least, uint32_t most, uint32_t chunk, uint32_t context) const
    {
        auto choice = [&](uint32_t slots) { return Choice{recipe.exact() ? slots : context, slots, chunk}; };
        if (least > most || !fits(choice(least))) return 0;
        uint32_t low = least, high = most;
        while (low < high) {
            uint32_t middle = low + (high - low + 1) / 2;
            if (fits(choice(middle)))
                low = middle;
            else
                high = middle - 1;
        }
        return low;
    }
};

// As many tokens at a time as a fixed context leaves room for.
static Choice choose_fixed(const Sizer& sizer, uint32_t context)
{
    for (uint32_t wanted : kChunks) {
        Choice choice{context, context, std::min(wanted, context)};
        if (wanted >= kSmallestChunk && sizer.fits(choice)) return choice;
    }
    return {};
}

// The longest context, with the largest chunk that does not cost much of it.
static Choice choose_longest(const Sizer& sizer, uint32_t limit, uint32_t least)
{
    for (uint32_t wanted : kChunks) {
        if (wanted < kSmallestChunk) break;
        const uint32_t chunk = std::min(wanted, limit), context = sizer.largest(1, limit, chunk, 0);
        if (context < std::max(least, chunk)) continue; // a chunk longer than the context only wastes
        const uint64_t fixed = sizer.total({least, least, kSmallestChunk}), total = sizer.total({least, least, chunk});
        const uint64_t extra = total - std::min(fixed, total);
        const bool cheap = !sizer.budget || extra <= (sizer.budget - std::min(sizer.budget, sizer.weights)) / kChunkShare;
        if (context == limit || cheap || wanted == kSmallestChunk) return {context, context, chunk};
    }
    return {};
}

static uint32_t least_slots(const Recipe& recipe)
{
    return recipe.slots ? recipe.slots : kLeastSlots;
}

// As many slots as fit, or those that were asked for; a chunk is at most a quarter of them, so that what is read at once does
// not crowd out what is kept.
static Choice choose_slots(const Sizer& sizer, uint32_t context)
{
    const Recipe& recipe = sizer.recipe;
    const uint32_t least = least_slots(recipe), most = recipe.slots ? recipe.slots : std::max(least, context);
    for (uint32_t wanted : kChunks) {
        if (recipe.chunk && wanted != kChunks[0]) break;
        const uint32_t chunk = recipe.chunk ? recipe.chunk : wanted, slots = sizer.largest(least, most, chunk, context);
        if (slots && (recipe.chunk || chunk <= std::max(kChunks[7], slots / 4))) return {context, slots, chunk};
    }
    return {};
}

// What is tried: a recipe, and of which share of the context's tokens it must hold at least to be worth it.
struct Rung {
    Recipe recipe;
    double share;
};
constexpr double kWhole = 0.95;

static bool can_code(const Config& config)
{
    return config.head_dim % 16 == 0 && config.head_dim <= codec_max_dim;
}

// A cache of codes gives up slots when it is full. `auto` encodes first and evicts second: fewer bits as long as more do not hold all
// tokens. Keys that were normed, in few and wide heads, bear a scale for the row badly, and those that are turned as they are read are not
// rotated. Of a context shorter than the model's it holds every token, and evicts when that is full, for a text may well be longer.
static std::vector<Rung> ladder(const Config& config, const DeviceInfo& device, const Recipe& recipe, bool shorter)
{
    if (!recipe.exact() || (!recipe.automatic && !recipe.codes() && !recipe.selects())) return {{recipe, 0}};
    if (codec_info(recipe.k).group > 1) return {{recipe, 0}}; // groups give up no slots
    auto mix = [&](Format k, Format v) {
        Recipe r = recipe;
        r.retain = find_retain("mix");
        r.k = k;
        r.v = v;
        return r;
    };
    if (recipe.codes() || recipe.selects() || recipe.slots) return {{mix(recipe.k, recipe.v), 0}};
    const Recipe whole = shorter ? mix(recipe.k, recipe.v) : recipe;
    if (!can_code(config) || (config.key_bias && !device.adds_bias)) return {{whole, 1}, {mix(Format::f16, Format::f16), 0}};
    std::vector<Rung> rungs = {{whole, 1}, {mix(Format::q8, Format::q8), kWhole}, {mix(Format::q8, Format::turbo4), kWhole}};
    if (config.has_wide_normed_keys() && !recipe.turns_keys()) rungs.push_back({mix(Format::q4, Format::turbo3), kWhole});
    rungs.push_back({mix(recipe.turns_keys() ? Format::q8 : Format::turbo4, Format::turbo3), 0});
    return rungs;
}

// Codecs that this model cannot have, with the reason.
static Status check_codes(const Config& config, const Recipe& recipe)
{
    if (recipe.codes() && !can_code(config))
        return fail(Code::unsupported, "recipe: k=%s,v=%s for heads of %u values, codecs take a multiple of 16 up to %u; possible: f32 f16",
                    codec_info(recipe.k).name, codec_info(recipe.v).name, config.head_dim, codec_max_dim);
    if (config.key_bias && is_coded(recipe.k) && strcmp(recipe.retain->name, "subgen") == 0)
        return fail(Code::unsupported,
                    "recipe: k=%s with retain=subgen on a model with a bias in its keys, which codes leave out and add "
                    "again by position: samples have none; possible: k=f16",
                    codec_info(recipe.k).name);
    if (config.key_bias && is_coded(recipe.k) && recipe.turns_keys())
        return fail(Code::unsupported,
                    "recipe: k=%s with positions=compact on a model with a bias in its keys, which codes leave out and add "
                    "again by position; possible: k=f16",
                    codec_info(recipe.k).name);
    if (config.key_bias && is_coded(recipe.k) && recipe.selects())
        return fail(Code::unsupported,
                    "recipe: k=%s with select=%s on a model with a bias in its keys, which codes leave out and a choice by "
                    "keys would miss; possible: k=f16",
                    codec_info(recipe.k).name, recipe.select->name);
    return {};
}

// What the device's attention cannot do, with the reason.
static Status check_device(const Config& config, const DeviceInfo& device, const Recipe& recipe)
{
    if (recipe.selects() && !device.selects)
        return fail(Code::unsupported,
                    "recipe: select=%s on %s, which reads all slots in every step; possible: select=all, or the device cpu",
                    recipe.select->name, device.id.c_str());
    if ((recipe.select->kind == select_hard || recipe.select->kind == select_sum) && !device.ablations)
        return fail(Code::unsupported,
                    "recipe: select=%s on %s, an ablation that only the device reference has; possible: select=tokenselect",
                    recipe.select->name, device.id.c_str());
    if (recipe.turns_keys() && !device.turns_keys)
        return fail(Code::unsupported,
                    "recipe: positions=compact on %s, which reads keys as they are stored; possible: positions=absolute, "
                    "positions=offset, or the device cpu",
                    device.id.c_str());
    if (config.key_bias && is_coded(recipe.k) && !device.adds_bias)
        return fail(Code::unsupported,
                    "recipe: k=%s on %s for a model with a bias in its keys, which codes leave out and this device cannot add "
                    "again; possible: k=f16, or the device cpu",
                    codec_info(recipe.k).name, device.id.c_str());
    return {};
}

Result<Plan> make_plan(const Config& config, const std::vector<TensorPart>& parts, uint64_t tokenizer_bytes, uint64_t sampler_bytes,
                       const Backend& backend, const Recipe& recipe, const PlanRequest& request)
{
    if (request.context > int64_t(kLargestContext))
        return fail(Code::usage, "a context of %lld tokens is too long, at most %u are possible", (long long)request.context,
                    kLargestContext);
    const DeviceInfo device = backend.info();
    KS_TRY(check_codes(config, recipe));
    KS_TRY(check_device(config, device, recipe));
    Plan plan;
    plan.budget_bytes = request.memory_bytes ? request.memory_bytes : device.free_bytes;
    plan.kv_budget_bytes = request.kv_memory_bytes;
    plan.device = device.id;
    Sizer sizer{config,
                backend,
                recipe,
                weights_bytes(parts, backend.align()),
                staging_bytes(parts),
                tokenizer_bytes,
                sampler_bytes,
                plan.budget_bytes,
                plan.kv_budget_bytes};

    const uint32_t model_context = std::min(config.n_context, kLargestContext);
    const uint32_t limit = request.context > 0 ? uint32_t(request.context) : model_context;
    const std::vector<Rung> rungs = ladder(config, device, recipe, limit < model_context);
    const bool fixed = request.context >= 0 || rungs.size() > 1;
    const uint32_t least = fixed ? limit : std::min(limit, plan.kv_budget_bytes ? kSmallestChunk : kSmallestContext);
    Choice choice;
    for (const Rung& rung : rungs) {
        sizer.recipe = rung.recipe;
        choice = !rung.recipe.exact() ? choose_slots(sizer, limit)
                 : fixed              ? choose_fixed(sizer, limit)
                                      : choose_longest(sizer, limit, least);
        if (choice.slots && (rung.recipe.exact() || choice.slots >= rung.share * limit)) break;
    }
    if (choice.slots >= limit && sizer.recipe.split == Split::pyramid) sizer.recipe.split = Split::uniform; // room for everything
    plan.fits = choice.slots != 0;
    Sizer last = sizer; // what would do with the least
    last.recipe = rungs.back().recipe;
    Choice smallest{least, least, std::min(kSmallestChunk, least)};
    if (!last.recipe.exact()) smallest = {limit, least_slots(last.recipe), last.recipe.chunk ? last.recipe.chunk : kChunks[7]};
    plan.smallest_bytes = last.total(smallest);
    if (plan.fits) plan.smallest_bytes = std::min(plan.smallest_bytes, sizer.total(choice));
    if (!plan.fits) choice = smallest;

    plan.recipe = sizer.recipe;
    plan.recipe.automatic = false; // it has been chosen
    plan.recipe_text = recipe_text(plan.recipe);
    plan.context = choice.context;
    plan.slots = choice.slots;
    plan.chunk = choice.chunk;
    plan.regions = sizer.regions(choice);
    plan.total_bytes = sizer.total(choice);
    plan.bytes_per_token = (plan.region_bytes("cache") + plan.region_bytes("cache tables") + choice.slots - 1) / choice.slots;
    return plan;
}

Status no_fit(const Plan& plan)
{
    const uint64_t cache = plan.region_bytes("cache") + plan.region_bytes("cache tables");
    if (plan.kv_budget_bytes && cache > plan.kv_budget_bytes)
        return fail(Code::no_fit, "the cache needs %llu bytes (%s) for %u slots per head, its limit is %llu", (unsigned long long)cache,
                    human_bytes(cache).c_str(), plan.slots, (unsigned long long)plan.kv_budget_bytes);
    return fail(Code::no_fit,
                "a context of %u tokens needs at least %llu bytes (%s), the budget is %llu (%s): more of it or a shorter context would do",
                plan.context, (unsigned long long)plan.smallest_bytes, human_bytes(plan.smallest_bytes).c_str(),
                (unsigned long long)plan.budget_bytes, human_bytes(plan.budget_bytes).c_str());
}

} // namespace ks
