#include "runtime/kv/policies/subgen.h"
#include "runtime/base/rng.h"
#include "runtime/base/status.h"
#include "runtime/kv/policies/dot.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace ks
{

static constexpr uint32_t kRadiusKeys = 256;

uint64_t Subgen::bytes_needed(const SubgenShape& shape)
{
    const uint64_t bytes =
        sizeof(Head) + 16ull * shape.s + shape.n_clusters * (4ull + 4ull * shape.head_dim);
    return (bytes + 7) / 8 * 8;
}

Subgen::Subgen(const SubgenShape& shape, void* state)
    : m_shape(shape), m_head(static_cast<Head*>(state)),
      m_weights(reinterpret_cast<double*>(m_head + 1)), m_priorities(m_weights + shape.s),
      m_counts(reinterpret_cast<uint32_t*>(m_priorities + shape.s)),
      m_centres(reinterpret_cast<float*>(m_counts + shape.n_clusters))
{
    KS_CHECK(shape.n_clusters && shape.t && shape.s, "%u clusters, %u keys of each, %u values",
             shape.n_clusters, shape.t, shape.s);
    KS_CHECK(reinterpret_cast<uintptr_t>(state) % alignof(double) == 0, "at %p", state);
}

void Subgen::clear()
{
    std::memset(static_cast<void*>(m_head), 0, bytes_needed(m_shape));
}

void Subgen::set_radius(float radius)
{
    m_head->radius = double(radius);
}

void Subgen::choose_radius(const float* keys, uint32_t n)
{
    float nearest[kRadiusKeys];
    n = std::min(n, kRadiusKeys);
    if (n < 2) return;
    std::fill_n(nearest, n, std::numeric_limits<float>::max());
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < i; j++) {
            const uint64_t dim = m_shape.head_dim;
            const float distance =
                squared_distance(keys + i * dim, keys + j * dim, m_shape.head_dim);
            nearest[i] = std::min(nearest[i], distance);
            nearest[j] = std::min(nearest[j], distance);
        }
    std::nth_element(nearest, nearest + n / 2, nearest + n);
    m_head->radius = 1.5 * std::sqrt(double(nearest[n / 2]));
}

// Uniform in [0, 1). from: the slot that a merge copies, else ~0.
double Subgen::coin(uint32_t position, uint32_t slot, uint32_t from) const
{
    const auto word =
        philox({position, slot, from, (m_shape.layer << 16) | m_shape.head}, m_shape.seed);
    return double((uint64_t(word[0]) << 21) | (word[1] >> 11)) * 0x1p-53;
}

// The nearest of the clusters before `end`, the first on ties; `end` if there is none.
uint32_t Subgen::nearest(const float* key, uint32_t end, double* distance) const
{
    uint32_t best = end;
    float least = std::numeric_limits<float>::infinity();
    for (uint32_t j = 0; j < end; j++) {
        if (m_counts[j] == 0) continue;
        const float squared = squared_distance(key, centre(j), m_shape.head_dim);
        if (squared < least) least = squared, best = j;
    }
    *distance = std::sqrt(double(least));
    return best;
}

// Doubles the radius, or sets it to the distance of the two closest centres if that is larger: a
// radius of 0 doubles to 0. Then each cluster merges into the nearest one before it within the
// radius. Each sample of the merged cluster is drawn from the two samples of the old ones.
void Subgen::merge_clusters(uint32_t position, SubgenChanges* changes)
{
    double closest = std::numeric_limits<double>::infinity(), distance = 0;
    for (uint32_t i = 1; i < m_shape.n_clusters; i++) {
        nearest(centre(i), i, &distance);
        closest = std::min(closest, distance);
    }
    m_head->radius = std::max(2 * m_head->radius, closest);
    for (uint32_t i = 1; i < m_shape.n_clusters; i++) {
        const uint32_t into = nearest(centre(i), i, &distance);
        if (into == i || !(distance <= m_head->radius)) continue;
        const double share = double(m_counts[i]) / (double(m_counts[i]) + double(m_counts[into]));
        for (uint32_t a = 0; a < m_shape.t; a++) {
            const uint32_t from = i * m_shape.t + a, to = into * m_shape.t + a;
            if (coin(position, to, from) >= share) continue;
            uint32_t at = 0; // a copy to the same slot from an earlier cluster is replaced
            while (at < changes->n_copies && changes->copies[at].to != to) at++;
            changes->copies[at] = {from, to};
            changes->n_copies = std::max(changes->n_copies, at + 1);
        }
        m_counts[into] += m_counts[i];
        m_counts[i] = 0;
        m_head->n_clusters--;
    }
}

