// Attention of the query heads of one KV head over slots, by tiles of indexes with running maxima.
//   chunk: some tokens. Keys and values of a tile become f32 panels once; six queries at a time multiply with them.
//   split: one token, one group of indexes. Keys and values are read once for all query heads.
// Both do the same sums in the same order, so decoding equals reading a prompt bit for bit: a logit is eight sums over every
// eighth dimension, added as sums8 does; running maxima last for a group of kAttentionGroup indexes; groups are folded into
// the total in order. Logits are in units of log2, so that exp2 needs no reduction by ln 2.
#pragma once

#include "kernels/cpu/vector_math.h"

#include <math.h>

namespace ks
{
namespace // as in simd_avx2.h
{

constexpr float kLog2e = 1.442695041f;
constexpr uint32_t kSix = 6;    // queries of a row block: with 16 columns, 12 sums in registers
constexpr uint32_t kPanel = 16; // columns of a panel
constexpr float kLowest = -3.4e38f;

template <class S, bool is_half> KS_INLINE typename S::F8 load_cached(const void* cache, size_t i)
{
    return is_half ? S::load_half(static_cast<const uint16_t*>(cache) + i) : S::load(static_cast<const float*>(cache) + i);
}

// What the tokens of one KV head see: the pinned and what is neither out of the window nor overwritten, up to themselves.
struct Sight {
    uint32_t before, oldest, n_pinned, window;

    KS_INLINE Sight(const AttentionTask& task, uint32_t kv_head)
        : before(task.view[kv_head * view_words + view_before]), n_pinned(task.a.n_pinned), window(task.a.window)
    {
        oldest = task.table ? 0 : RING_OLDEST(before + (task.a.chunk_rows ? 0 : task.a.n_tokens), task.a.n_rows, task.a.n_pinned);
    }
    // The first that a token sees beside the pinned.
    KS_INLINE uint32_t first(uint32_t token) const
    {
        const uint32_t own = before + token, first = window && own + 1 > window ? own + 1 - window : 0;
        return first > oldest ? first : oldest;
    }
    KS_INLINE uint32_t n_visible(uint32_t token) const
    {
        const uint32_t begin = first(token);
        return before + token + 1 - (begin > n_pinned ? begin - n_pinned : 0);
    }
};

// The columns of a tile that one token sees: [0, end) but not [hole, begin).
struct Columns {
    uint32_t hole, begin, end;

    KS_INLINE Columns(const Sight& sight, uint32_t token, uint32_t tile, uint32_t n)
    {
        auto column = [&](uint32_t index) { return index <= tile ? 0 : index < tile + n ? index - tile : n; };
        hole = column(sight.n_pinned);
        begin = column(sight.first(token));
        end = column(sight.before + token + 1);
        if (begin < hole) begin = hole;
    }
    KS_INLINE uint32_t first() const { return hole ? 0 : begin; }
    KS_INLINE bool any() const { return end > first(); }
};

// The tile after the one at p; a hole that no token from `token` on sees into is left out.
KS_INLINE static uint32_t next_tile(const Sight& sight, uint32_t token, uint32_t p)
{
    p += kAttentionTile;
    const uint32_t first = sight.first(token) / kAttentionTile * kAttentionTile;
    return p >= sight.n_pinned && p < first ? first : p;
}

// The rows of n indexes from p on; the first n_pool of them are in the pool, the others in the chunk.
struct TileRows {
    uint32_t rows[kAttentionTile];
    uint32_t n_pool;

