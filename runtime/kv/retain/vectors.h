// Sums over a head's vectors in one fixed order, eight partial sums side by side: a compiler may not reorder sums, so they
// are written as vectors (gcc's and clang's, of any machine), and every machine gets the same bits. What is inlined into a
// function for AVX2 becomes its instructions.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace ks
{

#define KS_ALWAYS_INLINE inline __attribute__((always_inline))

typedef float Float8 __attribute__((vector_size(32)));
typedef int32_t Int8 __attribute__((vector_size(32)));
typedef double Double2 __attribute__((vector_size(16)));

// Where eight of them lie, anywhere. As pointers: from a function that returns a reference clang takes a whole vector's alignment.
typedef float LooseFloat8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t LooseInt8 __attribute__((vector_size(32), aligned(4), may_alias));
KS_ALWAYS_INLINE const LooseFloat8* floats_at(const void* from)
{
    return static_cast<const LooseFloat8*>(from);
}
KS_ALWAYS_INLINE const LooseInt8* ints_at(const void* from)
{
    return static_cast<const LooseInt8*>(from);
}

#ifdef __x86_64__
#define KS_AVX2 __attribute__((target("avx2")))
inline const bool has_avx2 = [] { // as the kernels of the cpu backend are chosen
    const char* wanted = std::getenv("KNAPSACK_CPU");
    return (!wanted || std::strcmp(wanted, "generic") != 0) && __builtin_cpu_supports("avx2");
}();
#else
#define KS_AVX2
inline constexpr bool has_avx2 = false;
#endif

// Of eight lanes, as all sums of eight are.
template <class Eight> KS_ALWAYS_INLINE auto sum_of(const Eight& x)
{
    return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7]));
}

KS_ALWAYS_INLINE float dot(const float* x, const float* y, uint32_t n)
{
    Float8 sums = {};
    float rest = 0;
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) sums += *floats_at(x + i) * *floats_at(y + i);
    for (; i < n; i++) rest += x[i] * y[i];
    return sum_of(sums) + rest;
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
KS_ALWAYS_INLINE void add_scaled(const float* x, double scale, uint32_t n, double* sums)
{
    for (uint32_t i = 0; i < n; i++) sums[i] += double(x[i]) * scale;
}

// Unlike |x|^2 - 2 x.y + |y|^2 exact where x and y are close.
KS_ALWAYS_INLINE float squared_distance(const float* x, const float* y, uint32_t n)
{
    Float8 sums = {};
    float rest = 0;
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const Float8 apart = *floats_at(x + i) - *floats_at(y + i);
        sums += apart * apart;
    }
    for (; i < n; i++) rest += (x[i] - y[i]) * (x[i] - y[i]);
    return sum_of(sums) + rest;
}

} // namespace ks
