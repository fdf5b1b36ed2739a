#include "runtime/kv/retain/merge.h"

#include "runtime/kv/retain/vectors.h"

#include <algorithm>
#include <cmath>

namespace ks
{

float key_norm(const float* key, uint32_t head_dim)
{
    return std::sqrt(dot(key, key, head_dim));
}

void MergeTargets::set(uint32_t target)
{
    const float* key = keys + uint64_t(indexes[target]) * head_dim;
    norms[target] = key_norm(key, head_dim);
    few.set(target, key, 1 / norms[target]);
}

uint32_t MergeTargets::nearest(const float* key) const
{
    const float norm = key_norm(key, head_dim);
    few.distances(key, 1 / norm, n, apart);
    std::fill(apart + n, apart + (n + 3) / 4 * 4, INFINITY); // the loops below go over four at a time
    float largest_cosine = kNearEnough;
    uint32_t best = kNoTarget;
    const auto look = [&](uint32_t i) {
        const float scale = norms[i] * norm;
        const float cosine = scale > 0 ? dot(keys + uint64_t(indexes[i]) * head_dim, key, head_dim) / scale : 0;
        if (cosine > largest_cosine || (cosine == largest_cosine && i < best)) largest_cosine = cosine, best = i;
    };
    // The most promising first, so that hardly another needs a look. At length 1 a squared distance is 2 - 2 cosines.
    Float4 closest = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}; // negative, for largest()
    for (uint32_t i = 0; i < n; i += 4) {
        const Float4 now = -load4(apart + i);
        closest = now > closest ? now : closest;
    }
    const float bar = -largest(closest);
    for (uint32_t i = 0; i < n && best == kNoTarget; i++)
        if (apart[i] == bar) look(i);
    for (uint32_t i = 0; i < n; i += 4) {
        const float limit = (2 - 2 * largest_cosine) + kFewSlack - 1;
        if (!any(~(load4(apart + i) > limit))) continue;
        for (uint32_t j = i; j < std::min(i + 4, n); j++)
            if (!(apart[j] > limit)) look(j);
    }
    return best;
}

float share_of(uint32_t n_victims, uint32_t n_tokens)
{
    return float(double(n_victims) / (double(n_tokens) + double(n_victims)));
}

void take_in(float* mean, const float* victim, float share, uint32_t head_dim)
{
    for (uint32_t i = 0; i < head_dim; i++) mean[i] += (victim[i] - mean[i]) * share;
}

float log_weight(uint32_t n_tokens)
{
    return float(std::log(double(std::min(n_tokens, kLargestCount))));
}

} // namespace ks
