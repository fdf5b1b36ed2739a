// What the keys of one KV head, or the bounds of their pages, have to do with one query per head.
#pragma once

#include "kernels/cpu/attention_split.h"

namespace ks
{
namespace // as in simd_avx2.h
{

// logits[h][i - begin] of indexes [begin, end) and the query heads of a KV head, log-weights included.
template <class S> void select_logits(const AttentionTask& task, uint32_t kv_head, uint32_t begin, uint32_t end, float* logits,
                                      uint32_t stride, float* scratch)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads, head_dim = task.a.head_dim;
    const SplitScratch s(scratch, head_dim);
    const Sight sight(task, kv_head);
    for (uint32_t first = 0; first < group; first += 4) {
        const uint32_t n_heads = group - first < 4 ? group - first : 4;
        const float* q = task.q + size_t(kv_head * group + first) * head_dim;
        for (uint32_t i = 0; i < n_heads * head_dim; i += 8) S::store(s.q + i, S::load(q + i) * S::broadcast(task.a.scale * kLog2e));
        for (uint32_t p = begin; p < end; p += kAttentionTile) {
            const uint32_t n = end - p < kAttentionTile ? end - p : kAttentionTile;
            const TileRows tile(task, sight, kv_head, p, n, task.a.n_far);
            for (uint32_t i = 0; i < tile.n_parts; i++) {
                const Part& part = tile.parts[i];
                const PartRows keys(task, tile, part, true, s.decoded);
                const auto some = n_heads == 1   ? (keys.half ? part_logits<S, true, 1> : part_logits<S, false, 1>)
                                  : n_heads == 2 ? (keys.half ? part_logits<S, true, 2> : part_logits<S, false, 2>)
                                  : n_heads == 3 ? (keys.half ? part_logits<S, true, 3> : part_logits<S, false, 3>)
                                                 : (keys.half ? part_logits<S, true, 4> : part_logits<S, false, 4>);
                some(task, tile, part, keys, part.begin, part.end, s);
            }
            for (uint32_t h = 0; h < n_heads; h++)
                for (uint32_t i = 0; i < n; i++)
                    logits[size_t(first + h) * stride + (p - begin) + i] =
                        s.weights[h * kAttentionTile + i] + (task.weights ? tile.log_b[i] : 0.f);
        }
    }
}

// Logits become probabilities, in place. There is room for whole vectors.
template <class S> void select_softmax(float* logits, uint32_t n)
{
    for (uint32_t i = n; i % 8; i++) logits[i] = kLowest;
    typename S::F8 tops = S::broadcast(kLowest), sums = S::zero();
    for (uint32_t i = 0; i < n; i += 8) tops = S::max(S::load(logits + i), tops);
    const float top = S::largest(tops);
    for (uint32_t i = 0; i < n; i += 8) {
        const typename S::F8 x = exp2_of_negative<S>(S::max(S::load(logits + i), S::broadcast(kLowest)) - S::broadcast(top));
        S::store(logits + i, x);
        sums = sums + x;
    }
    const typename S::F8 inverse = S::broadcast(1 / S::sum(sums));
    for (uint32_t i = 0; i < n; i += 8) S::store(logits + i, S::load(logits + i) * inverse);
}

// The least and the largest values of the keys of indexes [begin, end), a page.
template <class S>
void page_bounds(const AttentionTask& task, uint32_t kv_head, uint32_t begin, uint32_t end, uint16_t* low, uint16_t* high, float* scratch)
{
    const uint32_t head_dim = task.a.head_dim;
    const SplitScratch s(scratch, head_dim);
    const Sight sight(task, kv_head);
    const TileRows tile(task, sight, kv_head, begin, end - begin, 0);
    float *least = s.q, *most = s.far;
    for (uint32_t p = 0; p < tile.n_parts; p++) {
        const Part& part = tile.parts[p];
        const PartRows keys(task, tile, part, true, s.decoded);
        for (uint32_t i = 0; i < part.end - part.begin; i++) {
            const size_t at = size_t(keys.rows[i]) * head_dim;
            for (uint32_t d = 0; d < head_dim; d += 8) {
                const typename S::F8 key = keys.half ? load_cached<S, true>(keys.data, at + d) : load_cached<S, false>(keys.data, at + d);
                const bool first = p == 0 && i == 0;
                S::store(least + d, first ? key : S::min(S::load(least + d), key));
                S::store(most + d, first ? key : S::max(S::load(most + d), key));
            }
        }
    }
    for (uint32_t d = 0; d < head_dim; d++) {
        low[d] = uint16_t(HALF_BELOW(least[d]));
        high[d] = uint16_t(HALF_ABOVE(most[d]));
    }
}

// votes[i]: the most that a key between the bounds of page i can come to with any of the queries of a KV head, each of
// head_dim values. bounds (n_pages, 2, head_dim)
template <class S>
void page_votes(const float* q, uint32_t n_heads, uint32_t head_dim, const uint16_t* bounds, uint32_t n_pages, float* votes)
{
    for (uint32_t i = 0; i < n_pages; i++, bounds += 2 * head_dim) {
        float most = kLowest;
        for (uint32_t h = 0; h < n_heads; h++) {
            typename S::F8 sum = S::zero();
            for (uint32_t d = 0; d < head_dim; d += 8) {
                const typename S::F8 query = S::load(q + h * head_dim + d);
                sum = sum + S::max(query * S::load_half(bounds + d), query * S::load_half(bounds + head_dim + d));
            }
            const float all = S::sum(sum);
            most = all > most ? all : most;
        }
        votes[i] = most;
    }
}

} // namespace
} // namespace ks
