// y[t] = table[ids[t]] * scale. A workgroup has one token, or several of very many.
// variants: FORMATS
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { EmbedArgs a; RowRange part; } pushed;
DECLARE_ARGS(EmbedArgs, a)
DECLARE_ARGS(RowRange, part)
layout(binding = 0) writeonly buffer Y { float y[]; };   // (n_tokens, dim)
layout(binding = 1) readonly buffer W { uint w[]; };     // (part.n_rows, dim) in tiles
layout(binding = 2) readonly buffer Ids { uint ids[]; }; // (n_tokens)

#include "kernels/common/formats.h"

void main()
{
    LOAD_ARGS(a)
    LOAD_ARGS(part)
    for (uint t = gl_WorkGroupID.x; t < a.n_tokens; t += gl_NumWorkGroups.x) {
        uint row = ids[t] - part.first_row;
        if (row >= part.n_rows) continue; // the row is in another part of the table
        uint stride = half_words + tile_rows * words,
             tile = row / tile_rows * (a.dim / block) * stride;
        for (uint k = THREAD; k < a.dim; k += n_threads)
            y[t * a.dim + k] =
                value(tile + k / block * stride, row % tile_rows, k % block) * a.scale;
    }
}
