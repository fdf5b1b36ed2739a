#include "runtime/kv/retain/merge.h"
#include "runtime/kv/retain/vectors.h"

#include <algorithm>
#include <cmath>

namespace ks
{

float key_norm(const float* key, uint32_t head_dim)
{
    return float(std::sqrt(dot64(key, key, head_dim)));
}

uint32_t nearest_target(const float* targets, const float* norms, uint32_t n_targets, uint32_t head_dim, const float* key, float* cosine)
{
    const float norm = key_norm(key, head_dim);
    uint32_t best = kNoTarget;
    *cosine = -2; // below every cosine
    for (uint32_t i = 0; i < n_targets; i++) {
        const float scale = norms[i] * norm;
        const float c = scale > 0 ? dot(targets + uint64_t(i) * head_dim, key, head_dim) / scale : 0;
        if (c > *cosine) *cosine = c, best = i;
    }
    return best;
}

uint32_t absorb(float* key, float* value, uint32_t n_tokens, const float* victim_key, const float* victim_value, uint32_t n_victims,
                uint32_t head_dim, bool keep_norm)
{
    const float share = float(double(n_victims) / (double(n_tokens) + double(n_victims)));
    const float norm = keep_norm ? key_norm(key, head_dim) + (key_norm(victim_key, head_dim) - key_norm(key, head_dim)) * share : 0;
    for (uint32_t i = 0; i < head_dim; i++) key[i] += (victim_key[i] - key[i]) * share;
    for (uint32_t i = 0; i < head_dim; i++) value[i] += (victim_value[i] - value[i]) * share;
    const float shrunk = keep_norm ? key_norm(key, head_dim) : 0;
    for (uint32_t i = 0; i < head_dim && shrunk > 0; i++) key[i] *= norm / shrunk;
    return n_tokens + n_victims;
}

float log_weight(uint32_t n_tokens)
{
    return float(std::log(double(std::min(n_tokens, kLargestCount))));
}

} // namespace ks
