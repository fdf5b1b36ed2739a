// Sums over vectors of one head. Each is eight partial sums, added in one fixed order: compilers
// can vectorise it, and every machine gets the same bits.
#pragma once

#include <cstdint>

namespace ks
{

inline float sum_of_lanes(const float (&x)[8])
{
    return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7]));
}

inline float dot(const float* x, const float* y, uint32_t n)
{
    float lanes[8] = {}, rest = 0;
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (uint32_t k = 0; k < 8; k++) lanes[k] += x[i + k] * y[i + k];
    for (; i < n; i++) rest += x[i] * y[i];
    return sum_of_lanes(lanes) + rest;
}

inline double dot64(const float* x, const float* y, uint32_t n)
{
    double lanes[8] = {}, rest = 0;
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (uint32_t k = 0; k < 8; k++) lanes[k] += double(x[i + k]) * double(y[i + k]);
    for (; i < n; i++) rest += double(x[i]) * double(y[i]);
    const double even = (lanes[0] + lanes[2]) + (lanes[4] + lanes[6]),
                 odd = (lanes[1] + lanes[3]) + (lanes[5] + lanes[7]);
    return even + odd + rest;
}

// sums += x * scale
inline void add_scaled(const float* x, double scale, uint32_t n, double* sums)
{
    for (uint32_t i = 0; i < n; i++) sums[i] += double(x[i]) * scale;
}

// Unlike |x|^2 - 2 x.y + |y|^2 this is exact where x and y are close.
inline float squared_distance(const float* x, const float* y, uint32_t n)
{
    float lanes[8] = {}, rest = 0;
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (uint32_t k = 0; k < 8; k++) lanes[k] += (x[i + k] - y[i + k]) * (x[i + k] - y[i + k]);
    for (; i < n; i++) rest += (x[i] - y[i]) * (x[i] - y[i]);
    return sum_of_lanes(lanes) + rest;
}

} // namespace ks
