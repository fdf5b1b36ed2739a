// RMSNorm, or LayerNorm without a bias: y[r] = norm(x[first_row + r]) * w[r % w_rows]. One
// workgroup per row.
// also with SUMS
#version 450
#extension GL_GOOGLE_include_directive : require
#ifdef SUMS
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
#include "shaders/util.glsl"

layout(push_constant) uniform Block { NormArgs a; } pushed;
DECLARE_ARGS(NormArgs, a)
layout(binding = 0) writeonly buffer Y { float y[]; }; // (rows, dim)
layout(binding = 1) readonly buffer X { float x[]; };  // (first_row + rows, dim), may be y
layout(binding = 2) readonly buffer W { float w[]; };  // (w_rows, dim)

shared float part[n_threads];

// The sum of x over all threads. A barrier must separate two calls.
float sum_of(float x)
{
#ifdef SUMS
    float sum = subgroupAdd(x), all = 0.f;
    if (subgroupElect()) part[gl_SubgroupID] = sum;
    barrier();
    for (uint i = 0u; i < gl_NumSubgroups; i++) all += part[i];
    return all;
#else
    part[THREAD] = x;
    barrier();
    for (uint s = n_threads / 2u; s > 0u; s >>= 1) {
        if (THREAD < s) part[THREAD] += part[THREAD + s];
        barrier();
    }
    return part[0];
#endif
}

void main()
{
    LOAD_ARGS(a)
    uint to = gl_WorkGroupID.x * a.dim, from = to + a.first_row * a.dim;
    uint weight = gl_WorkGroupID.x % a.w_rows * a.dim;
    float mean = 0.f, sum = 0.f;
    if (a.kind == norm_layer) {
        for (uint i = THREAD; i < a.dim; i += n_threads) sum += x[from + i];
        mean = sum_of(sum) / float(a.dim);
        sum = 0.f;
        barrier();
    }
    for (uint i = THREAD; i < a.dim; i += n_threads)
        sum += (x[from + i] - mean) * (x[from + i] - mean);
    float scale = 1.f / sqrt(sum_of(sum) / float(a.dim) + a.eps);
    for (uint i = THREAD; i < a.dim; i += n_threads)
        y[to + i] = (x[from + i] - mean) * scale * w[weight + i];
}
