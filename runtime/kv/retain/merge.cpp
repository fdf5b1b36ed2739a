#include "runtime/kv/retain/merge.h"

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
    coordinates.take(key, 1 / norms[target], few + target * kFew);
}

uint32_t MergeTargets::nearest(const float* key) const
{
    const float norm = key_norm(key, head_dim);
    float own[kFew], largest = kNearEnough;
    coordinates.take(key, 1 / norm, own);
    for (uint32_t i = 0; i < n; i++) apart[i] = squared_distance(few + i * kFew, own, kFew);
    // The most promising first, so that hardly another needs a look. At length 1 a squared distance is 2 - 2 cosines.
    uint32_t best = kNoTarget;
    for (uint32_t k = 0, first = uint32_t(std::min_element(apart, apart + n) - apart); k <= n; k++) {
        const uint32_t i = k ? k - 1 : first;
        if (i == n || (k && apart[i] > (2 - 2 * largest) + kFewSlack - 1)) continue;
        const float scale = norms[i] * norm;
        const float cosine = scale > 0 ? dot(keys + uint64_t(indexes[i]) * head_dim, key, head_dim) / scale : 0;
        if (cosine > largest || (cosine == largest && i < best)) largest = cosine, best = i;
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
