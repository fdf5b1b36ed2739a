#include "runtime/plan/plan.h"

#include "runtime/kv/cache.h"
#include "runtime/kv/rules.h"
#include "runtime/model/transformer.h"
#include "runtime/plan/auto.h"
#include "runtime/plan/fit.h"

#include <algorithm>
#include <cstring>

namespace ks
{

constexpr uint32_t kChunks[] = {512, 256, 128, 64, 32, 16, 8, 4};
constexpr uint32_t kSmallestChunk = 16;        // of an exact cache
constexpr uint32_t kSmallestContext = 256;     // tokens; less is of no use in a conversation
constexpr uint32_t kLargestContext = 1u << 24; // tokens; slots of all heads have 32 bits
// A larger chunk may take at most 1 / kChunkShare of the budget that the weights leave.
constexpr uint64_t kChunkShare = 8;
// Snapshots of a recurrent state take at most 1 / kSnapshotShare of the budget that the weights
// leave; there is at least one.
constexpr uint64_t kSnapshotShare = 16;
constexpr uint64_t kMaxSnapshots = 8;

uint64_t Plan::region_bytes(const char* name) const
{
    for (const PlanRegion& region : regions)
        if (strcmp(region.name, name) == 0) return region.bytes;
    return 0;
}

uint64_t Plan::part_bytes(const char* name) const
{
    return region_bytes(name) / n_sessions;
}

uint64_t Plan::offset_of(const char* name, uint32_t part) const
{
    uint64_t at = part * part_bytes(name);
    for (const PlanRegion& region : regions) {
        if (strcmp(region.name, name) == 0) break;
        if (region.on_device) at += region.bytes;
    }
    return at;
}

uint64_t Plan::cache_bytes() const
{
    uint64_t bytes = 0;
    for (const char* name : kCacheRegions) bytes += region_bytes(name);
    return bytes;
}

uint64_t Plan::session_bytes() const
{
    uint64_t bytes = 0;
    for (const PlanRegion& region : regions)
        if (region.of_sessions) bytes += part_bytes(region.name);
    return bytes;
}

Plan Plan::of_session(uint32_t n_parts) const
{
    Plan plan = *this;
    for (PlanRegion& region : plan.regions) {
        const bool parts = strcmp(region.name, kCacheRegions[0]) == 0 ||
                           strcmp(region.name, kCacheRegions[1]) == 0;
        if (region.of_sessions)
            plan.set_region(region.name, part_bytes(region.name) * (parts ? n_parts : 1));
    }
    const uint64_t others = total_bytes - plan.total_bytes;
    plan.budget_bytes -= std::min(others, budget_bytes);
    if (n_sessions > 1) plan.kv_budget_bytes = 0; // the parts are the limit
    plan.n_sessions = 1;
    return plan;
}

void Plan::set_region(const char* name, uint64_t bytes)
{
    for (PlanRegion& region : regions) {
        if (strcmp(region.name, name) != 0) continue;
        total_bytes += bytes - region.bytes;
        region.bytes = bytes;
    }
}

// The planned tokens of a text, slots per KV head, and tokens per chunk.
struct Choice {
    uint32_t context = 0, slots = 0, chunk = 0; // slots 0: nothing fits
};

// The largest tensor that ops see whole, and its region.
struct Range {
    const char* region;
    uint64_t bytes;
};

// Computes the regions of a choice.
struct Sizer {
    const Config& config;
    const Backend& backend;
    Recipe recipe;
    uint64_t weights, staging, tokenizer, sampler; // bytes
    uint64_t budget, kv_budget;                    // bytes; 0: none
    uint64_t range;                                // DeviceInfo::range_bytes
    uint64_t weights_range;                        // bytes
    bool renders = false;
    uint32_t n_sessions = 1;
    uint32_t n_snapshots = 0;
    bool climbs = false; // the staging of the weights is also that of climbs

    CacheBytes cache(const Choice& c) const
    {
        return Cache::bytes_needed(cache_specs(config.model_shape(), recipe, c.slots), recipe,
                                   c.chunk, recipe.exact() ? c.context : 0,
                                   {{}, 0, backend.align()}, n_sessions > 1);
    }

