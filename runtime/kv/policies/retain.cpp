#include "runtime/kv/policies/retain.h"
#include "runtime/kv/policies/policies.h"

#include <algorithm>
#include <functional>

namespace ks
{

// A row of the table: a name, a score function, and properties that differ from the defaults.
struct Policy : RetainPolicy {
    constexpr Policy(const char* its_name, Score* its_score)
    {
        name = its_name;
        score = its_score;
    }
    constexpr Policy keeps_all() const { return with(&RetainPolicy::evicts, false); }
    constexpr Policy keeps_last_tokens() const { return with(&RetainPolicy::keeps_last, true); }
    constexpr Policy same_for_all_heads() const { return with(&RetainPolicy::one_set, true); }
    constexpr Policy reads_probabilities() const { return with(&RetainPolicy::scores, scores_sum); }
    constexpr Policy reads_low_probabilities() const
    {
        return with(&RetainPolicy::scores, scores_below);
    }
    constexpr Policy of_last_queries() const { return with(&RetainPolicy::observes, true); }
    constexpr Policy reads_keys() const { return with(&RetainPolicy::keys, true); }
    constexpr Policy all_at_once() const { return with(&RetainPolicy::all_keys, true); }
    constexpr Policy decides_seldom() const { return with(&RetainPolicy::waits, true); }
    constexpr Policy counts_ids() const { return with(&RetainPolicy::counts, true); }
    constexpr Policy estimates_victims() const { return with(&RetainPolicy::estimates, true); }
    constexpr Policy to_compare_with() const { return with(&RetainPolicy::study, true); }
    constexpr Policy needs_scratch(uint32_t floats) const
    {
        return with(&RetainPolicy::scratch, floats);
    }

private:
    template <class T>
    constexpr Policy with(T RetainPolicy::*field, T value) const
    {
        Policy row = *this;
        row.*field = value;
        return row;
    }
};

static const Policy kPolicies[] = {
    Policy("all", score_position).keeps_all().same_for_all_heads(),
    Policy("window", score_position).keeps_last_tokens().same_for_all_heads(),
    Policy("sink", score_position).keeps_last_tokens().same_for_all_heads(),
    Policy("h2o", score_h2o).reads_probabilities().to_compare_with(),
    Policy("scissorhands", score_below)
        .reads_low_probabilities()
        .of_last_queries()
        .to_compare_with(),
    Policy("tova", score_attention)
        .reads_probabilities()
        .of_last_queries()
        .same_for_all_heads()
        .to_compare_with(),
    Policy("snapkv", score_snapkv).reads_probabilities().of_last_queries().to_compare_with(),
    Policy("keydiff", score_keydiff).reads_keys().to_compare_with(),
    Policy("mix", score_mix)
        .reads_keys()
        .reads_probabilities()
        .of_last_queries()
        .counts_ids()
        .needs_scratch(5),
    Policy("kcenter", score_kcenter)
        .reads_keys()
        .all_at_once()
        .decides_seldom()
        .to_compare_with()
        .needs_scratch(1),
    Policy("subgen", score_position).estimates_victims().to_compare_with(),
};

const RetainPolicy* find_retain(std::string_view name)
{
    for (const RetainPolicy& policy : kPolicies)
        if (name == policy.name) return &policy;
    return nullptr;
}

std::string retain_names()
{
    std::string names;
    for (const RetainPolicy& policy : kPolicies)
        names += (names.empty() ? "" : " ") + std::string(policy.name);
    return names;
}

uint64_t retain_scratch_floats(const RetainPolicy& policy, uint32_t n_candidates, uint32_t head_dim)
{
    return uint64_t(policy.scratch) * n_candidates + head_dim;
}

// Older tokens leave first. The first tokens that `sink` keeps are pinned, so they are no
// candidates.
void score_position(const Candidates& c, const RetainOptions&, float*, float* score)
{
    for (uint32_t i = 0; i < c.n; i++)
        score[i] = float(c.positions[i]); // on ties after rounding the newer one stays
}

void mark_top_k(const float* score, uint32_t n, uint32_t n_keep, uint32_t* order, uint8_t* keep)
{
    n_keep = std::min(n_keep, n);
    for (uint32_t i = 0; i < n; i++) order[i] = order_bits(score[i]);
    if (n_keep) std::nth_element(order, order + n_keep - 1, order + n, std::greater<uint32_t>());
    const uint32_t threshold = n_keep ? order[n_keep - 1] : ~0u;
    // How many candidates with exactly the threshold stay.
    uint32_t n_equal = uint32_t(std::count(order, order + n_keep, threshold));
    for (uint32_t i = n; i-- > 0;) {
        const uint32_t bits = order_bits(score[i]);
        keep[i] = bits > threshold || (bits == threshold && n_equal && n_equal--);
    }
}

void mark_top_k_of_heads(const float* score, uint32_t n_heads, uint32_t n, uint32_t n_keep_total,
                         uint32_t floor, uint32_t* order, uint8_t* keep)
{
    if (n_heads == 0) return;
    n_keep_total = std::min(n_keep_total, n_heads * n);
    floor = std::min({floor, n, n_keep_total / n_heads});
    uint32_t n_open = 0;
    for (uint32_t h = 0; h < n_heads; h++) mark_top_k(score + h * n, n, floor, order, keep + h * n);
    for (uint32_t i = 0; i < n_heads * n; i++)
        if (!keep[i]) order[n_open++] = i;
    const uint32_t n_more = n_keep_total - n_heads * floor;
    // On ties the newer token stays, of equally new tokens the later head's.
    std::nth_element(order, order + n_more, order + n_open, [&](uint32_t a, uint32_t b) {
        if (score[a] == score[b] && a % n != b % n) return a % n > b % n;
        return outranks(score, a, b);
    });
    for (uint32_t i = 0; i < n_more; i++) keep[order[i]] = 1;
}

void split_slots(Split split, uint32_t n_layers, uint32_t average, uint32_t floor, uint32_t* slots)
{
    std::fill_n(slots, n_layers, average);
    if (split != Split::pyramid || n_layers < 2) return;
    // Layer l gets most - l * (most - least) / (n_layers - 1) slots, rounded down; the mean of the
    // exact values is the average. The layers with the largest remainders get one more.
    const uint64_t steps = n_layers - 1;
    const uint64_t least = std::min<uint64_t>(average, std::max(average / 20, floor)),
                   most = 2 * uint64_t(average) - least;
    // In units of 1 / steps slot.
    const auto share = [&](uint64_t il) { return most * steps - il * (most - least); };
    uint64_t left = uint64_t(n_layers) * average;
    for (uint32_t il = 0; il < n_layers; il++) left -= slots[il] = uint32_t(share(il) / steps);
    for (uint32_t il = 0; il < n_layers; il++) {
        // Layers with a larger remainder, or an equal one and a lower number.
        uint64_t before = 0;
        for (uint32_t other = 0; other < n_layers; other++)
            before += share(other) % steps > share(il) % steps ||
                      (share(other) % steps == share(il) % steps && other < il);
        slots[il] += before < left;
    }
}

} // namespace ks
