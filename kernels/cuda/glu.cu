// y = act(gate) * up
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

// gate may be y
__global__ void glu_kernel(GluArgs a, float* y, const float* gate, const float* up) // (n) each
{
    begin_kernel();
    for (uint i = first_thread(); i < a.n; i += threads_of_all()) {
        float g = gate[i];
        // (1 + tanh z) / 2 is sigmoid(2 z); 1.5957692 is 2 sqrt(2 / pi)
        float z = a.act == act_silu ? g : 1.5957691f * (g + 0.044715f * g * g * g);
        y[i] = g * sigmoid(z) * up[i];
    }
}

void glu_launch(const GluArgs& a, float* y, const float* gate, const float* up, cudaStream_t stream)
{
    KS_LAUNCH(glu_kernel, blocks_for(a.n), n_threads, stream, a, y, gate, up);
}

} // namespace ks
