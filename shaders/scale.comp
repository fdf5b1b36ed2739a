// x[r] *= s[r]
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { ScaleArgs a; } pushed;
DECLARE_ARGS(ScaleArgs, a)
layout(binding = 0) buffer X { float x[]; };          // (rows, cols)
layout(binding = 1) readonly buffer S { float s[]; }; // (rows)

void main()
{
    LOAD_ARGS(a)
    for (uint i = gl_GlobalInvocationID.x; i < a.rows * a.cols; i += N_ALL_THREADS)
        x[i] *= s[i / a.cols];
}
