// x += b
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

__global__ void add_kernel(AddArgs a, float* x, // (rows, cols)
                           const float* b)      // (b_rows, cols)
{
    begin_kernel();
    for (uint i = first_thread(); i < a.rows * a.cols; i += n_all_threads())
        x[i] += b[a.b_rows == 1u ? i % a.cols : i];
}

void add_launch(const AddArgs& a, float* x, const float* b, cudaStream_t stream)
{
    KS_LAUNCH(add_kernel, blocks_for(uint64_t(a.rows) * a.cols), n_threads, stream, a, x, b);
}

} // namespace ks