    KS_INLINE TileRows(const AttentionTask& task, const Sight& sight, uint32_t kv_head, uint32_t p, uint32_t n)
    {
        n_pool = n;
        if (task.a.chunk_rows && p + n > sight.before) n_pool = p < sight.before ? sight.before - p : 0;
        const uint32_t base = kv_head * task.a.n_rows;
        if (task.table) {
            const uint32_t* from = task.table + task.view[kv_head * view_words + view_begin] + p;
            for (uint32_t i = 0; i < n_pool; i++) rows[i] = from[i];
        } else {
            uint32_t row = RING_ROW(p, task.a.n_rows, task.a.n_pinned);
            for (uint32_t i = 0; i < n_pool; i++, row = row + 1 == task.a.n_rows ? task.a.n_pinned : row + 1) rows[i] = base + row;
        }
        for (uint32_t i = n_pool; i < n; i++) rows[i] = kv_head * task.a.chunk_rows + (p + i - sight.before);
    }
};

// Log-weights of a column in units of log2; 0: a, 1: b
KS_INLINE static float log_weight(const AttentionTask& task, const TileRows& rows, uint32_t column, uint32_t which)
{
    return column < rows.n_pool ? task.weights[2 * size_t(rows.rows[column]) + which] * kLog2e : 0.f;
}

// ---------------------------------------------------------------- chunk

// The arrays of a chunk, f32. width: head_dim rounded up to whole panels, with zeros there.
struct ChunkScratch {
    uint32_t width;
    float* q;       // (kAttentionRows, width), scaled
    float* out;     // (kAttentionRows, width)
    float* keys;    // (kAttentionTile / kPanel) panels (width, kPanel): a column is a position
    float* values;  // (width / kPanel) panels (kAttentionTile, kPanel): a row is a position
    float* weights; // (kSix, kAttentionTile)
    float* under;   // (kAttentionTile) logits of the denominator, where they differ
    float* top;     // (kAttentionRows) running maximum of the group of indexes, in the numerator
    float* norm_top; // (kAttentionRows) in the denominator
    float* norm;    // (kAttentionRows)
    float* total;   // (kAttentionRows, width), of the groups before, as the next three
    float* total_top;
    float* total_norm_top;
    float* total_norm;

