// Policies that read what attention gave to each token.
#include "runtime/kv/policies/policies.h"

#include <algorithm>
#include <cmath>

namespace ks
{

// H2O: the sum of a token's probabilities. Old tokens had more queries to be seen by; `lifetime`
// divides by their number, or by the sum of their weights 1, decay, decay^2 ... where sums decay.
void score_h2o(const Candidates& c, const RetainOptions& o, float*, float* score)
{
    for (uint32_t i = 0; i < c.n; i++) {
        const double age = c.n_seen - c.positions[i];
        const double weight = o.decay == 1 ? age : (1 - std::pow(o.decay, age)) / (1 - o.decay);
        score[i] = o.lifetime ? float(c.scores[i] / weight) : c.scores[i];
    }
}

// Scissorhands: what is often less than its even share leaves.
void score_below(const Candidates& c, const RetainOptions&, float*, float* score)
{
    for (uint32_t i = 0; i < c.n; i++) score[i] = -c.scores[i];
}

// TOVA: the probability by the last queries, summed over all heads of the layer.
void score_attention(const Candidates& c, const RetainOptions&, float*, float* score)
{
    std::copy_n(c.scores, c.n, score);
}

// SnapKV: a token stays if one of its neighbours is looked at, so that what is found can be read.
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
