// Applies RoPE to pairs of a head's values. One thread per pair, and per value without RoPE.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { RopeArgs a; } pushed;
DECLARE_ARGS(RopeArgs, a)
layout(binding = 0) writeonly buffer Y { float y[]; }; // (n_tokens, n_heads * head_dim)
layout(binding = 1) readonly buffer X { float x[]; };  // the same shape, may be y
// (n_tokens, n_rot), or (n_groups, n_rot) if n_groups is not 0: cosine and sine of each pair.
layout(binding = 2) readonly buffer Angles { float angles[]; };

void main()
{
    LOAD_ARGS(a)
    uint n_pairs = a.n_rot / 2u, n_each = a.head_dim - n_pairs, n = a.n_tokens * a.n_heads * n_each;
    for (uint i = gl_GlobalInvocationID.x; i < n; i += N_ALL_THREADS) {
        uint head = i / n_each * a.head_dim, pair = i % n_each, t = i / n_each / a.n_heads;
        if (pair >= n_pairs) {
            y[head + n_pairs + pair] = x[head + n_pairs + pair];
            continue;
        }
        uint angle_row = a.n_groups == 0u ? t : i / n_each % a.n_heads / (a.n_heads / a.n_groups);
        uint first = head + first_of_pair(a.pairs, pair),
             second = head + second_of_pair(a.pairs, pair, a.n_rot);
        float c = angles[angle_row * a.n_rot + 2u * pair],
              s = angles[angle_row * a.n_rot + 2u * pair + 1u], u = x[first], v = x[second];
        y[first] = u * c - v * s;
        y[second] = u * s + v * c;
    }
}
