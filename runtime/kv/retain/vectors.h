// Sums over a head's vectors in one fixed order, eight partial sums side by side: a compiler may not reorder sums, so they
// are written as vectors (gcc's and clang's, of any machine), and every machine gets the same bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ks
{

typedef float Float4 __attribute__((vector_size(16)));
typedef double Double2 __attribute__((vector_size(16)));

inline Float4 load4(const float* x)
{
    Float4 v;
    std::memcpy(&v, x, sizeof(v));
    return v;
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

// The coordinates in which vectors spread most: two vectors are at least as far apart as these few say, which mostly spares a
// comparison of the rest.
constexpr uint32_t kFew = 24;
constexpr float kFewSlack = 1.0001f; // more than rounding does to either distance

struct FewCoordinates {
    uint32_t n = 0, at[kFew];

    FewCoordinates() = default;
    FewCoordinates(const float* x, uint32_t n_vectors, uint32_t dim) // x (n_vectors, dim)
    {
        float spread[kFew];
        const uint32_t step = n_vectors / 128 + 1; // some will do
        for (uint32_t j = 0; j < dim; j++) {
            float sum = 0, squares = 0, count = 0;
            for (uint32_t i = 0; i < n_vectors; i += step, count++) {
                const float value = x[uint64_t(i) * dim + j];
                sum += value;
                squares += value * value;
            }
            const float own = squares - sum * sum / count;
            const uint32_t slot = n < kFew ? n++ : uint32_t(std::min_element(spread, spread + kFew) - spread);
            if (j >= kFew && !(own > spread[slot])) continue;
            spread[slot] = own;
            at[slot] = j;
        }
    }
    // out (kFew) = those of x, scaled; zeros where x has fewer.
    void take(const float* x, float scale, float* out) const
    {
        for (uint32_t k = 0; k < kFew; k++) out[k] = k < n ? x[at[k]] * scale : 0;
    }
};

} // namespace ks