    KS_INLINE ChunkScratch(float* scratch, uint32_t head_dim) : width((head_dim + kPanel - 1) / kPanel * kPanel)
    {
        q = scratch;
        out = q + kAttentionRows * width;
        keys = out + kAttentionRows * width;
        values = keys + kAttentionTile * width;
        weights = values + kAttentionTile * width;
        under = weights + kSix * kAttentionTile;
        top = under + kAttentionTile;
        norm_top = top + kAttentionRows;
        norm = norm_top + kAttentionRows;
        total_top = norm + kAttentionRows;
        total_norm_top = total_top + kAttentionRows;
        total_norm = total_norm_top + kAttentionRows;
        total = total_norm + kAttentionRows;
    }
};

// The keys of a tile's n columns in panels; columns beyond hold anything.
template <class S, bool k_half> void load_keys(const AttentionTask& task, const ChunkScratch& s, const TileRows& rows, uint32_t n)
{
    const uint32_t head_dim = task.a.head_dim;
    for (uint32_t p = 0; p < n; p += 8) {
        float* panel = s.keys + size_t(p / kPanel) * s.width * kPanel + p % kPanel;
        for (uint32_t d = 0; d < head_dim; d += 8) {
            typename S::F8 block[8];
            KS_UNROLL(8)
            for (uint32_t i = 0; i < 8; i++) {
                const uint32_t column = p + i;
                block[i] = column < n ? load_cached<S, k_half>(column < rows.n_pool ? task.k : task.chunk_k,
                                                               size_t(rows.rows[column]) * head_dim + d)
                                      : S::zero();
            }
            S::transpose8(block);
            KS_UNROLL(8)
            for (uint32_t i = 0; i < 8; i++) S::store(panel + size_t(d + i) * kPanel, block[i]);
        }
    }
}

// The values of a tile's columns; those of the hole become zero, since a weight of zero would not hide an infinity.
template <class S, bool v_half>
void load_values(const AttentionTask& task, const ChunkScratch& s, const TileRows& rows, const Columns& c, uint32_t n)
{
    const uint32_t head_dim = task.a.head_dim;
    for (uint32_t p = 0; p < n; p++) {
        const bool seen = p < c.hole || p >= c.begin;
        for (uint32_t d = 0; d < head_dim; d += 8)
            S::store(s.values + (size_t(d / kPanel) * kAttentionTile + p) * kPanel + d % kPanel,
                     seen ? load_cached<S, v_half>(p < rows.n_pool ? task.v : task.chunk_v, size_t(rows.rows[p]) * head_dim + d) : S::zero());
    }
}

// weights[r][16 panel ..] = q[r] . keys, for six queries
template <class S> void six_logits(const ChunkScratch& s, const float* q, uint32_t head_dim, uint32_t panel)
{
    typename S::F8 pair[2 * kSix], half[2 * kSix], whole[2 * kSix]; // ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))
    for (uint32_t eighth = 0; eighth < 8; eighth++) {
        const float* keys = s.keys + (size_t(panel) * s.width + eighth) * kPanel;
        typename S::F8 sums[2 * kSix];
        KS_UNROLL(12)
        for (uint32_t i = 0; i < 2 * kSix; i++) sums[i] = S::zero();
        for (uint32_t d = eighth; d < head_dim; d += 8, keys += 8 * kPanel) {
            typename S::F8 left = S::load(keys), right = S::load(keys + 8);
            KS_UNROLL(6)
            for (uint32_t r = 0; r < kSix; r++) {
                typename S::F8 value = S::broadcast(q[size_t(r) * s.width + d]);
                sums[2 * r] = S::fma(value, left, sums[2 * r]);
                sums[2 * r + 1] = S::fma(value, right, sums[2 * r + 1]);
            }
        }
        for (uint32_t i = 0; i < 2 * kSix; i++) {
            pair[i] = eighth % 2 == 0 ? sums[i] : pair[i] + sums[i];
            if (eighth % 2 == 1) half[i] = eighth % 4 == 1 ? pair[i] : half[i] + pair[i];
            if (eighth % 4 == 3) whole[i] = eighth == 3 ? half[i] : whole[i] + half[i];
        }
    }
    for (uint32_t i = 0; i < 2 * kSix; i++) S::store(s.weights + i / 2 * kAttentionTile + panel * kPanel + i % 2 * 8, whole[i]);
}

// out[r][16 panel ..] = out * shrink[r] + weights[r] . values, over positions [begin, end) of the tile
template <class S> void six_outputs(const ChunkScratch& s, float* out, const float* shrink, uint32_t panel, uint32_t begin, uint32_t end)
{
    const float* values = s.values + (size_t(panel) * kAttentionTile + begin) * kPanel;
    out += panel * kPanel;
    typename S::F8 sums[kSix][2];
    KS_UNROLL(6)
    for (uint32_t r = 0; r < kSix; r++) {
        sums[r][0] = S::load(out + size_t(r) * s.width) * S::broadcast(shrink[r]);
        sums[r][1] = S::load(out + size_t(r) * s.width + 8) * S::broadcast(shrink[r]);
    }
    for (uint32_t p = begin; p < end; p++, values += kPanel) {
        typename S::F8 left = S::load(values), right = S::load(values + 8);
        KS_UNROLL(6)
        for (uint32_t r = 0; r < kSix; r++) {
            typename S::F8 weight = S::broadcast(s.weights[r * kAttentionTile + p]);
            sums[r][0] = S::fma(weight, left, sums[r][0]);
            sums[r][1] = S::fma(weight, right, sums[r][1]);
        }
    }
    KS_UNROLL(6)
    for (uint32_t r = 0; r < kSix; r++) {
        S::store(out + size_t(r) * s.width, sums[r][0]);
        S::store(out + size_t(r) * s.width + 8, sums[r][1]);
    }
}

// Logits of a token's columns become weights relative to the new maximum, all other columns zero. Returns by what earlier
// sums shrink. Columns are counted from the one at `w`.
template <class S>
KS_INLINE float to_weights(float* w, uint32_t n, uint32_t hole, uint32_t begin, uint32_t end, float* top, float* norm)
{
    for (uint32_t i = hole; i < begin && i < n; i++) w[i] = kLowest;
    for (uint32_t i = end; i < n; i++) w[i] = kLowest;
    typename S::F8 tops = S::broadcast(*top);
    for (uint32_t i = 0; i < n; i += 8) tops = S::max(S::load(w + i), tops);
    const float new_top = S::largest(tops);
    if (new_top <= kLowest) { // nothing is seen yet
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

// The same where slots have log-weights: the denominator has logits, a maximum and a norm of its own. under: (n) scratch
template <class S>
KS_INLINE float to_weights(const AttentionTask& task, const TileRows& rows, uint32_t column, float* w, float* under, uint32_t n,
                           uint32_t hole, uint32_t begin, uint32_t end, float* top, float* norm_top, float* norm)
{
    if (!task.weights) {
        const float shrink = to_weights<S>(w, n, hole, begin, end, top, norm);
        *norm_top = *top;
        return shrink;
    }
    for (uint32_t i = 0; i < n && i < end; i++) {
        const float b = w[i] + log_weight(task, rows, column + i, 1);
        under[i] = b > kLowest ? b : kLowest;
        const float a = w[i] + log_weight(task, rows, column + i, 0);
        w[i] = a > kLowest ? a : kLowest;
    }
    to_weights<S>(under, n, hole, begin, end, norm_top, norm);
    float unused = 0;
    return to_weights<S>(w, n, hole, begin, end, top, &unused);
}

// By what sums relative to the maxima `before` and `now` shrink when both become relative to the larger one.
template <class S> KS_INLINE float common_top(float* before, float now, float* shrink_before, float* shrink_now)
{
    const float top = now > *before ? now : *before;
    float factors[2][8];
    S::store(factors[0], exp2_of_negative<S>(S::broadcast(*before - top)));
    S::store(factors[1], exp2_of_negative<S>(S::broadcast(now - top)));
    *shrink_before = factors[0][0];
    *shrink_now = factors[1][0];
    return *before = top;
}

// Maxima and sums, of a group or of all before it.
struct Sums {
    float *top, *norm_top, *norm, *out;
};

// Adds a group's sums to the total.
template <class S> KS_INLINE void fold(const Sums& total, const Sums& group, uint32_t head_dim)
{
    float before, now, norm_before, norm_now;
    const bool same = *total.top == *total.norm_top && *group.top == *group.norm_top;
    common_top<S>(total.top, *group.top, &before, &now);
    norm_before = before;
    norm_now = now;
    if (same)
        *total.norm_top = *total.top;
    else
        common_top<S>(total.norm_top, *group.norm_top, &norm_before, &norm_now);
    *total.norm = *total.norm * norm_before + *group.norm * norm_now;
    for (uint32_t d = 0; d < head_dim; d += 8)
        S::store(total.out + d, S::fma(S::broadcast(now), S::load(group.out + d), S::load(total.out + d) * S::broadcast(before)));
}

// What is left of all sums: the output, and the log of the denominator.
template <class S> KS_INLINE void finish(const Sums& total, uint32_t head_dim, float* y, float* lse)
{
    float apart = 1;
    if (*total.top != *total.norm_top) apart = exp2f(*total.top - *total.norm_top);
    typename S::F8 scale = S::broadcast(apart / *total.norm);
    for (uint32_t d = 0; d < head_dim; d += 8) S::store(y + d, S::load(total.out + d) * scale);
    if (lse) *lse = *total.norm_top + log2f(*total.norm);
}

// Ends the group of indexes: its sums go into the totals and begin anew.
template <class S> void fold_rows(const ChunkScratch& s, uint32_t n_rows, uint32_t head_dim)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        const size_t at = size_t(r) * s.width;
        fold<S>({s.total_top + r, s.total_norm_top + r, s.total_norm + r, s.total + at},
                {s.top + r, s.norm_top + r, s.norm + r, s.out + at}, head_dim);
        for (uint32_t d = 0; d < head_dim; d += 8) S::store(s.out + at + d, S::zero());
        s.top[r] = s.norm_top[r] = kLowest;
        s.norm[r] = 0;
    }
}

// Rows r0 .. r0 + 5 of the chunk (a row is a token and a head) meet a tile of n columns, the first of which has index p.
template <class S>
void six_rows(const AttentionTask& task, const Sight& sight, const ChunkScratch& s, const TileRows& rows, uint32_t token, uint32_t r0,
              uint32_t n_rows, uint32_t p, uint32_t n)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads;
    auto columns = [&](uint32_t r) { return Columns(sight, token + (r < n_rows ? r : n_rows - 1) / group, p, n); };
    uint32_t first = n, end = 0; // the columns that any of the six sees
    for (uint32_t r = r0; r < r0 + kSix; r++) {
        const Columns c = columns(r);
        if (!c.any()) continue;
        first = c.first() < first ? c.first() : first;
        end = c.end > end ? c.end : end;
    }
    if (first >= end) return;
    const uint32_t left = first / kPanel, right = (end + kPanel - 1) / kPanel, at = left * kPanel;
    for (uint32_t panel = left; panel < right; panel++) six_logits<S>(s, s.q + size_t(r0) * s.width, task.a.head_dim, panel);
    float shrink[kSix];
    for (uint32_t i = 0; i < kSix; i++) {
        const Columns c = columns(r0 + i);
        auto from_left = [&](uint32_t column) { return column > at ? column - at : 0; };
        shrink[i] = to_weights<S>(task, rows, at, s.weights + i * kAttentionTile + at, s.under, right * kPanel - at, from_left(c.hole),
                                  from_left(c.begin), from_left(c.end), s.top + r0 + i, s.norm_top + r0 + i, s.norm + r0 + i);
    }
    for (uint32_t panel = 0; panel < s.width / kPanel; panel++)
        six_outputs<S>(s, s.out + size_t(r0) * s.width, shrink, panel, first, end);
}

// Queries in order of token and head, scaled to logits of base 2; rows beyond the last are copies of it.
template <class S>
void load_queries(const AttentionTask& task, const ChunkScratch& s, uint32_t kv_head, uint32_t token, uint32_t row, uint32_t n, uint32_t n_rows)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads, head_dim = task.a.head_dim;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t r = row + i < n_rows ? row + i : n_rows - 1;
        const float* from = task.q + (size_t(token + r / group) * task.a.n_heads + kv_head * group + r % group) * head_dim;
        for (uint32_t d = 0; d < head_dim; d += 8)
            S::store(s.q + size_t(i) * s.width + d, S::load(from + d) * S::broadcast(task.a.scale * kLog2e));
    }
}

