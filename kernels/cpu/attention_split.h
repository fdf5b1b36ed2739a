// One token over one group of slots: keys and values are read once for all query heads.
#pragma once

#include "kernels/cpu/attention_tile.h"

namespace ks
{
namespace // as in simd_avx2.h
{

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

// Rows of a table lie anywhere, and no processor guesses where: asks for rows [from, to) of those in the pool.
KS_INLINE static void prefetch_rows(const void* pool, const TileRows& rows, uint32_t from, uint32_t to, uint32_t row_bytes)
{
    for (to = to < rows.n_pool ? to : rows.n_pool; from < to; from++)
        for (uint32_t at = 0; at < row_bytes; at += 64)
            __builtin_prefetch(static_cast<const uint8_t*>(pool) + size_t(rows.rows[from]) * row_bytes + at);
}

constexpr uint32_t kAhead = 16; // rows that are asked for before they are used

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
        // Keys some rows ahead and this tile's values while logits are made; the next tile's first keys while outputs are.
        const uint32_t k_bytes = head_dim * (k_half ? 2 : 4), v_bytes = head_dim * (v_half ? 2 : 4);
        const bool scattered = task.table != nullptr;
        if (scattered && p == begin) prefetch_rows(task.k, rows, 0, kAhead, k_bytes);
        for_seen(c, rows.n_pool, [&](uint32_t from, uint32_t to, bool in_pool) {
            const void* keys = in_pool ? task.k : task.chunk_k;
            for (; from + step <= to; from += step) {
                if (scattered && in_pool) {
                    prefetch_rows(task.k, rows, from + kAhead, from + kAhead + step, k_bytes);
                    prefetch_rows(task.v, rows, from, from + step, v_bytes);
                }
                few_logits<S, k_half, n_heads, step>(keys, head_dim, q, rows.rows + from, weights + from);
            }
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
        if (scattered && p + kAttentionTile < end) {
            const uint32_t next = p + kAttentionTile, left = end - next < kAhead ? end - next : kAhead;
            prefetch_rows(task.k, TileRows(task, sight, kv_head, next, left), 0, left, k_bytes);
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

} // namespace
} // namespace ks
