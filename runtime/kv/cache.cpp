#include "runtime/kv/cache.h"

#include <algorithm>

namespace ks
{

void Cache::set_text(const uint32_t* ids, uint32_t size, uint32_t trained)
{
    m_text.ids = ids;
    m_text.size = size;
    m_trained = trained;
    if (m_recipe.ropes_on_read()) return; // distances count indexes, which are few
    // The next chunk still attends to the tokens that stay now.
    m_text.max_distance = trained - std::min(trained / 8, m_chunks[0].n_rows);
}

void Cache::pin_layer(CacheLayerSpec& spec, const Recipe& recipe, uint32_t n_tokens)
{
    if (!spec.bounded || spec.local) return;
    spec.n_pinned = std::max(recipe.sink_of(spec.n_slots), std::min(n_tokens, spec.n_slots / 4));
    if (!spec.table) spec.window = spec.n_slots - spec.n_pinned;
}

bool Cache::pin(uint32_t n_seen, uint32_t n_tokens)
{
    for (const CacheLayer& layer : m_layers) {
        const CacheLayerSpec& s = layer.spec;
        if (n_tokens == m_n_pinned || !s.bounded || s.local) continue;
        for (uint32_t h = 0; s.table && h < s.n_kv_heads; h++)
            if (layer.held[h] != n_seen) return false;
        if (!s.table && n_seen >= s.n_slots) return false; // a full ring may have evicted
    }
    m_n_pinned = n_tokens;
    for (CacheLayer& layer : m_layers) {
        pin_layer(layer.spec, m_recipe, n_tokens);
        layer.must_reselect = true;
    }
    return true;
}

void Cache::clear()
{
    for (CacheLayer& layer : m_layers) layer.moved = {};
    m_evicted = m_merged = 0;
    reset(0, nullptr);
}

// Counts the ids of positions [position, n_seen).
void Cache::count_ids(uint32_t position, uint32_t n_seen)
{
    if (!m_recipe.retain->counts || !m_text.counts || !m_text.ids) return;
    for (uint32_t p = position; p < n_seen; p++) {
        uint16_t& count = m_text.counts[m_text.bucket(p)];
        count += count < UINT16_MAX;
    }
}

// Uploads a head's part of the table, from the index `first` on.
void Cache::upload_table(const CacheLayer& layer, uint32_t head, uint32_t first)
{
    const Tensor &table = layer.kv.table, &positions = layer.kv.positions;
    const uint64_t at = layer.begin[head] + first, bytes = 4ull * (layer.capacity[head] - first);
    m_backend->upload(table.buffer, table.offset + 4 * at, layer.slots + at, bytes);
    if (positions)
        m_backend->upload(positions.buffer, positions.offset + 4 * at, layer.positions + at, bytes);
}

// Whether the last n_seen - n_tokens indexes of a head are the positions from n_tokens on, so that
// they can be dropped, and the newest token before them is held. Keys of a group are dropped
// together. n_first indexes come before the coded ones.
static bool tail_is_contiguous(const CacheLayer& layer, uint32_t head, uint32_t n_seen,
                               uint32_t n_tokens, uint32_t n_first)
{
    const uint32_t held = layer.held[head], n = n_seen - n_tokens;
    if (n <= held &&
        std::min(layer.coded[head], std::max(held - n, n_first) - n_first) % layer.spec.group() !=
            0)
        return false;
    const uint32_t n_last = n + (n_tokens > 0);
    return n_last <= held &&
           (n == 0 || layer.positions[layer.begin[head] + held - n_last] == n_seen - n_last);
}

// Drops the last n indexes of a head. New tokens need plain slots, so free plain slots come before
// free coded ones again.
void Cache::drop_last(CacheLayer& layer, uint32_t head, uint32_t n)
{
    layer.must_reselect = true;
    const uint32_t held = layer.held[head] -= n,
                   first = std::min(held, layer.recipe.sink_of(layer.spec.n_slots));
    if (!layer.spec.n_coded) return;
    layer.coded[head] = std::min(layer.coded[head], held - first);
    uint32_t *slots = layer.slots + layer.begin[head], *end = slots + layer.capacity[head];
    std::stable_partition(slots + held, end,
                          [&](uint32_t slot) { return !layer.in_coded_pool(slot); });
    upload_table(layer, head, held);
}

bool Cache::can_rewind(uint32_t n_seen, uint32_t n_tokens) const
{
    if (n_tokens == n_seen) return true;
    for (const CacheLayer& layer : m_layers) {
        const CacheLayerSpec& s = layer.spec;
        for (uint32_t h = 0; s.table && h < s.n_kv_heads; h++)
            if (!tail_is_contiguous(layer, h, n_seen, n_tokens, layer.recipe.sink_of(s.n_slots)))
                return false;
        if (s.table) continue;
        const uint32_t visible = s.window && n_tokens + 1 > s.window ? n_tokens + 1 - s.window : 0,
                       first = std::max(visible, s.n_pinned);
        if (first < n_tokens && ring_oldest(n_seen, s.n_slots, s.n_pinned) > first) return false;
    }
    return true;
}

bool Cache::rewind(uint32_t n_seen, uint32_t n_tokens)
{
    if (!can_rewind(n_seen, n_tokens)) return false;
    if (n_tokens == n_seen) return true;
    for (CacheLayer& layer : m_layers)
        for (uint32_t h = 0; layer.spec.table && h < layer.spec.n_kv_heads; h++)
            drop_last(layer, h, n_seen - n_tokens);
    return true;
}

uint32_t Cache::clamp_position() const
{
    uint32_t end = m_trained;
    if (m_recipe.positions != Positions::offset) return end - 1;
    for (const CacheLayer& layer : m_layers)
        if (layer.spec.bounded && layer.spec.n_pinned) end = std::min(end, layer.spec.n_slots);
    return end - 1;
}

uint32_t Cache::n_clamped(uint32_t il, uint32_t end) const
{
    const CacheLayerSpec& s = m_layers[il].spec;
    return s.n_rope_on_read || end <= clamp_position() + 1
               ? 0
               : std::min(s.n_pinned, s.table ? m_layers[il].held[0] : s.n_pinned);
}

// Sends the head layouts of all layers in one copy: small copies are bound by their latency.
void Cache::send_layouts(uint32_t position)
{
    uint32_t* to = m_host_layouts;
    for (const CacheLayer& layer : m_layers) {
        const CacheLayerSpec& s = layer.spec;
        for (uint32_t h = 0; h < s.n_kv_heads; h++) {
            const uint32_t coded = s.table ? layer.coded[h] : 0,
                           first = coded ? layer.recipe.sink_of(s.n_slots) : 0;
            // In the order of the words of slots.h: layout_n_held, layout_table_begin,
            // layout_coded_begin, layout_coded_end, layout_position.
            const uint32_t head_layout[layout_words] = {s.table ? layer.held[h] : position,
                                                        s.table ? layer.begin[h] : 0, first,
                                                        first + coded, position};
            std::copy_n(head_layout, layout_words, to + h * layout_words);
        }
        to += m_layouts.cols;
    }
    m_backend->upload(m_layouts.buffer, m_layouts.offset, m_host_layouts,
                      4ull * m_layouts.rows * m_layouts.cols);
}

// A buffer that layers share, as rows of one layer's heads.
static void shape_rows(Tensor& t, uint32_t n_rows, const CacheLayerSpec& s)
{
    if (!t) return;
    t.rows = s.n_kv_heads * n_rows;
    t.cols = s.head_dim;
}

void Cache::begin_layer(uint32_t il, uint32_t n, uint32_t position)
{
    m_layer = &m_layers[il];
    m_il = il;
    m_chunk = &m_chunks[m_layer->chunk_index];
    if (m_layer->n_reads++) return; // a step begins a layer once
    const CacheLayerSpec& s = m_layer->spec;
    m_chunk->n = n;
    m_chunk->position = position;
    if (il == 0) count_ids(position, position + n);
    // In a ring, a single token overwrites a row that its query no longer sees: no staging.
    m_chunk->staged = s.table ? false : position + n > s.n_slots && n > 1;
    for (uint32_t h = 0; s.table && h < s.n_kv_heads; h++)
        m_chunk->staged |= n > m_layer->free_slots(h);
    KS_CHECK(!m_chunk->staged || n <= m_chunk->n_rows, "%u tokens staged in %u rows", n,
             m_chunk->n_rows);
    if (il == 0) send_layouts(position);
    for (Tensor* t : {&m_chunk->k, &m_chunk->v}) shape_rows(*t, m_chunk->n_rows, s);
    KvSlots& slots = m_layer->kv;
    slots.chunk_k = m_chunk->staged ? m_chunk->k : Tensor();
    slots.chunk_v = m_chunk->staged ? m_chunk->v : Tensor();
}

void Cache::write(const Tensor& k, const Tensor& v)
{
    const CacheLayerSpec& s = m_layer->spec;
    const KvSlots& slots = m_layer->kv;
    const uint32_t n_rows = m_chunk->staged ? m_chunk->n_rows : s.n_plain();
    KvWriteArgs a{m_chunk->n,     s.n_kv_heads, s.head_dim, n_rows, s.table ? 0 : s.n_pinned,
                  m_chunk->staged};
    KvPair to{slots.k, slots.v};
    if (m_chunk->staged) to = {m_chunk->k, m_chunk->v};
    if (s.values_in_keys) to.v = {};
    m_backend->kv_write(a, to, {k, v}, slots.table, slots.head_layout);
    if (!s.table || m_chunk->staged) return;
    for (uint32_t h = 0; h < s.n_kv_heads; h++) {
        const uint32_t at = m_layer->begin[h] + m_layer->held[h];
        for (uint32_t t = 0; t < m_chunk->n; t++)
            m_layer->positions[at + t] = m_chunk->position + t;
        const Tensor& positions = slots.positions;
        if (positions)
            m_backend->upload(positions.buffer, positions.offset + 4ull * at,
                              m_layer->positions + at, 4ull * m_chunk->n);
    }
}

// Whether the next eviction needs attention scores of this chunk's queries.
bool Cache::wants_scores(KvScoreArgs* s) const
{
    const Recipe& recipe = m_layer->recipe;
    const RetainPolicy& policy = *recipe.retain;
    *s = {0, policy.scores == scores_below ? score_below : score_sum, score_decays,
          float(recipe.options.decay)};
    if (!m_layer->spec.table || recipe.scores() == scores_none) return false;
    if (!policy.observes) return true;
    const uint32_t n = m_chunk->n, observe = recipe.options.observe;
    // Queries after this chunk, up to and including the one that evicts.
    const uint32_t left = m_chunk->staged ? 0 : m_layer->free_slots(0) - n + 1;
    // Evictions are so close that the queries observed for two of them overlap: scores decay
    // instead of being reset.
    const bool fades = recipe.delta_of(m_layer->spec.n_slots) < observe;
    // No scores are needed while tokens leave the plain pool only to be encoded. The first scores
    // after that are reset.
    const CacheLayerSpec& spec = m_layer->spec;
    const uint32_t stay = spec.n_slots - spec.slack(recipe, true);
    if (spec.n_coded && !fades && recipe.split != Split::ada && m_layer->held[0] + n + left <= stay)
        return false;
    if (n < observe && fades) {
        s->decay = 1 - 1 / float(observe);
        return true;
    }
    s->decay = 1;
    const bool clears = left + n >= observe;
    s->before = clears ? score_clears : score_decays;
    s->first_query = clears ? left + n - observe : 0;
    return left < observe;
}

// The arguments of select for this chunk; n_read 0: attention reads all slots.
SelectArgs Cache::select_args() const
{
    const CacheLayerSpec& s = m_layer->spec;
    SelectArgs args{};
    if (!s.n_read || (m_chunk->n > 1 && !m_recipe.select->prompts)) return args;
    // Whether all heads hold the same tokens.
    bool same = m_recipe.split != Split::ada && m_recipe.retain->one_set;
    const auto held = std::minmax_element(m_layer->held, m_layer->held + s.n_kv_heads);
    same |= *held.first == m_chunk->position;
    if (*held.second <= s.n_read) return args;
    const uint32_t first = std::min(std::max(m_recipe.read_first(), s.n_pinned), s.n_read / 2);
    const uint32_t stride = m_layer->selection.table.cols / s.n_kv_heads;
    const uint32_t kind = m_recipe.select->kind, last = m_recipe.read_last(),
                   unit = select_unit(m_recipe, s.n_read, first);
    // Mean queries of chunks are all similar, whatever their tokens, so a chunk never reuses a
    // choice.
    const bool must_reselect = m_layer->must_reselect || m_chunk->n > 1;
    return {kind,          s.n_read,
            first,         last,
            stride,        same && !m_recipe.select->by_head,
            must_reselect, float(m_recipe.reuse_of()),
            unit};
}

void Cache::attend(const Tensor& y, const Queries& q, float scale, float softcap,
                   const Tensor& sinks)
{
    const CacheLayerSpec& s = m_layer->spec;
    const uint32_t n_pinned = s.table ? 0 : s.n_pinned,
                   chunk_rows = m_chunk->staged ? m_chunk->n_rows : 0;
    const SelectArgs select = select_args();
    uint32_t n_with_clamped = q.q_clamped ? n_clamped(m_il, m_chunk->position + m_chunk->n) : 0;
    if (select.n_read) n_with_clamped = std::min(n_with_clamped, select.n_first);
    const uint32_t n_bias_dims = q.bias ? s.n_bias_dims : 0;
    AttentionArgs a{m_chunk->n,  s.n_heads,        s.n_kv_heads, s.head_dim,          s.n_plain(),
                    n_pinned,    s.window,         chunk_rows,   n_with_clamped,      scale,
                    n_bias_dims, s.n_rope_on_read, s.pairs,      s.hadamard_values(), softcap};
    KvSlots slots = m_layer->kv;
    slots.n_before = s.table ? *std::max_element(m_layer->held, m_layer->held + s.n_kv_heads)
                             : m_chunk->position;
    // Without a selection, page bounds and representatives are not kept up to date.
    // Readers of one layer have queries of their own.
    m_layer->must_reselect = !select.n_read || s.n_readers > 1;
    if (select.n_read) {
        m_backend->select(select, a, m_layer->selection, q, slots);
        slots.table = m_layer->selection.table;
        slots.head_layout = m_layer->selection.head_layout;
    }
    KvScoreArgs score;
    const bool scored = wants_scores(&score);
    if (m_layer->n_reads > 1) score.before = score_adds;
    m_backend->attention(a, y, q, slots, scored || sinks ? m_lse : Tensor());
    if (sinks) m_backend->attention_sinks({a.n_tokens, a.n_heads, a.head_dim}, y, m_lse, sinks);
    // kv_score changes only the slots that are read. A reset is for all slots.
    if (scored && select.n_read && score.before == score_clears) {
        m_backend->fill(m_layer->scores.buffer, m_layer->scores.offset, 4ull * m_layer->scores.cols,
                        0);
        m_layer->must_reselect |= select.kind == select_blocks;
        score.before = score_decays;
        score.decay = 1;
    }
    if (scored)
        m_backend->kv_score(score, a, m_layer->scores, m_chunk->staged ? m_chunk->scores : Tensor(),
                            q, slots, m_lse);
}

void Cache::end_layer()
{
    const CacheLayerSpec& s = m_layer->spec;
    if (m_layer->n_reads < s.n_readers) return;
    m_layer->n_reads = 0;
    for (uint32_t& n : m_moves.n) n = 0;
    if (!s.table) {
        const uint32_t end = m_chunk->position + m_chunk->n;
        if (s.bounded && end > s.n_slots)
            m_evicted += uint64_t(s.n_kv_heads) * (end - std::max(m_chunk->position, s.n_slots));
        if (m_chunk->staged) ring_moves();
    } else if (!m_chunk->staged) {
        for (uint32_t h = 0; h < s.n_kv_heads; h++) m_layer->held[h] += m_chunk->n;
    } else {
        evict(eviction_rules(s, m_layer->recipe, m_layer->held, m_chunk->n, m_text.max_distance));
    }
    make_moves();
}

// Makes free slots for the staged chunk of a table layer, after attention has read it. The tables
// change here, the rows in make_moves().
void Cache::evict(const EvictionRules& rules)
{
    CacheLayer& layer = *m_layer;
    const uint32_t n_heads = layer.spec.n_kv_heads;
    const DecisionInput input{*m_backend, layer, *m_chunk, m_text};
    std::vector<HeadCandidates>& heads = m_gatherer.gather(input, rules, m_rows, m_keys);
    const std::vector<HeadDecision>& decisions =
        m_decider.decide(rules, heads, n_heads, input.n_seen());
    const Eviction eviction{*m_backend, layer, m_il, *m_chunk, rules, heads, decisions};
    const EvictionCounts counts = m_applier.apply(eviction, m_gatherer, m_rows, m_keys, m_moves);
    layer.must_reselect = true;
    m_evicted += layer.spec.bounded ? counts.evicted : 0;
    m_merged += counts.merged;
    for (uint32_t h = 0; h < n_heads; h++) upload_table(layer, h, heads[h].first);
}

void Cache::make_moves()
{
    for (Tensor* t : {&m_gathered_k, &m_gathered_v})
        shape_rows(*t, m_layer->spec.group(), m_layer->spec);
    const KvSlots& kv = m_layer->kv;
    const Tensor *plain[] = {&kv.k, &kv.v}, *coded[] = {&kv.coded_k, &kv.coded_v},
                 *chunk[] = {&m_chunk->k, &m_chunk->v};
    const Tensor* gathered[] = {&m_gathered_k, &m_gathered_v};
    const struct {
        const Tensor **from, **to;
    } ends[Moves::n_ways] = {{plain, coded},    {chunk, coded},    {plain, gathered},
                             {chunk, gathered}, {gathered, coded}, {chunk, plain}};
    for (int way = 0; way < Moves::n_ways; way++) {
        const uint32_t n = m_moves.n[way], head_dim = m_layer->spec.head_dim;
        const Tensor& moves = m_device_moves[way];
        if (!n) continue;
        m_backend->upload(moves.buffer, moves.offset, m_moves.list[way], 8ull * n);
        for (int what = 0; what < (m_layer->spec.values_in_keys ? 1 : 2); what++)
            m_backend->kv_move({n, head_dim}, *ends[way].to[what], *ends[way].from[what], moves);
    }
}

// Lists the moves of the staged chunk's tokens that a ring holds from now on.
void Cache::ring_moves()
{
    const CacheLayerSpec& s = m_layer->spec;
    const uint32_t end = m_chunk->position + m_chunk->n,
                   oldest = ring_oldest(end, s.n_slots, s.n_pinned);
    for (uint32_t h = 0; h < s.n_kv_heads; h++) {
        for (uint32_t t = 0; t < m_chunk->n; t++) {
            const uint32_t position = m_chunk->position + t;
            if (position < oldest && position >= s.n_pinned) continue;
            m_moves.add(Moves::chunk_to_plain, h * m_chunk->n_rows + t,
                        ring_slot(h, position, s.n_slots, s.n_pinned));
        }
    }
}

} // namespace ks
