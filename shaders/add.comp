// x += b
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { AddArgs a; } pushed;
DECLARE_ARGS(AddArgs, a)
layout(binding = 0) buffer X { float x[]; };          // (rows, cols)
layout(binding = 1) readonly buffer B { float b[]; }; // (b_rows, cols)

void main()
{
    LOAD_ARGS(a)
    for (uint i = gl_GlobalInvocationID.x; i < a.rows * a.cols; i += N_ALL_THREADS)
        x[i] += b[a.b_rows == 1u ? i % a.cols : i];
}
