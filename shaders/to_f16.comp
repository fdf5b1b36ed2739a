// Converts activations to f16 for matmul_f16.comp. Each token is divided by its largest magnitude.
// One workgroup per token.
// twin: none, int8 products are faster on CUDA devices
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { MatmulArgs a; } pushed;
DECLARE_ARGS(MatmulArgs, a)
layout(binding = 0) writeonly buffer XF16 { uint x_f16[]; }; // (n_tokens, cols / 2) pairs of f16,
                                                             // then (n_tokens) scales in f32
layout(binding = 1) readonly buffer X { float x[]; };        // (n_tokens, cols)

shared float max_of[n_threads];

void main()
{
    LOAD_ARGS(a)
    uint t = gl_WorkGroupID.x, n_pairs = a.cols / 2u;
    float max_abs = 0.f;
    for (uint i = THREAD; i < a.cols; i += n_threads)
        max_abs = max(max_abs, abs(x[t * a.cols + i]));
    max_of[THREAD] = max_abs;
    barrier();
    for (uint s = n_threads / 2u; s > 0u; s >>= 1) {
        if (THREAD < s) max_of[THREAD] = max(max_of[THREAD], max_of[THREAD + s]);
        barrier();
    }
    float scale = max_of[0] > 1e-30f ? 1.f / max_of[0] : 0.f;
    for (uint i = THREAD; i < n_pairs; i += n_threads) {
        uint at = t * a.cols + 2u * i;
        x_f16[t * n_pairs + i] = packHalf2x16(scale * vec2(x[at], x[at + 1u]));
    }
    if (THREAD == 0u) x_f16[a.n_tokens * n_pairs + t] = floatBitsToUint(max_of[0]);
}
