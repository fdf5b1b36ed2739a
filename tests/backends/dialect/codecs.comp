#version 450
// Compiles the codecs as GLSL: encodes rows with every codec and decodes them.
#extension GL_GOOGLE_include_directive : require
#include "kernels/common/args.h"

layout(local_size_x = 32) in;
layout(push_constant) uniform Block { KvReadArgs a; };
layout(binding = 0) buffer Y { float y[]; };
layout(binding = 1) buffer W { uint w[]; };

float x[512];
uint row[513];
#include "kernels/common/codecs.h"

#define RUN(name, number)                                              \
    name##_encode(a.head_dim);                                         \
    bytes = name##_row_bytes(a.head_dim);                              \
    for (uint i = 0u; 4u * i < bytes; i++) w[at + i] = row[i];         \
    for (uint i = 0u; i < a.head_dim; i++)                             \
        y[to + i] = name##_value(at, row[bytes / 4u], i, a.head_dim);  \
    at += 513u;                                                        \
    to += a.head_dim;

void main()
{
    uint at = 0u, to = 0u, bytes = 0u;
    for (uint i = 0u; i < a.head_dim; i++) x[i] = y[i] * hadamard_sign(i);
    CODECS(RUN)
}
