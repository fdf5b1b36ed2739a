// Copies rows as they are, or encodes plain ones: one thread per row
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(constant_id = 0) const uint format = 0u; // of `to`
layout(constant_id = 1) const uint head_dim = 64u;
layout(constant_id = 2) const uint from_format = 0u;

layout(push_constant) uniform Block { KvMoveArgs a; CachePart to; CachePart part; } pushed;
ARGS(KvMoveArgs, a)
ARGS(CachePart, to)
ARGS(CachePart, part)
layout(binding = 0) buffer To { uint w[]; };               // (to.n_rows, head_dim)
layout(binding = 1) readonly buffer From { uint from[]; };  // (part.n_rows, head_dim)
layout(binding = 2) readonly buffer Moves { uint moves[]; }; // (n_moves, 2)

uint source = 0u; // the row that is read
uint row[head_dim + 4u];
float source_value(uint i);
#undef WORD
#define WORD(i) from[i]
#undef VALUE
#define VALUE(i) source_value(i)
#include "shaders/store.glsl"

float source_value(uint i) { return row_value(from_format, source, 0u, i, head_dim); }

void main()
{
    TAKE(a)
    TAKE(to)
    TAKE(part)
    for (uint i = gl_GlobalInvocationID.x; i < a.n_moves; i += THREADS_OF_ALL) {
        uint r = moves[2u * i + 1u] - to.first_row;
        source = moves[2u * i] - part.first_row;
        if (source >= part.n_rows || r >= to.n_rows) continue;
        if (format < first_codec) {
            for (uint k = 0u; k < head_dim; k++) store_value(format, r, k, head_dim);
        } else if (from_format < first_codec) {
            encode_row(format, to.pool_rows, r, head_dim);
        } else {
            uint words = row_bytes(format, head_dim) / 4u;
            for (uint k = 0u; k < words; k++) row[k] = from[source * words + k];
            row[words] = row_tail(format, part.pool_rows, source, head_dim);
            store_row(format, to.pool_rows, r, head_dim);
        }
    }
}
