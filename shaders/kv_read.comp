// y[i] = cache row rows[i], dequantized. One thread per value.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(constant_id = 0) const uint format = 0u;
layout(constant_id = 1) const uint head_dim = 64u;

layout(push_constant) uniform Block { KvReadArgs a; CachePart part; } pushed;
DECLARE_ARGS(KvReadArgs, a)
DECLARE_ARGS(CachePart, part)
layout(binding = 0) writeonly buffer Y { float y[]; };     // (n, head_dim)
layout(binding = 1) readonly buffer From { uint w[]; };    // (part.n_rows, head_dim) in any format
layout(binding = 2) readonly buffer Rows { uint rows[]; }; // (n)

float x[1]; // cache.glsl names x and row, but nothing is encoded here
uint row[1];
#include "shaders/cache.glsl"

void main()
{
    LOAD_ARGS(a)
    LOAD_ARGS(part)
    for (uint i = gl_GlobalInvocationID.x; i < a.n * head_dim; i += N_ALL_THREADS) {
        uint r = rows[i / head_dim] - part.first_row;
        if (r < part.n_rows)
            y[i] = row_value(format, r, row_tail(format, part.pool_rows, r, head_dim), i % head_dim,
                             head_dim);
    }
}
