// victims=merge: a victim is merged into the nearest token that stays. The key and value of its
// slot become the means of all merged tokens, and its log-weight the log of their number. A coded
// slot is encoded again each time it changes. These losses do not add up: the n-th token moves the
// mean by an n-th of its distance, and a move below one step of the code changes nothing. Means
// kept in floats beside the codes bring nothing: docs/codecs.md.
#pragma once

#include <cstdint>

namespace ks
{

constexpr float kNearEnough = 0.8f;    // the smallest cosine of keys at which merging helped
constexpr uint32_t kLargestCount = 64; // in log-weights: one slot must not outweigh exact tokens
constexpr uint32_t kNoTarget = ~0u;

// The tokens that stay, among which a victim finds the nearest.
struct MergeTargets {
    const float* keys;       // (.., head_dim) by index
    const uint32_t* indexes; // (n) by target: its index
    float* norms;            // (n) by target
    uint32_t n, head_dim;

    void set(uint32_t target); // updates the norm after the target's key changed
    // The target with the largest cosine to the key, the first on ties; kNoTarget: none is near
    // enough.
    uint32_t nearest(const float* key) const;
};
float key_norm(const float* key, uint32_t head_dim);

// The share of a victim in the mean, if it stands for n_victims tokens and its target for n_tokens.
float merge_weight(uint32_t n_victims, uint32_t n_tokens);
// Merges a victim's row into the mean.
void accumulate_mean(float* mean, const float* victim, float share, uint32_t head_dim);
float log_weight(uint32_t n_tokens); // of a slot that stands for n_tokens

} // namespace ks
