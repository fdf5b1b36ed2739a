// Log probabilities of the tokens of a text.
#pragma once

#include "runtime/api/session.h"

#include <algorithm>
#include <cmath>

namespace ks
{

inline double log_sum_exp(const float* x, uint32_t n) // log of the sum of exp(x)
{
    double top = *std::max_element(x, x + n), sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += std::exp(double(x[i]) - top);
    return top + std::log(sum);
}

// Like Session::feed() with logits after every token. top[i] is the argmax after ids[i]. logprob[i]
// = log p(next[i] | all up to ids[i]) for i < n_next. To score a text in parts, `next` is the text
// from the second token of the part on.
inline Status feed_scored(Session& session, const uint32_t* ids, size_t n, const uint32_t* next,
                          size_t n_next, double* logprob, uint32_t* top)
{
    const uint32_t n_vocab = session.model().config().n_vocab;
    return session.feed_each(ids, n, [&](size_t i) {
        const float* logits = session.logits();
        top[i] = uint32_t(std::max_element(logits, logits + n_vocab) - logits);
        if (i < n_next) logprob[i] = double(logits[next[i]]) - log_sum_exp(logits, n_vocab);
    });
}

} // namespace ks
