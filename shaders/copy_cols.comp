// y[r, y_first + i] = x[r, x_first + i]
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { CopyColsArgs a; } pushed;
DECLARE_ARGS(CopyColsArgs, a)
layout(binding = 0) writeonly buffer Y { float y[]; }; // (rows, y_cols)
layout(binding = 1) readonly buffer X { float x[]; };  // (rows, x_cols)

void main()
{
    LOAD_ARGS(a)
    for (uint i = gl_GlobalInvocationID.x; i < a.rows * a.cols; i += N_ALL_THREADS)
        y[i / a.cols * a.y_cols + a.y_first + i % a.cols] =
            x[i / a.cols * a.x_cols + a.x_first + i % a.cols];
}
