// Victims that are not dropped: they go into the nearest slot that stays, whose key and value become the means of all it
// stands for and whose log-weight the log of their number.
#pragma once

#include <cstdint>

namespace ks
{

constexpr float kNearEnough = 0.8f;    // cosine of the keys from which merging was measured to help
constexpr uint32_t kLargestCount = 64; // in the log-weight only: one representative must not out-shout exact tokens
constexpr uint32_t kNoTarget = ~0u;

// The target of largest cosine with the key, the first among equals; kNoTarget: there are none.
uint32_t nearest_target(const float* targets, const float* norms, uint32_t n_targets, uint32_t head_dim, const float* key, float* cosine);
float key_norm(const float* key, uint32_t head_dim);

// Key and value of a slot that stands for n_tokens take in those of a victim that stands for n_victims. keep_norm: the mean key
// is scaled to the mean of the norms, which averaging keys of different positions would shrink. Returns the new number.
uint32_t absorb(float* key, float* value, uint32_t n_tokens, const float* victim_key, const float* victim_value, uint32_t n_victims,
                uint32_t head_dim, bool keep_norm = false);
float log_weight(uint32_t n_tokens);

} // namespace ks