void Subgen::sample_key(uint32_t position, const float* key, SubgenChanges* changes)
{
    uint32_t j = 0;
    const auto is_apart = [&] {
        double distance = 0;
        j = nearest(key, m_shape.n_clusters, &distance);
        return j == m_shape.n_clusters || distance > m_head->radius;
    };
    bool apart = is_apart();
    if (apart && m_head->n_clusters == m_shape.n_clusters) {
        merge_clusters(position, changes);
        apart = is_apart();
    }
    // With NaN in keys no cluster is free here: the token then joins any cluster.
    if (apart && m_head->n_clusters < m_shape.n_clusters) {
        j = uint32_t(std::find(m_counts, m_counts + m_shape.n_clusters, 0u) - m_counts);
        std::copy_n(key, m_shape.head_dim, centre(j));
        m_head->n_clusters++;
    }
    j = std::min(j, m_shape.n_clusters - 1);
    m_counts[j]++;
    for (uint32_t slot = j * m_shape.t; slot < (j + 1) * m_shape.t; slot++)
        if (coin(position, slot, ~0u) * m_counts[j] < 1) changes->slots[changes->n_slots++] = slot;
}

void Subgen::sample_value(uint32_t position, double weight, SubgenChanges* changes)
{
    for (uint32_t b = 0; b < m_shape.s; b++) {
        const uint32_t slot = m_shape.n_clusters * m_shape.t + b;
        if (coin(position, slot, ~0u) * (m_head->mass + weight) >= weight) continue;
        m_weights[b] = weight;
        changes->slots[changes->n_slots++] = slot;
    }
}

// Priority sampling (Duffield, Lund, Thorup): the s tokens with the largest priority weight / u
// stay. With the largest rejected priority as the threshold, max(1, threshold / weight) is an
// unbiased estimate of the number of tokens that a sample stands for.
void Subgen::sample_by_priority(uint32_t position, double weight, SubgenChanges* changes)
{
    const uint32_t first = m_shape.n_clusters * m_shape.t;
    const double priority = weight / (1 - coin(position, first, ~0u));
    const uint32_t b =
        uint32_t(std::min_element(m_priorities, m_priorities + m_shape.s) - m_priorities);
    m_head->threshold = std::max(m_head->threshold, std::min(m_priorities[b], priority));
    if (priority < m_priorities[b]) return;
    m_priorities[b] = priority;
    m_weights[b] = weight;
    changes->slots[changes->n_slots++] = first + b;
}

void Subgen::update(uint32_t position, const float* key, const float* value, SubgenChanges* changes)
{
    changes->n_copies = changes->n_slots = 0;
    sample_key(position, key, changes);
    const double weight = dot64(value, value, m_shape.head_dim);
    if (!(weight > 0) || std::isinf(weight)) return; // adds nothing to the numerator
    if (m_shape.priority)
        sample_by_priority(position, weight, changes);
    else
        sample_value(position, weight, changes);
    m_head->mass += weight;
}

bool Subgen::fits(uint32_t n_seen) const
{
    uint32_t n_clusters = 0;
    uint64_t n_tokens = 0;
    for (uint32_t j = 0; j < m_shape.n_clusters; j++) {
        n_clusters += m_counts[j] != 0;
        n_tokens += m_counts[j];
    }
    return m_head->n_clusters == n_clusters && n_tokens <= n_seen;
}

void Subgen::weights(float* numerator, float* denominator) const
{
    const float none = -std::numeric_limits<float>::infinity();
    const uint32_t n_keys = m_shape.n_clusters * m_shape.t;
    std::fill_n(numerator, n_keys, none);
    std::fill_n(denominator + n_keys, m_shape.s, none);
    for (uint32_t slot = 0; slot < n_keys; slot++) {
        const uint32_t count = m_counts[slot / m_shape.t];
        denominator[slot] = count ? float(std::log(double(count) / m_shape.t)) : none;
    }
    for (uint32_t b = 0; b < m_shape.s; b++) {
        const double weight = m_weights[b];
        // Finite, because a weight is a sum of squares of floats: no such square is 0 or infinite
        // as a double.
        const double share = m_shape.priority ? std::max(1.0, m_head->threshold / weight)
                                              : m_head->mass / weight / m_shape.s;
        numerator[n_keys + b] = weight > 0 ? float(std::log(share)) : none;
    }
}

} // namespace ks
