// SubGen's estimator: the query of the paper's Algorithm 1, written here in log space, over slots
// that its changes fill.
#pragma once

#include "runtime/kv/policies/subgen.h"
#include "tests/kv/random_values.h"

#include <algorithm>
#include <doctest/doctest.h>
#include <set>

namespace ks
{

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

constexpr uint32_t kNoToken = ~0u;

// A head with its slots: which token each holds.
struct SubgenHead {
    SubgenShape shape;
    std::vector<double> state;
    Subgen subgen;
    std::vector<uint32_t> token;
    std::vector<SubgenChanges::Copy> copies;
    std::vector<uint32_t> slots;
    uint32_t n_copied = 0;

    explicit SubgenHead(const SubgenShape& s)
        : shape(s), state(Subgen::bytes_needed(s) / 8, NAN), subgen(s, state.data()),
          token(s.n_clusters * s.t + s.s, kNoToken), copies(s.n_clusters * s.t), slots(s.t + s.s)
    {
        subgen.clear();
    }
    void update(uint32_t position, const float* key, const float* value)
    {
        SubgenChanges changes{copies.data(), slots.data(), 0, 0};
        subgen.update(position, key, value, &changes);
        std::set<uint32_t> sources, targets;
        for (uint32_t i = changes.n_copies; i-- > 0;) { // any order is allowed, so backwards
            token[copies[i].to] = token[copies[i].from];
            sources.insert(copies[i].from);
            targets.insert(copies[i].to);
        }
        for (uint32_t slot : sources) CHECK(targets.count(slot) == 0);
        CHECK(targets.size() == changes.n_copies);
        for (uint32_t i = 0; i < changes.n_slots; i++) token[slots[i]] = position;
        n_copied += changes.n_copies;
    }
    void read(const Floats& keys, const Floats& values)
    {
        const uint32_t dim = shape.head_dim;
        for (uint32_t i = 0; i * dim < keys.size(); i++)
            update(i, &keys[i * dim], &values[i * dim]);
    }
};

struct Answer {
    Floats z; // both sums without the factor exp(their maximum)
    float tau = 0, z_max = -INFINITY, tau_max = -INFINITY;

    Doubles numerator() const
    {
        Doubles sum;
        for (float x : z) sum.push_back(double(x) * std::exp(double(z_max)));
        return sum;
    }
    double denominator() const { return double(tau) * std::exp(double(tau_max)); }
    Doubles output() const
    {
        Doubles out;
        for (float x : z)
            out.push_back(tau > 0 && z_max > -INFINITY
                              ? double(x) / double(tau) * std::exp(double(z_max - tau_max))
                              : 0);
        return out;
    }
};

// z and tau in float32, each with a running maximum.
inline Answer estimate(const SubgenHead& cache, const Floats& keys, const Floats& values,
                       const Floats& q)
{
    const uint32_t dim = cache.shape.head_dim;
    Floats a(cache.token.size()), b(cache.token.size());
    cache.subgen.weights(a.data(), b.data());
    Answer answer;
    answer.z.assign(dim, 0);
    for (size_t slot = 0; slot < cache.token.size(); slot++) {
        const bool in_z = a[slot] > -INFINITY, in_tau = b[slot] > -INFINITY;
        if (!in_z && !in_tau) continue;
        CHECK(in_z != in_tau);
        CHECK(in_tau == (slot < cache.shape.n_clusters * cache.shape.t));
        REQUIRE(cache.token[slot] != kNoToken);
        const float* k = &keys[cache.token[slot] * dim];
        float l = 0;
        for (uint32_t j = 0; j < dim; j++) l += q[j] * k[j];
        if (in_tau) {
            const float m = std::max(answer.tau_max, l + b[slot]);
            answer.tau = answer.tau * std::exp(answer.tau_max - m) + std::exp(l + b[slot] - m);
            answer.tau_max = m;
        } else {
            const float m = std::max(answer.z_max, l + a[slot]);
            for (uint32_t j = 0; j < dim; j++)
                answer.z[j] = answer.z[j] * std::exp(answer.z_max - m) +
                              std::exp(l + a[slot] - m) * values[cache.token[slot] * dim + j];
            answer.z_max = m;
        }
    }
    return answer;
}

struct Exact {
    Doubles z;
    double tau = 0, squares = 0; // sum of exp(l), of exp(2 l)
};

inline Exact exact(const Floats& keys, const Floats& values, const Floats& q)
{
    Exact sum;
    sum.z.assign(q.size(), 0);
    for (size_t i = 0; i < keys.size(); i += q.size()) {
        double l = 0;
        for (size_t j = 0; j < q.size(); j++) l += double(q[j]) * double(keys[i + j]);
        sum.tau += std::exp(l);
        sum.squares += std::exp(2 * l);
        for (size_t j = 0; j < q.size(); j++) sum.z[j] += std::exp(l) * double(values[i + j]);
    }
    return sum;
}

inline SubgenShape shape_of(uint32_t n_clusters, uint32_t t, uint32_t s, uint32_t dim,
                            bool priority = false, uint64_t seed = 1)
{
    return {n_clusters, t, s, dim, priority, seed, 3, 2};
}

inline Floats clustered(RandomValues& random, uint32_t n, uint32_t dim, uint32_t n_centres,
                        float noise)
{
    const Floats centres = random.normals(n_centres * dim);
    Floats keys(n * dim);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t c = i < n_centres ? i : random.below(n_centres);
        for (uint32_t j = 0; j < dim; j++)
            keys[i * dim + j] = centres[c * dim + j] + noise * random.normal();
    }
    return keys;
}

struct Moments {
    double n = 0, sum = 0, squares = 0;
    void add(double x) { n++, sum += x, squares += x * x; }
    double mean() const { return sum / n; }
    // The standard error of the mean.
    double error() const { return std::sqrt(std::max(0.0, squares / n - mean() * mean()) / n); }
};

} // namespace ks
