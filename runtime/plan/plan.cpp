#include "runtime/plan/plan.h"

#include "runtime/kv/cache.h"
#include "runtime/kv/rules.h"
#include "runtime/model/model.h"
#include "runtime/plan/auto.h"

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

// The largest number from `low` to `high` that fits; 0: `low` does not.
template <class Fits>
static uint32_t largest(uint32_t low, uint32_t high, Fits fits)
{
    if (low > high || !fits(low)) return 0;
    while (low < high) {
        const uint32_t middle = low + (high - low + 1) / 2;
        if (fits(middle))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

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
    uint32_t n_snapshots = 0;
    bool climbs = false; // the staging of the weights is also that of climbs

    CacheBytes cache(const Choice& c) const
    {
        return Cache::bytes_needed(cache_specs(config.model_shape(), recipe, c.slots), recipe,
                                   c.chunk, recipe.exact() ? c.context : 0,
                                   {{}, 0, backend.align()});
    }

    ScratchShape scratch(const Choice& c) const
    {
        return scratch_shape(config, recipe, c.slots, c.chunk);
    }

    // Places the step inputs, and the activations.
    void place(const Choice& c, Placer& step, Placer& activations) const
    {
        step.align = activations.align = backend.align();
        StepInputs().place(config, recipe, c.chunk, step);
        Activations().place(config, recipe, c.chunk, activations);
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
            {"cache", bytes.device, true},
            {"activations", activations.offset + step.offset, true},
            {"scratch", backend.scratch_bytes(scratch(c)), true},
            {"cache tables", bytes.host, false},
            {"tokenizer", tokenizer, false},
            {"tokens", 4ull * c.context, false},
            {"step inputs", step.offset, false},
            {"logits", 4ull * config.n_vocab, false},
            {"sampler", sampler, false},
            {"staging", climbs ? std::max(staging, bytes.plane) : staging, false},
        };
        if (config.layer_dim)
            r.push_back({"layer rows", c.chunk * LayerRows::row_bytes(config), false});
        if (renders) r.push_back({"chat template", rendering_bytes(c.context), false});
        const RecurrentShape shape = recurrent_shape(config);
        if (shape.n_layers) {
            r.insert(
                r.begin() + 2,
                {"state", RecurrentState::bytes_needed(shape, {{}, 0, backend.align()}), true});
            r.push_back({"snapshots", n_snapshots * RecurrentState::snapshot_bytes(shape), false});
        }
        for (PlanRegion& region : r)
            region.bytes =
                align_up(region.bytes, region.on_device ? backend.align() : kRegionAlign);
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
        return (!range || largest_range(c).bytes <= range) && (!budget || total(c) <= budget) &&
               (!kv_budget || bytes.device + bytes.host <= kv_budget);
    }

    // The largest number of slots from `low` to `high` that fits; 0: `low` does not fit.
    uint32_t largest(uint32_t low, uint32_t high, uint32_t chunk, uint32_t context) const
    {
        return ks::largest(low, high, [&](uint32_t slots) {
            return fits({recipe.exact() ? slots : context, slots, chunk});
        });
    }
};

static uint32_t count_snapshots(const Sizer& sizer, uint64_t budget)
{
    const uint64_t bytes = RecurrentState::snapshot_bytes(recurrent_shape(sizer.config)),
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
        if (wanted >= kSmallestChunk && sizer.fits(choice)) return choice;
    }
    return {};
}

