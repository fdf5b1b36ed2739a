// Causal convolution of each column. One thread per column and conv_tokens tokens. The threads of
// the first tokens read the state, so they also update it.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { ConvArgs a; } pushed;
DECLARE_ARGS(ConvArgs, a)
layout(binding = 0) writeonly buffer Y { float y[]; };      // (n_tokens, cols)
layout(binding = 1) readonly buffer X { float x[]; };       // (n_tokens, cols)
layout(binding = 2) readonly buffer W { float w[]; };       // (kernel, cols)
layout(binding = 3) readonly buffer Bias { float bias[]; }; // (cols), unused if not biased
layout(binding = 4) buffer State { float state[]; };        // (kernel - 1, cols)

// Input t of column c of the state's rows and then those of x.
float input_at(uint t, uint c)
{
    uint n_kept = a.kernel - 1u;
    return t < n_kept ? state[t * a.cols + c] : x[(t - n_kept) * a.cols + c];
}

void main()
{
    LOAD_ARGS(a)
    uint c = gl_GlobalInvocationID.x, first = gl_WorkGroupID.y * conv_tokens;
    if (c >= a.cols) return;
    for (uint t = first; t < min(first + conv_tokens, a.n_tokens); t++) {
        float sum = a.biased != 0u ? bias[c] : 0.f;
        for (uint j = 0u; j < a.kernel; j++) sum += w[j * a.cols + c] * input_at(t + j, c);
        y[t * a.cols + c] = a.act == act_silu ? sum * sigmoid(sum) : sum;
    }
    for (uint j = 0u; first == 0u && j + 1u < a.kernel; j++)
        state[j * a.cols + c] = input_at(a.n_tokens + j, c);
}
