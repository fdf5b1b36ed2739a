// The ladder of a session: its layouts in one range of bytes, and the climbs between them.
#include "runtime/api/session.h"

#include <algorithm>
#include <chrono>

namespace ks
{

CacheMemory Session::cache_memory(const Model& model, uint32_t first_part)
{
    const Plan& plan = model.m_plan;
    return {model.m_device,
            plan.offset_of("cache", first_part),
            model.host_part("cache tables", first_part),
            plan.shares_workspace,
            plan.offset_of("workspace"),
            model.host_part("eviction", 0)};
}

std::vector<Cache> Session::place_caches(const Model& model, const Plan& plan, uint32_t first_part)
{
    std::vector<Cache> caches(plan.rungs.size());
    for (size_t i = 0; i < caches.size(); i++) {
        const PlanRung& rung = plan.rungs[i];
        if (rung.slots)
            caches[i].place(cache_specs(model.config().model_shape(), rung.recipe, rung.slots),
                            rung.recipe, plan.chunk, rung.context(), *model.m_backend,
                            cache_memory(model, first_part));
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

void Session::climb(uint32_t to, Plan* plan, uint32_t first_part, Cache* from)
{
    if (to == m_rung && !plan) return;
    std::vector<Cache> caches;
    if (plan) {
        caches = place_caches(*m_model, *plan, first_part);
        set_text(caches);
    }
    m_n_climbs += m_n_tokens && to != m_rung;
    const auto begin = std::chrono::steady_clock::now();
    uint8_t* staging = m_model->host_part("staging", 0);
    (plan ? caches : m_caches)[to].take_over(from ? *from : own_cache(), m_n_tokens,
                                             m_model->m_transformer.climb_scratch(staging));
    if (plan) m_caches = std::move(caches);
    m_rung = to;
    (void)device().sync(); // a lost device is reported by the next step
    m_model->give_back_staging();
    m_climb_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (plan) m_plan = std::move(*plan);
}

// Brings the ledger up to date, and gives bytes of the parts that are no longer used back.
void Session::account()
{
    const Plan& model = m_model->plan();
    uint64_t* given_back = m_given_back;
    for (const char* name : {"cache", "cache tables"}) {
        const uint64_t all = m_n_parts * model.part_bytes(name),
                       used = m_limit == ~0ull && model.n_sessions > 1 ? all
                                                                       : m_plan.region_bytes(name),
                       before = *given_back, now = all - used;
        *given_back++ = now;
        m_model->m_ledger.add(name, before);
        m_model->m_ledger.release(name, now);
        if (now <= before) continue;
        if (uint8_t* host = m_model->host_part(name, m_first_part))
            m_model->m_memory.give_back(host + used, now - before);
        else
            device().give_back(m_model->m_device, model.offset_of(name, m_first_part) + used,
                               now - before);
    }
}

Status Session::refit(uint32_t first_part, uint32_t n_parts, uint64_t limit)
{
    const uint32_t from = m_n_tokens ? m_rung : 0;
    const Plan whole = m_model->plan().of_session(n_parts);
    Plan plan = whole;
    const uint64_t caches = whole.region_bytes("cache") + whole.region_bytes("cache tables");
    if (limit < caches) plan.budget_bytes = plan.total_bytes - caches + limit;
    fit_rungs(m_model->config(), device(), plan, from, &whole);
    if (!plan.slots)
        return fail(Code::no_fit, "%llu bytes of the cache are too few for %u tokens",
                    (unsigned long long)std::min(caches, limit), kLeastOfRung);
    const uint32_t last = uint32_t(plan.rungs.size() - 1),
                   to = evicted() ? last : rung_for(plan, from, std::max(1u, m_n_tokens));
    if (m_n_tokens > plan.slots && rung().recipe.exact()) { // only a last rung evicts
        Plan before = m_plan;
        const Plan here = opened();
        fit_rungs(m_model->config(), device(), before, last, &here);
        climb(last, &before, m_first_part);
    }
    climb(to, &plan, first_part);
    std::vector<Session*>& parts = m_model->m_parts;
    std::fill_n(parts.begin() + m_first_part, m_n_parts, nullptr);
    std::fill_n(parts.begin() + first_part, n_parts, this);
    m_first_part = first_part;
    m_n_parts = n_parts;
    m_limit = limit;
    account();
    return device().sync();
}

// Takes free bytes beside its own before it has to climb or to evict.
void Session::grow(uint64_t n_tokens)
{
    const bool fixed = !m_model->plan().moves_shares || m_limit != ~0ull;
    if (fixed || n_tokens <= rung().slots) return;
    const std::vector<Session*>& parts = m_model->m_parts;
    uint32_t first = m_first_part, end = first + m_n_parts;
    while (first && !parts[first - 1]) first--;
    while (end < parts.size() && !parts[end]) end++;
    if (end - first > m_n_parts) (void)refit(first, end - first, m_limit);
}

Status Session::copy(Session& from)
{
    std::lock_guard<FairMutex> guard(m_model->m_mutex);
    if (from.m_model != m_model)
        return Status(Code::usage, "a session of another model cannot be copied");
    if (&from == this) return {};
    grow(from.m_n_tokens);
    const PlanRung &rung = from.rung(),
                   &like = m_plan.rungs[std::min(from.m_rung, uint32_t(m_plan.rungs.size() - 1))];
    const bool same = like.slots == rung.slots && like.recipe_text == rung.recipe_text;
    const uint32_t n = from.m_n_tokens, least = std::max(1u, n),
                   to = same ? from.m_rung : rung_for(m_plan, from.m_rung, least);
    if (!same && (from.evicted() || to >= m_plan.rungs.size() || m_plan.rungs[to].slots < least))
        return fail(Code::no_fit, "%u tokens in %u slots per head cannot be copied into %u", n,
                    rung.slots, m_plan.slots);
    const auto clear_it = [](Session* s) { s->clear(); }; // if the heap is exhausted
    std::unique_ptr<Session, decltype(clear_it)> changing(this, clear_it);
    uint8_t* staging = m_model->host_part("staging", 0);
    if (same) {
        m_caches[to].copy(from.cache(), staging, m_model->plan().region_bytes("staging"));
    } else {
        m_caches[to].take_over(from.own_cache(), n, m_model->m_transformer.climb_scratch(staging));
    }
    m_rung = to;
    m_state.copy(from.m_state);
    std::copy_n(from.m_tokens, m_plan.context, m_tokens);
    std::copy_n(from.m_logits, m_model->config().n_vocab, m_logits);
    m_n_tokens = n;
    m_logits_after = from.m_logits_after;
    m_n_climbs = from.m_n_climbs;
    m_climb_seconds = from.m_climb_seconds;
    m_in_prompt = from.m_in_prompt;
    changing.release();
    KS_TRY(device().sync());
    m_model->give_back_staging();
    return {};
}

Status Session::set_memory(uint64_t bytes)
{
    std::lock_guard<FairMutex> guard(m_model->m_mutex);
    const bool climbs = m_plan.rungs.size() > 1;
    const uint64_t held = m_model->ledger().used_bytes(), all = m_model->plan().budget_bytes,
                   own = m_plan.region_bytes("cache") + m_plan.region_bytes("cache tables"),
                   others = held - own;
    const char* reason = !climbs       ? "of a cache that does not climb; possible: auto, if not "
                                         "every token has room in f16"
                         : bytes > all ? "above that at open"
                                       : nullptr;
    Status status;
    const uint64_t limit = bytes - std::min(bytes, others);
    if (!reason)
        status =
            refit(m_first_part, m_n_parts, bytes >= m_model->plan().total_bytes ? ~0ull : limit);
    if (!reason && status.code() == Code::no_fit) reason = "with too few slots";
    if (!reason) return status;
    return fail(climbs ? Code::no_fit : Code::unsupported,
                "a budget of %llu bytes is one %s: %llu bytes are planned, %s",
                (unsigned long long)bytes, reason, (unsigned long long)held,
                m_plan.recipe_text.c_str());
}

} // namespace ks