template <class S, bool k_half, bool v_half>
void attention_chunk(const AttentionTask& task, uint32_t kv_head, uint32_t token, uint32_t n_tokens, float* scratch)
{
    const uint32_t head_dim = task.a.head_dim, group = task.a.n_heads / task.a.n_kv_heads, n_rows = n_tokens * group;
    const ChunkScratch s(scratch, head_dim);
    const Sight sight(task, kv_head);
    const uint32_t n_padded = (n_rows + kSix - 1) / kSix * kSix; // the rows beyond n_rows compute along
    load_queries<S>(task, s, kv_head, token, 0, n_padded, n_rows);
    for (uint32_t r = 0; r < n_padded; r++) {
        for (uint32_t d = 0; d < s.width; d += 8) {
            S::store(s.out + size_t(r) * s.width + d, S::zero());
            S::store(s.total + size_t(r) * s.width + d, S::zero());
        }
        s.top[r] = s.norm_top[r] = s.total_top[r] = s.total_norm_top[r] = kLowest;
        s.norm[r] = s.total_norm[r] = 0;
    }

    const uint32_t end = sight.before + token + n_tokens;
    uint32_t p = sight.n_pinned ? 0 : sight.first(token) / kAttentionTile * kAttentionTile;
    for (uint32_t in_group = p / kAttentionGroup; p < end; p = next_tile(sight, token, p)) {
        if (p / kAttentionGroup != in_group) fold_rows<S>(s, n_rows, head_dim);
        in_group = p / kAttentionGroup;
        const uint32_t n = end - p < kAttentionTile ? end - p : kAttentionTile;
        const TileRows rows(task, sight, kv_head, p, n);
        load_keys<S, k_half>(task, s, rows, n);
        load_values<S, v_half>(task, s, rows, Columns(sight, token, p, n), n);
        for (uint32_t r0 = 0; r0 < n_rows; r0 += kSix) six_rows<S>(task, sight, s, rows, token, r0, n_rows, p, n);
    }
    fold_rows<S>(s, n_rows, head_dim);
    for (uint32_t r = 0; r < n_rows; r++) {
        const size_t row = size_t(token + r / group) * task.a.n_heads + kv_head * group + r % group;
        finish<S>({s.total_top + r, s.total_norm_top + r, s.total_norm + r, s.total + size_t(r) * s.width}, head_dim,
                  task.y + row * head_dim, task.lse ? task.lse + row : nullptr);
    }
}

