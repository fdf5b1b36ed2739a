// A climb re-encodes the contents of one layout of the cache into another of the same bytes.
//   1. Plane by plane in the order of addresses, the new codes are packed at the front of the
//   bytes.
//      They are no longer than the plane that they come from, so no row is overwritten unread.
//   2. In the reverse order, each packed plane goes to its place, which is at or behind it.
//   3. The tables are written anew. They may overlap those of the old layout, which nothing reads
//      after step 1.
#include "runtime/kv/cache.h"

#include <algorithm>

namespace ks
{

constexpr uint32_t kMostRows = 1024; // of a batch

struct PoolRow {
    bool coded;
    uint32_t row;
};

static PoolRow of_slot(const CacheLayer& layer, uint32_t slot)
{
    return {layer.in_coded_pool(slot), layer.row_of(slot)};
}

static PoolRow row_before(const CacheLayer& from, uint32_t h, uint32_t index)
{
    const CacheLayerSpec& s = from.spec;
    return s.table ? of_slot(from, from.slots[from.begin[h] + index])
                   : PoolRow{false, ring_slot(h, index, s.n_slots, s.n_pinned)};
}

static PoolRow row_after(const CacheLayer& to, uint32_t h, uint32_t index)
{
    const Moved& m = to.moved;
    return to.spec.table ? of_slot(to, to.slot_in_order(h, index, m.held, m.coded))
                         : PoolRow{false, ring_slot(h, m.first + index, to.spec.n_slots, 0)};
}

static const Tensor& pool(const CacheLayer& layer, bool keys, bool coded)
{
    const KvSlots& kv = layer.kv;
    return keys ? (coded ? kv.coded_k : kv.k) : (coded ? kv.coded_v : kv.v);
}

static uint64_t packed_bytes(const CacheLayer& to, bool keys)
{
    const auto row_bytes = [&](bool coded) {
        const Tensor& t = pool(to, keys, coded);
        return uint64_t(codec_info(t.format).row_bytes(t.cols));
    };
    const Moved& m = to.moved;
    return to.spec.n_kv_heads * (m.coded * row_bytes(true) + (m.held - m.coded) * row_bytes(false));
}

// Calls body(head, index, n, row) for batches of indexes in order: all coded before or none, and in
// consecutive rows now.
template <class Body>
static void for_batches(const CacheLayer& to, uint32_t most, Body body)
{
    const Moved& m = to.moved;
    const auto was_coded = [&](uint32_t i) { return i >= m.coded_begin && i < m.coded_end; };
    for (uint32_t h = 0; h < to.spec.n_kv_heads; h++) {
        for (uint32_t i = 0, n; i < m.held; i += n) {
            const PoolRow row = row_after(to, h, i);
            for (n = 1; i + n < m.held && n < most && was_coded(i + n) == was_coded(i); n++) {
                const PoolRow next = row_after(to, h, i + n);
                if (next.coded != row.coded || next.row != row.row + n) break;
            }
            body(h, i, n, row);
        }
    }
}

static uint32_t batch_rows(const CacheLayer& to, const ClimbScratch& s)
{
    const auto rows = [](const Tensor& t, uint32_t cols) {
        return uint32_t(std::min<uint64_t>(kMostRows, uint64_t(t.rows) * t.cols / cols));
    };
    const uint32_t head_dim = to.spec.head_dim;
    return std::min({rows(s.values, head_dim), rows(s.codes, head_dim), rows(s.rows, 2)});
}

uint64_t Cache::plane_bytes(const std::vector<CacheLayerSpec>& specs)
{
    uint64_t most = 0;
    for (const CacheLayerSpec& s : specs) {
        const uint32_t coded =
            std::max(codec_info(s.k).row_bytes(s.head_dim), codec_info(s.v).row_bytes(s.head_dim));
        most = std::max(most, s.n_kv_heads * (uint64_t(s.n_coded) * coded +
                                              uint64_t(s.n_plain()) * 2 * s.head_dim));
    }
    return most;
}

// Which tokens of a layer move: all, or the last ones that fit a window.
static Moved moved(const CacheLayer& from, const CacheLayer& to, uint32_t n_seen)
{
    const CacheLayerSpec &s = from.spec, &t = to.spec;
    const bool table = s.table;
    const uint32_t held = table ? from.held[0] : std::min(n_seen, s.n_slots),
                   room = t.n_slots - (t.table && t.local ? t.slack(to.recipe, true) : 0);
    Moved m;
    m.held = std::min(held, room);
    m.first = (table ? held : n_seen) - m.held;
    KS_CHECK(t.local || m.held == held, "%u tokens climb into %u slots", held, t.n_slots);
    const uint32_t begin = table ? from.recipe.sink_of(s.n_slots) : 0,
                   end = table ? begin + from.coded[0] : 0;
    m.coded_begin = begin - std::min(begin, m.first);
    m.coded_end = end - std::min(end, m.first);
    const uint32_t first = std::min(m.held, to.recipe.sink_of(t.n_slots));
    const uint32_t last =
        std::min(to.recipe.plain_recent_of(t.n_slots), m.held - std::max(first, m.coded_end));
    m.coded = std::min(t.n_coded, m.held - first - last);
    return m;
}

// Encodes a plane to the host and returns its bytes.
uint64_t Cache::pack_plane(const CacheLayer& from, const CacheLayer& to, bool keys,
                           const ClimbScratch& scratch) const
{
    const uint32_t head_dim = to.spec.head_dim;
    const bool transforms = keys ? to.spec.hadamard_keys() && !from.spec.hadamard_keys()
                                 : to.spec.hadamard_values() && !from.spec.hadamard_values();
    uint8_t* out = scratch.host;
    for_batches(to, batch_rows(to, scratch), [&](uint32_t h, uint32_t i, uint32_t n, PoolRow now) {
        uint32_t list[2 * kMostRows];
        const PoolRow before = row_before(from, h, to.moved.first + i);
        const Tensor& source = pool(from, keys, before.coded);
        const Format format = pool(to, keys, now.coded).format;
        const bool moves = !transforms && (!before.coded || source.format == format);
        for (uint32_t k = 0; k < n; k++) {
            const uint32_t row = row_before(from, h, to.moved.first + i + k).row;
            list[moves ? 2 * k : k] = row;
            if (moves) list[2 * k + 1] = k;
        }
        const auto part = [](const Tensor& t, uint32_t rows, uint32_t cols, Format f) {
            return Tensor{t.buffer, t.offset, rows, cols, f};
        };
        const Tensor codes = part(scratch.codes, n, head_dim, format),
                     values = part(scratch.values, n, head_dim, Format::f32),
                     rows = moves ? part(scratch.rows, n, 2, Format::f32)
                                  : part(scratch.rows, 1, n, Format::f32);
        m_backend->upload(rows.buffer, rows.offset, list, 4ull * rows.rows * rows.cols);
        if (moves) {
            m_backend->kv_move({n, head_dim}, codes, source, rows);
        } else {
            m_backend->kv_read({n, head_dim}, values, source, rows);
            const RopeTarget hadamard{{n, 1, head_dim, 0, 0, 0, 1}, values, values, {}};
            if (transforms) m_backend->rope(&hadamard, 1);
            // What the layout says is of no account: the rows are those of a staged chunk.
            m_backend->kv_write({n, 1, head_dim, n, 0, 1}, {codes, {}}, {values, {}}, {},
                                part(scratch.rows, 1, layout_words, Format::f32));
        }
        const uint64_t bytes = uint64_t(n) * codec_info(format).row_bytes(head_dim);
        m_backend->download(out, codes.buffer, codes.offset, bytes);
        out += bytes;
    });
    return uint64_t(out - scratch.host);
}

// Brings a plane from the host to its rows. Each batch has its words, then its tails.
void Cache::place_plane(const CacheLayer& to, bool keys, const ClimbScratch& scratch) const
{
    const uint8_t* in = scratch.host;
    for_batches(to, batch_rows(to, scratch), [&](uint32_t, uint32_t, uint32_t n, PoolRow row) {
        const Tensor& t = pool(to, keys, row.coded);
        const uint64_t tail = tail_bytes(t.format, t.cols),
                       words = codec_info(t.format).row_bytes(t.cols) - tail;
        m_backend->upload(t.buffer, t.offset + row.row * words, in, n * words);
        if (tail)
            m_backend->upload(t.buffer, t.offset + t.rows * words + row.row * tail, in + n * words,
                              n * tail);
        in += n * (words + tail);
    });
}

void Cache::keep_pin(const Cache& from)
{
    m_n_pinned = from.m_n_pinned;
    for (CacheLayer& layer : m_layers) pin_layer(layer.spec, m_recipe, m_n_pinned);
}

void Cache::take_over(const Cache& from, uint32_t n_seen, const ClimbScratch& scratch)
{
    const Buffer& buffer = m_layers[0].kv.k.buffer;
    const uint64_t align = m_backend->align();
    uint64_t at = m_layers[0].kv.k.offset;
    for (uint32_t il = 0; il < n_layers(); il++) {
        const CacheLayer& before = from.m_layers[il];
        m_layers[il].moved = moved(before, m_layers[il], n_seen);
        for (int keys = 1; keys >= int(before.spec.values_in_keys); keys--) {
            const uint64_t bytes = pack_plane(before, m_layers[il], keys, scratch);
            const Tensor &first = pool(before, keys, false), &last = pool(before, keys, true),
                         &end = last ? last : first;
            KS_CHECK(at <= first.offset &&
                         at + bytes <= end.offset + coded_bytes(end.format, end.rows, end.cols),
                     "layer %u climbs into %llu bytes", il, (unsigned long long)bytes);
            m_backend->upload(buffer, at, scratch.host, bytes);
            at += align_up(bytes, align);
        }
    }
    for (uint32_t il = n_layers(); il-- > 0;) {
        const CacheLayer& layer = m_layers[il];
        for (int keys = layer.spec.values_in_keys; keys < 2; keys++) {
            const uint64_t bytes = packed_bytes(layer, keys);
            at -= align_up(bytes, align);
            m_backend->download(scratch.host, buffer, at, bytes);
            place_plane(layer, keys, scratch);
        }
    }
    keep_pin(from);
    m_evicted = from.m_evicted;
    m_merged = from.m_merged;
    reset(n_seen);
}

} // namespace ks
