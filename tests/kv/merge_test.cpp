// Victims that merge into a slot that stays: the nearest one, the means, the weight.
#include "runtime/kv/retain/merge.h"
#include "tests/kv/random_values.h"

#include <algorithm>
#include <doctest/doctest.h>

using namespace ks;
using Floats = std::vector<float>;

// The targets with all that is kept of them.
struct Targets {
    Floats keys, norms, apart, few;
    std::vector<uint32_t> indexes;
    MergeTargets t{};

    Targets(const Floats& k, uint32_t dim) : keys(k), norms(k.size() / dim), apart(norms), few(norms.size() * kFew), indexes(norms.size())
    {
        const uint32_t n = uint32_t(norms.size());
        t = {keys.data(), indexes.data(), norms.data(), apart.data(), few.data(), n, dim, FewCoordinates(k.data(), n, dim)};
        for (uint32_t i = 0; i < t.n; i++) indexes[i] = i, t.set(i);
    }
};

TEST_CASE("merge: the nearest target has the largest cosine, whatever the norms, if it is near enough")
{
    RandomValues random{1};
    uint32_t n_near = 0, n_far = 0;
    for (int round = 0; round < 600; round++) {
        const uint32_t dim = 1 + random.below(70), n = 1 + random.below(50);
        const Floats common = random.normals(dim, float(round % 3));
        Floats targets = random.normals(n * dim), key = random.normals(dim, 3);
        for (uint32_t j = 0; j < dim; j++) key[j] += 3 * common[j];
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < dim; j++) targets[i * dim + j] = (targets[i * dim + j] + common[j]) * float(1 + i % 5);
        uint32_t best = kNoTarget;
        float largest = kNearEnough;
        for (uint32_t i = 0; i < n; i++) {
            const float c = dot(&targets[i * dim], key.data(), dim) / (key_norm(&targets[i * dim], dim) * key_norm(key.data(), dim));
            if (c >= kNearEnough && (best == kNoTarget || c > largest)) best = i, largest = c;
        }
        CAPTURE(dim);
        REQUIRE(Targets(targets, dim).t.nearest(key.data()) == best);
        (best == kNoTarget ? n_far : n_near)++;
    }
    CHECK(n_near > 100);
    CHECK(n_far > 100);
}

TEST_CASE("merge: the first of equal targets; keys without direction are near none; a target that moved is found where it is")
{
    Targets targets({0, 0, 2, 0, 2, 0, -1, 0}, 2);
    const Floats key = {1, 0}, back = {-1, 0}, zero = {0, 0}, across = {0, 3}, odd = {NAN, 1};
    CHECK(targets.t.nearest(key.data()) == 1);
    CHECK(targets.t.nearest(back.data()) == 3);
    CHECK(targets.t.nearest(zero.data()) == kNoTarget);
    CHECK(targets.t.nearest(across.data()) == kNoTarget);
    CHECK(targets.t.nearest(odd.data()) == kNoTarget);
    CHECK(Targets({}, 2).t.nearest(key.data()) == kNoTarget);
    targets.keys[2] = 0, targets.keys[3] = 1;
    targets.t.set(1);
    CHECK(targets.t.nearest(key.data()) == 2);
    CHECK(targets.t.nearest(across.data()) == 1);
}

TEST_CASE("merge: a representative is the mean of all it stands for, in any grouping")
{
    RandomValues random{2};
    const uint32_t dim = 20, n = 30;
    const Floats keys = random.normals(n * dim), values = random.normals(n * dim);
    std::vector<double> key(dim, 0.0), value(dim, 0.0);
    for (uint32_t i = 0; i < n * dim; i++) key[i % dim] += double(keys[i]) / n, value[i % dim] += double(values[i]) / n;
    for (uint32_t split : {1u, 7u, 15u}) { // two representatives, one of which takes in the other
        Floats k[2], v[2];
        uint32_t count[2] = {0, 0};
        for (uint32_t i = 0; i < n; i++) {
            const int at = i >= split;
            if (count[at] == 0) {
                k[at].assign(&keys[i * dim], &keys[i * dim] + dim);
                v[at].assign(&values[i * dim], &values[i * dim] + dim);
                count[at] = 1;
            } else {
                count[at] = absorb(k[at].data(), v[at].data(), count[at], &keys[i * dim], &values[i * dim], 1, dim);
            }
        }
        CHECK(absorb(k[0].data(), v[0].data(), count[0], k[1].data(), v[1].data(), count[1], dim) == n);
        for (uint32_t j = 0; j < dim; j++) {
            CHECK(double(k[0][j]) == doctest::Approx(key[j]).epsilon(1e-4));
            CHECK(double(v[0][j]) == doctest::Approx(value[j]).epsilon(1e-4));
        }
    }
}

TEST_CASE("merge: equal tokens merge to themselves, so attention over them is exact")
{
    RandomValues random{3};
    const uint32_t dim = 8;
    const Floats key = random.normals(dim), value = random.normals(dim), q = random.normals(dim);
    Floats k = key, v = value;
    uint32_t n = 1;
    for (int i = 0; i < 9; i++) n = absorb(k.data(), v.data(), n, key.data(), value.data(), 1, dim, i % 2);
    CHECK(n == 10);
    CHECK(v == value);
    for (uint32_t j = 0; j < dim; j++) CHECK(k[j] == doctest::Approx(key[j]).epsilon(1e-5));
    CHECK(std::exp(double(log_weight(n))) == doctest::Approx(10));
}

TEST_CASE("merge: the mean key can keep the mean norm")
{
    const Floats victim = {0, 4}, value = {1, 1};
    Floats k = {2, 0}, v = {3, 3};
    CHECK(absorb(k.data(), v.data(), 3, victim.data(), value.data(), 1, 2, true) == 4);
    CHECK(key_norm(k.data(), 2) == doctest::Approx(2.5)); // (3 * 2 + 4) / 4
    CHECK(k[0] / k[1] == doctest::Approx(1.5));           // along (1.5, 1)
    CHECK(v[0] == doctest::Approx(2.5));                  // values are plain means
    Floats opposite = {0, -4}, up = {0, 4};
    absorb(up.data(), v.data(), 1, opposite.data(), value.data(), 1, 2, true); // nothing left to scale
    CHECK(up == Floats{0, 0});
}

TEST_CASE("merge: the weight is the log of the number, up to a cap that the number does not have")
{
    CHECK(log_weight(1) == 0);
    CHECK(log_weight(2) == doctest::Approx(std::log(2.0)));
    CHECK(log_weight(64) == doctest::Approx(std::log(64.0)));
    CHECK(log_weight(65) == log_weight(64));
    CHECK(log_weight(1000000) == log_weight(64));
    Floats k = {0}, v = {0};
    const Floats one = {1};
    uint32_t n = 1;
    for (int i = 0; i < 999; i++) n = absorb(k.data(), v.data(), n, one.data(), one.data(), 1, 1);
    CHECK(n == 1000);
    CHECK(v[0] == doctest::Approx(0.999).epsilon(1e-4)); // not the mean of the last 64
}
