// Policies that read keys, and properties of all policies.
#include "runtime/kv/policies/dot.h"
#include "tests/kv/retain_util.h"

#include <cstring>
#include <doctest/doctest.h>
#include <sstream>

using namespace ks;

static std::vector<double> keydiff_reference(const Floats& keys, uint32_t n, uint32_t dim)
{
    std::vector<double> anchor(dim), score(n);
    const auto norm = [&](uint32_t i) {
        double sum = 0;
        for (uint32_t j = 0; j < dim; j++)
            sum += double(keys[i * dim + j]) * double(keys[i * dim + j]);
        return std::sqrt(sum);
    };
    double length = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < dim; j++) anchor[j] += double(keys[i * dim + j]) / norm(i) / n;
    for (double x : anchor) length += x * x;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < dim; j++) score[i] -= double(keys[i * dim + j]) * anchor[j];
        score[i] /= norm(i) * std::sqrt(length);
    }
    return score;
}

TEST_CASE("retain: keydiff is minus the cosine with the mean direction")
{
    RandomValues random{6};
    for (uint32_t dim : {1u, 3u, 8u, 20u, 64u}) {
        Floats keys = random.normals(50 * dim);
        for (uint32_t i = 0; i < 50; i++) // keys with a common direction and different norms
            for (uint32_t j = 0; j < dim; j++)
                keys[i * dim + j] = (keys[i * dim + j] + 2) * float(1 + i);
        Candidates c;
        c.n = 50;
        c.head_dim = dim;
        c.keys = keys.data();
        const Floats score = scores("keydiff", c);
        const std::vector<double> expected = keydiff_reference(keys, 50, dim);
        for (uint32_t i = 0; i < 50; i++)
            CHECK(double(score[i]) == doctest::Approx(expected[i]).epsilon(1e-6));
        // A key in the opposite direction stays. A key of length 0 has no direction.
        for (uint32_t j = 0; j < dim; j++) keys[7 * dim + j] = -1, keys[8 * dim + j] = 0;
        CHECK(highest(scores("keydiff", c), 1) == Indices{7});
        CHECK(scores("keydiff", c)[8] == 0);
    }
}

// The share of candidates that each value outranks.
static std::vector<double> ranks(const std::vector<double>& value)
{
    std::vector<double> rank(value.size());
    for (size_t i = 0; i < value.size(); i++)
        for (size_t j = 0; j < value.size(); j++)
            rank[i] +=
                (value[j] < value[i] || (value[j] == value[i] && j < i)) / double(value.size());
    return rank;
}

TEST_CASE("retain: mix is the best rank by key, attention and rarity, of those that are given")
{
    RandomValues random{7};
    const uint32_t n = 60, dim = 16;
    const Floats keys = random.normals(n * dim);
    Floats probability_sums(n);
    Indices counts(n);
    for (uint32_t i = 0; i < n; i++)
        probability_sums[i] = float(random.uniform()), counts[i] = 1 + random.below(6);
    std::vector<double> pooled(n), rare(n), by_key = keydiff_reference(keys, n, dim);
    for (uint32_t i = 0; i < n; i++) {
        pooled[i] = -1, rare[i] = -100;
        for (uint32_t j = 0; j < n; j++) {
            if (std::abs(int(i) - int(j)) <= 3)
                pooled[i] = std::max(pooled[i], double(probability_sums[j]));
            if (std::abs(int(i) - int(j)) <= 1) rare[i] = std::max(rare[i], -double(counts[j]));
        }
    }
    for (int given = 1; given < 8; given++) {
        Candidates c;
        c.n = n;
        c.head_dim = dim;
        c.keys = given & 1 ? keys.data() : nullptr;
        c.scores = given & 2 ? probability_sums.data() : nullptr;
        c.counts = given & 4 ? counts.data() : nullptr;
        std::vector<double> expected(n, 0.0);
        const std::vector<double>* values[] = {&by_key, &pooled, &rare};
        for (int k = 0; k < 3; k++)
            for (uint32_t i = 0; i < n && (given >> k & 1); i++)
                expected[i] = std::max(expected[i], ranks(*values[k])[i]);
        const Floats score = scores("mix", c);
        CAPTURE(given);
        for (uint32_t i = 0; i < n; i++) CHECK(double(score[i]) == doctest::Approx(expected[i]));
    }
}

