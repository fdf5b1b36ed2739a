// The ladder of a session: its layouts in one range of bytes, and the climbs between them.
#include "runtime/api/session.h"

#include <algorithm>
#include <chrono>

namespace ks
{

CacheMemory Session::cache_memory(const Model& model, uint32_t seat)
{
    const Plan& plan = model.m_plan;
    return {model.m_device,
            plan.offset_of("cache") + seat * (plan.region_bytes("cache") / plan.n_sessions),
            model.host_part("cache tables", seat),
            plan.shares_workspace,
            plan.offset_of("workspace"),
            model.host_part("eviction", 0)};
}

std::vector<Cache> Session::place_caches(const Model& model, const Plan& plan, uint32_t seat)
{
    std::vector<Cache> caches(plan.rungs.size());
    for (size_t i = 0; i < caches.size(); i++) {
        const PlanRung& rung = plan.rungs[i];
        if (rung.slots)
            caches[i].place(cache_specs(model.config().model_shape(), rung.recipe, rung.slots),
                            rung.recipe, plan.chunk, rung.context(), *model.m_backend,
                            cache_memory(model, seat));
    }
    return caches;
}

uint32_t Session::rung_for(const Plan& plan, uint32_t from, uint64_t n)
{
    while (from + 1 < plan.rungs.size() && n > plan.rungs[from].slots) from++;
    return from;
}

void Session::set_text(std::vector<Cache>& caches) const
{
    for (Cache& cache : caches)
        if (cache.n_layers()) cache.set_text(m_tokens, m_plan.context, m_model->config().n_context);
}

void Session::climb(uint32_t to, Plan* plan, Cache* from)
{
    if (to == m_rung && !plan) return;
    std::vector<Cache> caches;
    if (plan) {
        caches = place_caches(*m_model, *plan, m_seat);
        set_text(caches);
    }
    m_n_climbs += m_n_tokens && to != m_rung;
    const auto begin = std::chrono::steady_clock::now();
    uint8_t* staging = m_model->host_part("staging", 0);
    (plan ? caches : m_caches)[to].take_over(from ? *from : own_cache(), m_n_tokens,
                                             m_model->m_transformer.climb_scratch(staging));
    if (plan) m_caches = std::move(caches);
    m_rung = to;
    m_climb_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!plan) return;
    for (const char* name : {"cache", "cache tables"})
        m_model->resize(name, m_seat, m_plan.region_bytes(name), plan->region_bytes(name));
    m_plan = std::move(*plan);
}

Status Session::set_memory(uint64_t bytes)
{
    std::lock_guard<FairMutex> guard(m_model->m_mutex);
    const bool climbs = m_plan.rungs.size() > 1;
    const uint32_t from = m_n_tokens ? m_rung : 0;
    const uint64_t held = m_model->ledger().used_bytes(), others = held - m_plan.total_bytes;
    Plan plan = m_plan;
    plan.budget_bytes = bytes - std::min(bytes, others);
    if (climbs) fit_rungs(m_model->config(), device(), plan, from, &m_opened);
    const char* reason = !climbs ? "of a cache that does not climb; possible: auto, if not "
                                   "every token has room in f16"
                         : bytes > m_model->plan().budget_bytes ? "above that at open"
                         : !plan.slots                          ? "with too few slots"
                                                                : nullptr;
    if (reason)
        return fail(climbs ? Code::no_fit : Code::unsupported,
                    "a budget of %llu bytes is one %s: %llu bytes are planned, %s",
                    (unsigned long long)bytes, reason, (unsigned long long)held,
                    m_plan.recipe_text.c_str());
    const uint32_t last = uint32_t(plan.rungs.size() - 1),
                   to = evicted() ? last : rung_for(plan, from, std::max(1u, m_n_tokens));
    if (m_n_tokens > plan.slots && rung().recipe.exact()) { // only a last rung evicts
        Plan before = m_plan;
        fit_rungs(m_model->config(), device(), before, last, &m_opened);
        climb(last, &before);
    }
    climb(to, &plan);
    return device().sync();
}

} // namespace ks
