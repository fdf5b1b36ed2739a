// Rotates heads in place by H D, or back: one workgroup per head
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { RotateArgs a; } pushed;
ARGS(RotateArgs, a)
layout(binding = 0) buffer X { float y[]; }; // (n_tokens, n_heads * head_dim)

float x[1]; // for the codecs, none of which is called
uint w[1], row[1];
#include "kernels/common/codecs.h"

shared float head[codec_max_dim];

void main()
{
    TAKE(a)
    uint t = THREAD, at = gl_WorkGroupID.x * a.head_dim;
    for (uint i = t; i < a.head_dim; i += n_threads) head[i] = a.inverse != 0u ? y[at + i] : y[at + i] * rotate_sign(i);
    barrier();
    // Neighbours 1, 2, 4, ... apart, in all blocks that are so long.
    for (uint apart = 1u; 2u * apart <= a.head_dim; apart *= 2u) {
        for (uint i = t; i < a.head_dim; i += n_threads) {
            // Blocks are powers of two in falling order: they begin where the bits above them say.
            uint base = 0u, block = rotate_block(0u, a.head_dim);
            while (i >= base + block) {
                base += block;
                block = rotate_block(base, a.head_dim);
            }
            if (2u * apart > block || ((i - base) & apart) != 0u) continue;
            precise float sum = head[i] + head[i + apart], difference = head[i] - head[i + apart];
            head[i] = sum;
            head[i + apart] = difference;
        }
        barrier();
    }
    for (uint i = t; i < a.head_dim; i += n_threads) {
        uint base = 0u, block = rotate_block(0u, a.head_dim);
        while (i >= base + block) {
            base += block;
            block = rotate_block(base, a.head_dim);
        }
        float v = MUL(head[i], rotate_scale(block));
        y[at + i] = a.inverse != 0u ? v * rotate_sign(i) : v;
    }
}
