// A climb re-encodes the contents of one layout of the cache into another of the same bytes.
// A plane is the keys or the values of a layer.
//   1. Plane by plane in the order of addresses, the new codes are packed at the front. They are no
//      longer than the plane that they come from, so no row is overwritten unread.
//   2. In the reverse order, each packed plane goes to its place, which is at or behind it.
//   3. The tables are written anew. They may overlap those of the old layout, which nothing reads
//      after step 1.
#include "runtime/kv/cache.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace ks
{

static const Tensor& pool(const CacheLayer& layer, bool keys, bool coded)
{
    const KvSlots& kv = layer.kv;
    return keys ? (coded ? kv.coded_k : kv.k) : (coded ? kv.coded_v : kv.v);
}

// The slot of an index before and after a climb.
static uint32_t slot_before(const CacheLayer& from, uint32_t h, uint32_t index)
{
    const CacheLayerSpec& s = from.spec;
    return s.table ? from.slots[from.begin[h] + index] : ring_slot(h, index, s.n_slots, 0);
}

static uint32_t slot_after(const CacheLayer& to, uint32_t h, uint32_t i)
{
    return to.spec.table ? to.slot_after_climb(h, i)
                         : ring_slot(h, to.moved.first + i, to.spec.n_slots, 0);
}

// Calls body(head, index, n, slot) for at most `most` indexes in order, all coded before or none,
// in consecutive rows of one pool now.
template <class Body>
static void for_batches(const CacheLayer& to, uint32_t most, Body body)
{
    const Moved& m = to.moved;
    const auto was_coded = [&](uint32_t i) { return i >= m.coded_begin && i < m.coded_end; };
    for (uint32_t h = 0; h < to.spec.n_kv_heads; h++) {
        for (uint32_t i = 0, n; i < m.held; i += n) {
            const uint32_t slot = slot_after(to, h, i);
            for (n = 1; i + n < m.held && n < most && was_coded(i + n) == was_coded(i); n++)
                if (slot_after(to, h, i + n) != slot + n || slot + n == to.first_coded()) break;
            body(h, i, n, slot);
        }
    }
}

// Which tokens of a layer move: all, or the last ones that fit a window. What was coded stays so.
static Moved moved(const CacheLayer& from, const CacheLayer& to, uint32_t n_seen)
{
    const CacheLayerSpec &s = from.spec, &t = to.spec;
    const uint32_t held = s.table ? from.held[0] : std::min(n_seen, s.n_slots),
                   room = t.n_slots - (t.table && t.local ? t.slack(to.recipe, true) : 0);
    Moved m;
    m.held = std::min(held, room);
    m.first = (s.table ? held : n_seen) - m.held;
    KS_CHECK(t.local || m.held == held, "%u tokens climb into %u slots", held, t.n_slots);
    if (s.table && from.coded[0]) {
        const uint32_t begin = from.recipe.sink_of(s.n_slots), end = begin + from.coded[0];
        m.coded_begin = begin - std::min(begin, m.first);
        m.coded_end = end - std::min(end, m.first);
    }
    const uint32_t first = std::min(m.held, to.recipe.sink_of(t.n_slots)),
                   last = m.held - std::max(first, m.coded_end);
    m.coded =
        std::min(t.n_coded, m.held - first - std::min(last, to.recipe.plain_recent_of(t.n_slots)));
    return m;
}

// Encodes a plane to the host, batch by batch: the words of its rows, then their tails.
uint64_t Cache::pack_plane(const CacheLayer& from, const CacheLayer& to, bool keys,
                           const ClimbScratch& scratch) const
{
    const CacheLayerSpec &s = from.spec, &t = to.spec;
    const uint32_t head_dim = t.head_dim;
    const bool transforms = keys ? t.hadamard_keys() && !s.hadamard_keys()
                                 : t.hadamard_values() && !s.hadamard_values();
    uint8_t* out = scratch.host;
    for_batches(to, scratch.n, [&](uint32_t h, uint32_t i, uint32_t n, uint32_t slot) {
        i += to.moved.first;
        const Tensor& source = pool(from, keys, from.in_coded_pool(slot_before(from, h, i)));
        Tensor codes = shaped(scratch.codes, n, head_dim);
        codes.format = pool(to, keys, to.in_coded_pool(slot)).format;
        const bool moves = source.format == codes.format && !transforms;
        uint32_t list[2 * kMostClimbRows], n_listed = 0;
        for (uint32_t k = 0; k < n; k++) {
            list[n_listed++] = from.row_of(slot_before(from, h, i + k));
            if (moves) list[n_listed++] = k;
        }
        const Tensor values = shaped(scratch.values, n, head_dim),
                     rows = shaped(scratch.rows, moves ? n : 1, n_listed / (moves ? n : 1));
        m_backend->upload(rows.buffer, rows.offset, list, 4ull * n_listed);
        if (moves) {
            m_backend->kv_move({n, head_dim}, codes, source, rows);
        } else {
            m_backend->kv_read({n, head_dim}, values, source, rows);
            const RopeTarget hadamard{{n, 1, head_dim, 0, 0, 0, 1}, values, values, {}};
            if (transforms) m_backend->rope(&hadamard, 1);
            // The rows are those of a staged chunk, whatever the layout says.
            m_backend->kv_write({n, 1, head_dim, n, 0, 1}, {codes, {}}, {values, {}}, {},
                                shaped(rows, 1, layout_words));
        }
        const uint64_t bytes = uint64_t(n) * codec_info(codes.format).row_bytes(head_dim);
        m_backend->download(out, codes.buffer, codes.offset, bytes);
        out += bytes;
    });
    return uint64_t(out - scratch.host);
}

// Brings a plane from the host to its rows.
void Cache::place_plane(const CacheLayer& to, bool keys, const ClimbScratch& scratch) const
{
    const uint8_t* in = scratch.host;
    for_batches(to, scratch.n, [&](uint32_t, uint32_t, uint32_t n, uint32_t slot) {
        const Tensor& t = pool(to, keys, to.in_coded_pool(slot));
        const uint64_t row = to.row_of(slot), tail = tail_bytes(t.format, t.cols),
                       words = codec_info(t.format).row_bytes(t.cols) - tail;
        m_backend->upload(t.buffer, t.offset + row * words, in, n * words);
        if (tail)
            m_backend->upload(t.buffer, t.offset + t.rows * words + row * tail, in + n * words,
                              n * tail);
        in += n * (words + tail);
    });
}

// Writes the tables of layers that hold what moved into them. positions: of all heads, by index;
// null: the last ones.
void Cache::reset(uint32_t n_seen, const uint32_t* positions)
{
    if (m_recipe.retain->counts && m_text.counts)
        std::fill_n(m_text.counts, TextSeen::kBuckets, uint16_t(0));
    count_ids(n_seen - std::min(n_seen, m_text.size), n_seen);
    for (CacheLayer& layer : m_layers) {
        const CacheLayerSpec& s = layer.spec;
        if (!s.table) continue;
        const uint32_t n = s.n_kv_heads * s.n_slots, held = layer.moved.held;
        for (uint32_t h = 0; h < s.n_kv_heads; h++) {
            const uint32_t begin = layer.begin[h] = h * s.n_slots;
            layer.held[h] = held;
            layer.capacity[h] = s.n_slots;
            layer.coded[h] = layer.moved.coded;
            for (uint32_t i = 0; i < s.n_slots; i++)
                layer.slots[begin + i] = layer.slot_after_climb(h, i);
            for (uint32_t i = 0; i < held; i++)
                layer.positions[begin + i] = positions ? *positions++ : n_seen - held + i;
            upload_table(layer, h, 0);
        }
        if (layer.counts) std::fill_n(layer.counts, n, 1u);
        if (layer.weights) std::fill_n(layer.weights, 2ull * n, 0.f);
        for (const Tensor* t : {&layer.kv.weights, &layer.scores, &layer.selection.state})
            if (*t) m_backend->fill(t->buffer, t->offset, 4ull * t->rows * t->cols, 0);
        layer.must_reselect = true;
    }
}

void Cache::keep_pin(const Cache& from)
{
    m_n_pinned = from.m_n_pinned;
    for (CacheLayer& layer : m_layers) pin_layer(layer.spec, m_recipe, m_n_pinned);
}

// Evicts what the layers of another layout have no slots for.
void Cache::squeeze(const Cache& to, uint32_t n_seen)
{
    for (m_il = 0; m_il < n_layers(); m_il++) {
        m_layer = &m_layers[m_il];
        const CacheLayerSpec &s = m_layer->spec, &after = to.m_layers[m_il].spec;
        if (!after.table || after.local || m_layer->held[0] <= after.n_slots) continue;
        m_chunk = &m_chunks[m_layer->chunk_index];
        m_chunk->n = 0;
        m_chunk->position = n_seen;
        for (uint32_t& n : m_moves.n) n = 0;
        EvictionRules rules =
            eviction_rules(after, m_recipe, m_layer->held, 0, m_text.max_distance);
        // Until the climb, what stays lies in the pools of this layout.
        rules.codes = s.n_coded != 0;
        rules.n_plain_first = m_recipe.sink_of(s.n_slots);
        rules.n_plain_last = m_recipe.plain_recent_of(s.n_slots);
        rules.target = std::min(rules.target, s.n_slots - s.slack(m_recipe, true));
        rules.n_recent = std::min(std::max(rules.n_recent, rules.n_plain_last),
                                  rules.target - rules.n_pinned - 1);
        evict(rules);
        make_moves();
    }
}

void Cache::take_over(Cache& from, uint32_t n_seen, const ClimbScratch& scratch)
{
    const bool evicts = !from.m_recipe.exact();
    std::vector<uint32_t> positions;
    for (size_t n = 0, il = 0; evicts && il < m_layers.size(); il++) {
        n += m_layers[il].spec.n_kv_heads * m_layers[il].spec.n_slots;
        positions.reserve(n);
    }
    keep_pin(from);
    if (evicts) from.squeeze(*this, n_seen);
    const Buffer& buffer = m_layers[0].kv.k.buffer;
    const CacheLayer& last = from.m_layers.back();
    const uint64_t from_end =
        pool(last, last.spec.values_in_keys, true).offset +
        coded_bytes(last.kv.coded_v.format, last.kv.coded_v.rows, last.kv.coded_v.cols);
    uint64_t at = m_layers[0].kv.k.offset;
    for (uint32_t il = 0; il < n_layers(); il++) {
        CacheLayer &before = from.m_layers[il], &layer = m_layers[il];
        Moved& m = layer.moved = moved(before, layer, n_seen);
        for (uint32_t h = 0; evicts && before.spec.table && h < before.spec.n_kv_heads; h++) {
            const uint32_t* first = before.positions + before.begin[h] + m.first;
            positions.insert(positions.end(), first, first + m.held);
        }
        for (int keys = 1; keys >= before.spec.values_in_keys; keys--) {
            const uint64_t bytes = pack_plane(before, layer, keys, scratch);
            KS_CHECK(at <= pool(before, keys, false).offset || at >= from_end,
                     "layer %u is overwritten", il);
            m_backend->upload(buffer, at, scratch.host, bytes);
            m.packed_at[keys] = at;
            m.packed_bytes[keys] = bytes;
            at += align_up(bytes, m_backend->align());
        }
    }
    for (uint32_t il = n_layers(); il-- > 0;) {
        const CacheLayer& layer = m_layers[il];
        for (int keys = layer.spec.values_in_keys; keys < 2; keys++) {
            m_backend->download(scratch.host, buffer, layer.moved.packed_at[keys],
                                layer.moved.packed_bytes[keys]);
            place_plane(layer, keys, scratch);
        }
    }
    m_evicted = from.m_evicted;
    m_merged = from.m_merged;
    reset(n_seen, evicts ? positions.data() : nullptr);
}

void Cache::copy(const Cache& from, uint8_t* staging, uint64_t n_staging)
{
    for (uint64_t done = 0, n; done < m_bytes.device; done += n) {
        n = std::min(n_staging, m_bytes.device - done);
        m_backend->download(staging, from.m_memory.buffer, from.m_memory.at + done, n);
        m_backend->upload(m_memory.buffer, m_memory.at + done, staging, n);
    }
    memcpy(m_memory.host, from.m_memory.host, m_bytes.host);
    keep_pin(from);
    m_evicted = from.m_evicted;
    m_merged = from.m_merged;
    for (uint32_t il = 0; il < n_layers(); il++) {
        m_layers[il].must_reselect = from.m_layers[il].must_reselect;
        m_layers[il].moved = from.m_layers[il].moved;
    }
}

} // namespace ks
