// Policies that read attention scores.
#include "runtime/kv/policies/policies.h"

#include <algorithm>
#include <cmath>

namespace ks
{

// H2O: the sum of a token's probabilities. More queries have seen an old token, so `lifetime`
// divides by their number. If sums decay, it divides by 1 + decay + decay^2 + ... instead.
void score_h2o(const Candidates& c, const RetainOptions& o, float*, float* score)
{
    for (uint32_t i = 0; i < c.n; i++) {
        const double age = c.n_seen - c.positions[i];
        const double weight = o.decay == 1 ? age : (1 - std::pow(o.decay, age)) / (1 - o.decay);
        score[i] = o.lifetime ? float(c.scores[i] / weight) : c.scores[i];
    }
}

// Scissorhands: tokens whose probability is often below the mean leave.
void score_below(const Candidates& c, const RetainOptions&, float*, float* score)
{
    for (uint32_t i = 0; i < c.n; i++) score[i] = -c.scores[i];
}

// TOVA: the probabilities of the last queries, summed over all heads of the layer.
void score_attention(const Candidates& c, const RetainOptions&, float*, float* score)
{
    std::copy_n(c.scores, c.n, score);
}

// SnapKV: a token has the highest score among its neighbours, so the surroundings of a token with
// much attention stay as well.
void score_snapkv(const Candidates& c, const RetainOptions& o, float*, float* score)
{
    std::copy_n(c.scores, c.n, score);
    for (uint32_t apart = 1; apart <= o.pool / 2; apart++) {
        for (uint32_t i = apart; i < c.n; i++) score[i] = std::max(score[i], c.scores[i - apart]);
        for (uint32_t i = apart; i < c.n; i++)
            score[i - apart] = std::max(score[i - apart], c.scores[i]);
    }
}

} // namespace ks
