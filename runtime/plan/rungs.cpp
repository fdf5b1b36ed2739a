// The rungs of a ladder in one range of bytes.
#include "runtime/model/transformer.h"
#include "runtime/plan/auto.h"
#include "runtime/plan/fit.h"
#include "runtime/plan/plan.h"

#include <algorithm>

namespace ks
{

namespace
{

struct Fitter {
    const Config& config;
    const Backend& backend;
    const Plan& plan;
    const Plan* opened; // null: nothing is allocated
    uint64_t others;    // bytes of the regions that do not depend on the rungs
    CacheBytes most;    // of the rungs so far

    bool has_room(const char* name, uint64_t bytes) const
    {
        return !opened || bytes <= opened->region_bytes(name);
    }
    CacheBytes bytes(const PlanRung& rung) const
    {
        return Cache::bytes_needed(cache_specs(config.model_shape(), rung.recipe, rung.slots),
                                   rung.recipe, plan.chunk, rung.context(),
                                   {{}, 0, backend.align()}, plan.shares_workspace);
    }
    // Whether the rung fits beside those so far. all: what they need together.
    bool fits(const PlanRung& rung, CacheBytes& all) const
    {
        const uint64_t align = backend.align();
        const CacheBytes b = bytes(rung);
        const uint64_t scratch =
            backend.scratch_bytes(scratch_shape(config, rung.recipe, rung.slots, plan.rows));
        all = {align_up(std::max(b.device, most.device), align), std::max(b.host, most.host),
               std::max(b.workspace, most.workspace),
               std::max(b.host_workspace, most.host_workspace),
               align_up(std::max(b.plane, most.plane), kRegionAlign)};
        const uint64_t of_caches = bytes_of_caches(all, align, plan.n_sessions);
        return (!plan.range_bytes || b.range <= plan.range_bytes) &&
               scratch <= plan.region_bytes("scratch") && has_room("cache", all.device) &&
               has_room("cache tables", all.host) && has_room("workspace", all.workspace) &&
               has_room("eviction", all.host_workspace) && has_room("staging", all.plane) &&
               others + of_caches + all.plane <= plan.budget_bytes &&
               (!plan.kv_budget_bytes || of_caches <= plan.kv_budget_bytes);
    }
    // The staging of a rung that fills the bytes of those so far.
    uint64_t plane(PlanRung rung) const
    {
        rung.slots = largest(kLeastOfRung, plan.most_slots, [&](uint32_t slots) {
            rung.slots = slots;
            return bytes(rung).device <= most.device;
        });
        return rung.slots ? align_up(bytes(rung).plane, kRegionAlign) : 0;
    }
};

} // namespace

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

// Leaves out rungs that hold few tokens, or few more than the one before. Codes of q4 that are
// encoded again as turbo4 lose a fifth more (docs/quality.md), so a text enters q4 to stay there.
static void drop_narrow(Plan& plan, size_t in_force)
{
    uint32_t least = kLeastOfRung;
    for (size_t i = 0; i + 1 < plan.rungs.size(); i++) {
        uint32_t& slots = plan.rungs[i].slots;
        const uint32_t next = slots + slots / 4;
        const bool keeps = i == 0 || i == in_force || slots >= kWhole * plan.context,
                   is_coarse = plan.rungs[i].recipe.k == Format::q4;
        if (slots < (keeps ? kLeastOfRung : least) || slots > plan.slots ||
            (!keeps && (is_coarse || next > plan.slots)))
            slots = 0;
        else
            least = next;
    }
}

// Sets the slots of the listed rungs to the most that fit, and the regions of the cache.
static void fit_listed(const Config& config, const Backend& backend, Plan& plan, size_t in_force,
                       const Plan* opened)
{
    CacheBytes least; // the workspace and the staging do not get smaller
    least.workspace = plan.region_bytes("workspace");
    least.host_workspace = plan.region_bytes("eviction");
    least.plane = plan.region_bytes("staging");
    for (const char* name : kCacheRegions) plan.set_region(name, 0);
    Fitter fitter{config, backend, plan, opened, plan.total_bytes - least.plane, least};
    CacheBytes& most = fitter.most;
    const auto fit = [&] {
        most = least;
        for (size_t i = plan.rungs.size(); i-- > 0;) {
            PlanRung& rung = plan.rungs[i];
            CacheBytes all;
            const auto fits = [&](uint32_t slots) {
                rung.slots = slots;
                return fitter.fits(rung, all);
            };
            rung.slots = largest(kLeastOfRung, plan.most_slots, fits);
            if (rung.slots && fits(rung.slots)) most = all;
        }
    };
    fit();
    // The last rung leaves the first one the staging with which it fills the cache.
    const uint64_t plane = fitter.plane(plan.rungs[0]);
    if (plane > most.plane && fitter.has_room("staging", plane)) {
        least.plane = plane;
        fit();
    }
    plan.slots = plan.rungs.back().slots;
    drop_narrow(plan, in_force);
    plan.set_region("cache", plan.n_sessions * most.device);
    plan.set_region("cache tables", plan.n_sessions * most.host);
    plan.set_region("workspace", most.workspace);
    plan.set_region("eviction", most.host_workspace);
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

} // namespace ks
