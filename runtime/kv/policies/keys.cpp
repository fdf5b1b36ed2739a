// Policies that read only keys.
#include "runtime/kv/policies/dot.h"
#include "runtime/kv/policies/policies.h"

#include "kernels/common/codecs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ks
{

// KeyDiff: minus the cosine with the mean of the normalised keys, so unusual keys stay.
// scratch: (head_dim)
void score_keydiff(const Candidates& c, const RetainOptions&, float* scratch, float* score)
{
    float* mean = scratch;
    double sums[codec_max_dim] = {};
    c.each_key([&](uint32_t i, const float* key) {
        score[i] = std::sqrt(dot(key, key, c.head_dim));
        add_scaled(key, score[i] > 0 ? 1 / double(score[i]) : 0, c.head_dim, sums);
    });
    for (uint32_t j = 0; j < c.head_dim; j++) mean[j] = float(sums[j] / c.n);
    const float length = std::sqrt(dot(mean, mean, c.head_dim));
    c.each_key([&](uint32_t i, const float* key) {
        const float scale = score[i] * length;
        score[i] = scale > 0 ? -dot(key, mean, c.head_dim) / scale : 0;
    });
}

// Farthest first: chooses the key of the largest norm, then always the key farthest from all chosen
// ones. So every key is within twice the best possible radius of a chosen one. Scores descend in
// the order of choice. On ties the older key is chosen. scratch: (n)
void score_kcenter(const Candidates& c, const RetainOptions&, float* scratch, float* score)
{
    constexpr float kChosen = -1;
    float* nearest = scratch; // (n) squared distance to the nearest chosen key
    const auto key = [&](uint32_t i) { return c.keys + uint64_t(i) * c.head_dim; };
    uint32_t centre = 0;
    float longest = -1;
    for (uint32_t i = 0; i < c.n; i++) {
        const float square = dot(key(i), key(i), c.head_dim);
        if (square > longest) longest = square, centre = i;
        score[i] = 0;
        nearest[i] = std::numeric_limits<float>::max();
    }
    const uint32_t n_centres = c.n_keep ? std::min(c.n_keep, c.n) : c.n;
    for (uint32_t chosen = 0; chosen < n_centres; chosen++) {
        score[centre] = float(c.n - chosen);
        nearest[centre] = kChosen;
        uint32_t farthest = c.n;
        for (uint32_t i = 0; i < c.n; i++) {
            if (nearest[i] == kChosen) continue;
            const float distance = squared_distance(key(i), key(centre), c.head_dim);
            nearest[i] = std::min(nearest[i], std::max(0.0f, distance)); // max() turns NaN into 0
            if (farthest == c.n || nearest[i] > nearest[farthest]) farthest = i;
        }
        centre = farthest;
    }
}

} // namespace ks
