// Attention of the query heads of one KV head over slots, by tiles of indexes with running maxima.
//   chunk  several tokens (attention_chunk.h)
//   split  one token, one group of indexes (attention_split.h)
// Both add in the same order, so decode and prefill give equal bits, except for the keys that
// codecs/sums.h names. A logit is eight sums over every eighth dim, added as sums8 does. A running
// maximum lasts for one group of kAttentionGroup indexes. Groups are combined in order.
// Logits are in units of log2, so exp2 needs no reduction by ln 2.
#pragma once

#include "kernels/cpu/rope.h"
#include "kernels/cpu/vector_math.h"

#include <math.h>

namespace ks
{
namespace // as in simd_avx2.h
{

constexpr float kLog2e = 1.442695041f;
constexpr uint32_t kRowBlock = 6; // queries of a block: with 16 columns, 12 sums in registers
constexpr uint32_t kPanel = 16;   // columns of a panel
constexpr float kLowest = -3.4e38f;

// What the tokens of one KV head see (kernels/common/slots.h).
struct Visibility {
    uint32_t before, oldest, n_pinned, window;

    KS_INLINE Visibility(const AttentionTask& task, uint32_t kv_head)
        : before(task.head_layout[kv_head * layout_words + layout_n_held]),
          n_pinned(task.a.n_pinned), window(task.a.window)
    {
        oldest = oldest_index(task.table != nullptr, before, task.a.n_tokens, task.a.chunk_rows,
                              task.a.n_rows, task.a.n_pinned);
    }
    // The first visible index beside the pinned ones.
    KS_INLINE uint32_t first(uint32_t token) const
    {
        const uint32_t first = window_begin(before + token, window);
        return first > oldest ? first : oldest;
    }
    KS_INLINE uint32_t n_visible(uint32_t token) const
    {
        const uint32_t begin = first(token);
        return before + token + 1 - (begin > n_pinned ? begin - n_pinned : 0);
    }
};

// How many of the n columns from index `tile` on come before `index`.
KS_INLINE static uint32_t columns_before(uint32_t index, uint32_t tile, uint32_t n)
{
    return index <= tile ? 0 : index < tile + n ? index - tile : n;
}

// The columns of a tile that one token sees: [0, end) but not [hole, begin).
struct Columns {
    uint32_t hole, begin, end;

    KS_INLINE Columns(const Visibility& visibility, uint32_t token, uint32_t tile, uint32_t n)
    {
        hole = columns_before(visibility.n_pinned, tile, n);
        begin = columns_before(visibility.first(token), tile, n);
        end = columns_before(visibility.before + token + 1, tile, n);
        if (begin < hole) begin = hole;
    }
    KS_INLINE uint32_t first() const { return hole ? 0 : begin; }
    // The same columns, counted from `column` on.
    KS_INLINE Columns from(uint32_t column) const
    {
        const auto at = [&](uint32_t i) { return i > column ? i - column : 0; };
        Columns c = *this;
        c.hole = at(hole);
        c.begin = at(begin);
        c.end = at(end);
        return c;
    }
    KS_INLINE bool any() const { return end > first(); }
};

// The tile after the one at p. Tiles that no token from `token` on sees are skipped.
KS_INLINE static uint32_t next_tile(const Visibility& visibility, uint32_t token, uint32_t p)
{
    p += kAttentionTile;
    const uint32_t first = visibility.first(token) / kAttentionTile * kAttentionTile;
    return p >= visibility.n_pinned && p < first ? first : p;
}

// Columns [begin, end) of a tile, which lie in one place and meet the same queries.
struct Part {
    enum Place : uint8_t { pool, coded, chunk };
    uint32_t begin, end;
    Place place;
    bool q_clamped; // whether they meet the clamped queries
};

// The rows of a tile's columns, n indexes from p on. Columns from n_pool on are rows of the staged
// chunk. Parts are in the order of the columns.
struct TileRows {
    uint32_t rows[2 * kAttentionTile];
    uint32_t first; // index of the first column
    uint32_t n_pool, n_parts = 0;
    uint32_t n_known;     // rows of the pool: n_pool of this tile, then those of the next tile
    uint32_t first_coded; // slots from here on are rows of the coded pool
    Part parts[5];

