// y[r] = x[first_row + r], divided by its rms, * w, one workgroup per row
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { RmsnormArgs a; } pushed;
ARGS(RmsnormArgs, a)
layout(binding = 0) writeonly buffer Y { float y[]; }; // (rows, dim)
layout(binding = 1) readonly buffer X { float x[]; };  // (first_row + rows, dim), may be y
layout(binding = 2) readonly buffer W { float w[]; };  // (dim)

shared float part[n_threads];

void main()
{
    TAKE(a)
    uint t = THREAD, to = gl_WorkGroupID.x * a.dim, from = to + a.first_row * a.dim;
    float sum = 0.f;
    for (uint i = t; i < a.dim; i += n_threads) sum += x[from + i] * x[from + i];
    part[t] = sum;
    barrier();
    for (uint s = n_threads / 2u; s > 0u; s >>= 1) {
        if (t < s) part[t] += part[t + s];
        barrier();
    }
    float scale = 1.f / sqrt(part[0] / float(a.dim) + a.eps);
    for (uint i = t; i < a.dim; i += n_threads) y[to + i] = x[from + i] * scale * w[i];
}
