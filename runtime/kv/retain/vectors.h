// Sums over a head's vectors in one fixed order: eight partial sums, so the compiler may use vector registers and every
// machine gets the same bits.
#pragma once

#include <cstdint>

namespace ks
{

template <class Sum> inline Sum dot(const float* x, const float* y, uint32_t n)
{
    Sum part[8] = {};
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (uint32_t j = 0; j < 8; j++) part[j] += Sum(x[i + j]) * Sum(y[i + j]);
    for (; i < n; i++) part[i % 8] += Sum(x[i]) * Sum(y[i]);
    return ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7]));
}

// Unlike |x|^2 - 2 x.y + |y|^2 exact where x and y are close.
inline float squared_distance(const float* x, const float* y, uint32_t n)
{
    float part[8] = {};
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (uint32_t j = 0; j < 8; j++) part[j] += (x[i + j] - y[i + j]) * (x[i + j] - y[i + j]);
    for (; i < n; i++) part[i % 8] += (x[i] - y[i]) * (x[i] - y[i]);
    return ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7]));
}

} // namespace ks