    // n_clamped: leading indexes that meet the clamped queries
    KS_INLINE TileRows(const AttentionTask& task, const Visibility& visibility, uint32_t kv_head,
                       uint32_t p, uint32_t n, uint32_t n_clamped)
        : first(p), n_pool(n), first_coded(first_coded_slot(task.a.n_kv_heads, task.a.n_rows))
    {
        if (task.a.chunk_rows && p + n > visibility.before)
            n_pool = p < visibility.before ? visibility.before - p : 0;
        const uint32_t base = kv_head * task.a.n_rows,
                       left = visibility.before > p + n_pool ? visibility.before - p - n_pool : 0;
        n_known = n_pool + (left < kAttentionTile ? left : kAttentionTile);
        if (task.table) {
            const uint32_t* from =
                task.table + task.head_layout[kv_head * layout_words + layout_table_begin] + p;
            for (uint32_t i = 0; i < n_known; i++) rows[i] = from[i];
        } else {
            uint32_t row = ring_row(p, task.a.n_rows, task.a.n_pinned);
            for (uint32_t i = 0; i < n_known; row = task.a.n_pinned)
                for (; i < n_known && row < task.a.n_rows; row++) rows[i++] = base + row;
        }
        for (uint32_t i = n_pool; i < n; i++)
            rows[i] = chunk_row(kv_head, p + i, visibility.before, task.a.chunk_rows);
        split(task.head_layout + kv_head * layout_words, p, n, n_clamped);
    }
    // The rows to prefetch while columns from `from` on are read. Keys are followed by the values
    // of the same columns. Values are followed by the keys of the next tile, and so are keys if
    // values are not read. Most keys of the next tile are in the same pool.
    KS_INLINE PrefetchRows ahead(const AttentionTask& task, const Part& part, bool keys,
                                 uint32_t from) const
    {
        const bool values = keys && task.v;
        const uint32_t begin = values ? from : n_pool + from, end = values ? n_pool : n_known;
        return pool_rows(task, part, !values, begin, end);
    }
    // Keys or values of rows [begin, end) in the pool of a part.
    KS_INLINE PrefetchRows pool_rows(const AttentionTask& task, const Part& part, bool keys,
                                     uint32_t begin, uint32_t end) const
    {
        const bool coded = part.place == Part::coded, half = keys ? task.k_half : task.v_half;
        const CodedRows& codes = keys ? task.coded_k : task.coded_v;
        const uint32_t row_bytes = coded ? 4 * codes.row_words : task.a.head_dim * (half ? 2 : 4),
                       n = end > begin ? end - begin : 0;
        const uintptr_t plain = uintptr_t(keys ? task.k : task.v);
        return {coded ? uintptr_t(codes.words) - uintptr_t(first_coded) * row_bytes : plain,
                rows + begin, n, row_bytes, row_bytes};
    }
    // Log-weight a (0) or b (1) of a column, in units of log2.
    KS_INLINE float log_weight(const AttentionTask& task, uint32_t column, uint32_t which) const
    {
        return column < n_pool ? task.weights[2 * size_t(rows[column]) + which] * kLog2e : 0.f;
    }
    // Cuts the columns into parts.
    KS_INLINE void split(const uint32_t* head_layout, uint32_t p, uint32_t n, uint32_t n_clamped)
    {
        const uint32_t cuts[] = {n_clamped, head_layout[layout_coded_begin],
                                 head_layout[layout_coded_end], p + n_pool};
        for (uint32_t i = 0; i < n; i = parts[n_parts++].end) {
            const uint32_t index = p + i;
            uint32_t end = n;
            for (uint32_t cut : cuts)
                if (cut > index && cut - p < end) end = cut - p;
            const bool coded = in_coded_pool(index, head_layout[layout_coded_begin],
                                             head_layout[layout_coded_end]);
            parts[n_parts] = {i, end,
                              i >= n_pool ? Part::chunk
                              : coded     ? Part::coded
                                          : Part::pool,
                              index < n_clamped};
        }
    }
};

#define KS_EIGHT(n) n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7
constexpr uint32_t kInOrder[kAttentionTile] = {KS_EIGHT(0),  KS_EIGHT(8),  KS_EIGHT(16),
                                               KS_EIGHT(24), KS_EIGHT(32), KS_EIGHT(40),
                                               KS_EIGHT(48), KS_EIGHT(56)};
#undef KS_EIGHT

// Keys or values of a part: rows[i] is the row of column part.begin + i. Codes are decoded into
// scratch (kAttentionTile, head_dim).
struct PartRows {
    const void* data;
    const uint32_t* rows;
    bool half;

