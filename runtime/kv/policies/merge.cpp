#include "runtime/kv/policies/merge.h"

#include "runtime/kv/policies/dot.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace ks
{

float key_norm(const float* key, uint32_t head_dim)
{
    return std::sqrt(dot(key, key, head_dim));
}

void MergeTargets::set(uint32_t target)
{
    norms[target] = key_norm(keys + uint64_t(indexes[target]) * head_dim, head_dim);
}

uint32_t MergeTargets::nearest(const float* key) const
{
    const float norm = key_norm(key, head_dim);
    float largest = kNearEnough;
    uint32_t best = kNoTarget;
    for (uint32_t i = 0; i < n; i++) {
        const float scale = norms[i] * norm;
        const float cosine =
            scale > 0 ? dot(keys + uint64_t(indexes[i]) * head_dim, key, head_dim) / scale : 0;
        if (cosine > largest || (cosine == largest && best == kNoTarget))
            largest = cosine, best = i;
    }
    return best;
}

float merge_weight(uint32_t n_victims, uint32_t n_tokens)
{
    return float(double(n_victims) / (double(n_tokens) + double(n_victims)));
}

void accumulate_mean(float* mean, const float* victim, float share, uint32_t head_dim)
{
    for (uint32_t i = 0; i < head_dim; i++) mean[i] += (victim[i] - mean[i]) * share;
}

float log_weight(uint32_t n_tokens)
{
    static const std::array<float, kLargestCount + 1> logs = [] {
        std::array<float, kLargestCount + 1> of{};
        for (uint32_t n = 1; n <= kLargestCount; n++) of[n] = float(std::log(double(n)));
        return of;
    }();
    return logs[std::min(n_tokens, kLargestCount)];
}

} // namespace ks
