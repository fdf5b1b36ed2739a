// Adds e^sinks[h] to the denominator of each head: y *= 2^(lse - after), lse = after.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { SinksArgs a; } pushed;
DECLARE_ARGS(SinksArgs, a)
layout(binding = 0) buffer Y { float y[]; };                  // (n_tokens, n_heads * head_dim)
layout(binding = 1) buffer Lse { float lse[]; };              // (n_tokens, n_heads)
layout(binding = 2) readonly buffer Sinks { float sinks[]; }; // (n_heads)

void main()
{
    LOAD_ARGS(a)
    for (uint i = gl_WorkGroupID.x; i < a.n_tokens * a.n_heads; i += gl_NumWorkGroups.x) {
        float before = lse[i], sink = sinks[i % a.n_heads] * log2e,
              after = max(before, sink) + log2_accurate(1.f + power_of_two(-abs(before - sink))),
              factor = power_of_two(before - after);
        barrier();
        for (uint d = THREAD; d < a.head_dim; d += n_threads) y[i * a.head_dim + d] *= factor;
        if (THREAD == 0u) lse[i] = after;
    }
}
