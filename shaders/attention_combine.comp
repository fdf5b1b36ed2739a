// Combines the partial results of a query's splits into its output. One workgroup per query.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { CombineArgs a; } pushed;
DECLARE_ARGS(CombineArgs, a)
layout(binding = 0) writeonly buffer Y { float y[]; };     // (n_tokens, n_heads * head_dim)
layout(binding = 1) writeonly buffer Lse { float lse[]; }; // (n_tokens, n_heads), if has_lse
// (n_tokens * n_heads, n_splits, 4 + head_dim), see attention.comp
layout(binding = 2) readonly buffer Partials { float partials[]; };

#include "shaders/hadamard.glsl"

// The maxima of the numerator's and the denominator's logits, the denominator, and the weight, of
// each split.
shared float num_maxes[n_threads], den_maxes[n_threads], dens[n_threads], shares[n_threads];

void main()
{
    LOAD_ARGS(a)
    uint query = gl_WorkGroupID.x, stride = 4u + a.head_dim, from = query * a.n_splits * stride;
    float num_max = masked_logit, den_max = masked_logit, den = 0.f;
    if (THREAD < a.n_splits) {
        num_maxes[THREAD] = partials[from + THREAD * stride];
        den_maxes[THREAD] = partials[from + THREAD * stride + 1u];
        dens[THREAD] = partials[from + THREAD * stride + 2u];
    }
    barrier();
    for (uint i = 0u; i < a.n_splits; i++) {
        num_max = max(num_max, num_maxes[i]);
        den_max = max(den_max, den_maxes[i]);
    }
    if (THREAD < a.n_splits) {
        shares[THREAD] = num_maxes[THREAD] > 0.5f * masked_logit
                             ? power_of_two(num_maxes[THREAD] - num_max)
                             : 0.f;
        dens[THREAD] *= power_of_two(den_maxes[THREAD] - den_max);
    }
    barrier();
    for (uint i = 0u; i < a.n_splits; i++) den += dens[i];
    float scale = num_max > 0.5f * masked_logit ? power_of_two(num_max - den_max) / den : 0.f;
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
    if (THREAD == 0u && a.has_lse != 0u) lse[query] = den_max + log2_accurate(den);
}
