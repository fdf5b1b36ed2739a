// The ladder of a session: its layouts in one range of bytes, and the climbs between them.
#include "runtime/api/session.h"

#include <algorithm>
#include <chrono>

namespace ks
{

std::vector<Cache> Session::place_caches(const Plan& plan)
{
    std::vector<Cache> caches(plan.rungs.size());
    for (size_t i = 0; i < caches.size(); i++) {
        const PlanRung& rung = plan.rungs[i];
        if (!rung.slots) continue;
        caches[i].place(cache_specs(m_config.model_shape(), rung.recipe, rung.slots), rung.recipe,
                        plan.chunk, rung.context(), *m_backend, m_device,
                        plan.region_bytes("weights"), m_tables);
        caches[i].set_text(m_tokens, plan.context, m_config.n_context);
    }
    return caches;
}

uint32_t Session::rung_for(const Plan& plan, uint32_t from, uint64_t n)
{
    while (from + 1 < plan.rungs.size() && n > plan.rungs[from].slots) from++;
    return from;
}

void Session::climb(uint32_t to, Plan* plan, Cache* from)
{
    if (to == m_model.rung() && !plan) return;
    std::vector<Cache> caches;
    if (plan) caches = place_caches(*plan);
    m_n_climbs += m_n_tokens && to != m_model.rung();
    const auto begin = std::chrono::steady_clock::now();
    m_model.climb(to, m_n_tokens, m_staging, plan ? &caches : nullptr, from);
    m_climb_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!plan) return;
    const auto resize = [&](const char* name, auto give_back) {
        const uint64_t before = m_plan.region_bytes(name), now = plan->region_bytes(name);
        m_ledger.resize(name, now);
        if (now < before) give_back(now, before - now);
    };
    resize("cache", [&](uint64_t at, uint64_t n) {
        m_backend->give_back(m_device, plan->region_bytes("weights") + at, n);
    });
    resize("cache tables", [&](uint64_t at, uint64_t n) { m_memory.give_back(m_tables + at, n); });
    m_plan = std::move(*plan);
}

Status Session::set_memory(uint64_t bytes)
{
    const bool climbs = m_plan.rungs.size() > 1;
    const uint32_t from = m_n_tokens ? m_model.rung() : 0;
    Plan plan = m_plan;
    plan.budget_bytes = bytes;
    if (climbs) fit_rungs(m_config, *m_backend, plan, from, &m_opened);
    const char* reason = !climbs ? "of a cache that does not climb; possible: auto, if not "
                                   "every token has room in f16"
                         : bytes > m_opened.budget_bytes ? "above that at open"
                         : !plan.slots                   ? "with too few slots"
                                                         : nullptr;
    if (reason)
        return fail(climbs ? Code::no_fit : Code::unsupported,
                    "a budget of %llu bytes is one %s: %llu bytes are planned, %s",
                    (unsigned long long)bytes, reason, (unsigned long long)m_plan.total_bytes,
                    m_plan.recipe_text.c_str());
    const uint32_t last = uint32_t(plan.rungs.size() - 1),
                   to = evicted() ? last : rung_for(plan, from, std::max(1u, m_n_tokens));
    if (m_n_tokens > plan.slots && rung().recipe.exact()) { // only a last rung evicts
        Plan before = m_plan;
        fit_rungs(m_config, *m_backend, before, last, &m_opened);
        climb(last, &before);
    }
    climb(to, &plan);
    return m_backend->sync();
}

} // namespace ks
