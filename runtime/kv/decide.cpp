#include "runtime/kv/decide.h"

#include <algorithm>
#include <cmath>

namespace ks
{

EvictionRules eviction_rules(const CacheLayerSpec& spec, const Recipe& recipe, const uint32_t* held,
                             uint32_t n_new, uint32_t max_distance)
{
    EvictionRules r;
    uint32_t n_tokens = 0; // indexes of all heads
    for (uint32_t h = 0; h < spec.n_kv_heads; h++) n_tokens += held[h] + n_new;
    r.n_pinned = spec.n_pinned;
    r.target = spec.n_slots - spec.slack(recipe, n_new == 1 || recipe.retain->estimates);
    r.codes = spec.n_coded != 0;
    r.n_coded_slots = spec.n_coded;
    r.group = spec.group();
    r.heads_compete = recipe.split == Split::ada;
    r.evicts = !recipe.exact() && n_tokens > spec.n_kv_heads * r.target;
    // Keys of a group leave together: the number of tokens that leave is rounded up to whole
    // groups, and the oldest leave.
    const uint32_t n = held[0] + n_new, n_leave = n - std::min(n, r.target);
    if (r.evicts && r.group > 1) r.target = n - (n_leave + r.group - 1) / r.group * r.group;
    r.n_recent = std::min(recipe.recent_of(spec.n_slots), r.target - r.n_pinned - 1);
    r.n_estimated = r.evicts ? spec.estimator_slots(recipe) : 0;
    r.weighs_template =
        !spec.local; // a model's own window keeps its last tokens, whoever wrote them
    r.n_template = spec.n_slots / 8;
    r.max_distance = max_distance;
    if (!r.codes) return r;
    r.n_plain_first = recipe.sink_of(spec.n_slots);
    r.n_plain_last = recipe.plain_recent_of(spec.n_slots);
    // If nothing is evicted, the last tokens stay plain when no coded slots are left.
    if (recipe.exact() && r.group == 1)
        r.n_plain_last += std::max(n_tokens / spec.n_kv_heads, r.target) - r.target;
    return r;
}

void Decider::place(uint32_t n_heads, uint32_t most, bool heads_compete, Placer& host)
{
    m_decisions.resize(n_heads);
    for (HeadDecision& decision : m_decisions) decision.keep = host.array<uint8_t>(most);
    m_order = host.array<uint32_t>(uint64_t(heads_compete ? n_heads : 1) * most);
    m_scores = host.array<float>(heads_compete ? uint64_t(n_heads) * most : 0);
    m_keep = host.array<uint8_t>(heads_compete ? uint64_t(n_heads) * most : 0);
}

// Tokens further back than max_distance leave first.
static void expel_distant(const EvictionRules& rules, HeadCandidates& head, uint32_t n_seen)
{
    const uint32_t end = head.n - rules.n_recent;
    for (uint32_t i = rules.n_pinned; i < end && n_seen - head.positions[i] > rules.max_distance;
         i++)
        if (!head.is_sample(i)) head.score[i] = -INFINITY;
}

// Tokens that the chat template wrote between two messages stay together or leave together, before
// all others are decided on. The newest stay, as many as n_template slots hold.
static void protect_template(const EvictionRules& rules, HeadCandidates& head, uint32_t n_seen)
{
    uint32_t n_left = rules.n_template;
    for (uint32_t end = head.n - rules.n_recent, begin; end > rules.n_pinned; end = begin) {
        for (begin = end; begin > rules.n_pinned && head.is_template[begin - 1]; begin--)
            if (begin < end && head.positions[begin - 1] + 1 != head.positions[begin]) break;
        const uint32_t n = end - begin;
        if (n == 0) {
            begin--;
            continue;
        }
        const bool stays = n <= n_left && n_seen - head.positions[begin] <= rules.max_distance;
        std::fill(head.score + begin, head.score + end, stays ? INFINITY : -INFINITY);
        n_left = stays ? n_left - n : 0;
    }
}

void Decider::choose(const EvictionRules& rules, const HeadCandidates& head, HeadDecision& decision)
{
    const uint32_t n = head.n - rules.n_pinned - rules.n_recent;
    uint8_t* keep = decision.keep + rules.n_pinned;
    if (!rules.n_estimated)
        return mark_top_k(head.score + rules.n_pinned, n, rules.n_chosen(), m_order, keep);
    // All candidates go into the estimator, except its own slots.
    const uint32_t n_samples = head.is_sample(rules.n_pinned) ? rules.n_estimated : 0;
    std::fill_n(keep + n_samples, n - n_samples, uint8_t(0));
}

// Heads may have different numbers of candidates, which end at the same token. So each head's
// scores are aligned at their end, in a row of equal length.
void Decider::choose_among_heads(const EvictionRules& rules,
                                 const std::vector<HeadCandidates>& heads, uint32_t n_heads)
{
    const uint32_t n_protected = rules.n_pinned + rules.n_recent;
    uint32_t most = 0;
    for (uint32_t h = 0; h < n_heads; h++) most = std::max(most, heads[h].n - n_protected);
    for (uint32_t h = 0; h < n_heads; h++) {
        const uint32_t n = heads[h].n - n_protected;
        std::fill_n(m_scores + h * most, most - n, NAN);
        std::copy_n(heads[h].score + rules.n_pinned, n, m_scores + h * most + most - n);
    }
    const uint32_t n_chosen = rules.n_chosen();
    mark_top_k_of_heads(m_scores, n_heads, most, n_heads * n_chosen, n_chosen / 5, m_order, m_keep);
    for (uint32_t h = 0; h < n_heads; h++) {
        const uint32_t n = heads[h].n - n_protected;
        std::copy_n(m_keep + h * most + most - n, n, m_decisions[h].keep + rules.n_pinned);
    }
}

// Everything that stays between the plain first and last tokens is encoded. With groups, only whole
// groups that have slots are, the oldest first.
static void find_coded_range(const EvictionRules& rules, const HeadCandidates& head,
                             HeadDecision& decision)
{
    decision.code_end = head.n - std::min(head.n, rules.n_plain_last);
    decision.gather_begin = decision.gather_end = 0;
    if (rules.group == 1) return;
    const uint32_t n_kept = head.n - uint32_t(std::count(decision.keep + head.first,
                                                         decision.keep + head.n, uint8_t(0)));
    const uint32_t n_between = n_kept - std::min(n_kept, rules.n_plain_first + rules.n_plain_last);
    const uint32_t n_wanted = std::min(n_between / rules.group * rules.group, rules.n_coded_slots);
    uint32_t end = std::max(rules.n_plain_first, head.first), n_from_pool = 0;
    const uint32_t n_done = end - rules.n_plain_first;
    for (uint32_t left = n_wanted - std::min(n_wanted, n_done); left; end++) {
        if (!decision.keep[end]) continue;
        left--;
        n_from_pool += end < head.n_held && !head.is_coded(rules, end);
    }
    decision.code_end = end;
    decision.gather_begin = n_from_pool / rules.group * rules.group;
    decision.gather_end = (n_from_pool + rules.group - 1) / rules.group * rules.group;
}

const std::vector<HeadDecision>& Decider::decide(const EvictionRules& rules,
                                                 std::vector<HeadCandidates>& heads,
                                                 uint32_t n_heads, uint32_t n_seen)
{
    for (uint32_t h = 0; h < n_heads; h++) {
        HeadCandidates& head = heads[h];
        std::fill(m_decisions[h].keep + head.first, m_decisions[h].keep + head.n, uint8_t(1));
        if (!rules.evicts) continue;
        expel_distant(rules, head, n_seen);
        if (rules.weighs_template) protect_template(rules, head, n_seen);
        if (!rules.heads_compete) choose(rules, head, m_decisions[h]);
    }
    if (rules.evicts && rules.heads_compete) choose_among_heads(rules, heads, n_heads);
    for (uint32_t h = 0; rules.codes && h < n_heads; h++)
        find_coded_range(rules, heads[h], m_decisions[h]);
    return m_decisions;
}

} // namespace ks