// The largest distance of a key to the nearest chosen one.
static double radius_of(const Floats& keys, uint32_t n, uint32_t dim, const Indices& chosen)
{
    double radius = 0;
    for (uint32_t i = 0; i < n; i++) {
        double nearest = 1e30;
        for (uint32_t k : chosen) {
            double sum = 0;
            for (uint32_t j = 0; j < dim; j++)
                sum += std::pow(double(keys[i * dim + j]) - double(keys[k * dim + j]), 2);
            nearest = std::min(nearest, std::sqrt(sum));
        }
        radius = std::max(radius, nearest);
    }
    return radius;
}

TEST_CASE("retain: kcenter covers the keys within twice the best radius")
{
    RandomValues random{8};
    const uint32_t n = 12;
    for (int round = 0; round < 5; round++) {
        const uint32_t dim = 1 + random.below(10);
        const Floats keys = random.normals(n * dim);
        Candidates c;
        c.n = n;
        c.head_dim = dim;
        c.keys = keys.data();
        const Floats whole = scores("kcenter", c);
        for (uint32_t k = 1; k <= n; k++) {
            double best = 1e30;
            for (uint32_t set = 0; set < 1u << n; set++) {
                if (uint32_t(__builtin_popcount(set)) != k) continue;
                Indices chosen;
                for (uint32_t i = 0; i < n; i++)
                    if (set >> i & 1) chosen.push_back(i);
                best = std::min(best, radius_of(keys, n, dim, chosen));
            }
            c.n_keep = k;
            const Indices chosen = highest(scores("kcenter", c), k);
            CHECK(chosen == highest(whole, k)); // stopping early chooses the same
            CHECK(radius_of(keys, n, dim, chosen) <= 2 * best + 1e-3);
        }
    }
}

TEST_CASE("retain: kcenter equals the plain greedy choice, despite its shortcuts")
{
    RandomValues random{10};
    for (int round = 0; round < 60; round++) {
        const uint32_t n = 1 + random.below(150), dim = 1 + random.below(90),
                       n_keep = 1 + random.below(n);
        Floats keys = random.normals(n * dim);
        // Some coordinates have most of the spread. Some keys are close together, some are equal.
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < dim; j++)
                keys[i * dim + j] =
                    i % 7 == 6 ? keys[(i - 3) * dim + j] + 0.1f * keys[i * dim + j] * float(i % 2)
                               : keys[i * dim + j] / float(1 + j % 5);
        Floats expected(n), nearest(n, 1e30f);
        std::vector<bool> chosen(n);
        uint32_t centre = 0;
        for (uint32_t i = 0; i < n; i++)
            if (dot(&keys[i * dim], &keys[i * dim], dim) >
                dot(&keys[centre * dim], &keys[centre * dim], dim))
                centre = i;
        for (uint32_t k = 0; k < n_keep; k++) {
            expected[centre] = float(n - k);
            chosen[centre] = true;
            uint32_t next = ~0u;
            for (uint32_t i = 0; i < n; i++) {
                nearest[i] = std::min(nearest[i],
                                      squared_distance(&keys[i * dim], &keys[centre * dim], dim));
                if (!chosen[i] && (next == ~0u || nearest[i] > nearest[next])) next = i;
            }
            centre = next;
        }
        Candidates c;
        c.n = n;
        c.head_dim = dim;
        c.n_keep = n_keep;
        c.keys = keys.data();
        CHECK(scores("kcenter", c) == expected);
    }
}

