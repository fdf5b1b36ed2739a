// The cache in a saved session. In order:
//   the numbers of evicted and merged tokens and of pinned tokens; how often ids were read
//   per layer: slots per head. Of a table: held and capacity of each head; slots, positions, counts
//   and log-weights; attention scores; estimators; the last choice of a selector. Then the rows of
//   K and V that are in use, in ascending order, of the plain and the coded pool.
// A table from a file is checked for everything that eviction and attention rely on, because they
// index by it.
#include "runtime/kv/cache.h"

#include "runtime/base/state_file.h"

#include <algorithm>

namespace ks
{

// Whether a head's part of a table is valid: tokens in the order of the text, the pinned first and
// the newest last. `estimated` indexes after the pinned belong to an estimator and have no
// position.
static bool head_fits(const CacheLayer& layer, uint32_t h, uint32_t n_pinned, uint32_t estimated,
                      uint32_t n_seen)
{
    const uint32_t *positions = layer.positions + layer.begin[h],
                   *slots = layer.slots + layer.begin[h];
    uint32_t next = 0;
    uint64_t n_tokens = 0;
    for (uint32_t i = 0; i < layer.held[h]; i++) {
        const uint32_t position = positions[i], count = layer.counts ? layer.counts[slots[i]] : 1;
        const bool sampled = i >= n_pinned && i - n_pinned < estimated;
        if (sampled ? position != kNoPosition
                    : position < next || position >= n_seen || (i < n_pinned && position != i))
            return false;
        if (!sampled) next = position + 1;
        n_tokens += sampled ? 0 : count;
        if (count == 0 || n_tokens > n_seen) return false;
    }
    // The newest is evicted only if a single slot is left for it and a chosen one.
    const CacheLayerSpec& s = layer.spec;
    return next == n_seen || s.n_slots < s.slack(layer.recipe, true) + n_pinned + 2;
}

// Whether coded slots are whole groups of consecutive rows.
static bool groups_fit(const CacheLayer& layer, const uint32_t* slots, uint32_t n)
{
    const uint32_t group = layer.spec.group();
    for (uint32_t i = 0; group > 1 && i < n; i++) {
        const uint32_t first = slots[i - i % group];
        if ((first - layer.first_coded()) % group != 0 || slots[i] != first + i % group)
            return false;
    }
    return n % group == 0;
}

// Whether a head's slots are in the pools that their indexes demand: plain first ones, coded ones,
// plain last ones, then free plain and free coded ones. Sets coded[h].
static bool pools_fit(CacheLayer& layer, uint32_t h, uint32_t n_plain_first)
{
    const uint32_t *slots = layer.slots + layer.begin[h], held = layer.held[h];
    uint32_t& coded = layer.coded[h] = 0;
    for (uint32_t i = 0; i < held; i++) coded += layer.in_coded_pool(slots[i]);
    if (!layer.spec.n_coded) return true;
    if (held - coded > layer.spec.n_plain()) return false;
    // Indexes from n_listed on are free slots of the coded pool.
    const uint32_t n_listed = std::min(layer.capacity[h], held + layer.free_slots(h));
    for (uint32_t i = 0; i < n_listed; i++) {
        const bool is_coded = i >= n_plain_first && i - n_plain_first < coded;
        if (layer.in_coded_pool(slots[i]) != is_coded) return false;
    }
    return groups_fit(layer, slots + n_plain_first, coded) &&
           groups_fit(layer, slots + n_listed, layer.capacity[h] - n_listed);
}

// Whether head h's estimator is in a valid state. *n_slots: its slots; 0 before the first victim.
static bool estimator_fits(const CacheLayer& layer, uint32_t h, uint32_t n_seen, uint32_t* n_slots)
{
    const CacheLayerSpec& s = layer.spec;
    const uint64_t bytes = s.estimator_bytes(layer.recipe);
    const bool started = bytes && layer.held[h] > s.n_pinned &&
                         layer.positions[layer.begin[h] + s.n_pinned] == kNoPosition;
    *n_slots = started ? s.estimator_slots(layer.recipe) : 0;
    if (!started) return true;
    const Subgen estimator(s.estimator_shape(layer.recipe, 0, h), layer.estimators + h * bytes);
    return layer.held[h] - s.n_pinned >= *n_slots && estimator.fits(n_seen);
}

// Whether this recipe can have made the table from n_seen tokens. Sets begin of each head, and
// used (n_kv_heads * n_slots): 1 for slots in use.
static bool table_fits(CacheLayer& layer, const Recipe& recipe, uint32_t n_seen,
                       std::vector<uint8_t>& used)
{
    const CacheLayerSpec& s = layer.spec;
    const uint32_t n = s.n_kv_heads * s.n_slots;
    std::vector<uint8_t> listed(n);
    for (uint32_t i = 0; i < n; i++)
        if (layer.slots[i] >= n || listed[layer.slots[i]]++) return false;
    const uint32_t n_pinned = s.n_pinned;
    const uint32_t recent = std::min(recipe.recent_of(s.n_slots), s.n_slots - n_pinned - 1),
                   rest = s.n_slots - n_pinned - recent;
    // The smallest capacity of a head.
    const uint32_t least = recipe.split == Split::ada ? s.n_slots - rest + rest / 5 : s.n_slots;
    const bool uneven = recipe.split == Split::ada || recipe.retain->estimates;
    uint32_t begin = 0;
    for (uint32_t h = 0; h < s.n_kv_heads; h++) {
        const uint32_t held = layer.held[h], capacity = layer.capacity[h];
        if (capacity > n - begin || capacity < least || held > capacity) return false;
        layer.begin[h] = begin;
        if (!pools_fit(layer, h, recipe.sink_of(s.n_slots))) return false;
        // Heads evict together, and as many tokens unless they compete or estimate.
        if (layer.free_slots(h) != layer.free_slots(0)) return false;
        if (!uneven && held != layer.held[0]) return false;
        begin += capacity;
        uint32_t estimated = 0;
        if (!estimator_fits(layer, h, n_seen, &estimated)) return false;
        if (!head_fits(layer, h, n_pinned, estimated, n_seen)) return false;
        for (uint32_t i = 0; i < held; i++) used[layer.slots[layer.begin[h] + i]] = 1;
    }
    return begin == n;
}

// Transfers the rows in use of a plane that begins at `first`. used: by row of the pool.
static void transfer_plane(StateFile& file, Backend& backend, const Tensor& t, uint64_t first,
                           uint64_t row_bytes, const uint8_t* used)
{
    // Runs of rows that are all in use or all free.
    for (uint32_t row = 0, end = 0; row_bytes && row < t.rows; row = end) {
        while (end < t.rows && used[end] == used[row]) end++;
        if (used[row])
            file.device(backend, t.buffer, t.offset + first + row * row_bytes,
                        (end - row) * row_bytes);
    }
}

// A choice of a selector, as it is on the device. It is valid if each head lists its own slots, in
// the order of their indexes.
struct Choice {
    uint32_t state[select_words] = {};
    std::vector<uint32_t> head_layout, table;
    std::vector<float> query;

