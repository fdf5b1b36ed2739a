// SubGen's estimates against exact sums: bias, error bound, extreme values.
#include "tests/kv/subgen_bed.h"

using namespace ks;

TEST_CASE("subgen: clusters of one key each give the denominator exactly")
{
    RandomValues random{1};
    const uint32_t n = 40, dim = 8;
    const Floats keys = random.normals(n * dim), values = random.normals(n * dim);
    SubgenHead cache(shape_of(n, 1, 4, dim));
    cache.read(keys, values);
    CHECK(cache.subgen.n_clusters() == n);
    for (int i = 0; i < 20; i++) {
        const Floats q = random.normals(dim);
        CHECK(estimate(cache, keys, values, q).denominator() ==
              doctest::Approx(exact(keys, values, q).tau).epsilon(1e-5));
    }
    // The same keys again join the clusters of equal keys: twice the sum, still exact.
    for (uint32_t i = 0; i < n; i++) cache.update(i, &keys[i * dim], &values[i * dim]);
    CHECK(cache.subgen.n_clusters() == n);
    const Floats q = random.normals(dim);
    CHECK(estimate(cache, keys, values, q).denominator() ==
          doctest::Approx(2 * exact(keys, values, q).tau).epsilon(1e-5));
}

TEST_CASE(
    "subgen: numerator and denominator are unbiased, for both ways to sample, with merged clusters")
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
            SubgenHead cache(shape_of(5, 2, 12, dim, priority, seed));
            cache.subgen.set_radius(1);
            cache.read(keys, values);
            const Answer answer = estimate(cache, keys, values, q);
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

TEST_CASE("subgen: logits shifted by 200 change nothing")
{
    RandomValues random{4};
    const uint32_t n = 60, dim = 9;
    Floats keys = random.normals(n * dim), values = random.normals(n * dim),
           q = random.normals(dim);
    for (uint32_t i = 0; i < n; i++)
        keys[i * dim + dim - 1] = 1; // q's last component is added to every logit
    for (bool priority : {false, true}) {
        SubgenHead cache(shape_of(10, 2, 16, dim, priority));
        cache.subgen.set_radius(1);
        cache.read(keys, values);
        q[dim - 1] = 0;
        const Doubles plain = estimate(cache, keys, values, q).output();
        for (float shift : {200.0f, -200.0f}) {
            q[dim - 1] = shift;
            const Doubles shifted = estimate(cache, keys, values, q).output();
            for (uint32_t j = 0; j < dim; j++)
                CHECK(shifted[j] == doctest::Approx(plain[j]).epsilon(1e-3));
        }
    }
}

TEST_CASE("subgen: zero and NaN values add nothing, NaN keys do no harm")
{
    RandomValues random{5};
    const uint32_t n = 12, dim = 4;
    for (bool priority : {false, true}) {
        Floats keys = random.normals(n * dim), values(n * dim, 0.0f), q = random.normals(dim);
        SubgenHead cache(shape_of(20, 1, 5, dim, priority));
        Floats a(25), b(25);
        cache.subgen.weights(a.data(), b.data()); // nothing was read
        CHECK(std::count(a.begin(), a.end(), -INFINITY) +
                  std::count(b.begin(), b.end(), -INFINITY) ==
              50);
        cache.read(keys, values);
        const Answer none = estimate(cache, keys, values, q);
        CHECK(none.output() == Doubles(dim, 0.0));
        CHECK(none.denominator() == doctest::Approx(exact(keys, values, q).tau).epsilon(1e-5));
        // The first token that has a value takes every sample, or one where tokens are distinct.
        for (uint32_t j = 0; j < dim; j++) values[5 * dim + j] = 1;
        cache.update(5, &keys[5 * dim], &values[5 * dim]);
        CHECK(std::count(cache.token.begin() + 20, cache.token.end(), 5u) == (priority ? 1 : 5));
        const Doubles z = estimate(cache, keys, values, q).numerator();
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
}

TEST_CASE("subgen: values of any finite size leave finite weights")
{
    for (bool priority : {false, true})
        for (uint64_t seed = 0; seed < 100; seed++) {
            SubgenHead cache(shape_of(1, 1, 2, 1, priority, seed));
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
    "subgen: on clustered keys the error keeps the theorem's bound and shrinks with the samples")
{
    RandomValues random{6};
    const uint32_t n = 600, dim = 8;
    const Floats keys = clustered(random, n, dim, 10, 0.05f), values = random.normals(n * dim),
                 q = random.normals(dim);
    const Exact truth = exact(keys, values, q);
    // |softmax|_2 |V|_op
    const double scale = std::sqrt(truth.squares) / truth.tau * norm_of(values, dim);
    for (bool priority : {false, true}) {
        for (uint32_t s : {16u, 64u, 256u}) {
            Moments error;
            for (uint64_t seed = 0; seed < 40; seed++) {
                SubgenHead cache(shape_of(32, 4, s, dim, priority, seed));
                cache.subgen.choose_radius(keys.data(), n);
                cache.read(keys, values);
                const Doubles out = estimate(cache, keys, values, q).output();
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

TEST_CASE("subgen: priority samples count the tokens without bias and are exact if all fit")
{
    RandomValues random{9};
    const uint32_t n = 40, dim = 4;
    // |value| = 1
    Floats keys = random.normals(n * dim), values(n * dim, 0.5f), q = random.normals(dim);
    Moments total;
    for (uint64_t seed = 0; seed < 10000; seed++) {
        SubgenHead cache(shape_of(4, 1, 10, dim, true, seed));
        cache.read(keys, values);
        Floats a(14), b(14);
        cache.subgen.weights(a.data(), b.data());
        double sum = 0;
        for (uint32_t slot = 4; slot < 14; slot++) sum += std::exp(double(a[slot]));
        total.add(sum);
        if (seed < 100)
            // The samples are distinct.
            CHECK(std::set<uint32_t>(cache.token.begin() + 4, cache.token.end()).size() == 10);
    }
    CHECK(std::fabs(total.mean() - n) < 4 * total.error());
    CHECK(total.error() < 0.3);
    for (float& x : values) x = random.normal();
    for (uint32_t s : {n, n + 7}) {
        SubgenHead cache(shape_of(4, 1, s, dim, true));
        cache.read(keys, values);
        const Doubles z = estimate(cache, keys, values, q).numerator();
        for (uint32_t j = 0; j < dim; j++)
            CHECK(z[j] == doctest::Approx(exact(keys, values, q).z[j]).epsilon(1e-5));
    }
}
