// x = cap * tanh(x / cap)
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

__global__ void softcap_kernel(SoftcapArgs a, float* x) // (n)
{
    begin_kernel();
    for (uint i = first_thread(); i < a.n; i += n_all_threads()) x[i] = a.cap * tanhf(x[i] / a.cap);
}

void softcap_launch(const SoftcapArgs& a, float* x, cudaStream_t stream)
{
    KS_LAUNCH(softcap_kernel, blocks_for(a.n), n_threads, stream, a, x);
}

} // namespace ks
