// Random vectors for tests, from the library's own counter-based generator.
#pragma once

#include "runtime/base/rng.h"

#include <cmath>
#include <vector>

namespace ks
{

struct RandomValues {
    uint64_t seed;
    uint64_t counter = 0;

    double uniform() { return random_uniform(seed, counter++); }
    uint32_t below(uint32_t n) { return uint32_t(uniform() * n); }
    float normal()
    {
        const double radius = std::sqrt(-2 * std::log(1 - uniform()));
        return float(radius * std::cos(2 * 3.14159265358979323846 * uniform()));
    }
    std::vector<float> normals(size_t n, float scale = 1)
    {
        std::vector<float> values(n);
        for (float& value : values) value = scale * normal();
        return values;
    }
};

} // namespace ks
