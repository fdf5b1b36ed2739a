#include "runtime/kv/rows.h"

#include <algorithm>

namespace ks
{

void RowTransfer::place(uint32_t n, uint32_t head_dim, Placer& device)
{
    m_n = n;
    m_values = device.take(n, head_dim);
    m_rows = device.take(1, n);
    m_head_layout = device.take(1, n ? layout_words : 0);
}

// Calls body(pool, rows, indexes, n) for runs of wanted indexes whose rows lie in one pool.
template <class Body>
void RowTransfer::for_runs(const HeadRows& of, KeyOrValue what, uint32_t begin, uint32_t end,
                           const uint8_t* wanted, const Body& body)
{
    const bool keys = what == KeyOrValue::key;
    const KvSlots& kv = of.layer.kv;
    const uint32_t n_held = of.candidates.n_held, *slots = of.candidates.slots;
    for (uint32_t i = begin, next; i < end; i = next) {
        const bool in_chunk = i >= n_held, coded = !in_chunk && of.layer.in_coded_pool(slots[i]);
        const Tensor& pool = in_chunk ? (keys ? of.chunk.k : of.chunk.v)
                             : coded  ? (keys ? kv.coded_k : kv.coded_v)
                                      : (keys ? kv.k : kv.v);
        const uint32_t part_end = in_chunk ? end : std::min(n_held, end);
        uint32_t rows[kMostAtOnce], indexes[kMostAtOnce], n = 0;
        for (next = i; next < part_end && n < m_n; next++) {
            if (!in_chunk && of.layer.in_coded_pool(slots[next]) != coded) break;
            if (wanted && !wanted[next]) continue;
            indexes[n] = next;
            rows[n++] = in_chunk ? of.chunk_row(next) : of.layer.row_of(slots[next]);
        }
        if (n) body(pool, rows, indexes, n);
    }
}

void RowTransfer::read(const HeadRows& from, KeyOrValue what, uint32_t begin, uint32_t end,
                       const uint8_t* wanted, float* out)
{
    const uint32_t head_dim = from.layer.spec.head_dim;
    const auto location_of = [&](uint32_t index) {
        return out + uint64_t(index - begin) * head_dim;
    };
    for_runs(from, what, begin, end, wanted,
             [&](const Tensor& pool, const uint32_t* rows, const uint32_t* indexes, uint32_t n) {
                 float* first = location_of(indexes[0]);
                 from.backend.upload(m_rows.buffer, m_rows.offset, rows, 4ull * n);
                 from.backend.kv_read({n, head_dim}, m_values, pool, m_rows);
                 from.backend.download(first, m_values.buffer, m_values.offset,
                                       4ull * n * head_dim);
                 // Spreads the packed rows. Each moves to a later place, so the last one goes
                 // first.
                 for (uint32_t k = n; k-- > 0 && indexes[k] != indexes[0] + k;)
                     std::copy_n(first + uint64_t(k) * head_dim, head_dim, location_of(indexes[k]));
             });
}

void RowTransfer::write_rows(Backend& backend, const Tensor& to, const uint32_t* rows, uint32_t n,
                             const float* values)
{
    const uint32_t head_layout[layout_words] = {};
    backend.upload(m_values.buffer, m_values.offset, values, 4ull * n * to.cols);
    backend.upload(m_rows.buffer, m_rows.offset, rows, 4ull * n);
    backend.upload(m_head_layout.buffer, m_head_layout.offset, head_layout, sizeof head_layout);
    backend.kv_write({n, 1, to.cols, to.rows, 0, 0}, {to, {}}, {m_values, {}}, m_rows,
                     m_head_layout);
}

void RowTransfer::write(const HeadRows& to, KeyOrValue what, uint32_t end, const uint8_t* wanted,
                        float* values)
{
    const uint32_t head_dim = to.layer.spec.head_dim;
    for_runs(to, what, 0, end, wanted,
             [&](const Tensor& pool, const uint32_t* rows, const uint32_t* indexes, uint32_t n) {
                 float* first = values + uint64_t(indexes[0]) * head_dim;
                 for (uint32_t k = 1; k < n; k++)
                     std::copy_n(values + uint64_t(indexes[k]) * head_dim, head_dim,
                                 first + uint64_t(k) * head_dim);
                 write_rows(to.backend, pool, rows, n, first);
             });
}

void RowTransfer::write_slot(Backend& backend, const CacheLayer& layer, uint32_t slot,
                             const float* key, const float* value)
{
    const bool coded = layer.in_coded_pool(slot);
    const uint32_t row = layer.row_of(slot);
    write_rows(backend, coded ? layer.kv.coded_k : layer.kv.k, &row, 1, key);
    write_rows(backend, coded ? layer.kv.coded_v : layer.kv.v, &row, 1, value);
}

} // namespace ks
