// y[t] += scale * sum of weights[t, j] * z[t, j], or y[t] = that.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { CombineExpertsArgs a; } pushed;
DECLARE_ARGS(CombineExpertsArgs, a)
layout(binding = 0) buffer Y { float y[]; };                      // (n_tokens, dim)
layout(binding = 1) readonly buffer Z { float z[]; };             // (n_tokens * n_used, dim)
layout(binding = 2) readonly buffer Weights { float weights[]; }; // (n_tokens, n_used)

void main()
{
    LOAD_ARGS(a)
    for (uint i = gl_GlobalInvocationID.x; i < a.n_tokens * a.dim; i += N_ALL_THREADS) {
        uint first = i / a.dim * a.n_used;
        float sum = 0.f;
        for (uint j = first; j < first + a.n_used; j++)
            sum += weights[j] * z[j * a.dim + i % a.dim];
        sum *= a.scale;
        y[i] = a.accumulate != 0u ? y[i] + sum : sum;
    }
}
