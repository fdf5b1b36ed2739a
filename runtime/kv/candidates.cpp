#include "runtime/kv/candidates.h"

#include <algorithm>

namespace ks
{

void Gatherer::place(const Recipe& recipe, uint32_t n_heads, uint32_t n_slots, uint32_t chunk,
                     uint32_t most, uint32_t head_dim, bool all_keys, Placer& host)
{
    const bool attention = recipe.scores() != scores_none;
    m_all_keys = all_keys;
    m_heads.resize(n_heads);
    for (HeadCandidates& head : m_heads) {
        head.positions = host.array<uint32_t>(most);
        head.slots = host.array<uint32_t>(most);
        head.attention = host.array<float>(attention ? most : 0);
        head.score = host.array<float>(most);
        head.is_template = host.array<uint8_t>(most);
    }
    m_slot_attention = host.array<float>(attention ? uint64_t(n_heads) * n_slots : 0);
    m_chunk_attention = host.array<float>(attention ? uint64_t(n_heads) * chunk : 0);
    m_scratch = host.array<float>(retain_scratch_floats(*recipe.retain, most, head_dim));
    m_id_counts = host.array<uint32_t>(recipe.retain->counts ? most : 0);
}

void Gatherer::gather_head(const DecisionInput& in, const EvictionRules& rules, uint32_t h)
{
    HeadCandidates& head = m_heads[h];
    const CacheLayer& layer = in.layer;
    const uint32_t *slots = layer.slots + layer.begin[h],
                   *positions = layer.positions + layer.begin[h];
    const bool attention = layer.recipe.scores() != scores_none;
    head.n_held = layer.held[h];
    head.n = head.n_held + in.chunk.n;
    head.n_coded = layer.coded[h];
    head.first = head.n_held; // held tokens neither leave nor are encoded
    if (rules.codes) head.first = std::min(head.n_held, rules.n_plain_first + head.n_coded);
    if (rules.evicts) head.first = 0;
    for (uint32_t i = head.first; i < head.n; i++) {
        const bool held = i < head.n_held;
        const uint32_t t = i - head.n_held; // token of the chunk
        head.positions[i] = held ? positions[i] : in.chunk.position + t;
        head.is_template[i] = in.text.is_template(head.positions[i], in.n_seen());
        if (held) head.slots[i] = slots[i];
        if (attention)
            head.attention[i] =
                held ? m_slot_attention[slots[i]] : m_chunk_attention[h * in.chunk.n_rows + t];
    }
}

// Heads that keep the same tokens all get the sum of the heads' attention scores.
void Gatherer::share_attention(uint32_t n_heads)
{
    HeadCandidates& first = m_heads[0];
    for (uint32_t h = 1; h < n_heads; h++)
        for (uint32_t i = 0; i < first.n; i++) first.attention[i] += m_heads[h].attention[i];
    for (uint32_t h = 1; h < n_heads; h++)
        std::copy_n(first.attention, first.n, m_heads[h].attention);
}

std::vector<HeadCandidates>& Gatherer::gather(const DecisionInput& in, const EvictionRules& rules,
                                              RowTransfer& rows, float* keys)
{
    const CacheLayer& layer = in.layer;
    const RetainPolicy& policy = *layer.recipe.retain;
    const uint32_t n_heads = layer.spec.n_kv_heads;
    if (layer.recipe.scores() != scores_none) {
        in.backend.download(m_slot_attention, layer.scores.buffer, layer.scores.offset,
                            4ull * n_heads * layer.spec.n_slots);
        in.backend.download(m_chunk_attention, in.chunk.scores.buffer, in.chunk.scores.offset,
                            4ull * n_heads * in.chunk.n_rows);
    }
    for (uint32_t h = 0; h < n_heads; h++) gather_head(in, rules, h);
    if (!rules.evicts) return m_heads;
    if (policy.scores && policy.one_set) share_attention(n_heads);
    for (uint32_t h = 0; h < n_heads; h++) score(in, rules, h, rows, keys);
    return m_heads;
}

// Counts how often the id of each index was read. An id that the ring no longer has counts once.
void Gatherer::count_ids(const DecisionInput& in, const HeadCandidates& head)
{
    for (uint32_t i = 0; i < head.n; i++) {
        const uint32_t position = head.positions[i];
        m_id_counts[i] =
            in.text.knows(position, in.n_seen()) ? in.text.counts[in.text.bucket(position)] : 1;
    }
}

// Reads the keys of a head part by part, for policies that need each key only once or twice.
struct KeyParts {
    RowTransfer& rows;
    const HeadRows& of;
    uint32_t n_pinned;
    float* keys;

    static const float* read(const void* self, uint32_t first, uint32_t n)
    {
        const KeyParts& parts = *static_cast<const KeyParts*>(self);
        const uint32_t begin = parts.n_pinned + first;
        parts.rows.read(parts.of, KeyOrValue::key, begin, begin + n, nullptr, parts.keys);
        return parts.keys;
    }
};

void Gatherer::score(const DecisionInput& in, const EvictionRules& rules, uint32_t h,
                     RowTransfer& rows, float* keys)
{
    const HeadCandidates& head = m_heads[h];
    const RetainPolicy& policy = *in.layer.recipe.retain;
    const HeadRows of{in.backend, in.layer, in.chunk, head, h};
    const KeyParts parts{rows, of, rules.n_pinned, keys};
    Candidates c;
    c.n = head.n - rules.n_pinned - rules.n_recent;
    c.n_seen = in.n_seen();
    c.head_dim = in.layer.spec.head_dim;
    c.n_keep = rules.n_chosen();
    c.positions = head.positions + rules.n_pinned;
    if (policy.scores) c.scores = head.attention + rules.n_pinned;
    if (policy.keys && m_all_keys) {
        rows.read(of, KeyOrValue::key, 0, head.n, nullptr, keys);
        c.keys = keys + uint64_t(rules.n_pinned) * c.head_dim;
    } else if (policy.keys) {
        c.read_keys = KeyParts::read;
        c.keys_from = &parts;
        c.most_keys = rows.n_at_once();
    }
    if (policy.counts && in.text.ids) {
        count_ids(in, head);
        c.counts = m_id_counts + rules.n_pinned;
    }
    policy.score(c, in.layer.recipe.options, m_scratch, head.score + rules.n_pinned);
}

} // namespace ks
