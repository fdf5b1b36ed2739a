// Attention over slots with log-weights, or with keys stored without their bias. It is the chunk
// kernel with two running maxima. A single token is a chunk, too.
#pragma once

#include "kernels/cpu/attention_bias.h"
#include "kernels/cpu/attention_chunk.h"

namespace ks
{
namespace // as in simd_avx2.h
{

// The softmax of a chunk's rows with log-weights. Numerator and denominator have their own logits
// and maxima.
template <class S>
struct GeneralSoftmax {
    const AttentionTask& task;
    const ChunkScratch& s;
    uint32_t kv_head, token, n_rows;
    const TileRows* tile = nullptr;
    uint32_t n = 0; // columns of the tile
    // Maxima of the denominator. s.top and s.total_top are the numerator's.
    float norm_top[kAttentionRows] = {}, total_norm_top[kAttentionRows] = {};
    // Log-weights of the columns, in units of log2.
    float log_a[kAttentionTile] = {}, log_b[kAttentionTile] = {};
    bool differ = false; // whether any log_a differs from its log_b

    void begin(uint32_t r)
    {
        s.top[r] = s.total_top[r] = norm_top[r] = total_norm_top[r] = kLowest;
        s.norm[r] = s.total_norm[r] = 0;
    }
    void begin_tile(const TileRows& rows, uint32_t n_columns)
    {
        tile = &rows;
        n = n_columns;
        if (task.a.n_bias_dims) load_phasors<S>(task, kv_head, rows.first, n, s.decoded);
        differ = false;
        for (uint32_t i = 0; task.weights && i < kAttentionTile; i++) {
            log_a[i] = rows.log_weight(task, i, 0);
            log_b[i] = rows.log_weight(task, i, 1);
            differ |= log_a[i] != log_b[i];
        }
    }
    void begin_rows(uint32_t r0)
    {
        if (task.a.n_bias_dims)
            add_biases<S>(task, *tile, s.decoded, kv_head, token, r0, n_rows, n, s.weights);
    }
    void take_rows(uint32_t r, uint32_t first, uint32_t n_columns, const Columns* seen,
                   float* shrink)
    {
        for (uint32_t i = 0; i < kRowBlock; i++)
            shrink[i] = take_row(r + i, first, s.weights + i * kAttentionTile + first, n_columns,
                                 seen[i].hole, seen[i].begin, seen[i].end);
    }
    float take_row(uint32_t r, uint32_t column, float* w, uint32_t n_logits, uint32_t hole,
                   uint32_t begin, uint32_t end)
    {
        const typename S::F8 lowest = S::broadcast(kLowest);
        // Numerator and denominator have the same weights so far.
        const bool same = !differ && s.top[r] == norm_top[r];
        float den_logit[kAttentionTile];
        for (uint32_t i = 0; task.weights && i < n_logits; i += 8) {
            if (!same)
                S::store(den_logit + i,
                         S::max(S::load(w + i) + S::load(log_b + column + i), lowest));
            S::store(w + i, S::max(S::load(w + i) + S::load(log_a + column + i), lowest));
        }
        if (same) {
            const float shrink =
                to_weights<S>(w, n_logits, hole, begin, end, s.top + r, s.norm + r);
            norm_top[r] = s.top[r];
            return shrink;
        }
        to_weights<S>(den_logit, n_logits, hole, begin, end, norm_top + r, s.norm + r);
        float unused = 0;
        return to_weights<S>(w, n_logits, hole, begin, end, s.top + r, &unused);
    }
    void combine_row(uint32_t r, uint32_t head_dim)
    {
        const bool same = s.total_top[r] == total_norm_top[r] && s.top[r] == norm_top[r];
        float total_norm = s.total_norm[r], before = 1, now = 1;
        if (!same) common_top<S>(total_norm_top + r, norm_top[r], &before, &now);
        total_norm = total_norm * before + s.norm[r] * now;
        combine<S>(s.total_sums(r), s.group_sums(r), head_dim);
        if (same)
            total_norm_top[r] = s.total_top[r];
        else
            s.total_norm[r] = total_norm;
        s.top[r] = norm_top[r] = kLowest;
        s.norm[r] = 0;
    }
    void finish_row(uint32_t r, uint32_t head_dim, float* y, float* lse)
    {
        float distance = 1;
        if (s.total_top[r] != total_norm_top[r])
            distance = exp2f(s.total_top[r] - total_norm_top[r]);
        const typename S::F8 scale = S::broadcast(distance / s.total_norm[r]);
        for (uint32_t d = 0; d < head_dim; d += 8)
            S::store(y + d, S::load(s.total + size_t(r) * s.width + d) * scale);
        if (lse) *lse = total_norm_top[r] + log2f(s.total_norm[r]);
    }
};

template <class S>
void attention_general(const AttentionTask& task, uint32_t kv_head, uint32_t token,
                       uint32_t n_tokens, float* scratch)
{
    const ChunkScratch s(scratch, task.a.head_dim);
    GeneralSoftmax<S> softmax{task, s, kv_head, token,
                              n_tokens * (task.a.n_heads / task.a.n_kv_heads)};
    chunk_rows<S>(task, kv_head, token, n_tokens, s, softmax);
}

} // namespace
} // namespace ks
