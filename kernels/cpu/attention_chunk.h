// The chunk kernel: several tokens over slots. Keys and values of a tile are copied to f32 panels
// once. Six queries at a time multiply with them.
#pragma once

#include "kernels/cpu/attention_block.h"

namespace ks
{
namespace // as in simd_avx2.h
{

// The address and the format of each column's row.
struct ColumnRows {
    const uint8_t* at[kAttentionTile];
    bool half[kAttentionTile];

    template <class S>
    static KS_INLINE ColumnRows of(const AttentionTask& task, const TileRows& tile, bool keys,
                                   float* scratch_space)
    {
        ColumnRows rows;
        for (uint32_t part = 0; part < tile.n_parts; part++) {
            const Part& p = tile.parts[part];
            float* at = scratch_space + size_t(p.begin) * task.a.head_dim;
            rows.add(task, p,
                     keys ? part_keys<S>(task, tile, p, at) : PartRows(task, tile, p, false, at));
        }
        return rows;
    }
    KS_INLINE void add(const AttentionTask& task, const Part& p, const PartRows& from)
    {
        const size_t row_bytes = size_t(task.a.head_dim) * (from.half ? 2 : 4);
        for (uint32_t i = p.begin; i < p.end; i++) {
            at[i] = static_cast<const uint8_t*>(from.data) + from.rows[i - p.begin] * row_bytes;
            half[i] = from.half;
        }
    }
    template <class S>
    KS_INLINE typename S::F8 load(uint32_t column, uint32_t d) const
    {
        return half[column] ? load_cached<S, true>(at[column], d)
                            : load_cached<S, false>(at[column], d);
    }
};

// Writes the keys of a tile's n columns to panels. Zeros fill the columns up to a multiple of
// eight.
template <class S>
void load_keys(const AttentionTask& task, const ChunkScratch& s, const TileRows& tile, uint32_t n)
{
    const uint32_t head_dim = task.a.head_dim;
    const ColumnRows rows = ColumnRows::of<S>(task, tile, true, s.decoded);
    for (uint32_t p = 0; p < n; p += 8) {
        float* panel = s.keys + size_t(p / kPanel) * s.width * kPanel + p % kPanel;
        bool half = n - p >= 8;
        for (uint32_t i = p; half && i < p + 8; i++) half = rows.half[i];
        for (uint32_t d = 0; d < head_dim; d += 8) {
            typename S::F8 block[8];
            if (half) {
                KS_UNROLL(8)
                for (uint32_t i = 0; i < 8; i++) block[i] = load_cached<S, true>(rows.at[p + i], d);
            } else {
                for (uint32_t i = 0; i < 8; i++)
                    block[i] = p + i < n ? rows.load<S>(p + i, d) : S::zero();
            }
            S::transpose(block);
            KS_UNROLL(8)
            for (uint32_t i = 0; i < 8; i++) S::store(panel + size_t(d + i) * kPanel, block[i]);
        }
    }
}

// Writes the values of a tile's n columns to panels. Columns in the hole become zero: their weight
// is zero, but zero times infinity is NaN.
template <class S>
void load_values(const AttentionTask& task, const ChunkScratch& s, const TileRows& tile,
                 const Columns& c, uint32_t n)
{
    const uint32_t head_dim = task.a.head_dim;
    const ColumnRows rows = ColumnRows::of<S>(task, tile, false, s.decoded);
    for (uint32_t p = 0; p < n; p++) {
        const bool seen = p < c.hole || p >= c.begin;
        for (uint32_t d = 0; d < head_dim; d += 8)
            S::store(s.values + (size_t(d / kPanel) * kAttentionTile + p) * kPanel + d % kPanel,
                     seen ? rows.load<S>(p, d) : S::zero());
    }
}

// The softmax of a chunk's rows, with one maximum and one norm each.
template <class S>
struct ChunkSoftmax {
    const ChunkScratch& s;

    void begin(uint32_t r) const
    {
        s.top[r] = s.total_top[r] = kLowest;
        s.norm[r] = s.total_norm[r] = 0;
    }
    void begin_tile(const TileRows&, uint32_t) {}
    // Called before take_rows(r, ..), with the logits in s.weights.
    void begin_rows(uint32_t) const {}
    // to_weights of rows r .. r + 5 for n columns from `first` on.
    KS_INLINE void take_rows(uint32_t r, uint32_t first, uint32_t n, const Columns* seen,
                             float* shrink) const
    {
        block_to_weights<S>(s.weights + first, n, seen, s.top + r, s.norm + r, shrink);
    }
    // Ends a group of indexes: adds its sums to the totals and resets them.
    void combine_row(uint32_t r, uint32_t head_dim) const
    {
        combine<S>(s.total_sums(r), s.group_sums(r), head_dim);
        s.top[r] = kLowest;
        s.norm[r] = 0;
    }
    void finish_row(uint32_t r, uint32_t head_dim, float* y, float* lse) const
    {
        finish<S>(s.total_sums(r), head_dim, y, lse);
    }
};

template <class S, class Softmax>
void combine_rows(const ChunkScratch& s, Softmax& softmax, uint32_t n_rows, uint32_t head_dim)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        softmax.combine_row(r, head_dim);
        for (uint32_t d = 0; d < head_dim; d += 8)
            S::store(s.out + size_t(r) * s.width + d, S::zero());
    }
}

