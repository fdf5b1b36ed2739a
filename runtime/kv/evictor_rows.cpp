// Rows of slots on the host: read, merged, and written back.
#include "runtime/kv/evictor.h"

#include "runtime/kv/policies/merge.h"

#include <algorithm>

namespace ks
{

constexpr uint8_t kChanged = 2, kMerged = 3; // of Head::keep, while victims merge: what takes one in, and the victim

// body(pool, rows, at, n) for runs of indexes [begin, end) with keep >= `kept` whose keys or values lie in one pool: `rows` of it,
// indexes `at`.
template <class Body> void Evictor::for_runs(const Case& c, uint32_t h, Range range, bool values, uint8_t kept, const Body& body)
{
    const Head& head = m_heads[h];
    const uint32_t held = c.layer.held[h], *slots = head.rows;
    const KvSlots& pools = c.layer.slots;
    for (uint32_t i = range.begin, end; i < range.end; i = end) {
        const bool in_chunk = i >= held, coded = !in_chunk && c.layer.in_coded_pool(slots[i]);
        const Tensor& pool = in_chunk ? (values ? c.chunk.v : c.chunk.k)
                             : coded  ? (values ? pools.coded_v : pools.coded_k)
                                      : (values ? pools.v : pools.k);
        uint32_t rows[kReadRows], at[kReadRows], n = 0;
        for (end = i; end < (in_chunk ? range.end : std::min(held, range.end)) && n < m_n_read; end++) {
            if (!in_chunk && c.layer.in_coded_pool(slots[end]) != coded) break;
            if (head.keep[end] < kept) continue;
            at[n] = end;
            rows[n++] = slots[end] - (coded ? c.layer.first_coded() : 0);
        }
        if (n) body(pool, rows, at, n);
    }
}

// Of these indexes those with keep >= `kept` as f32, out (range, head_dim) by index; the rest of it is used up.
void Evictor::read_rows(const Case& c, uint32_t h, Range range, bool values, uint8_t kept, float* out)
{
    const uint32_t head_dim = c.layer.spec.head_dim;
    const auto place = [&](uint32_t index) { return out + uint64_t(index - range.begin) * head_dim; };
    for_runs(c, h, range, values, kept, [&](const Tensor& from, const uint32_t* rows, const uint32_t* at, uint32_t n) {
        float* first = place(at[0]);
        c.backend.upload(m_read_rows.buffer, m_read_rows.offset, rows, 4ull * n);
        c.backend.kv_read({n, head_dim}, m_read, from, m_read_rows);
        c.backend.download(first, m_read.buffer, m_read.offset, 4ull * n * head_dim);
        for (uint32_t k = n; k-- > 0 && at[k] != at[0] + k;) // the last first, since they move apart
            std::copy_n(first + uint64_t(k) * head_dim, head_dim, place(at[k]));
    });
}

void Evictor::write_rows(const Case& c, const Tensor& to, const uint32_t* rows, uint32_t n, const float* values)
{
    const uint32_t view[view_words] = {};
    c.backend.upload(m_read.buffer, m_read.offset, values, 4ull * n * to.cols);
    c.backend.upload(m_read_rows.buffer, m_read_rows.offset, rows, 4ull * n);
    c.backend.upload(m_read_view.buffer, m_read_view.offset, view, sizeof view);
    c.backend.kv_write({n, 1, to.cols, to.rows, 0, 0}, {to, {}}, {m_read, {}}, m_read_rows, m_read_view);
}

// Writes what changed of rows (n, head_dim) by index, and uses them up. Tokens of the chunk are still in the chunk, so their rows
// there change.
void Evictor::write_changed(const Case& c, uint32_t h, bool values, float* from)
{
    const uint32_t head_dim = c.layer.spec.head_dim;
    for_runs(c, h, all_of(h), values, kChanged, [&](const Tensor& to, const uint32_t* rows, const uint32_t* at, uint32_t n) {
        float* first = from + uint64_t(at[0]) * head_dim;
        for (uint32_t k = 1; k < n; k++) std::copy_n(from + uint64_t(at[k]) * head_dim, head_dim, first + uint64_t(k) * head_dim);
        write_rows(c, to, rows, n, first);
    });
}

void Evictor::write_slot(const Case& c, uint32_t slot, const float* key, const float* value)
{
    const bool coded = c.layer.in_coded_pool(slot);
    const uint32_t row = slot - (coded ? c.layer.first_coded() : 0);
    write_rows(c, coded ? c.layer.slots.coded_k : c.layer.slots.k, &row, 1, key);
    write_rows(c, coded ? c.layer.slots.coded_v : c.layer.slots.v, &row, 1, value);
}

// What a token stands for, by index; those of the chunk for themselves.
void Evictor::count_tokens(const Case& c, uint32_t h)
{
    const Head& head = m_heads[h];
    for (uint32_t i = head.first; i < head.n; i++) head.order[i] = i < c.layer.held[h] ? c.layer.counts[head.rows[i]] : 1;
}

// Victims go into the nearest slot that stays, where one is near enough.
void Evictor::merge_victims(const Case& c, uint32_t h, bool keys_are_read)
{
    Head& head = m_heads[h];
    const uint32_t head_dim = c.layer.spec.head_dim, end = head.n - c.recent;
    count_tokens(c, h);
    if (!keys_are_read) read_rows(c, h, all_of(h), false, 0, m_keys);
    uint32_t n_targets = 0;
    for (uint32_t i = c.pinned; i < end; i++)
        if (head.keep[i] && !is_frame(c, h, i)) m_targets[n_targets++] = i;
    MergeTargets targets{m_keys, m_targets, m_norms, n_targets, head_dim};
    for (uint32_t t = 0; t < n_targets; t++) targets.set(t);
    uint32_t *counts = head.order, *into = m_targets + n_targets, n_merged = 0; // into: (n_merged)
    float* shares = head.score;                                                 // (n_merged), scores are no longer needed
    for (uint32_t i = c.pinned; i < end; i++) {
        if (head.keep[i] || is_frame(c, h, i)) continue;
        const float* key = m_keys + uint64_t(i) * head_dim;
        const uint32_t target = targets.nearest(key);
        if (target == kNoTarget) continue;
        const uint32_t at = into[n_merged] = m_targets[target];
        shares[n_merged] = share_of(counts[i], counts[at]);
        take_in(m_keys + uint64_t(at) * head_dim, key, shares[n_merged++], head_dim);
        targets.set(target);
        counts[at] += counts[i];
        head.keep[at] = kChanged;
        head.keep[i] = kMerged;
    }
    read_rows(c, h, all_of(h), true, kChanged, m_values);
    for (uint32_t i = c.pinned, k = 0; k < n_merged; i++) {
        if (head.keep[i] != kMerged) continue;
        head.keep[i] = 0;
        take_in(m_values + uint64_t(into[k]) * head_dim, m_values + uint64_t(i) * head_dim, shares[k], head_dim);
        k++;
    }
    m_counts.merged += n_merged;
    write_changed(c, h, false, m_keys);
    write_changed(c, h, true, m_values);
}

} // namespace ks
