// best[r] = the lowest index of the largest x[r], one workgroup per row
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { ArgmaxArgs a; } pushed;
DECLARE_ARGS(ArgmaxArgs, a)
layout(binding = 0) writeonly buffer Out { uint best[]; }; // (rows)
layout(binding = 1) readonly buffer X { float x[]; };      // (rows, cols)

shared float value[n_threads];
shared uint index[n_threads];

void main()
{
    LOAD_ARGS(a)
    uint t = THREAD, row = gl_WorkGroupID.x * a.cols, mine = min(t, a.cols - 1u);
    for (uint i = t; i < a.cols; i += n_threads) mine = x[row + i] > x[row + mine] ? i : mine;
    index[t] = mine;
    value[t] = x[row + mine];
    barrier();
    for (uint s = n_threads / 2u; s > 0u; s >>= 1) {
        if (t < s &&
            (value[t + s] > value[t] || (value[t + s] == value[t] && index[t + s] < index[t]))) {
            value[t] = value[t + s];
            index[t] = index[t + s];
        }
        barrier();
    }
    if (t == 0u) best[gl_WorkGroupID.x] = index[0];
}