    uint32_t rows(const Choice& c) const { return step_rows(config, backend, c.chunk, n_sessions); }

    ScratchShape scratch(const Choice& c) const
    {
        return scratch_shape(config, recipe, c.slots, rows(c));
    }

    // Places the step inputs, and the activations.
    void place(const Choice& c, Placer& step, Placer& activations) const
    {
        step.align = activations.align = backend.align();
        StepInputs().place(config, recipe, rows(c), step);
        Activations().place(config, recipe, rows(c), activations, logit_rows(n_sessions));
    }

    Range largest_range(const Choice& c) const
    {
        Placer step, activations;
        place(c, step, activations);
        const RecurrentShape s = recurrent_shape(config);
        const uint64_t state =
            std::max(uint64_t(s.conv_rows) * s.conv_cols, uint64_t(s.rows) * s.cols);
        Range most{"weights", weights_range};
        for (const Range& r : {Range{"cache", cache(c).range}, Range{"state", 4 * state},
                               Range{"activations", std::max(step.largest, activations.largest)},
                               Range{"scratch", backend.scratch_range(scratch(c))}})
            if (r.bytes > most.bytes) most = r;
        return most;
    }

    std::vector<PlanRegion> regions(const Choice& c) const
    {
        Placer step, activations;
        place(c, step, activations);
        const CacheBytes bytes = cache(c);
        std::vector<PlanRegion> r = {
            {"weights", weights, true},
            {"cache", bytes.device, true, true},
            {"activations", activations.offset + step.offset, true},
            {"scratch", backend.scratch_bytes(scratch(c)), true},
            {"cache tables", bytes.host, false, true},
            {"tokenizer", tokenizer, false},
            {"tokens", 4ull * c.context, false, true},
            {"step inputs", step.offset, false},
            {"logits", 4ull * config.n_vocab, false, true},
            {"sampler", sampler, false, true},
            {"staging", climbs ? std::max(staging, bytes.plane) : staging, false},
        };
        if (config.layer_dim)
            r.push_back({"layer rows", rows(c) * LayerRows::row_bytes(config), false});
        if (renders) r.push_back({"chat template", rendering_bytes(c.context), false, true});
        if (n_sessions > 1) {
            r.insert(r.begin() + 2, {"workspace", bytes.workspace, true});
            r.push_back({"eviction", bytes.host_workspace, false});
        }
        const RecurrentShape shape = recurrent_shape(config);
        if (shape.n_layers) {
            r.insert(r.begin() + 2,
                     {"state", RecurrentState::bytes_needed(shape, {{}, 0, backend.align()}), true,
                      true});
            r.push_back(
                {"snapshots", n_snapshots * RecurrentState::snapshot_bytes(shape), false, true});
        }
        for (PlanRegion& region : r)
            region.bytes =
                align_up(region.bytes, region.on_device ? backend.align() : kRegionAlign) *
                (region.of_sessions ? n_sessions : 1);
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
        return (!range || largest_range(c).bytes <= range) && (!budget || total(c) <= budget) &&
               (!kv_budget || bytes_of_caches(cache(c), backend.align(), n_sessions) <= kv_budget);
    }

