// Helpers of all shaders. A workgroup has 128 threads, which every Vulkan device can run.
// Sums over threads go through shared memory, so the subgroup size does not matter.
#include "kernels/common/parts.h"

const uint n_threads = 128u;
layout(local_size_x = 128) in;

// lavapipe recompiles a shader at a dispatch for the values of push constants that decide a branch
// or a loop. Some versions leak memory when they do. Arguments that go through shared memory are
// hidden from this optimisation. Other devices use plain copies.
layout(constant_id = 4) const uint args_through_shared = 0u;
#include "shaders/lanes.glsl"
#define DECLARE_ARGS(Type, name) Type name; shared Type name##_hidden;
#define LOAD_ARGS(name)                         \
    name = pushed.name;                         \
    if (args_through_shared != 0u) {            \
        if (THREAD == 0u) name##_hidden = name; \
        barrier();                              \
        name = name##_hidden;                   \
    }

#define THREAD gl_LocalInvocationID.x
#define N_ALL_THREADS (n_threads * gl_NumWorkGroups.x)

// The logit of a masked slot. It is finite, so no shader needs infinities.
const float masked_logit = -1e30f;
const float log2e = 1.442695041f;

// 2^x with an error of at most 2 ulp, the same bits on every device. It is 0 where the result is
// below 2^-126.
float power_of_two(float x)
{
    if (x < -126.f) return 0.f;
    float n = floor(min(x, 127.f) + 0.5f), f = min(x, 127.f) - n;
    float p = 0.00015353342f;
    p = p * f + 0.0013398901f;
    p = p * f + 0.009618438f;
    p = p * f + 0.055503324f;
    p = p * f + 0.24022648f;
    p = p * f + 0.6931472f;
    p = p * f + 1.f;
    return n > 127.f ? p * 2.f * uintBitsToFloat(254u << 23)
                     : p * uintBitsToFloat(uint(int(n) + 127) << 23);
}

// log2(x) of a positive normal x.
float log2_accurate(float x)
{
    int n = int(floatBitsToUint(x) >> 23) - 127;
    float m = uintBitsToFloat((floatBitsToUint(x) & 0x7fffffu) | 0x3f800000u);
    if (m > 1.41421356f) {
        m *= 0.5f;
        n++;
    }
    float s = (m - 1.f) / (m + 1.f), q = s * s;
    float p = 1.f + q * (0.333333333f + q * (0.2f + q * (0.142857143f + q * 0.111111111f)));
    return float(n) + 2.f * log2e * s * p;
}

// e^x; x is clamped to -87..88.
float exponential(float x)
{
    x = min(88.f, max(-87.f, x));
    float n = floor(x * log2e + 0.5f);
    // ln 2 is split into two parts. n times the first part is exact.
    float f = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    return power_of_two(n + f * log2e);
}

float sigmoid(float x) { return 1.f / (1.f + exponential(-x)); }

// cap * tanh(x / cap)
float softcapped(float x, float cap) { return cap * (2.f * sigmoid(2.f * x / cap) - 1.f); }

// e^x - 1 - x for x <= 0. From -0.5 on it is x^2 times a Taylor polynomial, elsewhere a difference.
float expm1_minus(float x)
{
    if (x < -0.5f) return exponential(x) - 1.f - x;
    float p = 1.f / 40320.f;
    p = p * x + 1.f / 5040.f;
    p = p * x + 1.f / 720.f;
    p = p * x + 1.f / 120.f;
    p = p * x + 1.f / 24.f;
    p = p * x + 1.f / 6.f;
    return (p * x + 0.5f) * x * x;
}
