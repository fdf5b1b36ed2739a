// The scan of Mamba 2 (runtime/base/backend.h).
// also with SUMS
// twin: the shader has its arguments and buffers in scan.glsl
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef SUMS
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
#define N_SUMS 1
#include "shaders/scan.glsl"

// One token in a row of the state.
float token(inout float m[max_values], uint t, uint row, uint head, float decay, float step)
{
    uint n = a.state_dim, first = t * scan_cols(a), n_rows = a.n_heads * a.head_dim;
    uint b = first + n_rows + ssm_group(a, head) * n, c = b + a.n_groups * n;
    float value = x[first + row], sums[N_SUMS] = float[N_SUMS](0.f);
    FOR_VALUES(i)
    {
        m[i] = decay * m[i] + step * value * x[b + COLUMN(i)];
        sums[0] += m[i] * x[c + COLUMN(i)];
    }
    sum_over_row(sums);
    return sums[0] + extra[head] * value;
}

#include "shaders/scan_main.glsl"