// Attention of rows r0 .. r0 + 5 of the chunk over a tile of n columns, the first of which has
// index p. A row is a token and a head.
template <class S, class Softmax>
void block_rows(const AttentionTask& task, const Visibility& visibility, const ChunkScratch& s,
                Softmax& softmax, uint32_t token, uint32_t r0, uint32_t n_rows, uint32_t p,
                uint32_t n)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads;
    auto columns = [&](uint32_t i) {
        return Columns(visibility, token + (r0 + i < n_rows ? r0 + i : n_rows - 1) / group, p, n);
    };
    const Columns seen[kRowBlock] = {columns(0), columns(1), columns(2),
                                     columns(3), columns(4), columns(5)};
    uint32_t first = n, end = 0; // the columns that any row of the block sees
    for (const Columns& c : seen) {
        if (!c.any()) continue;
        first = c.first() < first ? c.first() : first;
        end = c.end > end ? c.end : end;
    }
    if (first >= end) return;
    const uint32_t left = first / kPanel, right = (end + kPanel - 1) / kPanel, at = left * kPanel;
    block_logits_of_panels<S>(s, r0, task.a.head_dim, left, right,
                              columns_before(task.a.n_clamped, p, n));
    softmax.begin_rows(r0);
    const uint32_t n_columns = right * kPanel - at;
    for (uint32_t i = 0; i < kRowBlock; i++)
        cap_logits<S>(task, s.weights + i * kAttentionTile + at, n_columns);
    const Columns from_at[kRowBlock] = {seen[0].from(at), seen[1].from(at), seen[2].from(at),
                                        seen[3].from(at), seen[4].from(at), seen[5].from(at)};
    float shrink[kRowBlock];
    softmax.take_rows(r0, at, n_columns, from_at, shrink);
    float* out = s.out + size_t(r0) * s.width;
    const uint32_t n_panels = s.width / kPanel;
    uint32_t panel = 0;
    for (; panel + kPanels<S> <= n_panels; panel += kPanels<S>)
        block_outputs<S, kPanels<S>>(s, out, shrink, panel, first, end);
    for (; panel < n_panels; panel++) block_outputs<S, 1>(s, out, shrink, panel, first, end);
}

// Loads n queries from `row` on, in order of token and head, scaled for logits of base 2. Rows
// after the last one are copies of it.
template <class S>
void load_queries(const AttentionTask& task, const ChunkScratch& s, uint32_t kv_head,
                  uint32_t token, uint32_t row, uint32_t n, uint32_t n_rows)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads, head_dim = task.a.head_dim;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t r = row + i < n_rows ? row + i : n_rows - 1;
        const size_t from =
            (size_t(token + r / group) * task.a.n_heads + kv_head * group + r % group) * head_dim;
        for (uint32_t d = 0; d < head_dim; d += 8) {
            S::store(s.q + size_t(i) * s.width + d,
                     S::load(task.q + from + d) * S::broadcast(task.a.scale * kLog2e));
            if (task.a.n_clamped)
                S::store(s.q_clamped + size_t(i) * s.width + d,
                         S::load(task.q_clamped + from + d) * S::broadcast(task.a.scale * kLog2e));
        }
        const uint32_t index =
            task.head_layout[kv_head * layout_words + layout_n_held] + token + r / group;
        rope_on_read<S>(task, index, s.q + size_t(i) * s.width);
    }
}

template <class S, class Softmax>
void chunk_rows(const AttentionTask& task, uint32_t kv_head, uint32_t token, uint32_t n_tokens,
                const ChunkScratch& s, Softmax& softmax)
{
    const uint32_t head_dim = task.a.head_dim, group = task.a.n_heads / task.a.n_kv_heads,
                   n_rows = n_tokens * group;
    const Visibility visibility(task, kv_head);
    // Rows from n_rows on are computed, but not used.
    const uint32_t n_padded = (n_rows + kRowBlock - 1) / kRowBlock * kRowBlock;
    load_queries<S>(task, s, kv_head, token, 0, n_padded, n_rows);
    for (uint32_t r = 0; r < n_padded; r++) {
        for (uint32_t d = 0; d < s.width; d += 8) {
            S::store(s.out + size_t(r) * s.width + d, S::zero());
            S::store(s.total + size_t(r) * s.width + d, S::zero());
        }
        softmax.begin(r);
    }

    const uint32_t end = visibility.before + token + n_tokens;
    uint32_t p =
        visibility.n_pinned ? 0 : visibility.first(token) / kAttentionTile * kAttentionTile;
    for (uint32_t in_group = p / kAttentionGroup; p < end; p = next_tile(visibility, token, p)) {
        if (p / kAttentionGroup != in_group) combine_rows<S>(s, softmax, n_rows, head_dim);
        in_group = p / kAttentionGroup;
        const uint32_t n = end - p < kAttentionTile ? end - p : kAttentionTile;
        const TileRows rows(task, visibility, kv_head, p, n, 0);
        load_keys<S>(task, s, rows, n);
        load_values<S>(task, s, rows, Columns(visibility, token, p, n), n);
        softmax.begin_tile(rows, n);
        for (uint32_t r0 = 0; r0 < n_rows; r0 += kRowBlock)
            block_rows<S>(task, visibility, s, softmax, token, r0, n_rows, p, n);
    }
    combine_rows<S>(s, softmax, n_rows, head_dim);
    for (uint32_t r = 0; r < n_rows; r++) {
        const size_t row = size_t(token + r / group) * task.a.n_heads + kv_head * group + r % group;
        softmax.finish_row(r, head_dim, task.y + row * head_dim,
                           task.lse ? task.lse + row : nullptr);
    }
}

template <class S>
void attention_chunk(const AttentionTask& task, uint32_t kv_head, uint32_t token, uint32_t n_tokens,
                     float* scratch)
{
    const ChunkScratch s(scratch, task.a.head_dim);
    ChunkSoftmax<S> softmax{s};
    chunk_rows<S>(task, kv_head, token, n_tokens, s, softmax);
}

} // namespace
} // namespace ks
