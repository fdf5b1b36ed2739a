// SubGen's estimator: the query of the paper's Algorithm 1, written here in log space, over slots
// that are filled as told.
#include "runtime/kv/policies/subgen.h"
#include "tests/kv/random_values.h"

#include <algorithm>
#include <cstring>
#include <doctest/doctest.h>
#include <map>
#include <set>

using namespace ks;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

static constexpr uint32_t kNone = ~0u;

// A head with its slots: which token each holds.
struct Cache {
    SubgenShape shape;
    std::vector<double> state;
    Subgen subgen;
    std::vector<uint32_t> token;
    std::vector<SubgenChanges::Copy> copies;
    std::vector<uint32_t> slots;
    uint32_t n_copied = 0;

    explicit Cache(const SubgenShape& s)
        : shape(s), state(Subgen::bytes_needed(s) / 8, NAN), subgen(s, state.data()),
          token(s.n_clusters * s.t + s.s, kNone), copies(s.n_clusters * s.t), slots(s.t + s.s)
    {
        subgen.clear();
    }
    void update(uint32_t position, const float* key, const float* value)
    {
        SubgenChanges changes{copies.data(), slots.data(), 0, 0};
        subgen.update(position, key, value, &changes);
        std::set<uint32_t> sources, targets;
        for (uint32_t i = changes.n_copies; i-- > 0;) { // in any order: backwards
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

// z and tau in float32 with a running maximum each.
static Answer ask(const Cache& cache, const Floats& keys, const Floats& values, const Floats& q)
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
        REQUIRE(cache.token[slot] != kNone);
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

static Exact exact(const Floats& keys, const Floats& values, const Floats& q)
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

static SubgenShape shape_of(uint32_t n_clusters, uint32_t t, uint32_t s, uint32_t dim,
                            bool priority = false, uint64_t seed = 1)
{
    return {n_clusters, t, s, dim, priority, seed, 3, 2};
}

static Floats clustered(RandomValues& random, uint32_t n, uint32_t dim, uint32_t n_centres,
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

TEST_CASE("subgen: clusters of one key each give the denominator exactly")
{
    RandomValues random{1};
    const uint32_t n = 40, dim = 8;
    const Floats keys = random.normals(n * dim), values = random.normals(n * dim);
    Cache cache(shape_of(n, 1, 4, dim));
    cache.read(keys, values);
    CHECK(cache.subgen.n_clusters() == n);
    for (int i = 0; i < 20; i++) {
        const Floats q = random.normals(dim);
        CHECK(ask(cache, keys, values, q).denominator() ==
              doctest::Approx(exact(keys, values, q).tau).epsilon(1e-5));
    }
    // The same keys once more join the clusters of their equals: twice the sum, still exact.
    for (uint32_t i = 0; i < n; i++) cache.update(i, &keys[i * dim], &values[i * dim]);
    CHECK(cache.subgen.n_clusters() == n);
    const Floats q = random.normals(dim);
    CHECK(ask(cache, keys, values, q).denominator() ==
          doctest::Approx(2 * exact(keys, values, q).tau).epsilon(1e-5));
}

struct Moments {
    double n = 0, sum = 0, squares = 0;
    void add(double x) { n++, sum += x, squares += x * x; }
    double mean() const { return sum / n; }
    double error() const
    {
        return std::sqrt(std::max(0.0, squares / n - mean() * mean()) / n);
    } // of the mean
};

TEST_CASE("subgen: numerator and denominator are unbiased, for both ways to sample and after "
          "clusters have merged")
{
    RandomValues random{2};
    const uint32_t n = 50, dim = 8;
    const Floats keys = random.normals(n * dim, 0.7f), q = random.normals(dim, 0.7f);
    Floats values = random.normals(n * dim);
    for (uint32_t i = 0; i < n; i++) // norms of all sizes
        for (uint32_t j = 0; j < dim; j++) values[i * dim + j] *= float(0.1 + i % 7);
    const Exact truth = exact(keys, values, q);
    for (bool priority : {false, true}) {
        Moments z[8], tau;
        uint32_t n_copied = 0;
        for (uint64_t seed = 0; seed < 10000; seed++) {
            Cache cache(shape_of(5, 2, 12, dim, priority, seed));
            cache.subgen.set_radius(1);
            cache.read(keys, values);
            const Answer answer = ask(cache, keys, values, q);
            for (uint32_t j = 0; j < dim; j++) z[j].add(answer.numerator()[j]);
            tau.add(answer.denominator());
            n_copied += cache.n_copied;
        }
        CAPTURE(priority);
        CHECK(n_copied > 10000);
        CHECK(std::fabs(tau.mean() - truth.tau) < 4 * tau.error());
        CHECK(tau.error() < 0.02 * truth.tau);
        for (uint32_t j = 0; j < dim; j++) {
            CHECK(std::fabs(z[j].mean() - truth.z[j]) < 4 * z[j].error());
            CHECK(z[j].error() < 0.05 * truth.tau);
        }
    }
}

TEST_CASE("subgen: reservoirs are fair: values by the square of their norm, keys evenly within "
          "their cluster")
{
    RandomValues random{3};
    const uint32_t n = 20, dim = 4, seeds = 6000, t = 3, s = 3;
    const Floats keys = clustered(random, n, dim, 12, 0.1f);
    Floats values = random.normals(n * dim);
    double mass = 0;
    Doubles weight(n, 0.0), drawn(n, 0.0), drawn_keys(n, 0.0);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < dim; j++) {
            values[i * dim + j] *= 1 + float(i % 3);
            weight[i] += double(values[i * dim + j]) * double(values[i * dim + j]);
        }
    for (double w : weight) mass += w;
    std::map<uint32_t, std::set<uint32_t>>
        members; // cluster -> tokens seen in it; clusters do not depend on coins
    double same = 0, expected_same = 0;
    for (uint64_t seed = 0; seed < seeds; seed++) {
        Cache cache(shape_of(4, t, s, dim, false, seed));
        cache.read(keys, values);
        for (uint32_t b = 0; b < s; b++) drawn[cache.token[4 * t + b]]++;
        same += cache.token[4 * t] == cache.token[4 * t + 1];
        for (uint32_t slot = 0; slot < 4 * t; slot++) {
            if (cache.token[slot] == kNone) continue;
            Floats a(4 * t + s), b(4 * t + s);
            cache.subgen.weights(a.data(), b.data());
            if (b[slot] == -INFINITY) continue; // left behind by a merge
            drawn_keys[cache.token[slot]]++;
            members[slot / t].insert(cache.token[slot]);
        }
    }
    double chi = 0, chi_keys = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double expected = seeds * s * weight[i] / mass;
        chi += (drawn[i] - expected) * (drawn[i] - expected) / expected;
        expected_same += seeds * weight[i] * weight[i] / mass / mass;
    }
    CHECK(chi < 43.8); // 19 degrees of freedom, one in a thousand
    CHECK(std::fabs(same - expected_same) <
          4 * std::sqrt(expected_same)); // slots are independent of each other
    size_t n_members = 0, largest = 0;
    for (const auto& [cluster, tokens] : members) {
        n_members += tokens.size();
        largest = std::max(largest, tokens.size());
        for (uint32_t i : tokens) {
            const double expected = double(seeds * t) / double(tokens.size());
            chi_keys += (drawn_keys[i] - expected) * (drawn_keys[i] - expected) / expected;
        }
    }
    CHECK(n_members == n); // each in exactly one cluster
    CHECK(largest >= 5);   // of several that merged
    CHECK(chi_keys < 43.8);
}

TEST_CASE("subgen: logits shifted by 200 change nothing")
{
    RandomValues random{4};
    const uint32_t n = 60, dim = 9;
    Floats keys = random.normals(n * dim), values = random.normals(n * dim),
           q = random.normals(dim);
    for (uint32_t i = 0; i < n; i++)
        keys[i * dim + dim - 1] = 1; // q's last component is added to every logit
    for (bool priority : {false, true}) {
        Cache cache(shape_of(10, 2, 16, dim, priority));
        cache.subgen.set_radius(1);
        cache.read(keys, values);
        q[dim - 1] = 0;
        const Doubles plain = ask(cache, keys, values, q).output();
        for (float shift : {200.0f, -200.0f}) {
            q[dim - 1] = shift;
            const Doubles shifted = ask(cache, keys, values, q).output();
            for (uint32_t j = 0; j < dim; j++)
                CHECK(shifted[j] == doctest::Approx(plain[j]).epsilon(1e-3));
        }
    }
}

TEST_CASE("subgen: values of zero or of no number add nothing, keys of no number do no harm")
{
    RandomValues random{5};
    const uint32_t n = 12, dim = 4;
    for (bool priority : {false, true}) {
        Floats keys = random.normals(n * dim), values(n * dim, 0.0f), q = random.normals(dim);
        Cache cache(shape_of(20, 1, 5, dim, priority));
        Floats a(25), b(25);
        cache.subgen.weights(a.data(), b.data()); // nothing was read
        CHECK(std::count(a.begin(), a.end(), -INFINITY) +
                  std::count(b.begin(), b.end(), -INFINITY) ==
              50);
        cache.read(keys, values);
        const Answer none = ask(cache, keys, values, q);
        CHECK(none.output() == Doubles(dim, 0.0));
        CHECK(none.denominator() == doctest::Approx(exact(keys, values, q).tau).epsilon(1e-5));
        // The first token that has a value takes every sample, or one where tokens are distinct.
        for (uint32_t j = 0; j < dim; j++) values[5 * dim + j] = 1;
        cache.update(5, &keys[5 * dim], &values[5 * dim]);
        CHECK(std::count(cache.token.begin() + 20, cache.token.end(), 5u) == (priority ? 1 : 5));
        const Doubles z = ask(cache, keys, values, q).numerator();
        for (uint32_t j = 0; j < dim; j++)
            CHECK(z[j] == doctest::Approx(exact(keys, values, q).z[j]).epsilon(1e-5));
        for (float bad : {NAN, INFINITY}) {
            const Floats odd(dim, bad);
            for (int i = 0; i < 30; i++) cache.update(5, odd.data(), odd.data());
            cache.subgen.weights(a.data(), b.data());
            for (float x : a) CHECK((std::isfinite(x) || x == -INFINITY));
            for (float x : b) CHECK((std::isfinite(x) || x == -INFINITY));
            CHECK(cache.subgen.n_clusters() <= 20);
        }
    }
    // Values of all sizes that float has leave finite weights.
    for (bool priority : {false, true})
        for (uint64_t seed = 0; seed < 100; seed++) {
            Cache cache(shape_of(1, 1, 2, 1, priority, seed));
            const float key = 1;
            for (float value : {1e-45f, 1e-30f, 1.0f, 3e38f, 1e-45f, 3e38f, 1.0f, 1e-45f})
                cache.update(0, &key, &value);
            Floats a(3), b(3);
            cache.subgen.weights(a.data(), b.data());
            CHECK((std::isfinite(a[1]) && std::isfinite(a[2]) && std::isfinite(b[0])));
        }
}

// The largest singular value.
static double norm_of(const Floats& values, uint32_t dim)
{
    Doubles x(dim, 1.0);
    double norm = 0;
    for (int round = 0; round < 100; round++) {
        Doubles y(dim, 0.0);
        for (size_t i = 0; i < values.size(); i += dim) {
            double sum = 0;
            for (uint32_t j = 0; j < dim; j++) sum += double(values[i + j]) * x[j];
            for (uint32_t j = 0; j < dim; j++) y[j] += sum * double(values[i + j]);
        }
        norm = 0;
        for (double v : y) norm += v * v;
        norm = std::sqrt(norm);
        for (uint32_t j = 0; j < dim; j++) x[j] = y[j] / norm;
    }
    return std::sqrt(norm);
}

TEST_CASE(
    "subgen: on keys that cluster the error keeps the theorem's bound and shrinks with the samples")
{
    RandomValues random{6};
    const uint32_t n = 600, dim = 8;
    const Floats keys = clustered(random, n, dim, 10, 0.05f), values = random.normals(n * dim),
                 q = random.normals(dim);
    const Exact truth = exact(keys, values, q);
    const double scale =
        std::sqrt(truth.squares) / truth.tau * norm_of(values, dim); // |softmax|_2 |V|_op
    for (bool priority : {false, true}) {
        for (uint32_t s : {16u, 64u, 256u}) {
            Moments error;
            for (uint64_t seed = 0; seed < 40; seed++) {
                Cache cache(shape_of(32, 4, s, dim, priority, seed));
                cache.subgen.choose_radius(keys.data(), n);
                cache.read(keys, values);
                const Doubles out = ask(cache, keys, values, q).output();
                double sum = 0;
                for (uint32_t j = 0; j < dim; j++)
                    sum += std::pow(out[j] - truth.z[j] / truth.tau, 2);
                error.add(sum);
            }
            CAPTURE(s);
            CAPTURE(priority);
            CHECK(std::sqrt(error.mean()) < 1.1 * scale * std::sqrt(double(dim) / s));
        }
    }
}

TEST_CASE("subgen: clusters are few where keys cluster, however many tokens; a random stream has "
          "as many as tokens")
{
    RandomValues random{7};
    const uint32_t dim = 16;
    for (uint32_t n : {300u, 1200u, 4800u}) {
        const Floats keys = clustered(random, n, dim, 12, 0.05f), values(n * dim, 1.0f);
        Cache cache(shape_of(64, 1, 1, dim));
        cache.subgen.choose_radius(keys.data(), n);
        cache.read(keys, values);
        CAPTURE(cache.subgen.radius());
        CHECK(cache.subgen.n_clusters() >= 12);
        CHECK(cache.subgen.n_clusters() <=
              (n < 1000 ? 64 : 20)); // 300 tokens are too few to see how wide clusters are
    }
    for (uint32_t n : {300u, 600u, 1200u}) { // keys on a sphere in many dimensions: no two are near
        const Floats keys = random.normals(n * 64), values(n * 64, 1.0f);
        Cache cache(shape_of(n, 1, 1, 64));
        cache.subgen.set_radius(5);
        cache.read(keys, values);
        CHECK(cache.subgen.n_clusters() > n * 9 / 10);
    }
}

TEST_CASE("subgen: a full table doubles the radius and merges: bounded, nothing lost, neighbours "
          "together")
{
    RandomValues random{8};
    const uint32_t n = 1500, dim = 12, m = 16, t = 2;
    const Floats keys = random.normals(n * dim), values = random.normals(n * dim);
    for (float start : {0.0f, 1e-6f, 0.5f, INFINITY}) {
        Cache cache(shape_of(m, t, 8, dim));
        cache.subgen.set_radius(start);
        float radius = 0;
        Floats a(cache.token.size()), b(cache.token.size());
        for (uint32_t i = 0; i < n; i++) {
            cache.update(i, &keys[i * dim], &values[i * dim]);
            cache.subgen.weights(a.data(), b.data());
            double count = 0;
            uint32_t n_clusters = 0;
            for (uint32_t slot = 0; slot < m * t; slot++) {
                if (b[slot] == -INFINITY) continue;
                count += std::exp(double(b[slot]));
                n_clusters++;
                REQUIRE(cache.token[slot] <= i);
            }
            CHECK(count == doctest::Approx(i + 1));
            CHECK(n_clusters == t * cache.subgen.n_clusters());
            CHECK(cache.subgen.n_clusters() <= m);
            CHECK(cache.subgen.radius() >= radius);
            radius = cache.subgen.radius();
        }
        CHECK(radius > 0);
        if (start == INFINITY) CHECK(cache.subgen.n_clusters() == 1);
        for (uint32_t slot = 0; slot < m * t;
             slot += t) { // radii of all rounds add up to less than twice the last
            if (b[slot] == -INFINITY) continue;
            double distance = 0;
            for (uint32_t j = 0; j < dim; j++)
                distance += std::pow(double(keys[cache.token[slot] * dim + j]) -
                                         double(keys[cache.token[slot + 1] * dim + j]),
                                     2);
            CHECK(std::sqrt(distance) <= 4 * double(radius));
        }
    }
}

TEST_CASE("subgen: priority samples count the tokens without bias and are exact where all fit")
{
    RandomValues random{9};
    const uint32_t n = 40, dim = 4;
    Floats keys = random.normals(n * dim), values(n * dim, 0.5f),
           q = random.normals(dim); // |value| = 1
    Moments total;
    for (uint64_t seed = 0; seed < 10000; seed++) {
        Cache cache(shape_of(4, 1, 10, dim, true, seed));
        cache.read(keys, values);
        Floats a(14), b(14);
        cache.subgen.weights(a.data(), b.data());
        double sum = 0;
        for (uint32_t slot = 4; slot < 14; slot++) sum += std::exp(double(a[slot]));
        total.add(sum);
        if (seed < 100)
            CHECK(std::set<uint32_t>(cache.token.begin() + 4, cache.token.end()).size() ==
                  10); // distinct
    }
    CHECK(std::fabs(total.mean() - n) < 4 * total.error());
    CHECK(total.error() < 0.3);
    for (float& x : values) x = random.normal();
    for (uint32_t s : {n, n + 7}) {
        Cache cache(shape_of(4, 1, s, dim, true));
        cache.read(keys, values);
        const Doubles z = ask(cache, keys, values, q).numerator();
        for (uint32_t j = 0; j < dim; j++)
            CHECK(z[j] == doctest::Approx(exact(keys, values, q).z[j]).epsilon(1e-5));
    }
}

TEST_CASE("subgen: state is its bytes: the same again, continued from a copy, apart for seeds, "
          "layers and heads")
{
    RandomValues random{10};
    const uint32_t n = 200, dim = 5;
    const Floats keys = random.normals(n * dim), values = random.normals(n * dim);
    for (bool priority : {false, true}) {
        const SubgenShape shape = shape_of(7, 2, 9, dim, priority); // odd sizes
        Cache whole(shape), first(shape), second(shape);
        CHECK(whole.state.size() * 8 == Subgen::bytes_needed(shape));
        whole.read(keys, values);
        for (uint32_t i = 0; i < n / 2; i++) first.update(i, &keys[i * dim], &values[i * dim]);
        second.state.assign(first.state.begin(), first.state.end());
        Cache third(shape);
        std::memcpy(third.state.data(), first.state.data(), Subgen::bytes_needed(shape));
        third.token = first.token;
        for (uint32_t i = n / 2; i < n; i++) third.update(i, &keys[i * dim], &values[i * dim]);
        CHECK(std::memcmp(whole.state.data(), third.state.data(), Subgen::bytes_needed(shape)) ==
              0);
        CHECK(whole.token == third.token);
        SubgenShape others[] = {shape, shape, shape};
        others[0].seed++, others[1].layer++, others[2].head++;
        for (const SubgenShape& other : others) {
            Cache apart(other);
            apart.read(keys, values);
            CHECK(apart.token != whole.token);
        }
    }
}

TEST_CASE("subgen: the radius from data is one and a half times the median distance to the nearest "
          "neighbour")
{
    Floats keys; // pairs at distances 1, 1, 3, far from each other
    for (float x : {0.0f, 1.0f, 100.0f, 101.0f, 200.0f, 203.0f}) keys.push_back(x);
    Cache cache(shape_of(4, 1, 1, 1));
    cache.subgen.choose_radius(keys.data(), 6);
    CHECK(cache.subgen.radius() == 1.5f);
    cache.subgen.choose_radius(keys.data(), 1); // one key says nothing
    CHECK(cache.subgen.radius() == 1.5f);
    Floats many(1000, 0.0f);
    for (uint32_t i = 0; i < 1000; i++)
        many[i] = i < 256 ? float(2 * i) : float(1000 + 50 * i); // only the first 256 count
    cache.subgen.choose_radius(many.data(), 1000);
    CHECK(cache.subgen.radius() == 3.0f);
}
