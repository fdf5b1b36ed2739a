#include "runtime/kv/cache.h"

#include <algorithm>
#include <cstring>

namespace ks
{

// What slots have that are not coded.
static Format plain(Format codec)
{
    return codec == Format::f32 ? codec : Format::f16;
}

void CacheLayerSpec::code_slots(const Recipe& r, Format keys, Format values)
{
    k = keys;
    v = codec_of_values(values);
    const uint32_t group = codec_info(k).group;
    const uint32_t n_plain = r.sink_of(n_rows) + r.plain_recent_of(n_rows) + r.delta_of(n_rows) + group - 1;
    n_coded = (n_rows - std::min(n_rows, n_plain)) / group * group;
}

// Slots that a step lists at most.
static uint32_t read_stride(const CacheLayerSpec& s, const Recipe& recipe, uint32_t chunk)
{
    return s.n_read + recipe.read_last() / 2 + chunk;
}

// Indexes that are chosen together: some blocks there must be.
static uint32_t unit_of(const Recipe& recipe, uint32_t n_read, uint32_t n_first)
{
    uint32_t unit = recipe.select->unit;
    while (recipe.select->kind == select_blocks && unit > 8 && 4 * unit > n_read - n_first - recipe.read_last()) unit /= 2;
    return unit;
}

static void place_selection(CacheLayer& layer, const Recipe& recipe, uint32_t chunk, Placer& device)
{
    const CacheLayerSpec& s = layer.spec;
    const uint32_t stride = read_stride(s, recipe, chunk), n_pages = (s.n_rows + select_page - 1) / select_page;
    layer.selection.table = device.take(1, s.n_kv_heads * stride);
    layer.selection.view = device.take(s.n_kv_heads, view_words);
    layer.selection.query = device.take(1, s.n_heads * s.head_dim);
    layer.selection.state = device.take(1, select_words);
    const uint32_t n_blocks = recipe.select->kind == select_blocks ? s.n_rows / unit_of(recipe, s.n_read, s.n_read / 2) + 2 : 0;
    layer.selection.speakers = device.take(1, s.n_kv_heads * n_blocks * select_few);
    if (recipe.select->kind == select_pages) layer.selection.bounds = device.take(2 * s.n_kv_heads * n_pages, s.head_dim, Format::f16);
}

void Cache::place_layer(CacheLayer& layer, uint32_t chunk, Placer& device, Placer& host)
{
    const CacheLayerSpec& s = layer.spec;
    const Recipe& recipe = layer.rules;
    const uint32_t n = s.n_kv_heads * s.n_rows, n_plain = s.n_kv_heads * s.n_plain(), n_coded = s.n_kv_heads * s.n_coded;
    layer.slots.k = device.take(n_plain, s.head_dim, plain(recipe.k));
    layer.slots.v = device.take(n_plain, s.head_dim, plain(recipe.v));
    layer.slots.coded_k = device.take(n_coded, s.head_dim, s.k);
    layer.slots.coded_v = device.take(n_coded, s.head_dim, s.v);
    if (!s.table) return;
    if (s.n_read) place_selection(layer, recipe, chunk, device);
    const bool merges = recipe.victims == Victims::merge;
    const uint64_t estimator_bytes = Evictor::estimator_bytes(s, recipe);
    layer.slots.table = device.take(s.n_wave ? 2 : 1, n);
    layer.slots.table.rows = 1;
    if (s.n_wave) layer.slots.positions = layer.slots.table, layer.slots.positions.offset += 4ull * n;
    if (merges || estimator_bytes) layer.slots.weights = device.take(n, 2);
    if (recipe.signal()) layer.signal = device.take(1, n);
    if (recipe.select->signal) layer.selection.signal = layer.signal;
    uint32_t* of_heads = host.array<uint32_t>(4ull * s.n_kv_heads);
    for (uint32_t** part : {&layer.begin, &layer.held, &layer.capacity, &layer.coded}) {
        *part = of_heads;
        if (of_heads) of_heads += s.n_kv_heads; // where bytes are only counted there is none
    }
    layer.rows = host.array<uint32_t>(n);
    layer.positions = host.array<uint32_t>(n);
    if (merges) layer.counts = host.array<uint32_t>(n);
    if (merges || estimator_bytes) layer.weights = host.array<float>(2ull * n);
    if (estimator_bytes) layer.estimators = host.array<uint8_t>(s.n_kv_heads * estimator_bytes);
}

CacheBytes Cache::place_all(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe, uint32_t chunk, uint32_t context, Placer device,
                            Placer host)
{
    const uint64_t begin = device.offset;
    m_recipe = recipe;
    m_layers.assign(specs.size(), {});
    CacheLayerSpec largest{};
    uint32_t most_plain = 0; // rows per head of a plain pool beside a coded one
    uint32_t turns = 0;      // rows
    uint32_t group = 1;      // the largest
    bool stages = false;
    for (size_t il = 0; il < specs.size(); il++) {
        m_layers[il].spec = specs[il];
        m_layers[il].rules = specs[il].local ? recipe.of_window() : recipe;
        pin_layer(m_layers[il].spec, recipe, 0);
        place_layer(m_layers[il], chunk, device, host);
        largest.n_heads = std::max(largest.n_heads, specs[il].n_heads);
        largest.n_kv_heads = std::max(largest.n_kv_heads, specs[il].n_kv_heads);
        largest.head_dim = std::max(largest.head_dim, specs[il].head_dim);
        const bool reads_few = specs[il].n_read && recipe.select->prompts;
        if (specs[il].n_turn) turns = std::max(turns, reads_few ? read_stride(specs[il], recipe, chunk) : specs[il].n_rows + chunk);
        largest.n_turn = std::max(largest.n_turn, specs[il].n_turn);
        if (specs[il].n_wave && !m_waves) m_waves = device.take(wave_digits * wave_base, specs[il].n_wave);
        if (specs[il].n_wave) m_layers[il].slots.waves = m_waves;
        group = std::max(group, specs[il].group());
        if (specs[il].n_coded) most_plain = std::max(most_plain, specs[il].n_plain());
        stages |= context == 0 || specs[il].n_plain() < context;
    }
    m_turns = device.take(turns, largest.n_turn);
    for (CacheLayer& layer : m_layers)
        if (layer.spec.n_turn) layer.slots.turns = m_turns;
    if (recipe.signal()) m_lse = device.take(chunk, largest.n_heads);
    m_views = device.take(uint32_t(specs.size()), uint32_t(align_up(largest.n_kv_heads * view_words, device.align / 4)));
    m_host_views = host.array<uint32_t>(uint64_t(m_views.rows) * m_views.cols);
    for (uint32_t il = 0; il < specs.size(); il++)
        m_layers[il].slots.view = {m_views.buffer, m_views.offset + 4ull * il * m_views.cols, specs[il].n_kv_heads, view_words};
    if (stages) {
        const uint32_t n = largest.n_kv_heads * chunk;
        m_chunk.n_rows = chunk;
        m_chunk.k = device.take(n, largest.head_dim, plain(recipe.k));
        m_chunk.v = device.take(n, largest.head_dim, plain(recipe.v));
        if (recipe.signal()) m_chunk.signal = device.take(1, n);
        const uint32_t n_mixed = group > 1 ? largest.n_kv_heads * group : 0;
        m_mixed_k = device.take(n_mixed, largest.head_dim, plain(recipe.k));
        m_mixed_v = device.take(n_mixed, largest.head_dim, plain(recipe.v));
        const uint32_t most_moves[Moves::n_ways] = {largest.n_kv_heads * most_plain, most_plain ? n : 0, n_mixed, n_mixed, n_mixed, n};
        for (int way = 0; way < Moves::n_ways; way++) {
            m_device_moves[way] = device.take(most_moves[way], 2);
            m_moves.list[way] = host.array<uint32_t>(2ull * most_moves[way]);
        }
        m_text.counts = host.array<uint16_t>(recipe.retain->counts ? TextSeen::kBuckets : 0);
        m_evictor.place(specs, recipe, chunk, device, host);
    }
    return {device.offset - begin, host.offset};
}

CacheBytes Cache::bytes_needed(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe, uint32_t chunk, uint32_t context,
                               const Placer& device)
{
    Cache cache;
    return cache.place_all(specs, recipe, chunk, context, device, {});
}

void Cache::place(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe, uint32_t chunk, uint32_t context, Backend& backend,
                  const Buffer& buffer, uint64_t offset, void* host)
{
    m_backend = &backend;
    place_all(specs, recipe, chunk, context, {buffer, offset, backend.align()}, {{host, 0}});
    clear();
}

void Cache::set_text(const uint32_t* ids, uint32_t size, uint32_t trained)
{
    m_text.ids = ids;
    m_text.size = size;
    m_trained = trained;
    if (m_recipe.turns_keys()) return;                            // nothing is ever too far away
    m_text.far = trained - std::min(trained / 8, m_chunk.n_rows); // what is kept now is still seen by the next chunk
}

void Cache::pin_layer(CacheLayerSpec& spec, const Recipe& recipe, uint32_t n_tokens)
{
    if (!spec.bounded || spec.local) return;
    spec.n_pinned = std::max(recipe.sink_of(spec.n_rows), std::min(n_tokens, spec.n_rows / 4));
    if (!spec.table) spec.window = spec.n_rows - spec.n_pinned;
}

bool Cache::pin(uint32_t n_seen, uint32_t n_tokens)
{
    for (const CacheLayer& layer : m_layers) {
        const CacheLayerSpec& s = layer.spec;
        if (n_tokens == m_n_pinned || !s.bounded || s.local) continue;
        for (uint32_t h = 0; s.table && h < s.n_kv_heads; h++)
            if (layer.held[h] != n_seen) return false;
        if (!s.table && n_seen >= s.n_rows) return false; // a full one may have been full before
    }
    m_n_pinned = n_tokens;
    for (CacheLayer& layer : m_layers) pin_layer(layer.spec, m_recipe, n_tokens), layer.fresh = true;
    return true;
}

void Cache::clear()
{
    m_evicted = m_merged = 0;
    if (m_recipe.retain->counts && m_text.counts) std::fill_n(m_text.counts, TextSeen::kBuckets, uint16_t(0));
    for (CacheLayer& layer : m_layers) {
        const CacheLayerSpec& s = layer.spec;
        if (!s.table) continue;
        const uint32_t n = s.n_kv_heads * s.n_rows, n_plain = s.n_plain();
        for (uint32_t h = 0; h < s.n_kv_heads; h++) {
            layer.begin[h] = h * s.n_rows;
            layer.held[h] = 0;
            layer.capacity[h] = s.n_rows;
            layer.coded[h] = 0;
            for (uint32_t i = 0; i < s.n_rows; i++)
                layer.rows[layer.begin[h] + i] = i < n_plain ? h * n_plain + i : layer.first_coded() + h * s.n_coded + (i - n_plain);
            upload_table(layer, h, 0);
        }
        if (layer.counts) std::fill_n(layer.counts, n, 1u);
        if (layer.weights) std::fill_n(layer.weights, 2ull * n, 0.f);
        for (const Tensor* t : {&layer.slots.weights, &layer.signal, &layer.selection.state})
            if (*t) m_backend->fill(t->buffer, t->offset, 4ull * t->rows * t->cols, 0);
        layer.fresh = true;
    }
}

// A head's part, from the index `first` on.
void Cache::upload_table(const CacheLayer& layer, uint32_t head, uint32_t first)
{
    const Tensor &table = layer.slots.table, &positions = layer.slots.positions;
    const uint64_t at = layer.begin[head] + first, bytes = 4ull * (layer.capacity[head] - first);
    m_backend->upload(table.buffer, table.offset + 4 * at, layer.rows + at, bytes);
    if (positions) m_backend->upload(positions.buffer, positions.offset + 4 * at, layer.positions + at, bytes);
}

// Positions at the end of a table that are all from n_tokens on can be dropped; if one of them was evicted, its turn is over. Codes
// of a group stay or go together; n_first indexes come before the coded ones.
static bool ends_whole(const CacheLayer& layer, uint32_t head, uint32_t n_seen, uint32_t n_tokens, uint32_t n_first)
{
    const uint32_t held = layer.held[head], n = n_seen - n_tokens;
    if (n <= held && std::min(layer.coded[head], std::max(held - n, n_first) - n_first) % layer.spec.group() != 0) return false;
    return n <= held && (n == 0 || layer.positions[layer.begin[head] + held - n] == n_tokens);
}

// New tokens go to plain slots, so these come first among the free ones again.
void Cache::drop_last(CacheLayer& layer, uint32_t head, uint32_t n)
{
    layer.fresh = true;
    const uint32_t held = layer.held[head] -= n, first = std::min(held, layer.rules.sink_of(layer.spec.n_rows));
    if (!layer.spec.n_coded) return;
    layer.coded[head] = std::min(layer.coded[head], held - first);
    uint32_t *rows = layer.rows + layer.begin[head], *end = rows + layer.capacity[head];
    std::stable_partition(rows + held, end, [&](uint32_t slot) { return !layer.in_coded_pool(slot); });
    upload_table(layer, head, held);
}

bool Cache::rewind(uint32_t n_seen, uint32_t n_tokens)
{
    if (n_tokens == n_seen) return true;
    for (const CacheLayer& layer : m_layers) {
        const CacheLayerSpec& s = layer.spec;
        for (uint32_t h = 0; s.table && h < s.n_kv_heads; h++)
            if (!ends_whole(layer, h, n_seen, n_tokens, layer.rules.sink_of(s.n_rows))) return false;
        if (s.table) continue;
        const uint32_t visible = s.window && n_tokens + 1 > s.window ? n_tokens + 1 - s.window : 0, first = std::max(visible, s.n_pinned);
        if (first < n_tokens && RING_OLDEST(n_seen, s.n_rows, s.n_pinned) > first) return false;
    }
    for (CacheLayer& layer : m_layers)
        for (uint32_t h = 0; layer.spec.table && h < layer.spec.n_kv_heads; h++) drop_last(layer, h, n_seen - n_tokens);
    return true;
}

uint32_t Cache::far_position() const
{
    uint32_t end = m_trained;
    if (m_recipe.positions != Positions::offset) return end - 1;
    for (const CacheLayer& layer : m_layers)
        if (layer.spec.bounded && layer.spec.n_pinned) end = std::min(end, layer.spec.n_rows);
    return end - 1;
}

uint32_t Cache::n_far(uint32_t il, uint32_t end) const
{
    const CacheLayerSpec& s = m_layers[il].spec;
    return s.n_turn || end <= far_position() + 1 ? 0 : std::min(s.n_pinned, s.table ? m_layers[il].held[0] : s.n_pinned);
}

// Of all layers at once: a copy takes a device as long as it takes to turn to it.
void Cache::send_views(uint32_t position)
{
    uint32_t* to = m_host_views;
    for (const CacheLayer& layer : m_layers) {
        const CacheLayerSpec& s = layer.spec;
        for (uint32_t h = 0; h < s.n_kv_heads; h++) {
            const uint32_t coded = s.table ? layer.coded[h] : 0, first = coded ? layer.rules.sink_of(s.n_rows) : 0;
            // In the order of view_before, view_begin, view_coded_begin, view_coded_end, view_position.
            const uint32_t view[view_words] = {s.table ? layer.held[h] : position, s.table ? layer.begin[h] : 0, first, first + coded,
                                               position};
            std::copy_n(view, view_words, to + h * view_words);
        }
        to += m_views.cols;
    }
    m_backend->upload(m_views.buffer, m_views.offset, m_host_views, 4ull * m_views.rows * m_views.cols);
}

void Cache::begin_layer(uint32_t il, uint32_t n, uint32_t position)
{
    m_layer = &m_layers[il];
    m_il = il;
    const CacheLayerSpec& s = m_layer->spec;
    m_chunk.n = n;
    m_chunk.position = position;
    for (uint32_t t = 0; il == 0 && m_recipe.retain->counts && m_text.ids && t < n; t++) {
        uint16_t& count = m_text.counts[m_text.bucket(position + t)];
        count += count < UINT16_MAX;
    }
    // A ring whose only token takes the place of one that nobody sees any more needs no other.
    m_chunk.staged = s.table ? false : position + n > s.n_rows && n > 1;
    for (uint32_t h = 0; s.table && h < s.n_kv_heads; h++) m_chunk.staged |= n > m_layer->room(h);
    KS_CHECK(!m_chunk.staged || n <= m_chunk.n_rows, "%u tokens staged in %u rows", n, m_chunk.n_rows);
    if (il == 0) send_views(position);
    KvSlots& slots = m_layer->slots;
    slots.chunk_k = m_chunk.staged ? m_chunk.k : Tensor();
    slots.chunk_v = m_chunk.staged ? m_chunk.v : Tensor();
}

void Cache::write(const Tensor& k, const Tensor& v)
{
    const CacheLayerSpec& s = m_layer->spec;
    const KvSlots& slots = m_layer->slots;
    const uint32_t n_rows = m_chunk.staged ? m_chunk.n_rows : s.n_plain();
    KvWriteArgs a{m_chunk.n, s.n_kv_heads, s.head_dim, n_rows, s.table ? 0 : s.n_pinned, m_chunk.staged};
    const KvPair plain{slots.k, slots.v}, staged{m_chunk.k, m_chunk.v};
    m_backend->kv_write(a, m_chunk.staged ? staged : plain, {k, v}, slots.table, slots.view);
    if (!s.table || m_chunk.staged) return;
    for (uint32_t h = 0; h < s.n_kv_heads; h++) {
        const uint32_t at = m_layer->begin[h] + m_layer->held[h];
        for (uint32_t t = 0; t < m_chunk.n; t++) m_layer->positions[at + t] = m_chunk.position + t;
        const Tensor& positions = slots.positions;
        if (positions) m_backend->upload(positions.buffer, positions.offset + 4ull * at, m_layer->positions + at, 4ull * m_chunk.n);
    }
}

// Whether this chunk's queries say something that a decision will want to know.
bool Cache::wants_scores(KvScoreArgs* s) const
{
    const Recipe& recipe = m_layer->rules;
    const RetainPolicy& policy = *recipe.retain;
    *s = {0, policy.signal == signal_below ? score_below : score_sum, 0, float(recipe.options.decay)};
    if (!m_layer->spec.table || recipe.signal() == signal_none) return false;
    if (!policy.observes) return true;
    const uint32_t n = m_chunk.n, observe = recipe.options.observe;
    // Queries from the last one here to the one that decides.
    const uint32_t left = m_chunk.staged ? 0 : m_layer->room(0) - n + 1;
    const bool fades = recipe.delta_of(m_layer->spec.n_rows) < observe; // decisions are so close that older queries fade
    // What leaves the plain pool only to be encoded needs no scores; the first that are wanted again begin anew.
    const CacheLayerSpec& spec = m_layer->spec;
    const uint32_t stay = spec.n_rows - spec.plain_slack(recipe);
    if (spec.n_coded && !fades && recipe.split != Split::ada && m_layer->held[0] + n + left <= stay) return false;
    if (n < observe && fades) {
        s->decay = 1 - 1 / float(observe);
        return true;
    }
    s->decay = 1;
    s->reset = left + n >= observe;
    s->first_query = s->reset ? left + n - observe : 0;
    return left < observe;
}

// What is to be chosen of the layer's slots; n_read 0: all are read.
SelectArgs Cache::select_args() const
{
    const CacheLayerSpec& s = m_layer->spec;
    SelectArgs args{};
    if (!s.n_read || (m_chunk.n > 1 && !m_recipe.select->prompts)) return args;
    bool same = m_recipe.split != Split::ada && m_recipe.retain->one_set; // heads hold the same tokens
    const auto held = std::minmax_element(m_layer->held, m_layer->held + s.n_kv_heads);
    same |= *held.first == m_chunk.position;
    if (*held.second <= s.n_read) return args;
    const uint32_t first = std::min(std::max(m_recipe.read_first(), s.n_pinned), s.n_read / 2);
    const uint32_t stride = m_layer->selection.table.cols / s.n_kv_heads;
    const uint32_t kind = m_recipe.select->kind, last = m_recipe.read_last(), unit = unit_of(m_recipe, s.n_read, first);
    // The means of chunks are all alike, whatever their tokens ask: they choose for themselves.
    const bool fresh = m_layer->fresh || m_chunk.n > 1;
    return {kind, s.n_read, first, last, stride, same && !m_recipe.select->by_head, fresh, float(m_recipe.reuse_of()), unit};
}

void Cache::attend(const Tensor& y, const Queries& q, float scale)
{
    const CacheLayerSpec& s = m_layer->spec;
    const uint32_t n_pinned = s.table ? 0 : s.n_pinned, chunk_rows = m_chunk.staged ? m_chunk.n_rows : 0;
    const SelectArgs select = select_args();
    uint32_t far = q.far ? n_far(m_il, m_chunk.position + m_chunk.n) : 0;
    if (select.n_read) far = std::min(far, select.n_first);
    const uint32_t n_wave = q.bias ? s.n_wave : 0;
    AttentionArgs a{m_chunk.n,  s.n_heads, s.n_kv_heads, s.head_dim, s.n_plain(), n_pinned, s.window,
                    chunk_rows, far,       scale,        n_wave,     s.n_turn,    s.pairs,  s.rotates_values()};
    KvSlots slots = m_layer->slots;
    slots.n_before = s.table ? *std::max_element(m_layer->held, m_layer->held + s.n_kv_heads) : m_chunk.position;
    m_layer->fresh = !select.n_read; // what was read as a whole was not looked at for a choice
    if (select.n_read) {
        m_backend->select(select, a, m_layer->selection, q, slots);
        slots.table = m_layer->selection.table;
        slots.view = m_layer->selection.view;
    }
    KvScoreArgs score;
    const bool scored = wants_scores(&score);
    m_backend->attention(a, y, q, slots, scored ? m_lse : Tensor());
    if (scored && select.n_read && score.reset) { // a slot that is not read keeps its signal, but for what is forgotten
        m_backend->fill(m_layer->signal.buffer, m_layer->signal.offset, 4ull * m_layer->signal.cols, 0);
        m_layer->fresh |= select.kind == select_blocks;
        score.reset = 0;
        score.decay = 1;
    }
    if (scored) m_backend->kv_score(score, a, m_layer->signal, m_chunk.staged ? m_chunk.signal : Tensor(), q, slots, m_lse);
}

void Cache::end_layer()
{
    const CacheLayerSpec& s = m_layer->spec;
    for (uint32_t& n : m_moves.n) n = 0;
    if (!s.table) {
        const uint32_t end = m_chunk.position + m_chunk.n;
        if (s.bounded && end > s.n_rows) m_evicted += uint64_t(s.n_kv_heads) * (end - std::max(m_chunk.position, s.n_rows));
        if (m_chunk.staged) ring_moves();
    } else if (!m_chunk.staged) {
        for (uint32_t h = 0; h < s.n_kv_heads; h++) m_layer->held[h] += m_chunk.n;
    } else {
        m_layer->fresh = true;
        const Evictor::Counts counts = m_evictor.evict(*m_backend, *m_layer, m_il, m_chunk, m_text, m_moves);
        m_evicted += s.bounded ? counts.evicted : 0;
        m_merged += counts.merged;
        for (uint32_t h = 0; h < s.n_kv_heads; h++) upload_table(*m_layer, h, m_evictor.first_changed(h));
    }
    make_moves();
}

void Cache::make_moves()
{
    const KvSlots& slots = m_layer->slots;
    const Tensor *plain[] = {&slots.k, &slots.v}, *coded[] = {&slots.coded_k, &slots.coded_v}, *chunk[] = {&m_chunk.k, &m_chunk.v};
    const Tensor* mixed[] = {&m_mixed_k, &m_mixed_v};
    const struct {
        const Tensor **from, **to;
    } ends[Moves::n_ways] = {{plain, coded}, {chunk, coded}, {plain, mixed}, {chunk, mixed}, {mixed, coded}, {chunk, plain}};
    for (int way = 0; way < Moves::n_ways; way++) {
        const uint32_t n = m_moves.n[way], head_dim = m_layer->spec.head_dim;
        const Tensor& moves = m_device_moves[way];
        if (!n) continue;
        m_backend->upload(moves.buffer, moves.offset, m_moves.list[way], 8ull * n);
        for (int what = 0; what < 2; what++) m_backend->kv_move({n, head_dim}, *ends[way].to[what], *ends[way].from[what], moves);
    }
}

// The chunk's tokens that a ring still holds after it.
void Cache::ring_moves()
{
    const CacheLayerSpec& s = m_layer->spec;
    const uint32_t end = m_chunk.position + m_chunk.n, oldest = RING_OLDEST(end, s.n_rows, s.n_pinned);
    for (uint32_t h = 0; h < s.n_kv_heads; h++) {
        for (uint32_t t = 0; t < m_chunk.n; t++) {
            const uint32_t position = m_chunk.position + t;
            if (position < oldest && position >= s.n_pinned) continue;
            m_moves.add(Moves::chunk_to_plain, h * m_chunk.n_rows + t, h * s.n_rows + RING_ROW(position, s.n_rows, s.n_pinned));
        }
    }
}

} // namespace ks