    // The largest number of slots from `low` to `high` that fits; 0: `low` does not fit.
    // A cache that holds every token reads chunks of at most the recipe's.
    bool allows_chunk(uint32_t chunk) const
    {
        return !recipe.chunk || chunk <= std::max(recipe.chunk, kSmallestChunk);
    }
    uint32_t largest(uint32_t low, uint32_t high, uint32_t chunk, uint32_t context) const
    {
        return ks::largest(low, high, [&](uint32_t slots) {
            return fits({recipe.exact() ? slots : context, slots, chunk});
        });
    }
};

static uint32_t count_snapshots(const Sizer& sizer, uint64_t budget)
{
    const uint64_t bytes = sizer.n_sessions *
                           RecurrentState::snapshot_bytes(recurrent_shape(sizer.config)),
                   left = budget - std::min(budget, sizer.weights);
    return bytes ? uint32_t(std::clamp<uint64_t>(left / kSnapshotShare / bytes, 1, kMaxSnapshots))
                 : 0;
}

// The smallest budget that a choice fits into, with the snapshots that this budget has.
static uint64_t smallest_budget(Sizer sizer, const Choice& choice)
{
    sizer.n_snapshots = count_snapshots(sizer, 0);
    for (uint32_t n = sizer.n_snapshots;; sizer.n_snapshots = n) {
        const uint64_t total = sizer.total(choice);
        n = count_snapshots(sizer, total);
        if (n <= sizer.n_snapshots) return total;
    }
}

// The largest chunk that fits beside a fixed context.
static Choice choose_fixed(const Sizer& sizer, uint32_t context)
{
    for (uint32_t wanted : kChunks) {
        Choice choice{context, context, std::min(wanted, context)};
        if (!sizer.allows_chunk(wanted)) continue;
        if (wanted >= kSmallestChunk && sizer.fits(choice)) return choice;
    }
    return {};
}

// The longest context, with the largest chunk that takes little from it.
static Choice choose_longest(const Sizer& sizer, uint32_t limit, uint32_t least)
{
    for (uint32_t wanted : kChunks) {
        if (wanted < kSmallestChunk) break;
        if (!sizer.allows_chunk(wanted)) continue;
        const uint32_t chunk = std::min(wanted, limit), context = sizer.largest(1, limit, chunk, 0);
        if (context < std::max(least, chunk)) continue; // the chunk is longer than the context
        const uint64_t fixed = sizer.total({least, least, kSmallestChunk}),
                       total = sizer.total({least, least, chunk});
        const uint64_t extra = total - std::min(fixed, total);
        const bool cheap =
            !sizer.budget ||
            extra <= (sizer.budget - std::min(sizer.budget, sizer.weights)) / kChunkShare;
        if (context == limit || cheap || wanted == kSmallestChunk) return {context, context, chunk};
    }
    return {};
}

static uint32_t least_slots(const Recipe& recipe)
{
    return recipe.slots ? recipe.slots : kLeastSlots;
}

// As many slots as fit, or slots= of the recipe. A chunk has at most a quarter as many tokens, so
// that tokens read at once do not displace too many others.
static Choice choose_slots(const Sizer& sizer, uint32_t context)
{
    const Recipe& recipe = sizer.recipe;
    const uint32_t least = least_slots(recipe),
                   most = recipe.slots ? recipe.slots : std::max(least, context);
    for (uint32_t wanted : kChunks) {
        if (recipe.chunk && wanted != kChunks[0]) break;
        const uint32_t chunk = recipe.chunk ? recipe.chunk : wanted,
                       slots = sizer.largest(least, most, chunk, context);
        if (slots && (recipe.chunk || chunk <= std::max(kChunks[7], slots / 4)))
            return {context, slots, chunk};
    }
    return {};
}

// The first rung of the ladder that holds its share of the context, else the last. Sets
// sizer.recipe.
static Choice choose_rung(Sizer& sizer, const std::vector<Rung>& rungs, uint32_t limit,
                          uint32_t least, bool fixed)
{
    Choice choice;
    for (const Rung& rung : rungs) {
        sizer.recipe = rung.recipe;
        sizer.climbs = rung.climbs && &rung != &rungs[0];
        choice = !rung.recipe.exact() ? choose_slots(sizer, limit)
                 : fixed              ? choose_fixed(sizer, limit)
                                      : choose_longest(sizer, limit, least);
        if (choice.slots && (rung.recipe.exact() || choice.slots >= rung.share * limit)) break;
    }
    // If every token has a slot in every layer, there is nothing to split.
    if (choice.slots >= limit && sizer.recipe.split == Split::pyramid)
        sizer.recipe.split = Split::uniform;
    return choice;
}

static void plan_ladder(const Config& config, const std::vector<Rung>& rungs,
                        const Backend& backend, bool fixed_shares, Plan& plan)
{
    if (rungs.size() < 2) return;
    for (const Rung& rung : rungs) {
        plan.ladder.push_back(rung.recipe);
        plan.ladder.back().automatic = false;
    }
    const bool first = plan.recipe.k == rungs[0].recipe.k;
    if (!rungs[0].climbs || !plan.fits || first || plan.slots < kLeastOfRung) return;
    const Plan fixed = plan;
    if (plan.n_sessions > 1 && !fixed_shares) {
        // A session alone needs the scratch and the workspace of a larger cache.
        const auto shape = [&](uint32_t slots) {
            return scratch_shape(config, plan.ladder.back(), slots, plan.rows);
        };
        plan.most_slots = largest(plan.slots, plan.context, [&](uint32_t slots) {
            return !plan.range_bytes || backend.scratch_range(shape(slots)) <= plan.range_bytes;
        });
        plan.set_region("scratch",
                        align_up(backend.scratch_bytes(shape(plan.most_slots)), backend.align()));
        Plan alone = plan;
        alone.n_sessions = 1;
        fit_rungs(config, backend, alone, 0, nullptr);
        for (const char* name : {kCacheRegions[2], kCacheRegions[3], "staging"})
            plan.set_region(name, alone.region_bytes(name));
        fit_rungs(config, backend, plan, 0, nullptr);
        plan.moves_shares = alone.slots && plan.slots;
    }
    if (plan.moves_shares) return;
    plan = fixed;
    fit_rungs(config, backend, plan, 0, nullptr);
}

// The fewest slots and the smallest chunk with which the last rung works.
static Choice smallest_choice(const Recipe& recipe, uint32_t limit, uint32_t least)
{
    if (recipe.exact()) return {least, least, std::min(kSmallestChunk, least)};
    return {limit, least_slots(recipe), recipe.chunk ? recipe.chunk : kChunks[7]};
}

static void set_regions(const Sizer& sizer, const Choice& choice, Plan& plan)
{
    const Range largest = sizer.largest_range(choice);
    plan.largest = largest.region;
    plan.largest_bytes = largest.bytes;
    plan.regions = sizer.regions(choice);
    plan.total_bytes = sizer.total(choice);
}

static void describe(const Config& config, Plan& plan)
{
    plan.recipe_text = recipe_text(plan.recipe);
    plan.study = study_reason(plan.recipe, config.model_shape());
    plan.bytes_in_file = config.layer_table.bytes;
    plan.n_layers = config.n_layers();
    plan.n_cached_layers = config.n_cached();
    for (const LayerConfig& layer : config.layers) plan.n_state_layers += layer.recurrent;
    const uint64_t cache = plan.region_bytes("cache") + plan.region_bytes("cache tables");
    const uint64_t n = uint64_t(plan.n_sessions) * plan.slots;
    plan.bytes_per_token = (cache + n - 1) / n;
}

static Status check_request(const PlanRequest& request)
{
    if (request.context > int64_t(kLargestContext))
        return fail(Code::usage, "a context of %lld tokens is too long, at most %u are possible",
                    (long long)request.context, kLargestContext);
    if (request.n_sessions < 1 || request.n_sessions > kMaxSessions)
        return fail(Code::usage, "a model cannot have %u sessions, it has 1 to %u",
                    request.n_sessions, kMaxSessions);
    return {};
}

static Plan empty_plan(const PlanRequest& request, const DeviceInfo& device)
{
    Plan plan;
    plan.n_sessions = request.n_sessions;
    plan.shares_workspace = plan.n_sessions > 1;
    plan.budget_bytes = request.memory_bytes ? request.memory_bytes : device.free_bytes;
    plan.kv_budget_bytes = request.kv_memory_bytes;
    plan.device = device.id;
    plan.range_bytes = device.range_bytes;
    return plan;
}

Result<Plan> make_plan(const Config& config, const std::vector<TensorPart>& parts,
                       uint64_t tokenizer_bytes, uint64_t sampler_bytes, const Backend& backend,
                       const Recipe& recipe, const PlanRequest& request)
{
    KS_TRY(check_request(request));
    const DeviceInfo device = backend.info();
    KS_TRY(check_recipe(recipe, config.model_shape(), device));
    Plan plan = empty_plan(request, device);
    Sizer sizer{config,
                backend,
                recipe,
                weights_bytes(parts, backend.align()),
                staging_bytes(parts, load_threads(request.n_threads)),
                tokenizer_bytes,
                sampler_bytes,
                plan.budget_bytes,
                plan.kv_budget_bytes,
                device.range_bytes,
                weights_range(parts),
                request.renders,
                request.n_sessions};
    sizer.n_snapshots = count_snapshots(sizer, plan.budget_bytes);

    const uint32_t model_context = std::min(config.n_context, kLargestContext);
    const uint32_t limit = request.context > 0 ? uint32_t(request.context) : model_context;
    sizer.recipe.context = limit;
    const std::vector<Rung> rungs =
        ladder(config.model_shape(), device, sizer.recipe, limit < model_context);
    const bool fixed = request.context >= 0 || rungs.size() > 1;
    const uint32_t least =
        fixed ? limit : std::min(limit, plan.kv_budget_bytes ? kSmallestChunk : kSmallestContext);
    Choice choice = choose_rung(sizer, rungs, limit, least, fixed);
    plan.fits = choice.slots != 0;
    Sizer last = sizer; // the last rung needs the fewest bytes
    last.recipe = rungs.back().recipe;
    last.climbs = rungs.back().climbs && rungs.size() > 1;
    const Choice smallest = smallest_choice(last.recipe, limit, least);
    plan.smallest_bytes = smallest_budget(last, smallest);
    if (plan.fits) plan.smallest_bytes = std::min(plan.smallest_bytes, sizer.total(choice));
    if (!plan.fits) choice = smallest;

    sizer.recipe.automatic = false; // nothing is left open
    plan.recipe = sizer.recipe;
    plan.rungs = {{sizer.recipe, recipe_text(sizer.recipe), choice.slots}};
    plan.context = choice.context;
    plan.slots = plan.most_slots = choice.slots;
    plan.chunk = choice.chunk;
    plan.rows = sizer.rows(choice);
    plan.n_snapshots = sizer.n_snapshots;
    set_regions(sizer, choice, plan);
    plan_ladder(config, rungs, backend, request.fixed_shares, plan);
    plan.load_threads = load_threads(request.n_threads);
    plan.keeps_cached = !device.unified || plan.total_bytes + sizer.weights <= device.free_bytes;
    describe(config, plan);
    return plan;
}

Status no_fit(const Plan& plan)
{
    if (plan.exceeds_range())
        return fail(Code::no_fit,
                    "for chunks of %u tokens a tensor of the %s has %llu bytes (%s), %s sees at "
                    "most %llu (%s) at once",
                    plan.chunk, plan.largest, (unsigned long long)plan.largest_bytes,
                    human_bytes(plan.largest_bytes).c_str(), plan.device.c_str(),
                    (unsigned long long)plan.range_bytes, human_bytes(plan.range_bytes).c_str());
    const uint64_t cache = plan.cache_bytes();
    if (plan.kv_budget_bytes && cache > plan.kv_budget_bytes)
        return fail(Code::no_fit,
                    "the cache needs %llu bytes (%s) for %u slots per head, its limit is %llu",
                    (unsigned long long)cache, human_bytes(cache).c_str(), plan.slots,
                    (unsigned long long)plan.kv_budget_bytes);
    return fail(Code::no_fit,
                "%sa context of %u tokens needs at least %llu bytes (%s), the budget is %llu (%s): "
                "more of it or a shorter context would do",
                plan.n_sessions > 1 ? (std::to_string(plan.n_sessions) + " sessions with ").c_str()
                                    : "",
                plan.context, (unsigned long long)plan.smallest_bytes,
                human_bytes(plan.smallest_bytes).c_str(), (unsigned long long)plan.budget_bytes,
                human_bytes(plan.budget_bytes).c_str());
}

} // namespace ks
