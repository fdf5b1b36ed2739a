// Quantizes activations to int8 for matmul_int8.comp: blocks of 32 values with one scale per half.
// One thread per half.
// twin: none of its own, kernels/cuda/matmul.cu has the kernel beside the products
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { MatmulArgs a; } pushed;
DECLARE_ARGS(MatmulArgs, a)
layout(binding = 0) writeonly buffer Acts { uint acts[]; }; // (cols / 32, n_tokens, act_words)
layout(binding = 1) readonly buffer X { float x[]; };       // (n_tokens, cols)

void main()
{
    LOAD_ARGS(a)
    uint n_halves = a.cols / 16u;
    for (uint i = gl_GlobalInvocationID.x; i < n_halves * a.n_tokens; i += N_ALL_THREADS) {
        uint t = i / n_halves, first = i % n_halves, which = first & 1u,
             to = (first / 2u * a.n_tokens + t) * act_words;
        float v[16], max_abs = 0.f;
        [[unroll]] for (uint j = 0u; j < 16u; j++) {
            v[j] = x[t * a.cols + 16u * first + j];
            max_abs = max(max_abs, abs(v[j]));
        }
        float scale = max_abs / 127.f, to_int = max_abs > 1e-30f ? 127.f / max_abs : 0.f;
        int sum = 0;
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            uint word = 0u;
            [[unroll]] for (uint n = 0u; n < 4u; n++) {
                int q = int(roundEven(v[4u * j + n] * to_int));
                sum += q;
                word |= (uint(q) & 255u) << 8u * n;
            }
            acts[to + 4u * which + j] = word;
        }
        acts[to + 8u + which] = floatBitsToUint(scale);
        acts[to + 10u + which] = floatBitsToUint(scale * float(sum));
    }
}
