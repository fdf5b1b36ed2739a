// Victims that are not dropped: they go into the nearest slot that stays, whose key and value
// become the means of all it stands for and whose log-weight the log of their number. A slot in
// codes is encoded again each time it changes. What that loses does not add up: the n-th token
// moves the mean by an nth of its distance, and once this is less than a step of the codes they
// stay as they are. Means kept in floats beside the codes bring nothing: docs/codecs.md.
#pragma once

#include <cstdint>

namespace ks
{

constexpr float kNearEnough = 0.8f; // cosine of the keys from which merging was measured to help
constexpr uint32_t kLargestCount =
    64; // in the log-weight only: one representative must not out-shout exact tokens
constexpr uint32_t kNoTarget = ~0u;

// The slots that stay, as victims look for the nearest.
struct MergeTargets {
    const float* keys;       // (.., head_dim)
    const uint32_t* indexes; // (n) of `keys`
    float* norms;            // (n)
    uint32_t n, head_dim;

    void set(uint32_t target); // its key is another
    // The target of largest cosine with the key, the first among equals; kNoTarget: none is near
    // enough.
    uint32_t nearest(const float* key) const;
};
float key_norm(const float* key, uint32_t head_dim);

// Key and value of a slot that stands for n_tokens take in those of a victim that stands for
// n_victims: each is a mean.
float merge_weight(uint32_t n_victims, uint32_t n_tokens); // of the victim in it
void accumulate_mean(float* mean, const float* victim, float share, uint32_t head_dim);
float log_weight(uint32_t n_tokens);

} // namespace ks