TEST_CASE("retain: kcenter takes the largest norm first, repeated keys last, of equal ones the "
          "older first")
{
    const Floats keys = {1, 0, 1, 0, 0, 3, 1, 0, 0, 3, -2, 0};
    Candidates c;
    c.n = 6;
    c.head_dim = 2;
    c.keys = keys.data();
    CHECK(scores("kcenter", c) == Floats{4, 3, 6, 2, 1, 5});
    c.n_keep = 3;
    CHECK(scores("kcenter", c) == Floats{4, 0, 6, 0, 0, 5});
    c.n_keep = 99;
    CHECK(highest(scores("kcenter", c), 99).size() == 6);
}

TEST_CASE("retain: any policy gives finite, repeatable scores and keeps n_keep candidates")
{
    RandomValues random{9};
    std::istringstream names(retain_names());
    for (std::string name; names >> name;) {
        for (int round = 0; round < 60; round++) {
            const uint32_t n = random.below(round < 10 ? 3 : 90), dim = 1 + random.below(40);
            Indices positions, tokens, counts;
            Floats probability_sums, keys = random.normals(n * dim, round % 5 ? 1 : 0);
            for (uint32_t i = 0, position = 0; i < n; i++) {
                positions.push_back(position += 1 + random.below(3));
                tokens.push_back(random.below(9));
                counts.push_back(1 + random.below(20));
                probability_sums.push_back(float(random.below(4)) / 4);
            }
            Candidates c;
            c.n = n;
            c.n_seen = n ? positions.back() + 1 + random.below(5) : 0;
            c.head_dim = dim;
            c.n_keep = random.below(n + 2);
            c.positions = positions.data();
            c.tokens = tokens.data();
            c.counts = counts.data();
            c.scores = probability_sums.data();
            c.keys = keys.data();
            RetainOptions o;
            o.pool = 1 + 2 * random.below(6);
            o.decay = random.below(2) ? 1 : 0.9;
            const Floats score = scores(name.c_str(), c, o);
            CHECK(
                std::all_of(score.begin(), score.end(), [](float x) { return std::isfinite(x); }));
            CHECK(highest(score, c.n_keep).size() == std::min(c.n_keep, n));
            CHECK(scores(name.c_str(), c, o) == score);
        }
    }
}

TEST_CASE("retain: keys read in parts give the same scores as all at once, bit for bit")
{
    struct Parts {
        const std::vector<float>& keys;
        uint32_t head_dim;
        mutable std::vector<float> part;
    };
    for (const char* name : {"keydiff", "mix"})
        for (uint32_t n : {1u, 31u, 200u}) {
            const uint32_t head_dim = 72; // more than a vector, not a multiple of 64
            std::vector<float> keys, probability_sums, all(n), parts(n);
            std::vector<uint32_t> counts;
            for (uint32_t i = 0; i < n * head_dim; i++)
                keys.push_back(float(random_uniform(5, i)) - 0.3f);
            for (uint32_t i = 0; i < n; i++)
                probability_sums.push_back(float(random_uniform(6, i))),
                    counts.push_back(1 + i % 5);
            const RetainPolicy& policy = *find_retain(name);
            std::vector<float> scratch(retain_scratch_floats(policy, n, head_dim));
            Candidates c;
            c.n = n;
            c.head_dim = head_dim;
            c.scores = probability_sums.data();
            c.counts = counts.data();
            c.keys = keys.data();
            policy.score(c, {}, scratch.data(), all.data());
            const Parts from{keys, head_dim, {}};
            c.keys = nullptr;
            c.keys_from = &from;
            c.read_keys = [](const void* p, uint32_t first, uint32_t n_part) {
                auto* parts_of = static_cast<const Parts*>(p);
                const auto begin = parts_of->keys.begin() + ptrdiff_t(first * parts_of->head_dim);
                parts_of->part.assign(begin, begin + ptrdiff_t(n_part * parts_of->head_dim));
                return static_cast<const float*>(parts_of->part.data());
            };
            for (uint32_t most : {1u, 7u, 32u, 500u}) {
                c.most_keys = most;
                policy.score(c, {}, scratch.data(), parts.data());
                CAPTURE(name);
                CAPTURE(n);
                CAPTURE(most);
                CHECK(memcmp(all.data(), parts.data(), 4ull * n) == 0);
            }
        }
}