// The longest context, with the largest chunk that takes little from it.
static Choice choose_longest(const Sizer& sizer, uint32_t limit, uint32_t least)
{
    for (uint32_t wanted : kChunks) {
        if (wanted < kSmallestChunk) break;
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

// The first n rungs of the ladder. Those before the last hold every token.
static void list_rungs(Plan& plan, size_t n)
{
    plan.rungs.clear();
    for (Recipe recipe : plan.ladder) {
        if (plan.rungs.size() + 1 < n) recipe.retain = find_retain("all");
        if (plan.rungs.size() < n) plan.rungs.push_back({recipe, recipe_text(recipe), 0});
    }
    plan.recipe = plan.rungs.back().recipe;
    plan.recipe_text = plan.rungs.back().recipe_text;
}

// Sets the slots of the listed rungs to the most that fit, and the regions of the cache.
static void fit_listed(const Config& config, const Backend& backend, Plan& plan, size_t in_force,
                       const Plan* opened)
{
    const ModelShape model = config.model_shape();
    CacheBytes most{0, 0, plan.region_bytes("staging")};
    plan.set_region("cache", 0);
    plan.set_region("cache tables", 0);
    const uint64_t others = plan.total_bytes - most.plane;
    const auto room = [&](const char* name) { return opened ? opened->region_bytes(name) : ~0ull; };
    for (size_t i = plan.rungs.size(); i-- > 0;) {
        PlanRung& rung = plan.rungs[i];
        CacheBytes bytes;
        const auto fits = [&](uint32_t slots) {
            rung.slots = slots;
            bytes = Cache::bytes_needed(cache_specs(model, rung.recipe, slots), rung.recipe,
                                        plan.chunk, rung.context(), {{}, 0, backend.align()});
            const uint64_t range = bytes.range, scratch = backend.scratch_bytes(scratch_shape(
                                                    config, rung.recipe, slots, plan.chunk));
            bytes = {std::max(bytes.device, most.device), std::max(bytes.host, most.host),
                     align_up(std::max(bytes.plane, most.plane), kRegionAlign)};
            const uint64_t of_cache = bytes.device + bytes.host;
            return (!plan.range_bytes || range <= plan.range_bytes) &&
                   scratch <= plan.region_bytes("scratch") && bytes.device <= room("cache") &&
                   bytes.host <= room("cache tables") && bytes.plane <= room("staging") &&
                   others + of_cache + bytes.plane <= plan.budget_bytes &&
                   (!plan.kv_budget_bytes || of_cache <= plan.kv_budget_bytes);
        };
        rung.slots = largest(kLeastOfRung, plan.most_slots, fits);
        if (rung.slots && fits(rung.slots)) most = bytes;
    }
    plan.slots = plan.rungs.back().slots;
    uint32_t least = kLeastOfRung;
    for (size_t i = 0; i + 1 < plan.rungs.size(); i++) {
        uint32_t& slots = plan.rungs[i].slots;
        const uint32_t next = slots + slots / 4;
        const bool keeps = i == 0 || i == in_force || slots >= kWhole * plan.context;
        if (slots < (keeps ? kLeastOfRung : least) || slots > plan.slots ||
            (next > plan.slots && !keeps))
            slots = 0;
        else
            least = next;
    }
    plan.set_region("cache", most.device);
    plan.set_region("cache tables", most.host);
    plan.set_region("staging", most.plane);
}

void fit_rungs(const Config& config, const Backend& backend, Plan& plan, size_t in_force,
               const Plan* opened)
{
    for (size_t n = std::max<size_t>(2, in_force + 1);; n++) {
        list_rungs(plan, n);
        fit_listed(config, backend, plan, in_force, opened);
        if (n == plan.ladder.size() || plan.slots >= kWhole * plan.context) return;
    }
}

static void plan_ladder(const Config& config, const std::vector<Rung>& rungs,
                        const Backend& backend, Plan& plan)
{
    for (const Rung& rung : rungs) {
        if (!rung.climbs) return;
        plan.ladder.push_back(rung.recipe);
        plan.ladder.back().automatic = false;
    }
    const bool first = plan.recipe.k == rungs[0].recipe.k;
    if (plan.fits && !first && plan.slots >= kLeastOfRung)
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
    plan.bytes_per_token = (cache + plan.slots - 1) / plan.slots;
}

Result<Plan> make_plan(const Config& config, const std::vector<TensorPart>& parts,
                       uint64_t tokenizer_bytes, uint64_t sampler_bytes, const Backend& backend,
                       const Recipe& recipe, const PlanRequest& request)
{
    if (request.context > int64_t(kLargestContext))
        return fail(Code::usage, "a context of %lld tokens is too long, at most %u are possible",
                    (long long)request.context, kLargestContext);
    const DeviceInfo device = backend.info();
    KS_TRY(check_recipe(recipe, config.model_shape(), device));
    Plan plan;
    plan.budget_bytes = request.memory_bytes ? request.memory_bytes : device.free_bytes;
    plan.kv_budget_bytes = request.kv_memory_bytes;
    plan.device = device.id;
    plan.range_bytes = device.range_bytes;
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
                request.renders};
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
    plan.n_snapshots = sizer.n_snapshots;
    set_regions(sizer, choice, plan);
    plan_ladder(config, rungs, backend, plan);
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
    const uint64_t cache = plan.region_bytes("cache") + plan.region_bytes("cache tables");
    if (plan.kv_budget_bytes && cache > plan.kv_budget_bytes)
        return fail(Code::no_fit,
                    "the cache needs %llu bytes (%s) for %u slots per head, its limit is %llu",
                    (unsigned long long)cache, human_bytes(cache).c_str(), plan.slots,
                    (unsigned long long)plan.kv_budget_bytes);
    return fail(Code::no_fit,
                "a context of %u tokens needs at least %llu bytes (%s), the budget is %llu (%s): "
                "more of it or a shorter context would do",
                plan.context, (unsigned long long)plan.smallest_bytes,
                human_bytes(plan.smallest_bytes).c_str(), (unsigned long long)plan.budget_bytes,
                human_bytes(plan.budget_bytes).c_str());
}

} // namespace ks