    explicit Choice(const CacheLayer& layer)
        : head_layout(layer.selection.head_layout.rows * layout_words),
          table(layer.selection.table.cols), query(layer.selection.query.cols)
    {
    }
    bool fits(const CacheLayer& layer, const Recipe& recipe) const
    {
        const uint32_t n_heads = layer.spec.n_kv_heads, stride = uint32_t(table.size() / n_heads),
                       n_new = state[select_tokens];
        std::vector<uint32_t> next_index(n_heads * layer.spec.n_slots); // by slot: its index + 1
        for (uint32_t h = 0; h < n_heads; h++) {
            const uint32_t* v = head_layout.data() + h * layout_words;
            if (state[select_n_since] > recipe.read_last() / 2 ||
                v[layout_n_held] > layer.spec.n_read + state[select_n_since])
                return false;
            if (v[layout_table_begin] != h * stride || n_new > stride - v[layout_n_held])
                return false;
            if (v[layout_coded_end] > v[layout_n_held]) return false; // newer tokens are plain
            std::fill(next_index.begin(), next_index.end(), 0u);
            for (uint32_t i = 0; i < layer.held[h]; i++)
                next_index[layer.slots[layer.begin[h] + i]] = i + 1;
            for (uint32_t i = 0, last = 0; i < v[layout_n_held] + n_new; i++) {
                const uint32_t slot = table[v[layout_table_begin] + i];
                const bool coded = i >= v[layout_coded_begin] && i < v[layout_coded_end];
                if (slot >= next_index.size() || next_index[slot] <= last ||
                    layer.in_coded_pool(slot) != coded)
                    return false;
                last = next_index[slot];
            }
        }
        return true;
    }
};

// Loads a choice only if it may be reused and this session's table has the same size. Otherwise the
// next step chooses anew.
void Cache::transfer_choice(StateFile& file, uint32_t il, const CacheLayer& layer)
{
    const Selection& made = layer.selection;
    Choice choice(layer);
    const size_t n_table = choice.table.size();
    uint32_t must_reselect = m_layers[il].must_reselect;
    auto each = [&](auto&& copy) {
        copy(made.state, choice.state, sizeof choice.state);
        copy(made.head_layout, choice.head_layout.data(), 4 * choice.head_layout.size());
        copy(made.table, choice.table.data(), 4 * choice.table.size());
        copy(made.query, choice.query.data(), 4 * choice.query.size());
    };
    if (file.saves())
        each([&](const Tensor& t, void* to, uint64_t bytes) {
            m_backend->download(to, t.buffer, t.offset, bytes);
        });
    if (file.loads()) m_layers[il].must_reselect = true;
    file.value(must_reselect);
    file.value(choice.state);
    file.bytes(choice.head_layout.data(), 4 * choice.head_layout.size());
    file.bytes(choice.query.data(), 4 * choice.query.size());
    file.list(choice.table, ~0u);
    if (must_reselect || !file.ok() || choice.table.size() != n_table) return;
    file.require(choice.fits(layer, layer.recipe), "a choice of slots that no cache has");
    if (!file.loads() || !file.ok()) return;
    choice.state[select_choices] = 0; // page bounds and representatives are not in the file
    each([&](const Tensor& t, const void* from, uint64_t bytes) {
        m_backend->upload(t.buffer, t.offset, from, bytes);
    });
    m_layers[il].must_reselect = false;
}

// Equal caches are saved as equal bytes: free slots have no positions of earlier tokens.
static void clear_free_positions(CacheLayer& layer)
{
    for (uint32_t h = 0; layer.spec.table && h < layer.spec.n_kv_heads; h++) {
        uint32_t* positions = layer.positions + layer.begin[h];
        for (uint32_t i = layer.held[h]; i < layer.capacity[h]; i++)
            if (positions[i]) positions[i] = 0; // pages that were never written stay so
    }
}

void Cache::transfer_layer(StateFile& file, uint32_t il, CacheLayer& layer, uint32_t n_seen)
{
    const CacheLayerSpec& s = layer.spec;
    const uint32_t n = s.n_kv_heads * s.n_slots;
    uint32_t n_slots = s.n_slots;
    file.value(n_slots);
    // A ring that is not yet full fits into a ring of another size.
    if (n_slots != s.n_slots && (s.table || n_seen > std::min(n_slots, s.n_slots)))
        file.refuse(Code::unsupported, "was saved with " + std::to_string(n_slots) +
                                           " slots per head in layer " + std::to_string(il) +
                                           ", this session has " + std::to_string(s.n_slots));
    std::vector<uint8_t> used(n);
    if (s.table) {
        for (uint32_t* array : {layer.held, layer.capacity}) file.bytes(array, 4ull * s.n_kv_heads);
        for (uint32_t* array : {layer.slots, layer.positions, layer.counts})
            file.bytes(array, array ? 4ull * n : 0);
        if (layer.weights) file.bytes(layer.weights, 8ull * n);
        if (layer.scores)
            file.device(*m_backend, layer.scores.buffer, layer.scores.offset, 4ull * n);
        if (layer.estimators)
            file.bytes(layer.estimators, s.n_kv_heads * s.estimator_bytes(layer.recipe));
        file.require(table_fits(layer, layer.recipe, n_seen, used),
                     "a table of slots that no cache has");
        if (s.n_read && layer.recipe.reuse_of() < 1 && file.ok()) transfer_choice(file, il, layer);
    } else {
        for (uint32_t h = 0; h < s.n_kv_heads; h++)
            std::fill_n(used.begin() + h * s.n_slots, std::min(n_seen, s.n_slots), uint8_t(1));
    }
    if (!file.ok()) return;
    const uint8_t *plain = used.data(), *coded = plain + (s.n_coded ? layer.first_coded() : 0);
    for (const Tensor* t : {&layer.kv.k, &layer.kv.v, &layer.kv.coded_k, &layer.kv.coded_v}) {
        if (s.values_in_keys && (t == &layer.kv.v || t == &layer.kv.coded_v)) continue;
        const uint32_t row_bytes = codec_info(t->format).row_bytes(t->cols),
                       tail = tail_bytes(t->format, t->cols);
        const uint8_t* of_pool = t == &layer.kv.k || t == &layer.kv.v ? plain : coded;
        transfer_plane(file, *m_backend, *t, 0, row_bytes - tail, of_pool);
        transfer_plane(file, *m_backend, *t, uint64_t(t->rows) * (row_bytes - tail), tail, of_pool);
    }
}

void Cache::transfer(StateFile& file, uint32_t n_seen)
{
    uint64_t evicted = m_evicted, merged = m_merged;
    uint32_t n_pinned = m_n_pinned;
    file.value(evicted);
    file.value(merged);
    file.value(n_pinned);
    std::vector<uint16_t> counts(m_recipe.retain->counts && m_text.counts ? TextSeen::kBuckets : 0);
    if (file.saves()) std::copy_n(m_text.counts, counts.size(), counts.data());
    file.bytes(counts.data(), 2 * counts.size());
    if (file.loads()) std::copy(counts.begin(), counts.end(), m_text.counts);
    std::vector<double> scratch; // a table that is checked; doubles, as an estimator aligns them
    for (uint32_t il = 0; il < n_layers() && file.ok(); il++) {
        CacheLayer layer = m_layers[il];
        pin_layer(layer.spec, m_recipe, 0); // as in place_layers()
        if (file.checks()) {
            Placer counted, ignored, device;
            layer.place(0, ignored, counted);
            scratch.resize(std::max<size_t>(scratch.size(), counted.offset / sizeof(double)));
            Placer host{{scratch.data(), 0}};
            layer.place(0, device, host);
            layer.selection = m_layers[il].selection;
        }
        pin_layer(layer.spec, m_recipe, n_pinned);
        if (file.saves()) clear_free_positions(layer);
        transfer_layer(file, il, layer, n_seen);
    }
    if (file.saves() || file.checks() || !file.ok()) return;
    m_evicted = evicted;
    m_merged = merged;
    m_n_pinned = n_pinned;
    for (CacheLayer& layer : m_layers) {
        pin_layer(layer.spec, m_recipe, n_pinned);
        const Tensor& weights = layer.kv.weights;
        for (uint32_t h = 0; layer.kv.table && h < layer.spec.n_kv_heads; h++)
            upload_table(layer, h, 0);
        if (weights)
            m_backend->upload(weights.buffer, weights.offset, layer.weights, 8ull * weights.rows);
    }
}

} // namespace ks
