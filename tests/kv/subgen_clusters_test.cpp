// SubGen's clusters and reservoirs: fair draws, the radius, merges, the state's bytes.
#include "tests/kv/subgen_bed.h"

#include <cstring>
#include <map>

using namespace ks;

// How often each token's key was drawn, and the tokens seen in each cluster. The clusters do not
// depend on the random draws.
struct ClusterDraws {
    Doubles drawn;
    std::map<uint32_t, std::set<uint32_t>> members;

    void count(const SubgenHead& cache)
    {
        const SubgenShape& shape = cache.shape;
        Floats a(cache.token.size()), b(cache.token.size());
        cache.subgen.weights(a.data(), b.data());
        for (uint32_t slot = 0; slot < shape.n_clusters * shape.t; slot++) {
            if (cache.token[slot] == kNoToken) continue;
            if (b[slot] == -INFINITY) continue; // unused since a merge
            drawn[cache.token[slot]]++;
            members[slot / shape.t].insert(cache.token[slot]);
        }
    }
    void check(uint32_t n, double draws) const
    {
        double chi = 0;
        size_t n_members = 0, largest = 0;
        for (const auto& [cluster, tokens] : members) {
            n_members += tokens.size();
            largest = std::max(largest, tokens.size());
            for (uint32_t i : tokens) {
                const double expected = draws / double(tokens.size());
                chi += (drawn[i] - expected) * (drawn[i] - expected) / expected;
            }
        }
        CHECK(n_members == n); // each token is in exactly one cluster
        CHECK(largest >= 5);   // several clusters merged into one
        CHECK(chi < 43.8);     // 19 degrees of freedom, p = 0.001
    }
};

TEST_CASE("subgen: reservoirs draw values by their squared norm and keys evenly within a cluster")
{
    RandomValues random{3};
    const uint32_t n = 20, dim = 4, seeds = 6000, t = 3, s = 3;
    const Floats keys = clustered(random, n, dim, 12, 0.1f);
    Floats values = random.normals(n * dim);
    double mass = 0;
    Doubles weight(n, 0.0), drawn(n, 0.0);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < dim; j++) {
            values[i * dim + j] *= 1 + float(i % 3);
            weight[i] += double(values[i * dim + j]) * double(values[i * dim + j]);
        }
    for (double w : weight) mass += w;
    ClusterDraws clusters{Doubles(n, 0.0), {}};
    double same = 0, expected_same = 0;
    for (uint64_t seed = 0; seed < seeds; seed++) {
        SubgenHead cache(shape_of(4, t, s, dim, false, seed));
        cache.read(keys, values);
        for (uint32_t b = 0; b < s; b++) drawn[cache.token[4 * t + b]]++;
        same += cache.token[4 * t] == cache.token[4 * t + 1];
        clusters.count(cache);
    }
    double chi = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double expected = seeds * s * weight[i] / mass;
        chi += (drawn[i] - expected) * (drawn[i] - expected) / expected;
        expected_same += seeds * weight[i] * weight[i] / mass / mass;
    }
    CHECK(chi < 43.8); // 19 degrees of freedom, one in a thousand
    // Slots are independent of each other.
    CHECK(std::fabs(same - expected_same) < 4 * std::sqrt(expected_same));
    clusters.check(n, double(seeds * t));
}

TEST_CASE(
    "subgen: clustered keys need few clusters however many tokens, random keys about one each")
{
    RandomValues random{7};
    const uint32_t dim = 16;
    for (uint32_t n : {300u, 1200u, 4800u}) {
        const Floats keys = clustered(random, n, dim, 12, 0.05f), values(n * dim, 1.0f);
        SubgenHead cache(shape_of(64, 1, 1, dim));
        cache.subgen.choose_radius(keys.data(), n);
        cache.read(keys, values);
        CAPTURE(cache.subgen.radius());
        CHECK(cache.subgen.n_clusters() >= 12);
        // 300 tokens are too few to see how wide clusters are.
        CHECK(cache.subgen.n_clusters() <= (n < 1000 ? 64 : 20));
    }
    for (uint32_t n : {300u, 600u, 1200u}) { // random keys in 64 dimensions: no two are near
        const Floats keys = random.normals(n * 64), values(n * 64, 1.0f);
        SubgenHead cache(shape_of(n, 1, 1, 64));
        cache.subgen.set_radius(5);
        cache.read(keys, values);
        CHECK(cache.subgen.n_clusters() > n * 9 / 10);
    }
}

TEST_CASE("subgen: a full table doubles the radius and merges clusters, and no token is lost")
{
    RandomValues random{8};
    const uint32_t n = 1500, dim = 12, m = 16, t = 2;
    const Floats keys = random.normals(n * dim), values = random.normals(n * dim);
    for (float start : {0.0f, 1e-6f, 0.5f, INFINITY}) {
        SubgenHead cache(shape_of(m, t, 8, dim));
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
             slot += t) { // the radii of all rounds sum to less than twice the last
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

TEST_CASE("subgen: a copy of the state goes on the same, other seeds, layers and heads differ")
{
    RandomValues random{10};
    const uint32_t n = 200, dim = 5;
    const Floats keys = random.normals(n * dim), values = random.normals(n * dim);
    for (bool priority : {false, true}) {
        const SubgenShape shape = shape_of(7, 2, 9, dim, priority); // odd sizes
        SubgenHead whole(shape), first(shape), second(shape);
        CHECK(whole.state.size() * 8 == Subgen::bytes_needed(shape));
        whole.read(keys, values);
        for (uint32_t i = 0; i < n / 2; i++) first.update(i, &keys[i * dim], &values[i * dim]);
        second.state.assign(first.state.begin(), first.state.end());
        SubgenHead third(shape);
        std::memcpy(third.state.data(), first.state.data(), Subgen::bytes_needed(shape));
        third.token = first.token;
        for (uint32_t i = n / 2; i < n; i++) third.update(i, &keys[i * dim], &values[i * dim]);
        CHECK(std::memcmp(whole.state.data(), third.state.data(), Subgen::bytes_needed(shape)) ==
              0);
        CHECK(whole.token == third.token);
        SubgenShape others[] = {shape, shape, shape};
        others[0].seed++, others[1].layer++, others[2].head++;
        for (const SubgenShape& other : others) {
            SubgenHead apart(other);
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
    SubgenHead cache(shape_of(4, 1, 1, 1));
    cache.subgen.choose_radius(keys.data(), 6);
    CHECK(cache.subgen.radius() == 1.5f);
    cache.subgen.choose_radius(keys.data(), 1); // one key has no neighbour
    CHECK(cache.subgen.radius() == 1.5f);
    Floats many(1000, 0.0f);
    for (uint32_t i = 0; i < 1000; i++)
        many[i] = i < 256 ? float(2 * i) : float(1000 + 50 * i); // only the first 256 count
    cache.subgen.choose_radius(many.data(), 1000);
    CHECK(cache.subgen.radius() == 3.0f);
}
