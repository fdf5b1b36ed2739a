// The ops on rows of a cache.
#include "backends/vulkan/vulkan_ops.h"

#include <algorithm>

namespace ks
{

static bool has_tail(const Tensor& cache)
{
    return is_coded(cache.format) && codec_info(cache.format).row_bytes(cache.cols) % 4 != 0;
}

// Parts begin at multiples of `step` rows. Rows are whole words, so parts are aligned for the
// device. Groups of rows that are coded together stay whole.
uint32_t VulkanBackend::cache_rows(const Tensor& cache) const
{
    const uint64_t bytes = coded_bytes(cache.format, cache.rows, cache.cols),
                   row = codec_info(cache.format).row_bytes(cache.cols);
    if (bytes <= m_device.limits().range_bytes) return std::max(cache.rows, 1u);
    KS_CHECK(!has_tail(cache), "%s: %llu bytes of rows of %llu, a shader sees %llu at once",
             codec_info(cache.format).name, (unsigned long long)bytes, (unsigned long long)row,
             (unsigned long long)m_device.limits().range_bytes);
    const uint32_t step = std::max(32u, m_device.limits().align / 4);
    return uint32_t(m_device.limits().range_bytes / row / step * step);
}

VulkanBinding VulkanBackend::cache_part(const Tensor& cache, const CachePart& part) const
{
    if (part.n_rows == cache.rows)
        return bytes_of(cache.buffer, cache.offset,
                        coded_bytes(cache.format, cache.rows, cache.cols));
    const uint64_t row = codec_info(cache.format).row_bytes(cache.cols);
    return bytes_of(cache.buffer, cache.offset + part.first_row * row,
                    align_up(part.n_rows * row, 4));
}

// Calls body(part) for every part of a cache that fits into one binding.
template <class Body>
static void for_parts(uint32_t n_rows, uint32_t step, const Body& body)
{
    for (uint32_t row = 0; row < n_rows; row += step)
        body(CachePart{row, std::min(step, n_rows - row), n_rows});
}

void VulkanBackend::kv_write(const KvWriteArgs& a, const KvPair& to, const KvPair& x,
                             const Tensor& table, const Tensor& head_layout)
{
    const uint64_t n = uint64_t(a.n_tokens) * a.n_kv_heads;
    const Tensor* pairs[][2] = {{&to.k, &x.k}, {&to.v, &x.v}};
    for (auto [cache, from] : pairs) {
        if (!*cache) continue;
        KS_CHECK(cache->cols == a.head_dim && cache->rows >= uint64_t(a.n_kv_heads) * a.n_rows,
                 "kv_write: %u heads of %u rows to (%u, %u)", a.n_kv_heads, a.n_rows, cache->rows,
                 cache->cols);
        const Groups groups = threads_for(is_coded(cache->format) ? n : n * a.head_dim);
        for_parts(cache->rows, cache_rows(*cache),
                  [&, cache = cache, from = from](const CachePart& part) {
                      const VulkanBinding bound[] = {
                          cache_part(*cache, part), values(*from, n * a.head_dim),
                          optional(table, table.cols),
                          values(head_layout, uint64_t(a.n_kv_heads) * layout_words)};
                      struct {
                          KvWriteArgs a;
                          CachePart part;
                      } push{a, part};
                      run("kv_write", "", {{codec_number(cache->format), a.head_dim, bool(table)}},
                          push, bound, groups);
                  });
    }
}

void VulkanBackend::kv_read(const KvReadArgs& a, const Tensor& y, const Tensor& from,
                            const Tensor& rows)
{
    KS_CHECK(from.cols == a.head_dim, "kv_read: rows of %u in (%u, %u)", a.head_dim, from.rows,
             from.cols);
    const uint64_t n = uint64_t(a.n) * a.head_dim;
    for_parts(from.rows, cache_rows(from), [&](const CachePart& part) {
        const VulkanBinding bound[] = {values(y, n), cache_part(from, part), values(rows, a.n)};
        struct {
            KvReadArgs a;
            CachePart part;
        } push{a, part};
        run("kv_read", "", {{codec_number(from.format), a.head_dim}}, push, bound, threads_for(n));
    });
}

void VulkanBackend::kv_move(const KvMoveArgs& a, const Tensor& to, const Tensor& from,
                            const Tensor& moves)
{
    KS_CHECK(to.format == from.format || (is_coded(to.format) && !is_coded(from.format)),
             "kv_move: format %d to %d", int(from.format), int(to.format));
    KS_CHECK(to.cols == a.head_dim && from.cols == a.head_dim, "kv_move: rows of %u, %u, %u",
             a.head_dim, to.cols, from.cols);
    for_parts(to.rows, cache_rows(to), [&](const CachePart& to_part) {
        // A group is encoded from rows anywhere in `from`, so `from` is bound whole.
        const uint32_t group = codec_info(to.format).group,
                       step = group > 1 && to.format != from.format ? from.rows : cache_rows(from);
        for_parts(from.rows, step, [&](const CachePart& part) {
            const VulkanBinding bound[] = {cache_part(to, to_part), cache_part(from, part),
                                           values(moves, 2ull * a.n_moves)};
            struct {
                KvMoveArgs a;
                CachePart to, part;
            } push{a, to_part, part};
            run("kv_move", "", {{codec_number(to.format), a.head_dim, codec_number(from.format)}},
                push, bound, group > 1 ? Groups{a.n_moves / group} : threads_for(a.n_moves));
        });
    });
}

} // namespace ks
