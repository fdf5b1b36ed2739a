// Attention of the query heads of one KV head over a cache of slots, by tiles of positions with a running maximum.
// A tile never crosses the ring's end, so its slots are neighbours.
//   chunk: some tokens. Keys and values of a tile become f32 panels once; six queries at a time multiply with them.
//   split: one token, one group of positions. Keys and values are read once for all query heads.
// Both do the same sums in the same order, so decoding equals reading a prompt bit for bit: a logit is eight sums over every
// eighth dimension, added as sums8 does; a running maximum lasts for a group of kAttentionGroup positions; groups are folded
// into the total in order. Logits are in units of log2, so that exp2 needs no reduction by ln 2.
#pragma once

#include "kernels/cpu/vector_math.h"

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

KS_INLINE static uint32_t first_visible(const AttentionTask& task, uint32_t position)
{
    uint32_t first = task.a.window && position + 1 > task.a.window ? position + 1 - task.a.window : 0;
    return first > task.oldest ? first : task.oldest;
}

// The end of the tile that position p is in; at most `end`.
KS_INLINE static uint32_t tile_end(uint32_t p, uint32_t n_slots, uint32_t end)
{
    uint32_t to = (p / kAttentionTile + 1) * kAttentionTile;
    uint32_t wrap = p + (n_slots - p % n_slots);
    to = to < wrap ? to : wrap;
    return to < end ? to : end;
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
    float* top;     // (kAttentionRows) running maximum of the group of positions
    float* norm;    // (kAttentionRows)
    float* total;   // (kAttentionRows, width), of the groups before, as the next two
    float* total_top;
    float* total_norm;

    KS_INLINE ChunkScratch(float* scratch, uint32_t head_dim) : width((head_dim + kPanel - 1) / kPanel * kPanel)
    {
        q = scratch;
        out = q + kAttentionRows * width;
        keys = out + kAttentionRows * width;
        values = keys + kAttentionTile * width;
        weights = values + kAttentionTile * width;
        top = weights + kSix * kAttentionTile;
        norm = top + kAttentionRows;
        total_top = norm + kAttentionRows;
        total_norm = total_top + kAttentionRows;
        total = total_norm + kAttentionRows;
    }
};

// Positions [skip, n) of a tile whose first slot is row `row` of the caches; other columns become zero.
template <class S, bool k_half, bool v_half>
void load_tile(const AttentionTask& task, const ChunkScratch& s, size_t row, uint32_t skip, uint32_t n)
{
    const uint32_t head_dim = task.a.head_dim;
    for (uint32_t p = 0; p < n; p += 8) {
        float* panel = s.keys + size_t(p / kPanel) * s.width * kPanel + p % kPanel;
        for (uint32_t d = 0; d < head_dim; d += 8) {
            typename S::F8 block[8];
            KS_UNROLL(8)
            for (uint32_t i = 0; i < 8; i++)
                block[i] = p + i >= skip && p + i < n ? load_cached<S, k_half>(task.k, (row + p + i) * head_dim + d) : S::zero();
            S::transpose8(block);
            KS_UNROLL(8)
            for (uint32_t i = 0; i < 8; i++) S::store(panel + size_t(d + i) * kPanel, block[i]);
        }
    }
    for (uint32_t p = skip; p < n; p++)
        for (uint32_t d = 0; d < head_dim; d += 8)
            S::store(s.values + (size_t(d / kPanel) * kAttentionTile + p) * kPanel + d % kPanel,
                     load_cached<S, v_half>(task.v, (row + p) * head_dim + d));
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

// Logits of columns [begin, end) become weights relative to the new maximum, all other columns zero. Returns by what earlier
// sums shrink.
template <class S> KS_INLINE float to_weights(float* w, uint32_t n, uint32_t begin, uint32_t end, float* top, float* norm)
{
    if (begin >= end) {
        for (uint32_t i = 0; i < n; i++) w[i] = 0;
        return 1;
    }
    for (uint32_t i = 0; i < begin; i++) w[i] = kLowest;
    for (uint32_t i = end; i < n; i++) w[i] = kLowest;
    typename S::F8 tops = S::broadcast(*top);
    for (uint32_t i = 0; i < n; i += 8) tops = S::max(S::load(w + i), tops);
    const float new_top = S::largest(tops);
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

// Adds a group's sums to the total.
template <class S>
KS_INLINE void fold(float* total_top, float* total_norm, float* total, float top, float norm, const float* out, uint32_t n)
{
    const float new_top = top > *total_top ? top : *total_top;
    typename S::F8 before = exp2_of_negative<S>(S::broadcast(*total_top - new_top)), now = exp2_of_negative<S>(S::broadcast(top - new_top));
    float factors[2][8];
    S::store(factors[0], before);
    S::store(factors[1], now);
    *total_top = new_top;
    *total_norm = *total_norm * factors[0][0] + norm * factors[1][0];
    for (uint32_t d = 0; d < n; d += 8) S::store(total + d, S::fma(now, S::load(out + d), S::load(total + d) * before));
}

// Ends the group of positions: its sums go into the totals and begin anew.
template <class S> void fold_rows(const ChunkScratch& s, uint32_t n_rows, uint32_t head_dim)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        float* out = s.out + size_t(r) * s.width;
        fold<S>(s.total_top + r, s.total_norm + r, s.total + size_t(r) * s.width, s.top[r], s.norm[r], out, head_dim);
        for (uint32_t d = 0; d < head_dim; d += 8) S::store(out + d, S::zero());
        s.top[r] = kLowest;
        s.norm[r] = 0;
    }
}

