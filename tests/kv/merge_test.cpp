// Victims that merge into a slot that stays: the nearest one, the means, the weight.
#include "runtime/kv/retain/merge.h"
#include "tests/kv/random_values.h"

#include <algorithm>
#include <doctest/doctest.h>

using namespace ks;
using Floats = std::vector<float>;

static Floats norms_of(const Floats& keys, uint32_t dim)
{
    Floats norms;
    for (size_t i = 0; i < keys.size(); i += dim) norms.push_back(key_norm(&keys[i], dim));
    return norms;
}

TEST_CASE("merge: the nearest target has the largest cosine, whatever the norms")
{
    RandomValues random{1};
    for (int round = 0; round < 200; round++) {
        const uint32_t dim = 1 + random.below(70), n = 1 + random.below(50);
        Floats targets = random.normals(n * dim), key = random.normals(dim, 3);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < dim; j++) targets[i * dim + j] *= float(1 + i % 5);
        std::vector<double> cosines;
        for (uint32_t i = 0; i < n; i++) {
            double xy = 0, xx = 0, yy = 0;
            for (uint32_t j = 0; j < dim; j++) {
                const double x = double(targets[i * dim + j]), y = double(key[j]);
                xy += x * y, xx += x * x, yy += y * y;
            }
            cosines.push_back(xy / std::sqrt(xx * yy));
        }
        float cosine = 0;
        const uint32_t best = nearest_target(targets.data(), norms_of(targets, dim).data(), n, dim, key.data(), &cosine);
        REQUIRE(best < n);
        CHECK(double(cosine) == doctest::Approx(cosines[best]).epsilon(1e-5));
        CHECK(cosines[best] > *std::max_element(cosines.begin(), cosines.end()) - 1e-5);
    }
}

TEST_CASE("merge: the first of equal targets; keys without direction are at a right angle to all; no target, no answer")
{
    const Floats targets = {0, 0, 2, 0, 2, 0, -1, 0};
    const Floats norms = norms_of(targets, 2), key = {1, 0}, back = {-1, 0}, zero = {0, 0};
    float cosine = 9;
    CHECK(nearest_target(targets.data(), norms.data(), 4, 2, key.data(), &cosine) == 1);
    CHECK(cosine == 1);
    CHECK(nearest_target(targets.data(), norms.data(), 4, 2, back.data(), &cosine) == 3);
    CHECK(nearest_target(targets.data(), norms.data(), 3, 2, back.data(), &cosine) == 0);
    CHECK(cosine == 0);
    CHECK(nearest_target(targets.data(), norms.data(), 4, 2, zero.data(), &cosine) == 0);
    CHECK(nearest_target(targets.data(), norms.data(), 0, 2, key.data(), &cosine) == kNoTarget);
    CHECK(cosine < kNearEnough);
    const Floats odd = {NAN, 1};
    nearest_target(targets.data(), norms.data(), 4, 2, odd.data(), &cosine);
    CHECK(cosine < kNearEnough);
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
