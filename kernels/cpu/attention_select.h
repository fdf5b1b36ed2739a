// Selection: logits of the keys of one KV head, and votes on their pages, for one query per head.
#pragma once

#include "kernels/cpu/attention_split.h"

namespace ks
{
namespace // as in simd_avx2.h
{

// logits[h][i - begin] of indexes [begin, end) and the query heads of a KV head, log-weights
// included.
template <class S>
void select_logits(const AttentionTask& task, uint32_t kv_head, uint32_t begin, uint32_t end,
                   float* logits, uint32_t stride, float* scratch)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads, head_dim = task.a.head_dim;
    const SplitScratch s(scratch, head_dim);
    const Visibility visibility(task, kv_head);
    for (uint32_t first = 0; first < group; first += 4) {
        const uint32_t n_heads = group - first < 4 ? group - first : 4;
        const float* q = task.q + size_t(kv_head * group + first) * head_dim;
        for (uint32_t i = 0; i < n_heads * head_dim; i += 8)
            S::store(s.q + i, S::load(q + i) * S::broadcast(task.a.scale * kLog2e));
        prepare(task, s.q, n_heads, s.prepared);
        const auto logits_of = n_heads == 1   ? seen_logits<S, 1>
                               : n_heads == 2 ? seen_logits<S, 2>
                               : n_heads == 3 ? seen_logits<S, 3>
                                              : seen_logits<S, 4>;
        for (uint32_t p = begin; p < end; p += kAttentionTile) {
            const uint32_t n = end - p < kAttentionTile ? end - p : kAttentionTile;
            const TileRows tile(task, visibility, kv_head, p, n, 0); // no clamped queries
            for (uint32_t i = 0; i < tile.n_parts; i++)
                logits_of(task, tile, tile.parts[i], tile.parts[i].begin, tile.parts[i].end, s);
            for (uint32_t h = 0; h < n_heads; h++) {
                float* capped = s.weights + h * kAttentionTile;
                cap_logits<S>(task, capped, n);
                for (uint32_t i = 0; i < n; i++)
                    logits[size_t(first + h) * stride + (p - begin) + i] =
                        capped[i] + (task.weights ? tile.log_weight(task, i, 1) : 0.f);
            }
        }
    }
}

// Softmax in place. `logits` has space for whole vectors.
template <class S>
void select_softmax(float* logits, uint32_t n)
{
    for (uint32_t i = n; i % 8; i++) logits[i] = kLowest;
    typename S::F8 tops = S::broadcast(kLowest), sums = S::zero();
    for (uint32_t i = 0; i < n; i += 8) tops = S::max(S::load(logits + i), tops);
    const float top = S::largest(tops);
    for (uint32_t i = 0; i < n; i += 8) {
        const typename S::F8 x = exp2_of_negative<S>(
            S::max(S::load(logits + i), S::broadcast(kLowest)) - S::broadcast(top));
        S::store(logits + i, x);
        sums = sums + x;
    }
    const typename S::F8 inverse = S::broadcast(1 / S::sum(sums));
    for (uint32_t i = 0; i < n; i += 8) S::store(logits + i, S::load(logits + i) * inverse);
}

// The least and the largest value per dim of the keys of a page, indexes [begin, end), as f16
// rounded outwards.
template <class S>
void page_bounds(const AttentionTask& task, uint32_t kv_head, uint32_t begin, uint32_t end,
                 uint16_t* low, uint16_t* high, float* scratch)
{
    const uint32_t head_dim = task.a.head_dim;
    const SplitScratch s(scratch, head_dim);
    const Visibility visibility(task, kv_head);
    const TileRows tile(task, visibility, kv_head, begin, end - begin, 0);
    float *least = s.q, *most = s.q_clamped;
    for (uint32_t p = 0; p < tile.n_parts; p++) {
        const Part& part = tile.parts[p];
        const PartRows keys(task, tile, part, true, s.decoded);
        for (uint32_t i = 0; i < part.end - part.begin; i++) {
            const size_t at = size_t(keys.rows[i]) * head_dim;
            for (uint32_t d = 0; d < head_dim; d += 8) {
                const typename S::F8 key = keys.half ? load_cached<S, true>(keys.data, at + d)
                                                     : load_cached<S, false>(keys.data, at + d);
                const bool first = p == 0 && i == 0;
                S::store(least + d, first ? key : S::min(S::load(least + d), key));
                S::store(most + d, first ? key : S::max(S::load(most + d), key));
            }
        }
    }
    for (uint32_t d = 0; d < head_dim; d++) {
        low[d] = uint16_t(HALF_FLOOR(least[d]));
        high[d] = uint16_t(HALF_CEIL(most[d]));
    }
}

// The votes of n_heads queries on n_pages pages. Unless `first`, earlier votes are kept where they
// are higher.
template <class V, uint32_t n_heads, uint32_t n_pages>
KS_INLINE void accumulate_votes(const float* q, uint32_t head_dim, const uint16_t* bounds,
                                bool first, float* votes)
{
    constexpr uint32_t n_rows = V::lanes / 8, n = n_pages / n_rows; // as in tile_logits
    static_assert(n * n_rows == n_pages && n_heads * n <= 8, "one sum each");
    const uint8_t *low[n_pages], *high[n_pages];
    KS_UNROLL(4)
    for (uint32_t i = 0; i < n_pages; i++) {
        low[i] = reinterpret_cast<const uint8_t*>(bounds + 2 * i * head_dim);
        high[i] = low[i] + 2 * head_dim;
    }
    typename V::F sums[8];
    KS_UNROLL(8)
    for (uint32_t i = 0; i < 8; i++) sums[i] = V::zero();
    for (uint32_t d = 0; d < head_dim; d += 8) {
        typename V::F least[n], most[n];
        KS_UNROLL(2)
        for (uint32_t i = 0; i < n; i++) {
            least[i] = V::template load_rows<true>(low + n_rows * i, d);
            most[i] = V::template load_rows<true>(high + n_rows * i, d);
        }
        KS_UNROLL(4)
        for (uint32_t h = 0; h < n_heads; h++) {
            const typename V::F query = V::load_repeated(q + h * head_dim + d);
            KS_UNROLL(2)
            for (uint32_t i = 0; i < n; i++)
                sums[h * n + i] = sums[h * n + i] + V::max(query * least[i], query * most[i]);
        }
    }
    float all[V::lanes];
    V::store(all, V::sums8(sums));
    for (uint32_t i = 0; i < n_pages; i++) {
        float top = first ? kLowest : votes[i];
        for (uint32_t h = 0; h < n_heads; h++)
            top = all[h * n_pages + i] > top ? all[h * n_pages + i] : top;
        votes[i] = top;
    }
}

// votes[i]: the largest dot product that a key within the bounds of page i can have with any query
// of the KV head. q (n_heads, head_dim), bounds (n_pages, 2, head_dim).
template <class S>
void page_votes(const float* q, uint32_t n_heads, uint32_t head_dim, const uint16_t* bounds,
                uint32_t n_pages, float* votes)
{
    using Wide = typename S::Wide;
    constexpr uint32_t step = Wide::lanes / 4;
    for (uint32_t h = 0; h < n_heads; h += 4, q += 4 * head_dim) {
        const uint32_t n = n_heads - h < 4 ? n_heads - h : 4;
        const auto vote_step = n == 1   ? accumulate_votes<Wide, 1, step>
                               : n == 2 ? accumulate_votes<Wide, 2, step>
                               : n == 3 ? accumulate_votes<Wide, 3, step>
                                        : accumulate_votes<Wide, 4, step>;
        const auto vote_one = n == 1   ? accumulate_votes<S, 1, 1>
                              : n == 2 ? accumulate_votes<S, 2, 1>
                              : n == 3 ? accumulate_votes<S, 3, 1>
                                       : accumulate_votes<S, 4, 1>;
        uint32_t i = 0;
        for (; i + step <= n_pages; i += step)
            vote_step(q, head_dim, bounds + size_t(2) * i * head_dim, h == 0, votes + i);
        for (; i < n_pages; i++)
            vote_one(q, head_dim, bounds + size_t(2) * i * head_dim, h == 0, votes + i);
    }
}

} // namespace
} // namespace ks