    KS_INLINE PartRows(const AttentionTask& task, const TileRows& tile, const Part& part, bool keys,
                       float* scratch)
        : data(part.place == Part::chunk ? (keys ? task.chunk_k : task.chunk_v)
               : keys                    ? task.k
                                         : task.v),
          rows(tile.rows + part.begin), half(keys ? task.k_half : task.v_half)
    {
        if (part.place != Part::coded) return;
        const CodedRows& coded = keys ? task.coded_k : task.coded_v;
        coded.decode(coded, rows, tile.first_coded, part.end - part.begin, task.a.head_dim, scratch,
                     tile.ahead(task, part, keys, part.begin));
        data = scratch;
        rows = kInOrder;
        half = false;
    }
};

// The softcap of n logits of base 2, rounded up to whole vectors.
template <class S>
KS_INLINE void cap_logits(const AttentionTask& task, float* logits, uint32_t n)
{
    for (uint32_t i = 0; task.a.softcap != 0 && i < n; i += 8)
        S::store(logits + i, softcapped<S>(S::load(logits + i), task.a.softcap * kLog2e));
}

// Applies the RoPE of an index to a row, if keys are stored as they were before RoPE.
template <class S>
KS_INLINE void rope_on_read(const AttentionTask& task, uint32_t index, float* x)
{
    if (task.a.n_rope_on_read)
        rope<S>({1, 1, task.a.head_dim, task.a.n_rope_on_read, task.a.pairs, 0, 0}, x, x,
                task.rope_table + size_t(index) * task.a.n_rope_on_read);
}

// A part's keys after RoPE. `scratch` holds them if they were stored as they were before RoPE.
template <class S>
KS_INLINE PartRows part_keys(const AttentionTask& task, const TileRows& tile, const Part& part,
                             float* scratch)
{
    PartRows keys(task, tile, part, true, scratch);
    if (!task.a.n_rope_on_read) return keys;
    for (uint32_t i = 0; i < part.end - part.begin; i++) {
        const size_t from = size_t(keys.rows[i]) * task.a.head_dim,
                     to = size_t(i) * task.a.head_dim;
        for (uint32_t d = 0; d < task.a.head_dim; d += 8)
            S::store(scratch + to + d, keys.half ? load_cached<S, true>(keys.data, from + d)
                                                 : load_cached<S, false>(keys.data, from + d));
        rope_on_read<S>(task, tile.first + part.begin + i, scratch + to);
    }
    keys.data = scratch;
    keys.rows = kInOrder;
    keys.half = false;
    return keys;
}

// Masks what a row does not see of its n columns. Column 0 is at `w`.
KS_INLINE static void mask_columns(float* w, uint32_t n, uint32_t hole, uint32_t begin,
                                   uint32_t end)
{
    for (uint32_t i = hole; i < begin && i < n; i++) w[i] = kLowest;
    for (uint32_t i = end; i < n; i++) w[i] = kLowest;
}

// Replaces the logits of a token's columns by weights relative to the new maximum. Masked columns
// become zero. Returns the factor for earlier sums. Column 0 is at `w`.
template <class S>
KS_INLINE float to_weights(float* w, uint32_t n, uint32_t hole, uint32_t begin, uint32_t end,
                           float* top, float* norm)
{
    mask_columns(w, n, hole, begin, end);
    typename S::F8 tops = S::broadcast(*top);
    for (uint32_t i = 0; i < n; i += 8) tops = S::max(S::load(w + i), tops);
    const float new_top = S::largest(tops);
    if (new_top <= kLowest) { // all columns so far are masked
        for (uint32_t i = 0; i < n; i++) w[i] = 0;
        return 1;
    }
    typename S::F8 sums = S::zero();
    for (uint32_t i = 0; i < n; i += 8) {
        typename S::F8 x = exp2_of_negative<S>(S::load(w + i) - S::broadcast(new_top));
        S::store(w + i, x);
        sums = sums + x;
    }
    float before[8];
    S::store(before, exp2_of_negative<S>(S::broadcast(*top - new_top)));
    *top = new_top;
    *norm = *norm * before[0] + S::sum(sums);
    return before[0];
}

// The factors that make sums relative to the maxima `before` and `now` relative to the larger one.
// Stores the larger one in *before and returns it.
template <class S>
KS_INLINE float common_top(float* before, float now, float* shrink_before, float* shrink_now)
{
    const float top = now > *before ? now : *before;
    float factors[2][8];
    S::store(factors[0], exp2_of_negative<S>(S::broadcast(*before - top)));
    S::store(factors[1], exp2_of_negative<S>(S::broadcast(now - top)));
    *shrink_before = factors[0][0];
    *shrink_now = factors[1][0];
    return *before = top;
}

// Maximum, norm and weighted values of one group, or of all earlier groups.
struct Sums {
    float *top, *norm, *out;
};

// Adds a group's sums to the total.
template <class S>
KS_INLINE void combine(const Sums& total, const Sums& group, uint32_t head_dim)
{
    float before, now;
    common_top<S>(total.top, *group.top, &before, &now);
    *total.norm = *total.norm * before + *group.norm * now;
    for (uint32_t d = 0; d < head_dim; d += 8)
        S::store(total.out + d, S::fma(S::broadcast(now), S::load(group.out + d),
                                       S::load(total.out + d) * S::broadcast(before)));
}

// Writes the output and the log of the denominator.
template <class S>
KS_INLINE void finish(const Sums& total, uint32_t head_dim, float* y, float* lse)
{
    typename S::F8 scale = S::broadcast(1 / *total.norm);
    for (uint32_t d = 0; d < head_dim; d += 8) S::store(y + d, S::load(total.out + d) * scale);
    if (lse) *lse = *total.top + log2f(*total.norm);
}

} // namespace
} // namespace ks
