#include "runtime/kv/apply.h"

#include "runtime/kv/policies/merge.h"

#include <algorithm>

namespace ks
{

void Applier::place(const Recipe& recipe, uint32_t n_heads, uint32_t n_slots, uint32_t most,
                    uint32_t head_dim, Placer& host)
{
    const bool merges = recipe.victims == Victims::merge, estimates = recipe.retain->estimates;
    const uint32_t n_merging = merges ? most : 0, n_estimating = estimates ? most : 0;
    m_most = most;
    m_free_plain.slots = host.array<uint32_t>(uint64_t(n_heads) * n_slots);
    m_free_coded.slots = host.array<uint32_t>(recipe.codes() ? uint64_t(n_heads) * n_slots : 0);
    m_attention = host.array<float>(recipe.scores() ? uint64_t(n_heads) * n_slots : 0);
    m_tokens = host.array<uint32_t>(uint64_t(n_heads) * n_merging);
    m_changed = host.array<uint8_t>(n_merging);
    m_targets = host.array<uint32_t>(n_merging);
    m_norms = host.array<float>(n_merging);
    m_into = host.array<uint32_t>(n_merging);
    m_shares = host.array<float>(n_merging);
    m_sources = host.array<uint32_t>(n_estimating);
    m_sources_before = host.array<uint32_t>(n_estimating);
    m_numerator = host.array<float>(n_estimating);
    m_denominator = host.array<float>(n_estimating);
    m_changes.copies = host.array<SubgenChanges::Copy>(n_estimating);
    m_changes.slots = host.array<uint32_t>(n_estimating);
    m_values = host.array<float>(merges || estimates ? uint64_t(most) * head_dim : 0);
}

EvictionCounts Applier::apply(const Eviction& e, const Gatherer& gathered, RowTransfer& rows,
                              float* keys, Moves& moves)
{
    CacheLayer& layer = e.layer;
    const uint32_t n_heads = layer.spec.n_kv_heads, n_slots = n_heads * layer.spec.n_slots;
    const bool merges = layer.recipe.victims == Victims::merge,
               attention = layer.recipe.scores() != scores_none;
    m_counts = {};
    if (attention) std::copy_n(gathered.slot_attention(), n_slots, m_attention);
    for (uint32_t h = 0; merges && h < n_heads; h++) merge_victims(e, h, rows, keys);
    list_free_slots(e);
    for (uint32_t h = 0, begin = 0; h < n_heads; h++) {
        if (e.rules.n_estimated) estimate_victims(e, h, rows, keys);
        layer.begin[h] = begin;
        assign_slots(e, h, gathered, moves);
        begin += layer.capacity[h];
        if (e.rules.n_estimated) write_estimator(e, h, rows, keys);
    }
    if (attention)
        e.backend.upload(layer.scores.buffer, layer.scores.offset, m_attention, 4ull * n_slots);
    if (layer.weights)
        e.backend.upload(layer.kv.weights.buffer, layer.kv.weights.offset, layer.weights,
                         8ull * n_slots);
    return m_counts;
}

// Merges each victim into the nearest token that stays, if one is near enough.
void Applier::merge_victims(const Eviction& e, uint32_t h, RowTransfer& rows, float* keys)
{
    const HeadCandidates& head = e.heads[h];
    const uint8_t* keep = e.decisions[h].keep;
    const uint32_t head_dim = e.layer.spec.head_dim, begin = e.rules.n_pinned,
                   end = head.n - e.rules.n_recent;
    const auto row = [&](float* all, uint32_t index) { return all + uint64_t(index) * head_dim; };
    uint32_t* tokens = m_tokens + uint64_t(h) * m_most;
    for (uint32_t i = head.first; i < head.n; i++)
        tokens[i] = i < head.n_held ? e.layer.counts[head.slots[i]] : 1;
    if (!e.rules.evicts) return;

    const HeadRows of = e.rows_of(h);
    rows.read(of, KeyOrValue::key, 0, head.n, nullptr, keys);
    MergeTargets targets{keys, m_targets, m_norms, 0, head_dim};
    for (uint32_t i = begin; i < end; i++)
        if (keep[i] && !head.is_template[i]) m_targets[targets.n++] = i;
    for (uint32_t t = 0; t < targets.n; t++) targets.set(t);

    uint32_t n_merged = 0;
    std::fill_n(m_changed, head.n, uint8_t(0));
    for (uint32_t i = begin; i < end; i++) {
        if (keep[i] || head.is_template[i]) continue;
        const uint32_t target = targets.nearest(row(keys, i));
        if (target == kNoTarget) continue;
        const uint32_t into = m_into[n_merged] = m_targets[target];
        const float share = m_shares[n_merged++] = merge_weight(tokens[i], tokens[into]);
        accumulate_mean(row(keys, into), row(keys, i), share, head_dim);
        targets.set(target);
        tokens[into] += tokens[i];
        m_changed[into] = m_changed[i] = 1;
    }
    rows.read(of, KeyOrValue::value, 0, head.n, m_changed, m_values);
    for (uint32_t i = begin, k = 0; k < n_merged; i++) {
        if (keep[i] || !m_changed[i]) continue;
        accumulate_mean(row(m_values, m_into[k]), row(m_values, i), m_shares[k], head_dim);
        m_changed[i] = 0; // victims are not written back
        k++;
    }
    m_counts.merged += n_merged;
    rows.write(of, KeyOrValue::key, head.n, m_changed, keys);
    rows.write(of, KeyOrValue::value, head.n, m_changed, m_values);
}

// Adds the victims to the head's estimator. The first victims start it.
void Applier::estimate_victims(const Eviction& e, uint32_t h, RowTransfer& rows, float* keys)
{
    const HeadCandidates& head = e.heads[h];
    const CacheLayerSpec& spec = e.layer.spec;
    const Recipe& recipe = e.layer.recipe;
    const uint32_t n_estimated = e.rules.n_estimated, begin = e.rules.n_pinned,
                   end = head.n - e.rules.n_recent;
    const bool started = head.is_sample(begin);
    const uint32_t first = begin + (started ? n_estimated : 0); // the first victim
    rows.read(e.rows_of(h), KeyOrValue::key, 0, head.n, nullptr, keys);
    rows.read(e.rows_of(h), KeyOrValue::value, 0, head.n, nullptr, m_values);
    Subgen estimator(spec.estimator_shape(recipe, e.il, h),
                     e.layer.estimators + h * spec.estimator_bytes(recipe));
    if (!started) {
        estimator.clear();
        estimator.choose_radius(keys + uint64_t(first) * spec.head_dim, end - first);
    }
    for (uint32_t slot = 0; slot < n_estimated; slot++)
        m_sources[slot] = started ? begin + slot : kNoPosition;
    for (uint32_t i = first; i < end; i++) {
        const uint64_t at = uint64_t(i) * spec.head_dim;
        estimator.update(head.positions[i], keys + at, m_values + at, &m_changes);
        if (m_changes.n_copies) std::copy_n(m_sources, n_estimated, m_sources_before);
        for (uint32_t k = 0; k < m_changes.n_copies; k++)
            m_sources[m_changes.copies[k].to] = m_sources_before[m_changes.copies[k].from];
        for (uint32_t k = 0; k < m_changes.n_slots; k++) m_sources[m_changes.slots[k]] = i;
        m_counts.merged++;
    }
    estimator.weights(m_numerator, m_denominator);
}

// Writes the estimator's slots that hold another token than before, and all log-weights.
void Applier::write_estimator(const Eviction& e, uint32_t h, RowTransfer& rows, const float* keys)
{
    const CacheLayer& layer = e.layer;
    const uint32_t* slots = layer.slots + layer.begin[h] + e.rules.n_pinned;
    for (uint32_t k = 0; k < e.rules.n_estimated; k++) {
        layer.weights[2 * slots[k]] = m_numerator[k];
        layer.weights[2 * slots[k] + 1] = m_denominator[k];
        if (m_sources[k] == e.rules.n_pinned + k || m_sources[k] == kNoPosition) continue;
        const uint64_t at = uint64_t(m_sources[k]) * layer.spec.head_dim;
        rows.write_slot(e.backend, layer, slots[k], keys + at, m_values + at);
    }
}

uint32_t Applier::FreeSlots::take()
{
    KS_CHECK(next < n, "%u of %u slots", next, n);
    return slots[next++];
}

// Lists the slots that become free: victims' slots, slots that were free before, and plain slots of
// tokens that are encoded. Each head gets as many back as it gives, unless heads compete.
void Applier::list_free_slots(const Eviction& e)
{
    const CacheLayer& layer = e.layer;
    m_free_plain.n = m_free_plain.next = m_free_coded.n = m_free_coded.next = 0;
    auto list = [&](uint32_t slot) {
        FreeSlots& free = layer.in_coded_pool(slot) ? m_free_coded : m_free_plain;
        free.slots[free.n++] = slot;
    };
    for (uint32_t h = 0; h < layer.spec.n_kv_heads; h++) {
        const HeadCandidates& head = e.heads[h];
        const HeadDecision& decision = e.decisions[h];
        for (uint32_t i = head.first; i < head.n_held; i++)
            if (!decision.keep[i] ||
                (!layer.in_coded_pool(head.slots[i]) && !decision.is_plain(e.rules, head, i)))
                list(head.slots[i]);
        for (uint32_t i = head.n_held; i < layer.capacity[h]; i++)
            list(layer.slots[layer.begin[h] + i]);
    }
}

uint32_t Applier::tokens_of(const Eviction& e, uint32_t h, uint32_t index) const
{
    return e.layer.counts ? m_tokens[uint64_t(h) * m_most + index] : 1;
}

// The attention score of an index on the device.
static float attention_of(const Gatherer& gathered, const HeadRows& of, uint32_t index)
{
    return index < of.candidates.n_held ? gathered.slot_attention()[of.candidates.slots[index]]
                                        : gathered.chunk_attention()[of.chunk_row(index)];
}

// Lists the moves that encode a row into row `to` of the coded pool. It is the nth row that the
// decision encodes. from: a row of the plain pool if `held`, else of the chunk. A group whose rows
// lie in both is gathered first.
static void add_encoding(const Eviction& e, uint32_t h, uint32_t nth, bool held, uint32_t from,
                         uint32_t to, Moves& moves)
{
    const HeadDecision& decision = e.decisions[h];
    if (nth < decision.gather_begin || nth >= decision.gather_end)
        return moves.add(held ? Moves::plain_to_coded : Moves::chunk_to_coded, from, to);
    const uint32_t group = e.layer.spec.group(), gathered_row = h * group + nth % group;
    moves.add(held ? Moves::plain_to_gathered : Moves::chunk_to_gathered, from, gathered_row);
    moves.add(Moves::gathered_to_coded, gathered_row, to);
}

// Writes the head's part of the table anew. Held tokens keep their slots unless they are encoded,
// tokens of the chunk get free ones, and free slots follow up to the head's capacity.
void Applier::assign_slots(const Eviction& e, uint32_t h, const Gatherer& gathered, Moves& moves)
{
    CacheLayer& layer = e.layer;
    const HeadCandidates& head = e.heads[h];
    const HeadDecision& decision = e.decisions[h];
    const HeadRows of = e.rows_of(h);
    const uint32_t begin = layer.begin[h];
    uint32_t n_kept = head.first, n_coded = head.first ? head.n_coded : 0, n_new_codes = 0;
    auto keep = [&](uint32_t slot, uint32_t position, float attention, uint32_t n_tokens) {
        if (layer.scores) m_attention[slot] = attention;
        if (layer.counts) layer.counts[slot] = n_tokens;
        if (layer.weights)
            layer.weights[2 * slot] = layer.weights[2 * slot + 1] = log_weight(n_tokens);
        n_coded += layer.in_coded_pool(slot);
        layer.slots[begin + n_kept] = slot;
        layer.positions[begin + n_kept++] = position;
    };
    FreeSlots& free_for_samples = e.rules.codes ? m_free_coded : m_free_plain;
    const bool starts_estimator = e.rules.n_estimated && !head.is_sample(e.rules.n_pinned);
    for (uint32_t i = head.first; i < head.n; i++) {
        for (uint32_t k = 0; starts_estimator && i == e.rules.n_pinned && k < e.rules.n_estimated;
             k++)
            keep(free_for_samples.take(), kNoPosition, 0, 1);
        if (!decision.keep[i]) {
            m_counts.evicted++;
            continue;
        }
        const bool held = i < head.n_held, plain = decision.is_plain(e.rules, head, i);
        const bool stays = held && plain != layer.in_coded_pool(head.slots[i]);
        const uint32_t slot = stays ? head.slots[i] : (plain ? m_free_plain : m_free_coded).take();
        const uint32_t row = layer.row_of(slot);
        if (!held && plain) moves.add(Moves::chunk_to_plain, of.chunk_row(i), row);
        if (!stays && !plain)
            add_encoding(e, h, n_new_codes++, held,
                         held ? layer.row_of(head.slots[i]) : of.chunk_row(i), row, moves);
        keep(slot, head.positions[i], layer.scores ? attention_of(gathered, of, i) : 0,
             tokens_of(e, h, i));
    }
    layer.held[h] = n_kept;
    layer.coded[h] = n_coded;
    if (e.rules.heads_compete && e.rules.evicts)
        layer.capacity[h] = n_kept + (layer.spec.n_slots - e.rules.target);
    assign_free_slots(e, h);
}

// Appends the head's free slots. Plain ones come before coded ones, because new tokens need plain
// slots.
void Applier::assign_free_slots(const Eviction& e, uint32_t h)
{
    const CacheLayer& layer = e.layer;
    for (uint32_t i = layer.held[h]; i < layer.capacity[h]; i++) {
        const bool plain = !e.rules.codes || i - layer.coded[h] < layer.spec.n_plain();
        const uint32_t slot = layer.slots[layer.begin[h] + i] =
            (plain ? m_free_plain : m_free_coded).take();
        if (layer.scores) m_attention[slot] = 0;
        if (layer.counts) layer.counts[slot] = 1;
        if (layer.weights) layer.weights[2 * slot] = layer.weights[2 * slot + 1] = 0;
    }
}

} // namespace ks
