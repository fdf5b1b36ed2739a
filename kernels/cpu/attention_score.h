// Attention scores of slots, from the probabilities of attention. Probabilities are computed tile
// by tile and never stored.
#pragma once

#include "kernels/cpu/attention_bias.h"
#include "kernels/cpu/attention_chunk.h"

namespace ks
{
namespace // as in simd_avx2.h
{

// Adds the scores of probabilities 2^x to `sum`: factor * 2^x, or for score_below, `factor` where
// 2^x < uniform.
template <class S>
KS_INLINE typename S::F8 add_score(uint32_t kind, typename S::F8 x, typename S::F8 uniform,
                                   typename S::F8 factor, typename S::F8 sum)
{
    typename S::F8 p = exp2_of_negative<S>(S::min(x, S::zero()));
    return kind == score_below ? sum + (factor - S::zero_where_less(factor, p, uniform))
                               : S::fma(p, factor, sum);
}

// sums += the scores of n columns from n_rows rows of logits.
template <class S>
void add_rows(const AttentionTask& task, const KvScoreArgs& score, const Visibility& visibility,
              uint32_t kv_head, uint32_t token, uint32_t row, uint32_t n_rows, uint32_t p,
              uint32_t n, float* logits, const float* powers, float* sums)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads;
    const float masked = score.kind == score_below ? -kLowest : kLowest; // a logit that scores zero
    for (uint32_t i = 0; i < n_rows; i++, logits += kAttentionTile) {
        const uint32_t t = token + (row + i) / group;
        const Columns c(visibility, t, p, n);
        typename S::F8 lse = S::broadcast(
            task.lse[size_t(t) * task.a.n_heads + kv_head * group + (row + i) % group]);
        typename S::F8 uniform = S::broadcast(1.f / float(visibility.n_visible(t))),
                       factor = S::broadcast(powers[task.a.n_tokens - 1 - t]);
        for (uint32_t k = c.hole; k < c.begin && k < n; k++) logits[k] = masked;
        for (uint32_t k = c.end; k < kAttentionTile; k++) logits[k] = masked;
        for (uint32_t k = 0; k < n; k += 8)
            S::store(sums + k, add_score<S>(score.kind, S::load(logits + k) - lse, uniform, factor,
                                            S::load(sums + k)));
    }
}

// Adds the sums of the columns to the scores of their slots.
KS_INLINE static void add_scores(const ScoreTask& score, const Visibility& visibility,
                                 const TileRows& rows, uint32_t p, uint32_t n, float keep,
                                 const float* sums)
{
    for (uint32_t i = 0; i < n; i++) {
        if (p + i >= visibility.n_pinned && p + i < visibility.oldest)
            continue; // a newer token has the row
        if (i >= rows.n_pool)
            score.chunk_scores[rows.rows[i]] =
                sums[i] + (score.s.before == score_adds ? score.chunk_scores[rows.rows[i]] : 0.f);
        else
            score.scores[rows.rows[i]] = score.scores[rows.rows[i]] * keep + sums[i];
    }
}

// Powers of the decay, and the factor for the scores so far.
struct Decay {
    float powers[kMaxScoreTokens];
    float keep;

    KS_INLINE Decay(const KvScoreArgs& s, uint32_t n_tokens)
    {
        float power = 1;
        for (uint32_t i = 0; i < n_tokens; i++, power *= s.decay) powers[i] = power;
        keep = s.before == score_adds ? 1.f : s.before == score_clears ? 0.f : power;
    }
};

template <class S>
void score_tile(const AttentionTask& task, const ScoreTask& score, uint32_t kv_head, uint32_t begin,
                uint32_t end, float* scratch)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads, n = end - begin;
    const ChunkScratch s(scratch, task.a.head_dim);
    const Visibility visibility(task, kv_head);
    const TileRows rows(task, visibility, kv_head, begin, n, 0);
    const Decay decay(score.s, task.a.n_tokens);
    float sums[kAttentionTile] = {};
    load_keys<S>(task, s, rows, n);
    if (task.a.n_bias_dims) load_phasors<S>(task, kv_head, begin, n, s.decoded);
    // Tokens before the tile do not see it.
    uint32_t token = begin > visibility.before ? begin - visibility.before : 0;
    token = token > score.s.first_query ? token : score.s.first_query;
    const uint32_t n_rows = token < task.a.n_tokens ? (task.a.n_tokens - token) * group : 0;
    for (uint32_t r0 = 0; r0 < n_rows; r0 += kRowBlock) {
        load_queries<S>(task, s, kv_head, token, r0, kRowBlock, n_rows);
        block_logits_of_panels<S>(s, 0, task.a.head_dim, 0, (n + kPanel - 1) / kPanel,
                                  columns_before(task.a.n_clamped, begin, n));
        if (task.a.n_bias_dims)
            add_biases<S>(task, rows, s.decoded, kv_head, token, r0, n_rows, n, s.weights);
        for (uint32_t i = 0; i < kRowBlock; i++)
            cap_logits<S>(task, s.weights + i * kAttentionTile, n);
        for (uint32_t i = 0; task.weights && i < kRowBlock; i++)
            for (uint32_t k = 0; k < n; k++)
                s.weights[i * kAttentionTile + k] += rows.log_weight(task, k, 1);
        add_rows<S>(task, score.s, visibility, kv_head, token, r0,
                    n_rows - r0 < kRowBlock ? n_rows - r0 : kRowBlock, begin, n, s.weights,
                    decay.powers, sums);
    }
    add_scores(score, visibility, rows, begin, n, decay.keep, sums);
}

// Scores of a single token from the logits that attention kept. The token sees all columns of the
// table.
template <class S>
void score_kept_logits(const AttentionTask& task, const ScoreTask& score, uint32_t kv_head,
                       uint32_t begin, uint32_t end, float*)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads, n = end - begin,
                   first = kv_head * group;
    const Visibility visibility(task, kv_head);
    const TileRows rows(task, visibility, kv_head, begin, n, 0);
    for (uint32_t i = 0; i < rows.n_pool; i++)
        __builtin_prefetch(score.scores + rows.rows[i], 1); // the table scatters them
    const Decay decay(score.s, 1);
    typename S::F8 uniform = S::broadcast(1.f / float(visibility.n_visible(0))),
                   one = S::broadcast(1.f);
    float sums[kAttentionTile];
    for (uint32_t k = 0; k < n; k += 8) {
        typename S::F8 sum = S::zero();
        for (uint32_t h = first; h < first + group; h++) {
            typename S::F8 logit =
                S::load(task.logits + size_t(h) * task.logits_stride + begin + k);
            sum = add_score<S>(score.s.kind, logit - S::broadcast(task.lse[h]), uniform, one, sum);
        }
        S::store(sums + k, sum);
    }
    add_scores(score, visibility, rows, begin, n, decay.keep, sums);
}

} // namespace
} // namespace ks
