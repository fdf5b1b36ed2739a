// Policies that read the keys alone.
#include "runtime/kv/retain/policies.h"
#include "runtime/kv/retain/vectors.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ks
{

// KeyDiff: keys that point where few others point stay; minus the cosine with the mean of the normalised keys.
void score_keydiff(const Candidates& c, const RetainOptions&, float* scratch, float* score)
{
    float* mean = scratch; // (head_dim)
    const auto key = [&](uint32_t i) { return c.keys + uint64_t(i) * c.head_dim; };
    for (uint32_t i = 0; i < c.n; i++) score[i] = float(std::sqrt(dot64(key(i), key(i), c.head_dim)));
    for (uint32_t begin = 0; begin < c.head_dim; begin += 8) {
        const uint32_t width = std::min(8u, c.head_dim - begin);
        double sum[8] = {};
        for (uint32_t i = 0; i < c.n; i++) {
            const double scale = score[i] > 0 ? 1 / double(score[i]) : 0;
            for (uint32_t j = 0; j < width; j++) sum[j] += double(key(i)[begin + j]) * scale;
        }
        for (uint32_t j = 0; j < width; j++) mean[begin + j] = float(sum[j] / c.n);
    }
    const double length = std::sqrt(dot64(mean, mean, c.head_dim));
    for (uint32_t i = 0; i < c.n; i++) {
        const double scale = double(score[i]) * length;
        score[i] = scale > 0 ? float(-dot64(key(i), mean, c.head_dim) / scale) : 0;
    }
}

// Farthest first: the key of largest norm, then always the one farthest from all chosen; every key ends up within twice the
// best possible radius of a chosen one. The score counts down in the order of choice; ties: the older.
void score_kcenter(const Candidates& c, const RetainOptions&, float* scratch, float* score)
{
    float *square = scratch, *nearest = scratch + c.n; // |k|^2; squared distance to the nearest chosen, below 0: chosen
    const auto key = [&](uint32_t i) { return c.keys + uint64_t(i) * c.head_dim; };
    const uint32_t n_centres = c.n_keep ? std::min(c.n_keep, c.n) : c.n;
    uint32_t centre = 0;
    for (uint32_t i = 0; i < c.n; i++) {
        score[i] = 0;
        square[i] = dot(key(i), key(i), c.head_dim);
        nearest[i] = std::numeric_limits<float>::max();
        if (square[i] > square[centre]) centre = i;
    }
    for (uint32_t chosen = 0; chosen < n_centres; chosen++) {
        score[centre] = float(c.n - chosen);
        nearest[centre] = -1;
        uint32_t next = centre;
        for (uint32_t i = 0; i < c.n; i++) {
            if (nearest[i] < 0) continue;
            const float distance = square[i] - 2 * dot(key(i), key(centre), c.head_dim) + square[centre];
            nearest[i] = std::min(nearest[i], std::max(0.0f, distance)); // max() makes 0 of NaN
            if (nearest[i] > nearest[next]) next = i;
        }
        centre = next;
    }
}

} // namespace ks