// ---------------------------------------------------------------- split

// weights[h][i] = q[h] . key of rows[i], for n_heads query heads and n_positions rows, at most eight in all
template <class S, bool k_half, uint32_t n_heads, uint32_t n_positions>
KS_INLINE void few_logits(const void* keys, uint32_t head_dim, const float* q, const uint32_t* rows, float* weights)
{
    static_assert(n_heads * n_positions <= 8, "one sum each");
    size_t at[n_positions];
    KS_UNROLL(8)
    for (uint32_t i = 0; i < n_positions; i++) at[i] = size_t(rows[i]) * head_dim;
    typename S::F8 sums[8];
    KS_UNROLL(8)
    for (uint32_t i = 0; i < 8; i++) sums[i] = S::zero();
    for (uint32_t d = 0; d < head_dim; d += 8) {
        typename S::F8 key[n_positions];
        KS_UNROLL(8)
        for (uint32_t i = 0; i < n_positions; i++) key[i] = load_cached<S, k_half>(keys, at[i] + d);
        KS_UNROLL(4)
        for (uint32_t h = 0; h < n_heads; h++) {
            typename S::F8 query = S::load(q + h * head_dim + d);
            KS_UNROLL(8)
            for (uint32_t i = 0; i < n_positions; i++) sums[h * n_positions + i] = S::fma(query, key[i], sums[h * n_positions + i]);
        }
    }
    float logits[8];
    S::store(logits, S::sums8(sums));
    for (uint32_t h = 0; h < n_heads; h++)
        for (uint32_t i = 0; i < n_positions; i++) weights[h * kAttentionTile + i] = logits[h * n_positions + i];
}

