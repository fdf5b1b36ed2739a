#version 450
// Compiles every shared header as GLSL, with the format that FORMAT_... names.
#extension GL_GOOGLE_include_directive : require
#include "kernels/common/args.h"

layout(local_size_x = 32) in;
layout(push_constant) uniform Block { MatmulArgs a; };
layout(binding = 0) writeonly buffer Y { float y[]; };
layout(binding = 1) readonly buffer W { uint w[]; }; // (rows, cols) tiles
layout(binding = 2) writeonly buffer H { uint h[]; };

#include "kernels/common/formats.h"

void main()
{
    uint row = gl_GlobalInvocationID.x;
    if (row >= a.rows) return;
    uint stride = half_words + tile_rows * words;
    for (uint k = 0u; k < a.cols; k++) {
        uint at = (row / tile_rows * (a.cols / block) + k / block) * stride;
        float v = value(at, row % tile_rows, k % block);
        y[row * a.cols + k] = v;
        h[row * a.cols + k] = FLOAT_TO_HALF(v);
    }
}