template <class S, bool k_half, bool v_half>
void attention_chunk(const AttentionTask& task, uint32_t kv_head, uint32_t token, uint32_t n_tokens, float* scratch)
{
    const AttentionArgs& a = task.a;
    const uint32_t group = a.n_heads / a.n_kv_heads, n_rows = n_tokens * group;
    const ChunkScratch s(scratch, a.head_dim);
    auto head_of = [&](uint32_t r) { return (size_t(token + r / group) * a.n_heads + kv_head * group + r % group) * a.head_dim; };
    for (uint32_t r = 0; r < (n_rows + kSix - 1) / kSix * kSix; r++) { // the rows beyond n_rows compute along, as copies
        const float* from = task.q + head_of(r < n_rows ? r : n_rows - 1);
        for (uint32_t d = 0; d < a.head_dim; d += 8)
            S::store(s.q + size_t(r) * s.width + d, S::load(from + d) * S::broadcast(a.scale * kLog2e));
        for (uint32_t d = 0; d < s.width; d += 8) {
            S::store(s.out + size_t(r) * s.width + d, S::zero());
            S::store(s.total + size_t(r) * s.width + d, S::zero());
        }
        s.top[r] = s.total_top[r] = kLowest;
        s.norm[r] = s.total_norm[r] = 0;
    }

    const uint32_t last = task.position + token + n_tokens - 1, first = first_visible(task, task.position + token);
    for (uint32_t p = first / kAttentionTile * kAttentionTile, to; p <= last; p = to) {
        to = tile_end(p, a.n_slots, last + 1);
        if (p % kAttentionGroup == 0 && p > first) fold_rows<S>(s, n_rows, a.head_dim);
        if (to <= first) continue;
        const uint32_t n = to - p;
        load_tile<S, k_half, v_half>(task, s, size_t(kv_head) * a.n_slots + p % a.n_slots, first > p ? first - p : 0, n);
        for (uint32_t r0 = 0; r0 < n_rows; r0 += kSix) {
            // The columns that any of the six sees, and each sees.
            uint32_t begin[kSix], end[kSix], all_begin = n, all_end = 0;
            for (uint32_t r = 0; r < kSix; r++) {
                uint32_t row = r0 + r < n_rows ? r0 + r : n_rows - 1;
                uint32_t position = task.position + token + row / group, from = first_visible(task, position);
                begin[r] = from <= p ? 0 : from < to ? from - p : n;
                end[r] = position < p ? 0 : position < to ? position + 1 - p : n;
                if (begin[r] >= end[r])
                    begin[r] = end[r] = 0;
                else
                    all_begin = begin[r] < all_begin ? begin[r] : all_begin;
                all_end = end[r] > all_end ? end[r] : all_end;
            }
            if (all_begin >= all_end) continue;
            const uint32_t left = all_begin / kPanel, right = (all_end + kPanel - 1) / kPanel;
            for (uint32_t panel = left; panel < right; panel++) six_logits<S>(s, s.q + size_t(r0) * s.width, a.head_dim, panel);
            float shrink[kSix];
            for (uint32_t r = 0; r < kSix; r++) {
                float* w = s.weights + r * kAttentionTile + left * kPanel;
                uint32_t from = begin[r] > left * kPanel ? begin[r] - left * kPanel : 0,
                         until = end[r] > left * kPanel ? end[r] - left * kPanel : 0;
                shrink[r] = to_weights<S>(w, (right - left) * kPanel, from, until, s.top + r0 + r, s.norm + r0 + r);
            }
            for (uint32_t panel = 0; panel < s.width / kPanel; panel++)
                six_outputs<S>(s, s.out + size_t(r0) * s.width, shrink, panel, all_begin, all_end);
        }
    }
    fold_rows<S>(s, n_rows, a.head_dim);
    for (uint32_t r = 0; r < n_rows; r++) {
        typename S::F8 scale = S::broadcast(1.f / s.total_norm[r]);
        float* to = task.y + head_of(r);
        for (uint32_t d = 0; d < a.head_dim; d += 8) S::store(to + d, S::load(s.total + size_t(r) * s.width + d) * scale);
    }
}