// sums[h] += weights[h][i] * value of rows[i]
template <class S, bool v_half, uint32_t n_heads, uint32_t n_positions>
KS_INLINE void few_outputs(const void* values, uint32_t head_dim, const float* weights, const uint32_t* rows, float* sums, uint32_t stride)
{
    size_t at[n_positions];
    KS_UNROLL(8)
    for (uint32_t i = 0; i < n_positions; i++) at[i] = size_t(rows[i]) * head_dim;
    typename S::F8 weight[n_heads][n_positions];
    KS_UNROLL(4)
    for (uint32_t h = 0; h < n_heads; h++) KS_UNROLL(8)
    for (uint32_t i = 0; i < n_positions; i++) weight[h][i] = S::broadcast(weights[h * kAttentionTile + i]);
    for (uint32_t d = 0; d < head_dim; d += 8) {
        typename S::F8 value[n_positions];
        KS_UNROLL(8)
        for (uint32_t i = 0; i < n_positions; i++) value[i] = load_cached<S, v_half>(values, at[i] + d);
        KS_UNROLL(4)
        for (uint32_t h = 0; h < n_heads; h++) {
            typename S::F8 sum = S::load(sums + h * stride + d);
            KS_UNROLL(8)
            for (uint32_t i = 0; i < n_positions; i++) sum = S::fma(weight[h][i], value[i], sum);
            S::store(sums + h * stride + d, sum);
        }
    }
}

// body(from, to, in_pool) for the columns that are seen: before the hole, after it, in the pool and in the chunk.
template <class Body> KS_INLINE void for_seen(const Columns& c, uint32_t n_pool, const Body& body)
{
    const uint32_t parts[2][2] = {{0, c.hole < c.end ? c.hole : c.end}, {c.begin, c.end}};
    for (const uint32_t* part : parts) {
        const uint32_t split = n_pool < part[0] ? part[0] : n_pool < part[1] ? n_pool : part[1];
        if (part[0] < split) body(part[0], split, true);
        if (split < part[1]) body(split, part[1], false);
    }
}

template <class S, bool k_half, bool v_half, uint32_t n_heads>
void split_heads(const AttentionTask& task, uint32_t kv_head, uint32_t token, const float* q, uint32_t first_head, uint32_t begin,
                 uint32_t end, float* partials, uint32_t head_stride, float* weights)
{
    constexpr uint32_t step = n_heads == 1 ? 8 : n_heads == 2 ? 4 : 2;
    const uint32_t head_dim = task.a.head_dim, n_floats = kPartialHead + head_dim;
    const Sight sight(task, kv_head);
    float* under = weights + 4 * kAttentionTile;
    for (uint32_t h = 0; h < n_heads; h++) {
        float* partial = partials + h * head_stride;
        for (uint32_t i = 0; i < n_floats; i++) partial[i] = 0;
        partial[0] = partial[2] = kLowest;
    }
    for (uint32_t p = begin; p < end; p += kAttentionTile) {
        const uint32_t n = end - p < kAttentionTile ? end - p : kAttentionTile;
        const Columns c(sight, token, p, n);
        if (!c.any()) continue;
        const TileRows rows(task, sight, kv_head, p, n);
        for_seen(c, rows.n_pool, [&](uint32_t from, uint32_t to, bool in_pool) {
            const void* keys = in_pool ? task.k : task.chunk_k;
            for (; from + step <= to; from += step)
                few_logits<S, k_half, n_heads, step>(keys, head_dim, q, rows.rows + from, weights + from);
            for (; from < to; from++) few_logits<S, k_half, n_heads, 1>(keys, head_dim, q, rows.rows + from, weights + from);
        });
        for (uint32_t h = 0; h < n_heads; h++) {
            float *partial = partials + h * head_stride, *w = weights + h * kAttentionTile;
            if (task.logits) {
                float* kept = task.logits + size_t(first_head + h) * task.logits_stride + p;
                for (uint32_t i = 0; i < n; i++) kept[i] = task.weights ? w[i] + log_weight(task, rows, i, 1) : w[i];
            }
            float shrink =
                to_weights<S>(task, rows, 0, w, under, (n + 7) / 8 * 8, c.hole, c.begin, c.end, partial, partial + 2, partial + 1);
            if (shrink != 1.f)
                for (uint32_t d = kPartialHead; d < n_floats; d += 8) S::store(partial + d, S::load(partial + d) * S::broadcast(shrink));
        }
        for_seen(c, rows.n_pool, [&](uint32_t from, uint32_t to, bool in_pool) {
            const void* values = in_pool ? task.v : task.chunk_v;
            float* sums = partials + kPartialHead;
            for (; from + step <= to; from += step)
                few_outputs<S, v_half, n_heads, step>(values, head_dim, weights + from, rows.rows + from, sums, head_stride);
            for (; from < to; from++)
                few_outputs<S, v_half, n_heads, 1>(values, head_dim, weights + from, rows.rows + from, sums, head_stride);
        });
    }
}

