// x[r] *= s[r]
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

__global__ void scale_kernel(ScaleArgs a, float* x, // (rows, cols)
                             const float* s)        // (rows)
{
    begin_kernel();
    for (uint64_t i = first_thread(); i < uint64_t(a.rows) * a.cols; i += n_all_threads())
        x[i] *= s[i / a.cols];
}

void scale_launch(const ScaleArgs& a, float* x, const float* s, cudaStream_t stream)
{
    KS_LAUNCH(scale_kernel, blocks_for(uint64_t(a.rows) * a.cols), n_threads, stream, a, x, s);
}

} // namespace ks
