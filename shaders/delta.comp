// The gated delta rule (runtime/base/backend.h).
// also with SUMS
// twin: the shader has its arguments and buffers in scan.glsl
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef SUMS
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
#define N_SUMS 5
#include "shaders/scan.glsl"

// One token in a row of the state. Sums of q, k and the old row are enough for the output.
float token(inout float m[max_values], uint t, uint row, uint head, float decay, float step)
{
    uint n = a.state_dim, first = t * scan_cols(a), q = first + delta_group(a, head) * n;
    uint k = q + a.n_groups * n, v = first + 2u * a.n_groups * n + row;
    float keys[max_values], sums[N_SUMS] = float[N_SUMS](0.f, 0.f, 0.f, 0.f, 0.f);
    FOR_VALUES(i)
    {
        float query = x[q + COLUMN(i)];
        keys[i] = x[k + COLUMN(i)];
        sums[0] += m[i] * keys[i];
        sums[1] += m[i] * query;
        sums[2] += query * query;
        sums[3] += keys[i] * keys[i];
        sums[4] += keys[i] * query;
    }
    sum_over_row(sums);
    float q_scale = 1.f / sqrt((sums[2] + a.eps) * float(n)), k_scale = 1.f / sqrt(sums[3] + a.eps);
    float known = decay * k_scale * sums[0];
    float change = sigmoid(extra[t * a.n_heads + head]) * k_scale * (x[v] - known);
    FOR_VALUES(i) m[i] = decay * m[i] + change * keys[i];
    return q_scale * (decay * sums[1] + change * sums[4]);
}

#include "shaders/scan_main.glsl"
