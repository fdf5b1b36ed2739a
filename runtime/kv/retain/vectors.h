// Sums over a head's vectors in one fixed order, eight partial sums side by side: a compiler may not reorder sums, so they
// are written as vectors (gcc's and clang's, of any machine), and every machine gets the same bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ks
{

typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16))); // what comparing Float4 gives: -1 or 0
typedef double Double2 __attribute__((vector_size(16)));

inline Float4 load4(const float* x)
{
    Float4 v;
    std::memcpy(&v, x, sizeof(v));
    return v;
}

inline bool any(Int4 of)
{
    uint64_t halves[2];
    std::memcpy(halves, &of, sizeof halves);
    return halves[0] | halves[1];
}

inline float largest(Float4 x)
{
    return std::max(std::max(x[0], x[1]), std::max(x[2], x[3]));
}

inline float dot(const float* x, const float* y, uint32_t n)
{
    Float4 low = {}, high = {};
    float rest = 0;
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        low += load4(x + i) * load4(y + i);
        high += load4(x + i + 4) * load4(y + i + 4);
    }
    for (; i < n; i++) rest += x[i] * y[i];
    low += high;
    return (low[0] + low[1]) + (low[2] + low[3]) + rest;
}

inline double dot64(const float* x, const float* y, uint32_t n)
{
    Double2 a = {}, b = {}, c = {}, d = {};
    double rest = 0;
    uint32_t i = 0;
    const auto product = [&](uint32_t j) { return Double2{double(x[j]), double(x[j + 1])} * Double2{double(y[j]), double(y[j + 1])}; };
    for (; i + 8 <= n; i += 8) {
        a += product(i);
        b += product(i + 2);
        c += product(i + 4);
        d += product(i + 6);
    }
    for (; i < n; i++) rest += double(x[i]) * double(y[i]);
    a = (a + b) + (c + d);
    return a[0] + a[1] + rest;
}

// sums += x * scale
inline void add_scaled(const float* x, double scale, uint32_t n, double* sums)
{
    for (uint32_t i = 0; i < n; i++) sums[i] += double(x[i]) * scale;
}

// Unlike |x|^2 - 2 x.y + |y|^2 exact where x and y are close.
inline float squared_distance(const float* x, const float* y, uint32_t n)
{
    Float4 low = {}, high = {};
    float rest = 0;
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const Float4 a = load4(x + i) - load4(y + i), b = load4(x + i + 4) - load4(y + i + 4);
        low += a * a;
        high += b * b;
    }
    for (; i < n; i++) rest += (x[i] - y[i]) * (x[i] - y[i]);
    low += high;
    return (low[0] + low[1]) + (low[2] + low[3]) + rest;
}

} // namespace ks
