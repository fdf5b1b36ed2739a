// Policies that read the keys alone.
#include "runtime/kv/retain/coarse_keys.h"
#include "runtime/kv/retain/policies.h"
#include "runtime/kv/retain/vectors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

namespace ks
{

KS_ALWAYS_INLINE static void keydiff_of(const Candidates& c, float* mean, float* score)
{
    double sums[codec_max_dim] = {};
    c.each_key([&](uint32_t i, const float* key) __attribute__((always_inline)) {
        score[i] = std::sqrt(dot(key, key, c.head_dim));
        add_scaled(key, score[i] > 0 ? 1 / double(score[i]) : 0, c.head_dim, sums);
    });
    for (uint32_t j = 0; j < c.head_dim; j++) mean[j] = float(sums[j] / c.n);
    const float length = std::sqrt(dot(mean, mean, c.head_dim));
    c.each_key([&](uint32_t i, const float* key) __attribute__((always_inline)) {
        const float scale = score[i] * length;
        score[i] = scale > 0 ? -dot(key, mean, c.head_dim) / scale : 0;
    });
}

KS_AVX2 static void keydiff_avx2(const Candidates& c, float* mean, float* score)
{
    keydiff_of(c, mean, score);
}

// KeyDiff: keys that point where few others point stay; minus the cosine with the mean of the normalised keys. scratch: (head_dim)
void score_keydiff(const Candidates& c, const RetainOptions&, float* scratch, float* score)
{
    has_avx2 ? keydiff_avx2(c, scratch, score) : keydiff_of(c, scratch, score);
}

// Farthest first: the key of largest norm, then always the one farthest from all chosen; every key ends up within twice the
// best possible radius of a chosen one. The score counts down in the order of choice; ties: the older.
KS_ALWAYS_INLINE static void kcenter_of(const Candidates& c, float* scratch, float* score)
{
    const uint32_t n_padded = (c.n + 7) / 8 * 8, n_centres = c.n_keep ? std::min(c.n_keep, c.n) : c.n;
    // Of the keys that are not chosen, in any order: which, the squared distance to the nearest chosen one, and that to the newest or less.
    uint32_t* open = new (scratch) uint32_t[c.n]; // same size, same alignment
    float *nearest = scratch + n_padded, *apart = nearest + n_padded;
    CoarseKeys coarse(c.keys, c.n, c.head_dim, false, apart + n_padded);
    const auto key = [&](uint32_t i) { return c.keys + uint64_t(i) * c.head_dim; };
    uint32_t next = 0;
    float longest = -1;
    std::fill_n(nearest + c.n, n_padded - c.n, -1.0f); // what is read eight at a time
    for (uint32_t i = 0; i < c.n; i++) {
        const float square = dot(key(i), key(i), c.head_dim);
        score[i] = 0;
        open[i] = i;
        nearest[i] = std::numeric_limits<float>::max();
        coarse.set(i, key(i));
        if (square > longest) longest = square, next = i;
    }
    for (uint32_t chosen = 0, n_open = c.n; chosen < n_centres; chosen++) {
        const uint32_t centre = open[next];
        score[centre] = float(c.n - chosen);
        open[next] = open[--n_open]; // the last takes its place
        nearest[next] = nearest[n_open];
        nearest[n_open] = -1;
        coarse.copy(next, n_open);
        coarse.bounds(key(centre), n_open, apart);
        for (uint32_t i = 0; (i = first_within(apart, nearest, i, n_open)) < n_open; i++) {
            const float distance = squared_distance(key(open[i]), key(centre), c.head_dim);
            nearest[i] = std::min(nearest[i], std::max(0.0f, distance)); // max() makes 0 of NaN
        }
        // Of the farthest the oldest.
        const float bar = largest(nearest, n_open);
        next = n_open;
        for (uint32_t i = 0; (i = first_reaching(nearest, bar, i, n_open)) < n_open; i++)
            if (next == n_open || open[i] < open[next]) next = i;
    }
}

KS_AVX2 static void kcenter_avx2(const Candidates& c, float* scratch, float* score)
{
    kcenter_of(c, scratch, score);
}

void score_kcenter(const Candidates& c, const RetainOptions&, float* scratch, float* score)
{
    has_avx2 ? kcenter_avx2(c, scratch, score) : kcenter_of(c, scratch, score);
}

} // namespace ks