// scratch: q (4, head_dim), weights (5, kAttentionTile)
template <class S, bool k_half, bool v_half> void attention_split(const AttentionTask& task, uint32_t kv_head, uint32_t token,
                                                                  uint32_t begin, uint32_t end, float* partials, uint32_t head_stride,
                                                                  float* scratch)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads, head_dim = task.a.head_dim;
    float* weights = scratch + 4 * head_dim;
    for (uint32_t h = 0; h < group; h += 4) {
        const uint32_t n = group - h < 4 ? group - h : 4, head = kv_head * group + h;
        const float* from = task.q + (size_t(token) * task.a.n_heads + head) * head_dim;
        for (uint32_t i = 0; i < n * head_dim; i += 8) S::store(scratch + i, S::load(from + i) * S::broadcast(task.a.scale * kLog2e));
        float* out = partials + size_t(h) * head_stride;
        auto heads = split_heads<S, k_half, v_half, 4>;
        if (n == 1) heads = split_heads<S, k_half, v_half, 1>;
        if (n == 2) heads = split_heads<S, k_half, v_half, 2>;
        if (n == 3) heads = split_heads<S, k_half, v_half, 3>;
        heads(task, kv_head, token, scratch, head, begin, end, out, head_stride, weights);
    }
}

KS_INLINE static Sums partial_sums(float* partial)
{
    return {partial, partial + 2, partial + 1, partial + kPartialHead};
}

// Folds the partials of one query head, `stride` floats apart, into a total of the same form.
template <class S> void attention_fold(float* total, const float* partials, uint32_t n_splits, uint32_t stride, uint32_t head_dim)
{
    for (uint32_t i = 0; i < n_splits; i++, partials += stride)
        fold<S>(partial_sums(total), partial_sums(const_cast<float*>(partials)), head_dim);
}

template <class S> void attention_begin(float* total, uint32_t head_dim)
{
    for (uint32_t i = 0; i < kPartialHead + head_dim; i++) total[i] = 0;
    total[0] = total[2] = kLowest;
}

template <class S> void attention_finish(const float* total, uint32_t head_dim, float* y, float* lse)
{
    finish<S>(partial_sums(const_cast<float*>(total)), head_dim, y, lse);
}

// ---------------------------------------------------------------- score

// sums += what n_rows rows of logits say about n columns, which become probabilities. last: the newest query of the chunk.
template <class S>
void add_said(const AttentionTask& task, const KvScoreArgs& score, const Sight& sight, uint32_t kv_head, uint32_t token, uint32_t row,
              uint32_t n_rows, uint32_t p, uint32_t n, float* logits, const float* powers, float* sums)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads;
    for (uint32_t i = 0; i < n_rows; i++, logits += kAttentionTile) {
        const uint32_t t = token + (row + i) / group;
        const Columns c(sight, t, p, n);
        const float lse = task.lse[size_t(t) * task.a.n_heads + kv_head * group + (row + i) % group];
        const float uniform = 1.f / float(sight.n_visible(t)), factor = powers[task.a.n_tokens - 1 - t];
        for (uint32_t k = c.hole; k < c.begin && k < n; k++) logits[k] = kLowest;
        for (uint32_t k = c.end; k < kAttentionTile; k++) logits[k] = kLowest;
        for (uint32_t k = 0; k < n; k += 8) {
            typename S::F8 x = S::load(logits + k) - S::broadcast(lse);
            S::store(logits + k, exp2_of_negative<S>(S::min(x, S::zero())));
        }
        if (score.kind == score_below) {
            for (uint32_t k = 0; k < c.end; k++)
                if ((k < c.hole || k >= c.begin) && logits[k] < uniform) sums[k] += factor;
            continue;
        }
        for (uint32_t k = 0; k < n; k += 8)
            S::store(sums + k, S::fma(S::load(logits + k), S::broadcast(factor), S::load(sums + k)));
    }
}