// ---------------------------------------------------------------- split

// weights[h][p + i] = q[h] . keys of row + i, for n_heads query heads and n_positions positions, at most eight in all
template <class S, bool k_half, uint32_t n_heads, uint32_t n_positions>
KS_INLINE void few_logits(const AttentionTask& task, const float* q, size_t row, float* weights)
{
    static_assert(n_heads * n_positions <= 8, "one sum each");
    const uint32_t head_dim = task.a.head_dim;
    typename S::F8 sums[8];
    KS_UNROLL(8)
    for (uint32_t i = 0; i < 8; i++) sums[i] = S::zero();
    for (uint32_t d = 0; d < head_dim; d += 8) {
        typename S::F8 key[n_positions];
        KS_UNROLL(8)
        for (uint32_t i = 0; i < n_positions; i++) key[i] = load_cached<S, k_half>(task.k, (row + i) * head_dim + d);
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

// sums[h] += weights[h][i] * values of row + i
template <class S, bool v_half, uint32_t n_heads, uint32_t n_positions>
KS_INLINE void few_outputs(const AttentionTask& task, const float* weights, size_t row, float* sums, uint32_t stride)
{
    const uint32_t head_dim = task.a.head_dim;
    typename S::F8 weight[n_heads][n_positions];
    KS_UNROLL(4)
    for (uint32_t h = 0; h < n_heads; h++) KS_UNROLL(8)
    for (uint32_t i = 0; i < n_positions; i++) weight[h][i] = S::broadcast(weights[h * kAttentionTile + i]);
    for (uint32_t d = 0; d < head_dim; d += 8) {
        typename S::F8 value[n_positions];
        KS_UNROLL(8)
        for (uint32_t i = 0; i < n_positions; i++) value[i] = load_cached<S, v_half>(task.v, (row + i) * head_dim + d);
        KS_UNROLL(4)
        for (uint32_t h = 0; h < n_heads; h++) {
            typename S::F8 sum = S::load(sums + h * stride + d);
            KS_UNROLL(8)
            for (uint32_t i = 0; i < n_positions; i++) sum = S::fma(weight[h][i], value[i], sum);
            S::store(sums + h * stride + d, sum);
        }
    }
}

template <class S, bool k_half, bool v_half, uint32_t n_heads> void split_heads(const AttentionTask& task, uint32_t kv_head, const float* q,
                                                                                uint32_t begin, uint32_t end, float* partials,
                                                                                uint32_t head_stride, float* weights)
{
    constexpr uint32_t step = n_heads == 1 ? 8 : n_heads == 2 ? 4 : 2;
    const uint32_t n_floats = kPartialHead + task.a.head_dim;
    for (uint32_t h = 0; h < n_heads; h++) {
        partials[h * head_stride] = kLowest;
        for (uint32_t i = 1; i < n_floats; i++) partials[h * head_stride + i] = 0;
    }
    for (uint32_t p = begin / kAttentionTile * kAttentionTile, to; p < end; p = to) {
        to = tile_end(p, task.a.n_slots, end);
        if (to <= begin) continue;
        const uint32_t n = to - p, skip = begin > p ? begin - p : 0;
        const size_t row = size_t(kv_head) * task.a.n_slots + p % task.a.n_slots;
        uint32_t i = skip;
        for (; i + step <= n; i += step) few_logits<S, k_half, n_heads, step>(task, q, row + i, weights + i);
        for (; i < n; i++) few_logits<S, k_half, n_heads, 1>(task, q, row + i, weights + i);
        for (uint32_t h = 0; h < n_heads; h++) {
            float* partial = partials + h * head_stride;
            float shrink = to_weights<S>(weights + h * kAttentionTile, (n + 7) / 8 * 8, skip, n, partial, partial + 1);
            if (shrink != 1.f)
                for (uint32_t d = kPartialHead; d < n_floats; d += 8) S::store(partial + d, S::load(partial + d) * S::broadcast(shrink));
        }
        for (i = skip; i + step <= n; i += step)
            few_outputs<S, v_half, n_heads, step>(task, weights + i, row + i, partials + kPartialHead, head_stride);
        for (; i < n; i++) few_outputs<S, v_half, n_heads, 1>(task, weights + i, row + i, partials + kPartialHead, head_stride);
    }
}

// scratch: q (4, head_dim), weights (4, kAttentionTile)
template <class S, bool k_half, bool v_half> void attention_split(const AttentionTask& task, uint32_t kv_head, uint32_t token,
                                                                  uint32_t begin, uint32_t end, float* partials, uint32_t head_stride,
                                                                  float* scratch)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads, head_dim = task.a.head_dim;
    float* weights = scratch + 4 * head_dim;
    for (uint32_t h = 0; h < group; h += 4) {
        const uint32_t n = group - h < 4 ? group - h : 4;
        const float* from = task.q + (size_t(token) * task.a.n_heads + kv_head * group + h) * head_dim;
        for (uint32_t i = 0; i < n * head_dim; i += 8) S::store(scratch + i, S::load(from + i) * S::broadcast(task.a.scale * kLog2e));
        float* out = partials + size_t(h) * head_stride;
        switch (n) {
        case 1:
            split_heads<S, k_half, v_half, 1>(task, kv_head, scratch, begin, end, out, head_stride, weights);
            break;
        case 2:
            split_heads<S, k_half, v_half, 2>(task, kv_head, scratch, begin, end, out, head_stride, weights);
            break;
        case 3:
            split_heads<S, k_half, v_half, 3>(task, kv_head, scratch, begin, end, out, head_stride, weights);
            break;
        default:
            split_heads<S, k_half, v_half, 4>(task, kv_head, scratch, begin, end, out, head_stride, weights);
            break;
        }
    }
}

// Folds the partials of one query head, `stride` floats apart, into a total of the same form.
template <class S> void attention_fold(float* total, const float* partials, uint32_t n_splits, uint32_t stride, uint32_t head_dim)
{
    for (uint32_t i = 0; i < n_splits; i++, partials += stride)
        fold<S>(total, total + 1, total + kPartialHead, partials[0], partials[1], partials + kPartialHead, head_dim);
}

template <class S> void attention_begin(float* total, uint32_t head_dim)
{
    total[0] = kLowest;
    for (uint32_t i = 1; i < kPartialHead + head_dim; i++) total[i] = 0;
}

template <class S> void attention_finish(const float* total, uint32_t head_dim, float* y)
{
    typename S::F8 scale = S::broadcast(1.f / total[1]);
    for (uint32_t d = 0; d < head_dim; d += 8) S::store(y + d, S::load(total + kPartialHead + d) * scale);
}

} // namespace

// The table of one instruction set.
#define KS_ATTENTION_KERNELS(S)                                                                                                            \
    {                                                                                                                                      \
        {{attention_chunk<S, false, false>, attention_chunk<S, false, true>},                                                              \
         {attention_chunk<S, true, false>, attention_chunk<S, true, true>}},                                                               \
            {{attention_split<S, false, false>, attention_split<S, false, true>},                                                          \
             {attention_split<S, true, false>, attention_split<S, true, true>}},                                                           \
            attention_begin<S>, attention_fold<S>, attention_finish<S>                                                                     \
    }

} // namespace ks
