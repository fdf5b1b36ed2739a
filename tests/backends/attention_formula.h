// attention and kv_score by their formulas, in float64.
#pragma once

#include "tests/backends/attention_data.h"

namespace ks
{

// The RoPE angle of pair i at a position.
inline double angle_of(uint32_t position, uint32_t i, uint32_t n_bias_dims)
{
    return position * std::pow(10000.0, -2.0 * i / n_bias_dims);
}

inline bool is_visible(const AttentionShape& s, uint32_t head, uint32_t t, uint32_t index)
{
    const AttentionArgs& a = s.a;
    const uint32_t own = s.n_before(head) + t,
                   written = s.n_before(head) + (a.chunk_rows ? 0 : a.n_tokens);
    if (index > own) return false;
    if (index < a.n_pinned) return true;
    if (!s.table && written > a.n_rows && index < written - (a.n_rows - a.n_pinned)) return false;
    return a.window == 0 || own - index < a.window;
}

// The logit of query head h of token t with an index, without log-weights.
inline double logit_of(const AttentionShape& s, const AttentionData& data, uint32_t t, uint32_t h,
                       uint32_t index)
{
    const AttentionArgs& a = s.a;
    const uint64_t key = uint64_t(h * a.n_kv_heads / a.n_heads) * s.n_history() + index,
                   query = (uint64_t(t) * a.n_heads + h) * a.head_dim;
    const bool clamped = index < a.n_clamped;
    double logit = 0;
    for (uint32_t d = 0; d < a.head_dim; d++)
        logit +=
            double((clamped ? data.q_clamped : data.q)[query + d]) * data.k[key * a.head_dim + d];
    for (uint32_t w = 0; w < a.n_bias_dims; w++) {
        const uint32_t pair = w % (a.n_bias_dims / 2);
        const double angle = angle_of(data.positions[key], pair, a.n_bias_dims);
        const uint32_t at = a.pairs == rope_neox ? w : pair * 2 + w / (a.n_bias_dims / 2);
        logit += double((clamped ? data.bias_clamped : data.bias)[query + at]) *
                 (w < a.n_bias_dims / 2 ? std::cos(angle) : std::sin(angle));
    }
    logit *= a.scale;
    return a.softcap != 0 ? a.softcap * std::tanh(logit / a.softcap) : logit;
}

// The softmax of one query head by index. Log-weights a and b give two numerators, which share the
// denominator of b.
struct Softmax {
    std::vector<double> with_a, with_b;
    double lse; // log2 of the denominator
};

inline Softmax softmax_of(const AttentionShape& s, const AttentionData& data, uint32_t t,
                          uint32_t h)
{
    const uint32_t head = h * s.a.n_kv_heads / s.a.n_heads, n = s.n_history();
    Softmax out{std::vector<double>(n, -INFINITY), std::vector<double>(n, -INFINITY), 0};
    for (uint32_t i = 0; i < n; i++) {
        if (!is_visible(s, head, t, i)) continue;
        const double logit = logit_of(s, data, t, h, i);
        out.with_a[i] = logit + data.weights[2 * (uint64_t(head) * n + i)];
        out.with_b[i] = logit + data.weights[2 * (uint64_t(head) * n + i) + 1];
    }
    double sum = 0;
    const double max = *std::max_element(out.with_b.begin(), out.with_b.end());
    for (double x : out.with_b) sum += std::exp(x - max);
    for (double& x : out.with_a) x = std::exp(x - max) / sum;
    for (double& x : out.with_b) x = std::exp(x - max) / sum;
    out.lse = (max + std::log(sum)) / std::log(2.0);
    return out;
}

// The outputs of all queries, then their lse.
inline std::vector<double> attention_formula(const AttentionShape& s, const AttentionData& data)
{
    const AttentionArgs& a = s.a;
    std::vector<double> out, lse;
    for (uint32_t t = 0; t < a.n_tokens; t++) {
        for (uint32_t h = 0; h < a.n_heads; h++) {
            const Softmax softmax = softmax_of(s, data, t, h);
            const uint64_t head = uint64_t(h * a.n_kv_heads / a.n_heads) * s.n_history();
            std::vector<double> y(a.head_dim);
            for (uint32_t d = 0; d < a.head_dim; d++)
                for (size_t i = 0; i < softmax.with_a.size(); i++)
                    if (softmax.with_a[i] > 0)
                        y[d] += softmax.with_a[i] * data.v[(head + i) * a.head_dim + d];
            if (a.hadamard) y = hadamard(y.data(), a.head_dim, true);
            out.insert(out.end(), y.begin(), y.end());
            lse.push_back(softmax.lse);
        }
    }
    out.insert(out.end(), lse.begin(), lse.end());
    return out;
}

// What the queries from first_query on add to the score of each index of a KV head.
inline std::vector<double> added_scores(const AttentionShape& s, const AttentionData& data,
                                        const KvScoreArgs& score, uint32_t head)
{
    const AttentionArgs& a = s.a;
    const uint32_t end = s.n_before(head) + a.n_tokens, group = a.n_heads / a.n_kv_heads;
    std::vector<double> sums(end, 0.0);
    for (uint32_t t = score.first_query; t < a.n_tokens; t++) {
        uint32_t visible = 0;
        for (uint32_t i = 0; i < end; i++) visible += is_visible(s, head, t, i);
        for (uint32_t h = head * group; h < (head + 1) * group; h++) {
            const Softmax softmax = softmax_of(s, data, t, h);
            for (uint32_t i = 0; i < end; i++) {
                if (!is_visible(s, head, t, i)) continue;
                const double p = softmax.with_b[i],
                             added = score.kind == score_below ? double(p < 1.0 / visible) : p;
                sums[i] += added * std::pow(double(score.decay), a.n_tokens - 1 - t);
            }
        }
    }
    return sums;
}

// The scores of all slots, then the scores of the staged chunk. Every score was `before`.
inline std::vector<double> score_formula(const AttentionShape& s, const AttentionData& data,
                                         const KvScoreArgs& score, float before)
{
    const AttentionArgs& a = s.a;
    std::vector<double> out(uint64_t(a.n_kv_heads) * (s.n_slots() + a.chunk_rows), before);
    double* chunk = out.data() + uint64_t(a.n_kv_heads) * s.n_slots();
    for (uint32_t head = 0; head < a.n_kv_heads; head++) {
        const std::vector<double> sums = added_scores(s, data, score, head);
        for (uint32_t i = 0; i < sums.size(); i++) {
            const bool in_chunk = a.chunk_rows && i >= s.n_before(head);
            const uint32_t written = s.n_before(head) + (a.chunk_rows ? 0 : a.n_tokens);
            if (!s.table && i >= a.n_pinned && written > a.n_rows &&
                i < written - (a.n_rows - a.n_pinned))
                continue; // overwritten
            double& cell = in_chunk ? chunk[head * a.chunk_rows + i - s.n_before(head)]
                                    : out[row_of(s, data, head, i)];
            const double decayed = in_chunk || score.before == score_clears
                                       ? 0.0
                                       : cell * std::pow(double(score.decay), a.n_tokens);
            cell = (score.before == score_adds ? cell : decayed) + sums[i];
        }
    }
    return out;
}

} // namespace ks
