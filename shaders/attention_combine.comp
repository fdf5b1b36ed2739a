// The partial results of a query's splits become its output: one workgroup per (token, head)
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { FoldArgs a; } pushed;
DECLARE_ARGS(FoldArgs, a)
layout(binding = 0) writeonly buffer Y { float y[]; };           // (n_tokens, n_heads * head_dim)
layout(binding = 1) writeonly buffer Lse { float lse[]; };       // (n_tokens, n_heads), where has_lse
layout(binding = 2) readonly buffer Partials { float partials[]; }; // (n_tokens * n_heads, n_splits, 4 + head_dim)

#include "shaders/hadamard.glsl"

// Of each split.
shared float tops[n_threads], norm_tops[n_threads], norms[n_threads], shares[n_threads];

void main()
{
    LOAD_ARGS(a)
    uint query = gl_WorkGroupID.x, stride = 4u + a.head_dim, from = query * a.n_splits * stride;
    float top = masked_logit, norm_top = masked_logit, norm = 0.f;
    if (THREAD < a.n_splits) {
        tops[THREAD] = partials[from + THREAD * stride];
        norm_tops[THREAD] = partials[from + THREAD * stride + 1u];
        norms[THREAD] = partials[from + THREAD * stride + 2u];
    }
    barrier();
    for (uint i = 0u; i < a.n_splits; i++) {
        top = max(top, tops[i]);
        norm_top = max(norm_top, norm_tops[i]);
    }
    if (THREAD < a.n_splits) {
        shares[THREAD] =
            tops[THREAD] > 0.5f * masked_logit ? power_of_two(tops[THREAD] - top) : 0.f;
        norms[THREAD] *= power_of_two(norm_tops[THREAD] - norm_top);
    }
    barrier();
    for (uint i = 0u; i < a.n_splits; i++) norm += norms[i];
    float scale = top > 0.5f * masked_logit ? power_of_two(top - norm_top) / norm : 0.f;
    for (uint d = THREAD; d < a.head_dim; d += n_threads) {
        float sum = 0.f;
        for (uint i = 0u; i < a.n_splits; i++)
            if (shares[i] > 0.f) sum += partials[from + i * stride + 4u + d] * shares[i];
        if (a.hadamard != 0u)
            head[d] = sum * scale;
        else
            y[query * a.head_dim + d] = sum * scale;
    }
    if (a.hadamard != 0u) {
        hadamard_head(a.head_dim, true);
        for (uint d = THREAD; d < a.head_dim; d += n_threads) y[query * a.head_dim + d] = head[d];
    }
    if (THREAD == 0u && a.has_lse != 0u) lse[query] = norm_top + log2_accurate(norm);
}
