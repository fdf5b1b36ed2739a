#include "runtime/model/layer_rows.h"

namespace ks
{

uint64_t LayerRows::row_bytes(const Config& c)
{
    const FormatInfo& info = format_info(c.layer_table.format);
    return uint64_t(c.layer_dim) / info.block * info.block_bytes * c.n_layers();
}

uint64_t LayerRows::tile_bytes(const Config& c, uint32_t n_tokens)
{
    return weight_bytes(c.layer_table.format, uint64_t(n_tokens) * c.n_layers(), c.layer_dim);
}

Status LayerRows::read(const Config& c, const uint32_t* ids, uint32_t n, uint32_t* tiles) const
{
    const uint64_t bytes = row_bytes(c);
    for (uint32_t t = 0; t < n; t++)
        KS_TRY(m_file.read(m_offset + ids[t] * bytes, m_memory + t * bytes, bytes));
    weight_to_tiles(c.layer_table.format, m_memory, n * c.n_layers(), c.layer_dim, tiles);
    return {};
}

} // namespace ks
