// The dialect: headers in kernels/common compile as C++17, CUDA and GLSL. They use scalars and
// 4-byte members only. Arrays are passed through macros such as WORDS, WORDS_PARAM and WORD,
// because GLSL has no pointers.
#ifndef KS_COMMON_LANG_H
#define KS_COMMON_LANG_H

#ifdef GL_core_profile // predefined in GLSL 4.5 core

#define GLSL 1
#define FN
#define CONST const
#define STRUCT_BEGIN(name)
#define STRUCT_END
// The shader names its buffer `w`, so functions that read words take no parameter for it.
#define WORDS_PARAM
#define WORDS
#define WORD(i) w[i]
// The same for the array `x` of values and the array `row` of words of a codec.
#define VALUES_PARAM
#define VALUES
#define VALUE(i) x[i]
#define ROW_PARAM
#define ROW
#define ROW_WORD(i) row[i]
#define OF(codec, name) codec##_##name
// The grid of a format, two entries of 16 bits a word. A shader that defines SHARED_GRID calls
// load_grid, because devices may index constants slowly. With SMALL_GRIDS, a LARGE_GRID, of 4 KiB,
// does not fit beside what else is shared.
#ifdef SHARED_GRID
#define GRID(list, n)                                                      \
    shared uint grid[n];                                                   \
    void load_grid()                                                       \
    {                                                                      \
        const uint entries[n] = uint[n](list);                             \
        for (uint i = gl_LocalInvocationIndex; i < n; i += n_threads)      \
            grid[i] = entries[i];                                          \
        barrier();                                                         \
    }                                                                      \
    uint grid_entry(uint i) { return grid[i / 2u] >> (16u * (i & 1u)) & 0xffffu; }
#else
#define GRID CONST_GRID
#endif
#define CONST_GRID(list, n)                                                \
    void load_grid() {}                                                    \
    uint grid_entry(uint i)                                                \
    {                                                                      \
        const uint entries[n] = uint[n](list);                             \
        return entries[i / 2u] >> (16u * (i & 1u)) & 0xffffu;              \
    }
#ifdef SMALL_GRIDS
#define LARGE_GRID CONST_GRID
#else
#define LARGE_GRID GRID
#endif
#define KS_AND && // elsewhere & and |: both sides are evaluated, without a branch
#define KS_OR ||
#define BITS_TO_FLOAT(u) uintBitsToFloat(u)
#define FLOAT_TO_BITS(f) floatBitsToUint(f)
#define HALF_TO_FLOAT(u) unpackHalf2x16(u).x

#else

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint32_t uint;
#ifdef __CUDACC__
#include <cuda_fp16.h>
#define FN static __host__ __device__ inline
#else
#define FN static inline
#endif
#define CONST static constexpr
#define STRUCT_BEGIN(name) struct name {
#define STRUCT_END };
#define WORDS_PARAM const uint* w,
#define WORDS w,
#define WORD(i) w[i]
#define VALUES_PARAM const float* x,
#define VALUES x,
#define VALUE(i) x[i]
#define ROW_PARAM uint* row,
#define ROW row,
#define ROW_WORD(i) row[i]
#define KS_AND &
#define KS_OR |
// A member of the codec's struct. In GLSL it is a function with the codec's name as a prefix.
#define OF(codec, name) name
#define GRID(list, n)                                                      \
    FN uint grid_entry(uint i)                                             \
    {                                                                      \
        static constexpr uint entries[n] = {list};                         \
        return entries[i / 2u] >> (16u * (i & 1u)) & 0xffffu;              \
    }
#define LARGE_GRID GRID

FN float BITS_TO_FLOAT(uint u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

FN uint FLOAT_TO_BITS(float f)
{
    uint u;
    memcpy(&u, &f, 4);
    return u;
}

// Converts an IEEE half in the low 16 bits of u. Exact, subnormals included, in plain arithmetic. A
// signalling NaN becomes quiet, as in the hardware conversions.
FN float HALF_TO_FLOAT(uint u)
{
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half((unsigned short)u));
#else
    uint sign = (u & 0x8000u) << 16;
    uint exponent = (u >> 10) & 31u;
    uint mantissa = u & 1023u;
    if (exponent == 31u) {
        uint quiet = mantissa != 0u ? 0x400000u : 0u;
        return BITS_TO_FLOAT(sign | 0x7f800000u | quiet | mantissa << 13);
    }
    if (exponent == 0u) {
        float tiny = float(mantissa) * (1.f / 16777216.f);
        return sign != 0u ? -tiny : tiny;
    }
    return BITS_TO_FLOAT(sign | (exponent + 112u) << 23 | mantissa << 13);
#endif
}

#endif

// A product with its own rounding: the compiler must not fuse it with an addition.
FN float MUL(float a, float b)
{
#if defined(GLSL)
    precise float product = a * b;
    return product;
#elif defined(__CUDA_ARCH__)
    return __fmul_rn(a, b);
#else
    return a * b; // -ffp-contract=off
#endif
}

// Rounds to nearest even. Overflow gives infinity, NaN stays NaN. The bits equal those of the
// hardware conversions. GLSL uses this function too, because packHalf2x16 may round in either
// direction.
FN uint FLOAT_TO_HALF(float f)
{
    uint u = FLOAT_TO_BITS(f);
    uint sign = (u >> 16) & 0x8000u;
    uint magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00u | ((magnitude >> 13) & 1023u);
    // Infinity, from halfway between 65504 and the next value on.
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
    if (magnitude < 0x38800000u) { // subnormal half: adding 0.5 aligns the mantissa and rounds it
        float aligned = BITS_TO_FLOAT(magnitude) + 0.5f;
        return sign | (FLOAT_TO_BITS(aligned) - 0x3f000000u);
    }
    uint odd = (magnitude >> 13) & 1u;
    return sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

// The nearest half that is not above f. f is not NaN.
FN uint HALF_FLOOR(float f)
{
    uint h = FLOAT_TO_HALF(f);
    if (HALF_TO_FLOAT(h) <= f) return h;
    if ((h & 0x7fffu) == 0u) return 0x8001u;
    return (h & 0x8000u) != 0u ? h + 1u : h - 1u;
}

// The nearest half that is not below f. f is not NaN.
FN uint HALF_CEIL(float f) { return HALF_FLOOR(-f) ^ 0x8000u; }

#endif
