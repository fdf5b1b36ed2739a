// Gated linear unit: y = act(gate) * up, act is SiLU or GELU.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { GluArgs a; } pushed;
DECLARE_ARGS(GluArgs, a)
layout(binding = 0) writeonly buffer Y { float y[]; };      // (n)
layout(binding = 1) readonly buffer Gate { float gate[]; }; // (n), may be y
layout(binding = 2) readonly buffer Up { float up[]; };     // (n)

void main()
{
    LOAD_ARGS(a)
    for (uint i = gl_GlobalInvocationID.x; i < a.n; i += N_ALL_THREADS) {
        float g = gate[i];
        // GELU's (1 + tanh z) / 2 is sigmoid(2 z). The factor is 2 sqrt(2 / pi).
        float z = a.act == act_silu ? g : 1.5957691f * (g + 0.044715f * g * g * g);
        y[i] = g * sigmoid(z) * up[i];
    }
}
