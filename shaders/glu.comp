// Gated linear unit: y[i] = act(gate[i / gate_group]) * up[i]. Not gated: y[i] = act(gate[i]).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { GluArgs a; } pushed;
DECLARE_ARGS(GluArgs, a)
layout(binding = 0) writeonly buffer Y { float y[]; };      // (n)
layout(binding = 1) readonly buffer Gate { float gate[]; }; // (n / gate_group), may be y
layout(binding = 2) readonly buffer Up { float up[]; };     // (n), may be y; unused if not gated

float xielu(float x)
{
    if (x > 0.f) return a.alpha_p * x * x + a.beta * x;
    float t = min(x, a.eps);
    return (expm1_minus(t) + (t - x)) * a.alpha_n + a.beta * x;
}

float activation(float x)
{
    float above = max(x, 0.f);
    if (a.act == act_relu2) return above * above;
    if (a.act == act_sigmoid) return sigmoid(x);
    if (a.act == act_xielu) return xielu(x);
    if (a.act == act_swiglu_oai) {
        float capped = min(x, swiglu_oai_limit);
        return capped * sigmoid(swiglu_oai_alpha * capped);
    }
    if (a.act == act_none) return x;
    // GELU's (1 + tanh z) / 2 is sigmoid(2 z). The factor is 2 sqrt(2 / pi).
    float z = a.act == act_silu ? x : 1.5957691f * (x + 0.044715f * x * x * x);
    return x * sigmoid(z);
}

// The factor of a gate.
float factor(float x)
{
    return a.act == act_swiglu_oai ? clamp(x, -swiglu_oai_limit, swiglu_oai_limit) + 1.f : x;
}

void main()
{
    LOAD_ARGS(a)
    for (uint i = gl_GlobalInvocationID.x; i < a.n; i += N_ALL_THREADS) {
        float g = activation(gate[a.gate_group == 1u ? i : i / a.gate_group]);
        y[i] = a.gated != 0u ? g * factor(up[i]) : g;
    }
}
