// Gated linear unit: y[i] = act(gate[i / gate_group]) * up[i]. Not gated: y[i] = act(gate[i]).
#include "kernels/cuda/acts.cuh"

namespace ks
{

DEVICE float xielu(const GluArgs& a, float x)
{
    if (x > 0.f) return a.alpha_p * x * x + a.beta * x;
    return (expm1f(fminf(x, a.eps)) - x) * a.alpha_n + a.beta * x;
}

DEVICE float activation(const GluArgs& a, float x)
{
    const float above = fmaxf(x, 0.f);
    if (a.act == act_relu2) return above * above;
    if (a.act == act_sigmoid) return sigmoid(x);
    if (a.act == act_xielu) return xielu(a, x);
    if (a.act == act_swiglu_oai) {
        const float capped = fminf(x, swiglu_oai_limit);
        return capped * sigmoid(swiglu_oai_alpha * capped);
    }
    if (a.act == act_none) return x;
    // GELU's (1 + tanh z) / 2 is sigmoid(2 z). The factor is 2 sqrt(2 / pi).
    const float z = a.act == act_silu ? x : 1.5957691f * (x + 0.044715f * x * x * x);
    return x * sigmoid(z);
}

// The factor of a gate.
DEVICE float factor(const GluArgs& a, float x)
{
    if (a.act != act_swiglu_oai) return x;
    return fminf(fmaxf(x, -swiglu_oai_limit), swiglu_oai_limit) + 1.f;
}

// twin: also writes y in int8, unless acts is null. y may be gate, if gate_group is 1, or up.
__global__ void glu_kernel(GluArgs a, float* y,
                           const float* gate,         // (n / gate_group)
                           const float* up,           // (n), null if not gated
                           ActGroup* acts, uint cols) // (cols / 32, n / cols)
{
    begin_kernel();
    for (uint i = first_thread(); i < a.n; i += n_all_threads()) {
        const float g = activation(a, gate[a.gate_group == 1u ? i : i / a.gate_group]);
        const float v = a.gated != 0u ? g * factor(a, up[i]) : g;
        y[i] = v;
        // all lanes are active: cols is a multiple of 32
        if (acts != nullptr) store_int8(v, int8_copy_of(acts, a.n / cols, i / cols, i % cols));
    }
}

void glu_launch(const GluArgs& a, float* y, const float* gate, const float* up, ActGroup* acts,
                uint cols, cudaStream_t stream)
{
    KS_LAUNCH(glu_kernel, blocks_for(a.n), n_threads, stream, a, y, gate, up, acts, cols);
}

} // namespace ks
