// Rows of a state that pass over the tokens of a chunk, each in the registers of some threads: with
// SUMS those of a subgroup, else scan_lanes threads.
#include "shaders/util.glsl"

layout(push_constant) uniform Block { ScanArgs a; } pushed;
DECLARE_ARGS(ScanArgs, a)
layout(binding = 0) writeonly buffer Y { float y[]; };  // (n_tokens, n_heads * head_dim)
layout(binding = 1) readonly buffer X { float x[]; };   // (n_tokens, scan_cols)
layout(binding = 2) readonly buffer Dt { float dt[]; }; // (n_tokens, n_heads)
// beta (n_tokens, n_heads), or d (n_heads)
layout(binding = 3) readonly buffer Extra { float extra[]; };
layout(binding = 4) readonly buffer Decay { float decays[]; }; // (n_heads)
layout(binding = 5) readonly buffer Bias { float dt_bias[]; }; // (n_heads)
layout(binding = 6) buffer State { float state[]; };           // (n_heads * head_dim, state_dim)

#ifdef SUMS
#define LANE gl_SubgroupInvocationID
#define N_LANES gl_SubgroupSize
#define STATE_ROW (gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID)
const uint max_values = scan_values;
#else
#define LANE (THREAD % scan_lanes)
#define N_LANES scan_lanes
#define STATE_ROW (gl_WorkGroupID.x * (n_threads / scan_lanes) + THREAD / scan_lanes)
const uint max_values = max_state_dim / scan_lanes;
shared float part[N_SUMS * n_threads];
#endif

// Replaces N_SUMS values by their sums over the threads of a row. All threads take part.
void sum_over_row(inout float values[N_SUMS])
{
#ifdef SUMS
    [[unroll]] for (uint i = 0u; i < N_SUMS; i++) values[i] = subgroupAdd(values[i]);
#else
    barrier(); // the last sums have been read
    for (uint i = 0u; i < N_SUMS; i++) part[i * n_threads + THREAD] = values[i];
    barrier();
    for (uint i = 0u; i < N_SUMS; i++) {
        values[i] = 0.f;
        for (uint j = 0u; j < scan_lanes; j++)
            values[i] += part[i * n_threads + THREAD - LANE + j];
    }
#endif
}

// For value v of this thread: COLUMN(v) is its column of the state.
#define COLUMN(v) ((v) * N_LANES + LANE)
#define FOR_VALUES(v)                                        \
    [[unroll]] for (uint v = 0u; v < max_values; v++)        \
        if (COLUMN(v) < a.state_dim)

float softplus(float v)
{
    float e = exponential(-abs(v)), s = e / (2.f + e), q = s * s; // log(1 + e) = 2 atanh(s)
    float p = 1.f / 15.f;
    p = p * q + 1.f / 13.f;
    p = p * q + 1.f / 11.f;
    p = p * q + 1.f / 9.f;
    p = p * q + 1.f / 7.f;
    p = p * q + 1.f / 5.f;
    p = p * q + 1.f / 3.f;
    return max(v, 0.f) + 2.f * (s * q * p + s);
}
