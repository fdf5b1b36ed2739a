// Applies RoPE to pairs of a head's values, then the Hadamard transform to the head. One workgroup
// per head.
// twin: none, kernels/cuda/rope.cu has both
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { RopeArgs a; } pushed;
DECLARE_ARGS(RopeArgs, a)
layout(binding = 0) writeonly buffer Y { float y[]; };      // (n_tokens, n_heads * head_dim)
layout(binding = 1) readonly buffer X { float unroped[]; }; // the same shape, may be y
// (n_tokens, n_rot), or (n_groups, n_rot) if n_groups is not 0. Unused if n_rot is 0.
layout(binding = 2) readonly buffer Angles { float angles[]; };

#include "shaders/hadamard.glsl"

void main()
{
    LOAD_ARGS(a)
    uint at = gl_WorkGroupID.x * a.head_dim, t = gl_WorkGroupID.x / a.n_heads,
         n_pairs = a.n_rot / 2u;
    uint angle_row = a.n_groups == 0u ? t : gl_WorkGroupID.x % a.n_heads / (a.n_heads / a.n_groups);
    for (uint i = THREAD; i < a.head_dim - n_pairs; i += n_threads) {
        if (i >= n_pairs) {
            head[n_pairs + i] = unroped[at + n_pairs + i];
            continue;
        }
        uint first = first_of_pair(a.pairs, i), second = second_of_pair(a.pairs, i, a.n_rot);
        float c = angles[angle_row * a.n_rot + 2u * i],
              s = angles[angle_row * a.n_rot + 2u * i + 1u];
        float u = unroped[at + first], v = unroped[at + second];
        head[first] = u * c - v * s;
        head[second] = u * s + v * c;
    }
    barrier();
    hadamard_head(a.head_dim, false);
    for (uint i = THREAD; i < a.head_dim; i += n_threads) y[at + i] = head[i];
}