// The columns' sums join what was there.
KS_INLINE static void add_signal(const AttentionTask& task, const ScoreTask& score, const Sight& sight, const TileRows& rows, uint32_t p,
                                 uint32_t n, float keep, const float* sums)
{
    for (uint32_t i = 0; i < n; i++) {
        if (p + i >= sight.n_pinned && p + i < sight.oldest) continue; // its row is another's by now
        if (i >= rows.n_pool)
            score.chunk_signal[rows.rows[i]] = sums[i];
        else
            score.signal[rows.rows[i]] = score.signal[rows.rows[i]] * keep + sums[i];
    }
    (void)task;
}

// Powers of the decay, and what becomes of the sums so far.
struct Decay {
    float powers[kMaxScoreTokens];
    float keep;

    KS_INLINE Decay(const KvScoreArgs& s, uint32_t n_tokens)
    {
        float power = 1;
        for (uint32_t i = 0; i < n_tokens; i++, power *= s.decay) powers[i] = power;
        keep = s.reset ? 0.f : power;
    }
};

template <class S, bool k_half>
void score_tile(const AttentionTask& task, const ScoreTask& score, uint32_t kv_head, uint32_t begin, uint32_t end, float* scratch)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads, n = end - begin;
    const ChunkScratch s(scratch, task.a.head_dim);
    const Sight sight(task, kv_head);
    const TileRows rows(task, sight, kv_head, begin, n);
    const Decay decay(score.s, task.a.n_tokens);
    float sums[kAttentionTile] = {};
    load_keys<S, k_half>(task, s, rows, n);
    // Queries before the tile do not see it.
    uint32_t token = begin > sight.before ? begin - sight.before : 0;
    token = token > score.s.first_query ? token : score.s.first_query;
    const uint32_t n_rows = token < task.a.n_tokens ? (task.a.n_tokens - token) * group : 0;
    for (uint32_t r0 = 0; r0 < n_rows; r0 += kSix) {
        load_queries<S>(task, s, kv_head, token, r0, kSix, n_rows);
        for (uint32_t panel = 0; panel * kPanel < n; panel++) six_logits<S>(s, s.q, task.a.head_dim, panel);
        for (uint32_t i = 0; task.weights && i < kSix; i++)
            for (uint32_t k = 0; k < n; k++) s.weights[i * kAttentionTile + k] += log_weight(task, rows, k, 1);
        add_said<S>(task, score.s, sight, kv_head, token, r0, n_rows - r0 < kSix ? n_rows - r0 : kSix, begin, n, s.weights, decay.powers,
                    sums);
    }
    add_signal(task, score, sight, rows, begin, n, decay.keep, sums);
}

template <class S>
void score_kept_logits(const AttentionTask& task, const ScoreTask& score, uint32_t kv_head, uint32_t begin, uint32_t end, float* scratch)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads, n = end - begin;
    const Sight sight(task, kv_head);
    const TileRows rows(task, sight, kv_head, begin, n);
    const Decay decay(score.s, 1);
    float sums[kAttentionTile] = {};
    for (uint32_t h = 0; h < group; h++) {
        const float* kept = task.logits + size_t(kv_head * group + h) * task.logits_stride + begin;
        for (uint32_t i = 0; i < n; i++) scratch[i] = kept[i];
        add_said<S>(task, score.s, sight, kv_head, 0, h, 1, begin, n, scratch, decay.powers, sums);
    }
    add_signal(task, score, sight, rows, begin, n, decay.keep, sums);
}

} // namespace

// The table of one instruction set.
#define KS_ATTENTION_KERNELS(S)                                                                                                            \
    {                                                                                                                                      \
        {{attention_chunk<S, false, false>, attention_chunk<S, false, true>},                                                              \
         {attention_chunk<S, true, false>, attention_chunk<S, true, true>}},                                                               \
            {{attention_split<S, false, false>, attention_split<S, false, true>},                                                          \
             {attention_split<S, true, false>, attention_split<S, true, true>}},                                                           \
            attention_begin<S>, attention_fold<S>, attention_finish<S>, {score_tile<S, false>, score_tile<S, true>}, score_kept_logits<S>  \
    }

} // namespace ks
