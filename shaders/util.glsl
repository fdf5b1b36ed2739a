// What the shaders share. Every workgroup has as many threads as the least device can run; sums over threads go through
// shared memory, so that no shader cares how wide a subgroup is.
#include "kernels/common/parts.h"

const uint n_threads = 128u;
layout(local_size_x = 128) in;

// lavapipe compiles a shader anew for the values of push constants that decide a branch or a loop, at every dispatch, and in some
// versions loses track of its memory as it does. Arguments that come out of shared memory are none to it. Elsewhere: plain copies.
layout(constant_id = 4) const uint hides_args = 0u;
#ifdef LANES
layout(constant_id = 5) const uint lanes = 8u; // threads of a subgroup: 4, 8 or 16
// Binding i is to be seen as texels of a word, too, under another name.
#define AS_TEXELS(i, name) layout(binding = 16 + i) uniform usamplerBuffer name;
#define TEXEL(name, i) texelFetch(name, int(i)).x
#else
const uint lanes = 0u;
#endif
#define ARGS(Type, name) Type name; shared Type name##_hidden;
#define TAKE(name)                              \
    name = pushed.name;                         \
    if (hides_args != 0u) {                     \
        if (THREAD == 0u) name##_hidden = name; \
        barrier();                              \
        name = name##_hidden;                   \
    }

#define THREAD gl_LocalInvocationID.x
#define THREADS_OF_ALL (n_threads * gl_NumWorkGroups.x)

const float none = -1e30f; // a logit that nobody has; no shader needs infinities
const float log2e = 1.442695041f;

// 2^x within 2 units in the last place, the same on every device; 0 below 2^-126.
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
    return n > 127.f ? p * 2.f * uintBitsToFloat(254u << 23) : p * uintBitsToFloat(uint(int(n) + 127) << 23);
}

// log2(x) of a normal positive x.
float log_of_two(float x)
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
    // ln 2 in two parts, the first of which times n is exact
    float f = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    return power_of_two(n + f * log2e);
}

float sigmoid(float x) { return 1.f / (1.f + exponential(-x)); }
