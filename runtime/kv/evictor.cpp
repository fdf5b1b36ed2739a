#include "runtime/kv/evictor.h"

#include "runtime/kv/policies/merge.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ks
{

constexpr uint64_t kKeyShare = 16; // of the slots' bytes, what the keys of a head may take beside them

static bool is_subgen(const Recipe& recipe)
{
    return strcmp(recipe.retain->name, "subgen") == 0;
}

// Slots that a decision leaves free for the tokens after it: while decoding, or where new tokens have a pool of their own.
static uint32_t slack_of(const CacheLayerSpec& spec, const Recipe& recipe, bool decodes)
{
    if (spec.n_coded) return spec.plain_slack(recipe);
    return decodes ? recipe.delta_of(spec.n_rows) - 1 : 0;
}

// What the pinned, the recent and the next tokens leave of a head's rows: half for sampled tokens, half for clusters of two.
// 0: so little that nothing could be estimated, and the policy is a window.
static uint32_t estimator_slots(const CacheLayerSpec& spec, const Recipe& recipe)
{
    constexpr uint32_t kLeast = 4;
    const uint32_t n = spec.n_rows - spec.n_pinned - recipe.recent_of(spec.n_rows) - slack_of(spec, recipe, true);
    return is_subgen(recipe) && n >= kLeast ? n : 0;
}

static SubgenShape subgen_shape(const CacheLayerSpec& spec, const Recipe& recipe, uint32_t il, uint32_t head)
{
    constexpr uint32_t t = 2;
    const uint32_t n = estimator_slots(spec, recipe), n_clusters = n / 2 / t;
    return {n_clusters, t, n - n_clusters * t, spec.head_dim, true, recipe.seed, il, head};
}

uint64_t Evictor::estimator_bytes(const CacheLayerSpec& spec, const Recipe& recipe)
{
    return estimator_slots(spec, recipe) ? align_up(Subgen::bytes_needed(subgen_shape(spec, recipe, 0, 0)), kRegionAlign) : 0;
}

bool Evictor::estimator_fits(const CacheLayer& layer, const Recipe& recipe, uint32_t h, uint32_t n_seen, uint32_t* slots)
{
    const uint64_t bytes = estimator_bytes(layer.spec, recipe);
    const uint32_t n_pinned = layer.spec.n_pinned;
    const bool started = bytes && layer.held[h] > n_pinned && layer.positions[layer.begin[h] + n_pinned] == kNoPosition;
    *slots = started ? estimator_slots(layer.spec, recipe) : 0;
    if (!started) return true;
    const Subgen estimator(subgen_shape(layer.spec, recipe, 0, h), layer.estimators + h * bytes);
    return layer.held[h] - n_pinned >= *slots && estimator.fits(n_seen);
}

void Evictor::place(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe, uint32_t chunk, Placer& device, Placer& host)
{
    m_writes = recipe.victims == Victims::merge || is_subgen(recipe);
    m_reads = m_writes || recipe.retain->keys;
    uint32_t most = 0, heads = 0, n_rows = 0, head_dim = 0;
    uint64_t slot_bytes = 0;
    for (const CacheLayerSpec& spec : specs) {
        if (!spec.table) continue;
        slot_bytes += uint64_t(spec.n_kv_heads) * spec.n_rows *
                      (codec_info(spec.k).row_bytes(spec.head_dim) + codec_info(spec.v).row_bytes(spec.head_dim));
        heads = std::max(heads, spec.n_kv_heads);
        n_rows = std::max(n_rows, spec.n_rows);
        head_dim = std::max(head_dim, spec.head_dim);
        most = std::max(most, spec.n_rows * (recipe.split == Split::ada ? spec.n_kv_heads : 1) + chunk);
    }
    if (!most) return;
    // Few and wide heads: all keys of one as floats would take more room than reading them twice is worth.
    m_n_read = std::min(most, std::max(32u, std::min(kReadRows, most / 8)));
    m_reads_all = m_writes || recipe.retain->all_keys || kKeyShare * 4ull * most * head_dim <= slot_bytes;
    m_heads.resize(heads);
    for (Head& head : m_heads) {
        head.positions = host.array<uint32_t>(most);
        head.rows = host.array<uint32_t>(most);
    }
    // One block each, so that the heads' scores can be compared.
    float *signal = host.array<float>(uint64_t(heads) * most), *scores = host.array<float>(uint64_t(heads) * most);
    uint8_t* keep = host.array<uint8_t>(uint64_t(heads) * most);
    uint32_t* order = host.array<uint32_t>(uint64_t(heads) * most);
    for (uint32_t h = 0; h < heads; h++) {
        m_heads[h].signal = signal + uint64_t(h) * most;
        m_heads[h].score = scores + uint64_t(h) * most;
        m_heads[h].keep = keep + uint64_t(h) * most;
        m_heads[h].order = order + uint64_t(h) * most;
    }
    m_pool_signal = host.array<float>(recipe.signal() ? uint64_t(heads) * n_rows : 0);
    m_chunk_signal = host.array<float>(recipe.signal() ? uint64_t(heads) * chunk : 0);
    m_scratch = host.array<float>(retain_scratch_floats(*recipe.retain, most, head_dim));
    m_id_counts = host.array<uint32_t>(recipe.retain->counts ? most : 0);
    m_keys = host.array<float>(m_reads ? uint64_t(m_reads_all ? most : m_n_read) * head_dim : 0);
    m_values = host.array<float>(m_writes ? uint64_t(most) * head_dim : 0);
    m_norms = host.array<float>(m_writes ? 2ull * most : 0);
    m_targets = host.array<uint32_t>(m_writes ? most : 0);
    m_sources = host.array<uint32_t>(is_subgen(recipe) ? 2ull * most : 0);
    m_changes.copies = host.array<SubgenChanges::Copy>(is_subgen(recipe) ? most : 0);
    m_changes.slots = host.array<uint32_t>(is_subgen(recipe) ? most : 0);
    m_free_plain.slots = host.array<uint32_t>(uint64_t(heads) * n_rows);
    m_free_coded.slots = host.array<uint32_t>(recipe.codes() ? uint64_t(heads) * n_rows : 0);
    m_read = device.take(m_reads ? m_n_read : 0, head_dim);
    m_read_rows = device.take(1, m_reads ? m_n_read : 0);
    m_read_view = device.take(1, m_reads ? view_words : 0);
}

// Indexes that stay. Codes of a group leave together: as many tokens leave as are whole groups, and they are the oldest.
static uint32_t target_of(const CacheLayer& layer, uint32_t n_new)
{
    const uint32_t target = layer.spec.n_rows - slack_of(layer.spec, layer.rules, n_new == 1 || is_subgen(layer.rules));
    const uint32_t n = layer.held[0] + n_new, group = layer.spec.group();
    return n <= target ? target : n - (n - target + group - 1) / group * group;
}

Evictor::Counts Evictor::evict(Backend& backend, CacheLayer& layer, uint32_t il, const Chunk& chunk, const TextSeen& text, Moves& moves)
{
    m_counts = {};
    const uint32_t n_rows = layer.spec.n_rows, n_kv_heads = layer.spec.n_kv_heads;
    const uint32_t target = target_of(layer, chunk.n);
    Case c{backend, layer, il, chunk, text, layer.spec.n_pinned, 0, target, ~0u, ~0u, false, 0};
    c.recent = std::min(layer.rules.recent_of(n_rows), c.target - c.pinned - 1);
    if (layer.spec.n_coded) c.plain_first = layer.rules.sink_of(n_rows), c.plain_last = layer.rules.plain_recent_of(n_rows);
    uint32_t n_held = 0;
    for (uint32_t h = 0; h < n_kv_heads; h++) n_held += layer.held[h] + chunk.n;
    c.evicts = !layer.rules.exact() && n_held > n_kv_heads * target;
    // Where nobody leaves, the last tokens for which no coded slot is left stay plain.
    if (layer.rules.exact() && layer.spec.n_coded && layer.spec.group() == 1)
        c.plain_last += std::max(n_held / n_kv_heads, target) - target;
    c.estimated = c.evicts ? estimator_slots(layer.spec, layer.rules) : 0;
    look(c);
    const bool by_head = layer.rules.split != Split::ada; // else heads compete
    for (uint32_t h = 0; c.evicts && h < n_kv_heads; h++) {
        score(c, h);
        if (by_head) choose(c, h);
        if (by_head && layer.counts) merge_victims(c, h, layer.rules.retain->keys);
    }
    if (c.evicts && !by_head) choose_among_heads(c);
    for (uint32_t h = 0; c.evicts && !by_head && layer.counts && h < n_kv_heads; h++) merge_victims(c, h, false);
    for (uint32_t h = 0; layer.spec.n_coded && h < n_kv_heads; h++) find_coded_range(c, h);
    free_rows(c);
    for (uint32_t h = 0, begin = 0; h < n_kv_heads; h++) {
        if (layer.counts && !c.evicts) count_tokens(c, h);
        if (c.estimated) estimate_victims(c, h);
        layer.begin[h] = begin;
        take_over(c, h, moves);
        begin += layer.capacity[h];
        if (c.estimated) write_estimator(c, h);
    }
    if (layer.rules.signal()) backend.upload(layer.signal.buffer, layer.signal.offset, m_pool_signal, 4ull * n_kv_heads * n_rows);
    if (layer.weights) backend.upload(layer.slots.weights.buffer, layer.slots.weights.offset, layer.weights, 8ull * n_kv_heads * n_rows);
    return m_counts;
}

// Gathers positions, rows and signals of every head in the order of the text.
void Evictor::look(const Case& c)
{
    const uint32_t n_kv_heads = c.layer.spec.n_kv_heads;
    const bool signals = c.layer.rules.signal() != signal_none;
    if (signals) {
        c.backend.download(m_pool_signal, c.layer.signal.buffer, c.layer.signal.offset, 4ull * n_kv_heads * c.layer.spec.n_rows);
        c.backend.download(m_chunk_signal, c.chunk.signal.buffer, c.chunk.signal.offset, 4ull * n_kv_heads * c.chunk.n_rows);
    }
    for (uint32_t h = 0; h < n_kv_heads; h++) {
        Head& head = m_heads[h];
        const uint32_t held = c.layer.held[h], begin = c.layer.begin[h];
        head.n = held + c.chunk.n;
        head.first = c.evicts || !c.layer.coded ? 0 : std::min(held, c.plain_first + c.layer.coded[h]);
        for (uint32_t i = head.first; i < head.n; i++) {
            const bool in_chunk = i >= held;
            head.rows[i] = in_chunk ? h * c.chunk.n_rows + i - held : c.layer.rows[begin + i];
            head.positions[i] = in_chunk ? c.chunk.position + i - held : c.layer.positions[begin + i];
            head.keep[i] = 1;
            if (signals) head.signal[i] = in_chunk ? m_chunk_signal[head.rows[i]] : m_pool_signal[head.rows[i]];
        }
    }
    if (!c.layer.rules.retain->signal || !c.layer.rules.retain->one_set) return;
    for (uint32_t h = 1; h < n_kv_heads; h++)
        for (uint32_t i = 0; i < m_heads[0].n; i++) m_heads[0].signal[i] += m_heads[h].signal[i];
    for (uint32_t h = 1; h < n_kv_heads; h++) std::copy_n(m_heads[0].signal, m_heads[0].n, m_heads[h].signal);
}

void Evictor::score(const Case& c, uint32_t h)
{
    const Head& head = m_heads[h];
    Candidates candidates;
    candidates.n = head.n - c.pinned - c.recent;
    candidates.n_seen = c.chunk.position + c.chunk.n;
    candidates.head_dim = c.layer.spec.head_dim;
    candidates.n_keep = c.target - c.pinned - c.recent;
    candidates.positions = head.positions + c.pinned;
    if (c.layer.rules.retain->signal) candidates.signal = head.signal + c.pinned;
    const bool reads = c.layer.rules.retain->keys && !is_subgen(c.layer.rules);
    if (reads && m_reads_all) {
        read_rows(c, h, all_of(h), false, 0, m_keys);
        candidates.keys = m_keys + uint64_t(c.pinned) * candidates.head_dim;
    }
    const KeySource source{this, &c, h};
    if (reads && !m_reads_all) {
        candidates.read_keys = [](const void* from, uint32_t first, uint32_t n) {
            const auto [evictor, decision, nth] = *static_cast<const KeySource*>(from);
            const uint32_t begin = decision->pinned + first;
            evictor->read_rows(*decision, nth, {begin, begin + n}, false, 0, evictor->m_keys);
            return static_cast<const float*>(evictor->m_keys);
        };
        candidates.keys_from = &source;
        candidates.most_keys = m_n_read;
    }
    if (c.layer.rules.retain->counts && c.text.ids) {
        count_ids(c, h);
        candidates.counts = m_id_counts + c.pinned;
    }
    float* scores = head.score + c.pinned;
    c.layer.rules.retain->score(candidates, c.layer.rules.options, m_scratch, scores);
    for (uint32_t i = 0; i < candidates.n && candidates.n_seen - candidates.positions[i] > c.text.far; i++)
        if (candidates.positions[i] != kNoPosition) scores[i] = -INFINITY;
    protect_frames(c, h);
}

// How often the id of each index was read; of those that the text no longer has, once.
void Evictor::count_ids(const Case& c, uint32_t h)
{
    const uint32_t n_seen = c.chunk.position + c.chunk.n;
    for (uint32_t i = 0; i < m_heads[h].n; i++) {
        const uint32_t position = m_heads[h].positions[i];
        m_id_counts[i] = c.text.knows(position, n_seen) ? c.text.counts[c.text.bucket(position)] : 1;
    }
}

bool Evictor::is_frame(const Case& c, uint32_t h, uint32_t index) const
{
    return c.text.is_frame(m_heads[h].positions[index], c.chunk.position + c.chunk.n);
}

// What a template wrote between two messages stays as a whole or goes as a whole, before all else: the newest frames stay while
// they take no more than an eighth of the slots. An estimator keeps no single tokens but the last ones, so none of these. A
// model's own window keeps its last tokens, whoever wrote them.
void Evictor::protect_frames(const Case& c, uint32_t h)
{
    if (c.layer.spec.local) return;
    const Head& head = m_heads[h];
    uint32_t room = c.layer.spec.n_rows / 8;
    for (uint32_t end = head.n - c.recent, begin; end > c.pinned; end = begin) {
        for (begin = end; begin > c.pinned && is_frame(c, h, begin - 1); begin--)
            if (begin < end && head.positions[begin - 1] + 1 != head.positions[begin]) break;
        const uint32_t n = end - begin;
        if (n == 0) {
            begin--;
            continue;
        }
        const bool stays = n <= room && c.chunk.position + c.chunk.n - head.positions[begin] <= c.text.far;
        std::fill(head.score + begin, head.score + end, stays ? INFINITY : -INFINITY);
        room = stays ? room - n : 0;
    }
}

// Marks who stays: keep[i] for every index of a head.
void Evictor::choose(const Case& c, uint32_t h)
{
    Head& head = m_heads[h];
    const uint32_t n = head.n - c.pinned - c.recent;
    const uint32_t n_keep = c.target - c.pinned - c.recent;
    if (!c.estimated) return keep_highest(head.score + c.pinned, n, n_keep, head.order, head.keep + c.pinned);
    // All go, but for the estimator's own slots.
    const bool started = head.positions[c.pinned] == kNoPosition;
    std::fill_n(head.keep + c.pinned + (started ? c.estimated : 0), n - (started ? c.estimated : 0), uint8_t(0));
}

// The heads' candidates end at the same token but may differ in number: side by side, aligned at their ends.
void Evictor::choose_among_heads(const Case& c)
{
    const uint32_t n_kv_heads = c.layer.spec.n_kv_heads, wanted = c.target - c.pinned - c.recent;
    uint32_t most = 0;
    for (uint32_t h = 0; h < n_kv_heads; h++) most = std::max(most, m_heads[h].n - c.pinned - c.recent);
    float* scores = m_heads[0].signal; // no longer needed
    uint8_t* keep = m_heads[0].keep;
    for (uint32_t h = 0; h < n_kv_heads; h++) {
        const uint32_t n = m_heads[h].n - c.pinned - c.recent;
        std::fill_n(scores + h * most, most - n, NAN);
        std::copy_n(m_heads[h].score + c.pinned, n, scores + h * most + most - n);
    }
    keep_highest_of_heads(scores, n_kv_heads, most, n_kv_heads * wanted, wanted / 5, m_heads[0].order, keep);
    for (uint32_t h = n_kv_heads; h-- > 0;) { // from the last, since they move apart
        Head& head = m_heads[h];
        const uint32_t n = head.n - c.pinned - c.recent;
        memmove(head.keep + c.pinned, keep + h * most + most - n, n);
        std::fill_n(head.keep, c.pinned, uint8_t(1));
        std::fill_n(head.keep + c.pinned + n, c.recent, uint8_t(1));
    }
}

// Victims go into the head's estimator; the first ones start it.
void Evictor::estimate_victims(const Case& c, uint32_t h)
{
    Head& head = m_heads[h];
    const uint32_t head_dim = c.layer.spec.head_dim;
    const bool started = head.positions[c.pinned] == kNoPosition;
    const uint32_t first = c.pinned + (started ? c.estimated : 0), end = head.n - c.recent;
    read_rows(c, h, all_of(h), false, 0, m_keys);
    read_rows(c, h, all_of(h), true, 0, m_values);
    Subgen estimator(subgen_shape(c.layer.spec, c.layer.rules, c.il, h),
                     c.layer.estimators + h * estimator_bytes(c.layer.spec, c.layer.rules));
    if (!started) {
        estimator.clear();
        estimator.choose_radius(m_keys + uint64_t(first) * head_dim, end - first);
    }
    uint32_t *sources = m_sources, *before = m_sources + c.estimated;
    for (uint32_t slot = 0; slot < c.estimated; slot++) sources[slot] = started ? c.pinned + slot : kNoPosition;
    for (uint32_t i = first; i < end; i++) {
        const uint64_t at = uint64_t(i) * head_dim;
        estimator.update(head.positions[i], m_keys + at, m_values + at, &m_changes);
        if (m_changes.n_copies) std::copy_n(sources, c.estimated, before);
        for (uint32_t k = 0; k < m_changes.n_copies; k++) sources[m_changes.copies[k].to] = before[m_changes.copies[k].from];
        for (uint32_t k = 0; k < m_changes.n_slots; k++) sources[m_changes.slots[k]] = i;
        m_counts.merged++;
    }
    estimator.weights(m_norms, m_norms + c.estimated);
}

// The slots that hold another token than before, and all their weights.
void Evictor::write_estimator(const Case& c, uint32_t h)
{
    CacheLayer& layer = c.layer;
    const uint32_t* rows = layer.rows + layer.begin[h] + c.pinned;
    for (uint32_t slot = 0; slot < c.estimated; slot++) {
        const uint32_t row = rows[slot], source = m_sources[slot];
        layer.weights[2 * row] = m_norms[slot];
        layer.weights[2 * row + 1] = m_norms[c.estimated + slot];
        if (source == c.pinned + slot || source == kNoPosition) continue;
        write_slot(c, row, m_keys + uint64_t(source) * layer.spec.head_dim, m_values + uint64_t(source) * layer.spec.head_dim);
    }
}

// Where the token of an index goes: what was encoded stays so, the first tokens and the last ones do not become so.
bool Evictor::becomes_plain(const Case& c, uint32_t h, uint32_t index) const
{
    const Head& head = m_heads[h];
    if (!c.layer.spec.n_coded) return true;
    if (index < c.layer.held[h] && c.layer.in_coded_pool(head.rows[index])) return false;
    return index < c.plain_first || index >= head.code_end;
}

// What will be coded: all that stays between the first and the last tokens. Of groups only whole ones that have slots, the oldest first.
void Evictor::find_coded_range(const Case& c, uint32_t h)
{
    Head& head = m_heads[h];
    const uint32_t group = c.layer.spec.group(), held = c.layer.held[h];
    head.code_end = head.n - std::min(head.n, c.plain_last);
    head.mixed_begin = head.mixed_end = 0;
    if (group == 1) return;
    const uint32_t n_kept = head.n - uint32_t(std::count(head.keep + head.first, head.keep + head.n, uint8_t(0)));
    const uint32_t n_between = n_kept - std::min(n_kept, c.plain_first + c.plain_last);
    uint32_t n_from_pool = 0;
    head.code_end = std::max(c.plain_first, head.first);
    const uint32_t wanted = std::min(n_between / group * group, c.layer.spec.n_coded), done = head.code_end - c.plain_first;
    for (uint32_t left = wanted - std::min(wanted, done); left; head.code_end++) {
        const uint32_t i = head.code_end;
        if (!head.keep[i]) continue;
        left--;
        n_from_pool += i < held && !c.layer.in_coded_pool(head.rows[i]);
    }
    head.mixed_begin = n_from_pool / group * group; // from the pool and from the chunk
    head.mixed_end = (n_from_pool + group - 1) / group * group;
}

// Lists the slots that no head will use: victims', those that were free, and those of what becomes coded. Each head then needs as
// many as it gave, unless `ada` gives its slots to another.
void Evictor::free_rows(const Case& c)
{
    m_free_plain.n = m_free_plain.next = m_free_coded.n = m_free_coded.next = 0;
    auto free = [&](uint32_t slot) {
        Free& list = c.layer.in_coded_pool(slot) ? m_free_coded : m_free_plain;
        list.slots[list.n++] = slot;
    };
    for (uint32_t h = 0; h < c.layer.spec.n_kv_heads; h++) {
        const Head& head = m_heads[h];
        const uint32_t held = c.layer.held[h];
        for (uint32_t i = head.first; i < held; i++)
            if (!head.keep[i] || (!c.layer.in_coded_pool(head.rows[i]) && !becomes_plain(c, h, i))) free(head.rows[i]);
        for (uint32_t i = held; i < c.layer.capacity[h]; i++) free(c.layer.rows[c.layer.begin[h] + i]);
    }
}

// The head's slots in their new order: those that stay, survivors of the chunk in free ones, then its share of the free.
void Evictor::take_over(const Case& c, uint32_t h, Moves& moves)
{
    Head& head = m_heads[h];
    CacheLayer& layer = c.layer;
    const bool signals = layer.rules.signal() != signal_none, starts = c.estimated && head.positions[c.pinned] != kNoPosition;
    const uint32_t held = layer.held[h], begin = layer.begin[h], base = layer.first_coded();
    Free& free_kept = layer.spec.n_coded ? m_free_coded : m_free_plain;
    uint32_t n_kept = head.first, n_coded = head.first ? layer.coded[h] : 0, n_evicted = 0, n_new = 0;
    auto keep = [&](uint32_t slot, uint32_t position, float signal, uint32_t count) {
        if (signals) m_pool_signal[slot] = signal;
        if (layer.counts) layer.counts[slot] = count;
        if (layer.weights) layer.weights[2 * slot] = layer.weights[2 * slot + 1] = log_weight(count);
        n_coded += layer.in_coded_pool(slot);
        layer.rows[begin + n_kept] = slot;
        layer.positions[begin + n_kept++] = position;
    };
    for (uint32_t i = head.first; i < head.n; i++) {
        for (uint32_t k = 0; starts && i == c.pinned && k < c.estimated; k++) keep(free_kept.take(), kNoPosition, 0, 1);
        if (!head.keep[i]) {
            n_evicted++;
            continue;
        }
        const uint32_t from = head.rows[i];
        const bool plain = becomes_plain(c, h, i), stays = i < held && plain != layer.in_coded_pool(from);
        const uint32_t slot = stays ? from : (plain ? m_free_plain : m_free_coded).take();
        if (plain && i >= held) moves.add(Moves::chunk_to_plain, from, slot);
        if (!plain && !stays) {
            const uint32_t group = layer.spec.group(), mixed = h * group + n_new % group;
            moves.add_code(i >= held, from, slot - base, n_new >= head.mixed_begin && n_new < head.mixed_end, mixed);
            n_new++;
        }
        const float signal = !signals ? 0 : i >= held ? m_chunk_signal[from] : m_pool_signal[from];
        keep(slot, head.positions[i], signal, layer.counts ? head.order[i] : 1);
    }
    m_counts.evicted += n_evicted;
    layer.held[h] = n_kept;
    if (layer.coded) layer.coded[h] = n_coded;
    if (layer.rules.split == Split::ada && c.evicts) layer.capacity[h] = n_kept + (layer.spec.n_rows - c.target);
    for (uint32_t i = n_kept; i < layer.capacity[h]; i++) {
        const uint32_t slot = layer.rows[begin + i] =
            (i - n_coded < layer.spec.n_plain() || !layer.spec.n_coded ? m_free_plain : m_free_coded).take();
        if (signals) m_pool_signal[slot] = 0;
        if (layer.counts) layer.counts[slot] = 1; // the next token there stands for itself
        if (layer.weights) layer.weights[2 * slot] = layer.weights[2 * slot + 1] = 0;
    }
}

} // namespace ks
