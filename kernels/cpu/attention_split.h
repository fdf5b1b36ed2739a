// The split kernel: one token over groups of slots. Keys and values are read once for up to four
// query heads.
#pragma once

#include "kernels/cpu/attention_tile.h"

namespace ks
{
namespace // as in simd_avx2.h
{

// How many of n rows are prefetched before dim d.
KS_INLINE static uint32_t ceil_share(uint32_t n, size_t d, size_t head_dim)
{
    return d < head_dim ? uint32_t((n * d + head_dim - 1) / head_dim) : n;
}

// weights[h][i] = q[h] . key of rows[i], for n_heads query heads and n_positions rows. A vector
// holds eight dims of each of V::lanes / 8 rows.
template <class V, bool k_half, uint32_t n_heads, uint32_t n_positions>
KS_INLINE void tile_logits(const void* keys, size_t head_dim, const float* q, const uint32_t* rows,
                           float* weights, PrefetchRows ahead)
{
    constexpr uint32_t n_rows = V::lanes / 8, n = n_positions / n_rows;
    static_assert(n * n_rows == n_positions && n_heads * n <= 8, "one sum each");
    const uint8_t* at[n_positions];
    KS_UNROLL(16)
    for (uint32_t i = 0; i < n_positions; i++)
        at[i] = static_cast<const uint8_t*>(keys) + rows[i] * head_dim * (k_half ? 2 : 4);
    typename V::F sums[8];
    KS_UNROLL(8)
    for (uint32_t i = 0; i < 8; i++) sums[i] = V::zero();
    for (size_t d = 0; d < head_dim; d += 8) {
        if (d % 32 == 0)
            for (uint32_t i = ceil_share(n_positions, d, head_dim);
                 i < ceil_share(n_positions, d + 32, head_dim); i++)
                prefetch(ahead, i);
        typename V::F key[n];
        KS_UNROLL(8)
        for (uint32_t i = 0; i < n; i++) key[i] = V::template load_rows<k_half>(at + n_rows * i, d);
        KS_UNROLL(4)
        for (uint32_t h = 0; h < n_heads; h++) {
            typename V::F query = V::load_repeated(q + h * head_dim + d);
            KS_UNROLL(8)
            for (uint32_t i = 0; i < n; i++)
                sums[h * n + i] = V::fma(query, key[i], sums[h * n + i]);
        }
    }
    float logits[V::lanes];
    V::store(logits, V::sums8(sums));
    for (uint32_t h = 0; h < n_heads; h++)
        for (uint32_t i = 0; i < n_positions; i++)
            weights[h * kAttentionTile + i] = logits[h * n_positions + i];
}

// sums[h] += weights[h][i] * value of rows[i], over n rows, for the dims of n_vectors vectors from
// d on. Prefetches a row of `ahead` for each row.
template <class V, bool v_half, uint32_t n_heads, uint32_t n_vectors>
KS_INLINE void tile_outputs(const void* values, size_t head_dim, size_t d, const float* weights,
                            const uint32_t* rows, uint32_t n, float* sums, size_t stride,
                            const PrefetchRows& ahead)
{
    typename V::F sum[n_heads][n_vectors];
    KS_UNROLL(4)
    for (uint32_t h = 0; h < n_heads; h++) KS_UNROLL(8)
    for (uint32_t j = 0; j < n_vectors; j++)
        sum[h][j] = V::load(sums + h * stride + d + V::lanes * j);
    for (uint32_t i = 0; i < n; i++) {
        prefetch(ahead, i);
        const uint8_t* row =
            static_cast<const uint8_t*>(values) + rows[i] * head_dim * (v_half ? 2 : 4);
        typename V::F weight[n_heads];
        KS_UNROLL(4)
        for (uint32_t h = 0; h < n_heads; h++)
            weight[h] = V::broadcast(weights[h * kAttentionTile + i]);
        KS_UNROLL(8)
        for (uint32_t j = 0; j < n_vectors; j++) {
            const typename V::F value = load_cached<V, v_half>(row, d + V::lanes * j);
            KS_UNROLL(4)
            for (uint32_t h = 0; h < n_heads; h++) sum[h][j] = V::fma(weight[h], value, sum[h][j]);
        }
    }
    KS_UNROLL(4)
    for (uint32_t h = 0; h < n_heads; h++) KS_UNROLL(8)
    for (uint32_t j = 0; j < n_vectors; j++)
        V::store(sums + h * stride + d + V::lanes * j, sum[h][j]);
}

// Calls body(from, to) for the visible columns of a part, before the hole and then after it.
template <class Body>
KS_INLINE void for_seen(const Columns& c, const Part& part, const Body& body)
{
    const uint32_t runs[2][2] = {{0, c.hole < c.end ? c.hole : c.end}, {c.begin, c.end}};
    for (const uint32_t* run : runs) {
        const uint32_t from = run[0] > part.begin ? run[0] : part.begin,
                       to = run[1] < part.end ? run[1] : part.end;
        if (from < to) body(from, to);
    }
}

// The arrays of a split, f32.
struct SplitScratch {
    float* q;                // (4, head_dim), scaled
    float* q_clamped;        // (4, head_dim)
    float* weights;          // (4, kAttentionTile)
    float* decoded;          // (kAttentionTile, head_dim), decoded rows
    float* prepared;         // (head_dim, kPreparedFloats), q as CodedRows::prepare writes it
    float* prepared_clamped; // (head_dim, kPreparedFloats), of q_clamped

