// Gated linear unit: y = act(gate) * up, act is SiLU or GELU.
#include "kernels/cuda/acts.cuh"

namespace ks
{

// twin: also writes y in int8, unless acts is null. y may be gate.
__global__ void glu_kernel(GluArgs a, float* y, const float* gate, const float* up, // (n) each
                           ActGroup* acts, uint cols) // (cols / 32, n / cols)
{
    begin_kernel();
    for (uint i = first_thread(); i < a.n; i += n_all_threads()) {
        float g = gate[i];
        // GELU's (1 + tanh z) / 2 is sigmoid(2 z). The factor is 2 sqrt(2 / pi).
        float z = a.act == act_silu ? g : 1.5957691f * (g + 0.044715f * g * g * g);
        const float v = g * sigmoid(z) * up[i];
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
