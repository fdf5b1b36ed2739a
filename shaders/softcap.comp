// x = cap * tanh(x / cap)
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { SoftcapArgs a; } pushed;
DECLARE_ARGS(SoftcapArgs, a)
layout(binding = 0) buffer X { float x[]; }; // (n)

void main()
{
    LOAD_ARGS(a)
    for (uint i = gl_GlobalInvocationID.x; i < a.n; i += N_ALL_THREADS)
        x[i] = softcapped(x[i], a.cap);
}