    KS_INLINE SplitScratch(float* scratch, uint32_t head_dim)
        : q(scratch), q_clamped(q + 4 * head_dim), weights(q_clamped + 4 * head_dim),
          decoded(weights + 4 * kAttentionTile), prepared(decoded + kAttentionTile * head_dim),
          prepared_clamped(prepared + kPreparedFloats * head_dim)
    {
    }
};

KS_INLINE static void prepare(const AttentionTask& task, const float* q, uint32_t n_heads,
                              float* prepared)
{
    if (task.coded_k.prepare && !task.a.n_rope_on_read)
        task.coded_k.prepare(q, n_heads, task.a.head_dim, prepared);
}

// Logits of columns [from, to) of a part, from rows. Decoding of a coded part has already
// prefetched.
template <class S, bool half, uint32_t n_heads>
void part_logits(const AttentionTask& task, const TileRows& tile, const Part& part,
                 const PartRows& keys, uint32_t from, uint32_t to, const SplitScratch& s)
{
    using Wide = typename S::Wide;
    constexpr uint32_t step = Wide::lanes / 8 * (n_heads == 1 ? 8 : n_heads == 2 ? 4 : 2);
    const uint32_t head_dim = task.a.head_dim;
    const PrefetchRows ahead =
        part.place == Part::pool ? tile.ahead(task, part, true, part.begin) : PrefetchRows{};
    const float* q = part.q_clamped ? s.q_clamped : s.q;
    const uint32_t* rows = keys.rows - part.begin;
    for (; from + step <= to; from += step)
        tile_logits<Wide, half, n_heads, step>(keys.data, head_dim, q, rows + from,
                                               s.weights + from, after(ahead, from - part.begin));
    for (; from < to; from++)
        tile_logits<S, half, n_heads, 1>(keys.data, head_dim, q, rows + from, s.weights + from,
                                         after(ahead, from - part.begin));
}

// Logits straight from codes, if the codec supports it and attention does not apply RoPE to keys.
// Returns the number of columns that are done.
template <uint32_t n_heads>
KS_INLINE uint32_t logits_of_codes(const AttentionTask& task, const TileRows& tile,
                                   const Part& part, uint32_t from, uint32_t to,
                                   const SplitScratch& s)
{
    const CodedRows& keys = task.coded_k;
    if (part.place != Part::coded || !keys.logits || task.a.n_rope_on_read) return 0;
    const float* q = part.q_clamped ? s.q_clamped : s.q;
    const float* prepared = part.q_clamped ? s.prepared_clamped : s.prepared;
    return keys.logits(keys, tile.rows + from, tile.first_coded, to - from, task.a.head_dim,
                       keys.prepare ? prepared : q, n_heads, s.weights + from, s.decoded,
                       tile.ahead(task, part, true, from));
}

// Logits of columns [from, to) of a part, from codes or from rows.
template <class S, uint32_t n_heads>
void seen_logits(const AttentionTask& task, const TileRows& tile, const Part& part, uint32_t from,
                 uint32_t to, const SplitScratch& s)
{
    from += logits_of_codes<n_heads>(task, tile, part, from, to, s);
    if (from == to) return;
    const Part rest = {from, to, part.place, part.q_clamped};
    const PartRows keys = part_keys<S>(task, tile, rest, s.decoded);
    const auto logits = keys.half ? part_logits<S, true, n_heads> : part_logits<S, false, n_heads>;
    logits(task, tile, rest, keys, from, to, s);
}

// Adds columns [from, to) of a part to the sums, from rows. Sums stay in registers over all
// columns.
template <class S, bool half, uint32_t n_heads>
void part_outputs(const AttentionTask& task, const TileRows& tile, const Part& part,
                  const PartRows& values, uint32_t from, uint32_t to, const SplitScratch& s,
                  float* sums, uint32_t stride)
{
    using Wide = typename S::Wide;
    constexpr uint32_t lanes = Wide::lanes, n_vectors = lanes == 16    ? 4
                                                        : n_heads == 1 ? 8
                                                        : n_heads == 4 ? 2
                                                                       : 4;
    const uint32_t head_dim = task.a.head_dim, *rows = values.rows + (from - part.begin);
    const PrefetchRows ahead =
        part.place == Part::pool ? tile.ahead(task, part, false, from) : PrefetchRows{};
    uint32_t d = 0;
    for (; d + lanes * n_vectors <= head_dim; d += lanes * n_vectors)
        tile_outputs<Wide, half, n_heads, n_vectors>(
            values.data, head_dim, d, s.weights + from, rows, to - from, sums, stride,
            share(ahead, d, d + lanes * n_vectors, head_dim));
    for (; d + lanes <= head_dim; d += lanes)
        tile_outputs<Wide, half, n_heads, 1>(values.data, head_dim, d, s.weights + from, rows,
                                             to - from, sums, stride,
                                             share(ahead, d, d + lanes, head_dim));
    for (; d < head_dim; d += 8)
        tile_outputs<S, half, n_heads, 1>(values.data, head_dim, d, s.weights + from, rows,
                                          to - from, sums, stride,
                                          share(ahead, d, d + 8, head_dim));
}

// Adds columns [from, to) of a part to the sums, from codes or from rows.
template <class S, uint32_t n_heads>
void seen_outputs(const AttentionTask& task, const TileRows& tile, const Part& part, uint32_t from,
                  uint32_t to, const SplitScratch& s, float* sums, uint32_t stride)
{
    const CodedRows& codes = task.coded_v;
    if (part.place == Part::coded && codes.outputs)
        from += codes.outputs(codes, tile.rows + from, tile.first_coded, to - from, task.a.head_dim,
                              s.weights + from, n_heads, sums, stride,
                              tile.ahead(task, part, false, from));
    if (from == to) return;
    const Part rest = {from, to, part.place, part.q_clamped};
    const PartRows values(task, tile, rest, false, s.decoded);
    const auto outputs =
        values.half ? part_outputs<S, true, n_heads> : part_outputs<S, false, n_heads>;
    outputs(task, tile, rest, values, from, to, s, sums, stride);
}

// Adds one tile of n columns, the first of which has index p, to the partials of n_heads heads.
template <class S, uint32_t n_heads>
void split_tile(const AttentionTask& task, const TileRows& tile, const Columns& c, uint32_t n,
                uint32_t p, uint32_t first_head, const SplitScratch& s, float* partials,
                uint32_t head_stride)
{
    const uint32_t n_floats = kPartialHead + task.a.head_dim;
    for (uint32_t i = 0; i < tile.n_parts; i++) {
        const Part& part = tile.parts[i];
        for_seen(c, part, [&](uint32_t from, uint32_t to) {
            seen_logits<S, n_heads>(task, tile, part, from, to, s);
        });
    }
    for (uint32_t h = 0; h < n_heads; h++) {
        float *partial = partials + h * head_stride, *w = s.weights + h * kAttentionTile;
        cap_logits<S>(task, w, n);
        if (task.logits) {
            float* kept = task.logits + size_t(first_head + h) * task.logits_stride + p;
            for (uint32_t i = 0; i < n; i++) kept[i] = w[i];
        }
        const float shrink =
            to_weights<S>(w, (n + 7) / 8 * 8, c.hole, c.begin, c.end, partial, partial + 1);
        if (shrink != 1.f)
            for (uint32_t d = kPartialHead; d < n_floats; d += 8)
                S::store(partial + d, S::load(partial + d) * S::broadcast(shrink));
    }
    for (uint32_t i = 0; i < tile.n_parts; i++) {
        const Part& part = tile.parts[i];
        for_seen(c, part, [&](uint32_t from, uint32_t to) {
            seen_outputs<S, n_heads>(task, tile, part, from, to, s, partials + kPartialHead,
                                     head_stride);
        });
    }
}

// The partials of n_heads heads over one group, indexes [begin, end).
template <class S, uint32_t n_heads>
void split_heads(const AttentionTask& task, uint32_t kv_head, uint32_t token, const SplitScratch& s,
                 uint32_t first_head, uint32_t begin, uint32_t end, float* partials,
                 uint32_t head_stride)
{
    const Visibility visibility(task, kv_head);
    for (uint32_t h = 0; h < n_heads; h++) {
        float* partial = partials + h * head_stride;
        for (uint32_t i = 0; i < kPartialHead + task.a.head_dim; i++) partial[i] = 0;
        partial[0] = kLowest;
    }
    for (uint32_t p = begin; p < end; p += kAttentionTile) {
        const uint32_t n = end - p < kAttentionTile ? end - p : kAttentionTile;
        const Columns c(visibility, token, p, n);
        if (!c.any()) continue;
        const TileRows tile(task, visibility, kv_head, p, n, task.a.n_clamped);
        const PrefetchRows keys = tile.pool_rows(task, tile.parts[0], true, 0, tile.n_pool);
        for (uint32_t i = 0; p == begin && i < kAttentionTile / 2; i++)
            prefetch(keys, i); // no earlier tile has prefetched them
        split_tile<S, n_heads>(task, tile, c, n, p, first_head, s, partials, head_stride);
    }
}

template <class S>
void attention_split(const AttentionTask& task, uint32_t kv_head, uint32_t token, uint32_t begin,
                     uint32_t end, float* partials, uint32_t head_stride, float* scratch)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads, head_dim = task.a.head_dim;
    const uint32_t own = task.head_layout[kv_head * layout_words + layout_n_held] + token;
    const SplitScratch s(scratch, head_dim);
    for (uint32_t h = 0; h < group; h += 4) {
        const uint32_t n = group - h < 4 ? group - h : 4, head = kv_head * group + h;
        const size_t from = (size_t(token) * task.a.n_heads + head) * head_dim;
        const typename S::F8 scale = S::broadcast(task.a.scale * kLog2e);
        for (uint32_t i = 0; i < n * head_dim; i += 8)
            S::store(s.q + i, S::load(task.q + from + i) * scale);
        for (uint32_t i = 0; i < n; i++) rope_on_read<S>(task, own, s.q + i * head_dim);
        for (uint32_t i = 0; task.a.n_clamped && i < n * head_dim; i += 8)
            S::store(s.q_clamped + i, S::load(task.q_clamped + from + i) * scale);
        prepare(task, s.q, n, s.prepared);
        if (task.a.n_clamped) prepare(task, s.q_clamped, n, s.prepared_clamped);
        const auto heads = n == 1   ? split_heads<S, 1>
                           : n == 2 ? split_heads<S, 2>
                           : n == 3 ? split_heads<S, 3>
                                    : split_heads<S, 4>;
        float* to = partials + size_t(h) * head_stride;
        for (uint32_t p = begin; p < end; p += kAttentionGroup, to += kPartialHead + head_dim)
            heads(task, kv_head, token, s, head, p,
                  p + kAttentionGroup < own + 1 ? p + kAttentionGroup : own + 1, to, head_stride);
    }
}

KS_INLINE static Sums partial_sums(float* partial)
{
    return {partial, partial + 1, partial + kPartialHead};
}

// Combines the partials of one query head, `stride` floats apart, into a total of the same form.
template <class S>
void attention_combine(float* total, const float* partials, uint32_t n_splits, uint32_t stride,
                       uint32_t head_dim)
{
    for (uint32_t i = 0; i < n_splits; i++, partials += stride)
        combine<S>(partial_sums(total), partial_sums(const_cast<float*>(partials)), head_dim);
}

template <class S>
void attention_begin(float* total, uint32_t head_dim)
{
    for (uint32_t i = 0; i < kPartialHead + head_dim; i++) total[i] = 0;
    total[0] = kLowest;
}

template <class S>
void attention_finish(const float* total, uint32_t head_dim, float* y, float* lse)
{
    finish<S>(partial_sums(const_cast<float*>(total)), head_dim, y, lse);
}

} // namespace
} // namespace ks
