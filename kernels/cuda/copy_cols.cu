// y[r, y_first + i] = x[r, x_first + i]
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

__global__ void copy_cols_kernel(CopyColsArgs a, float* y, // (rows, y_cols)
                                 const float* x)           // (rows, x_cols)
{
    begin_kernel();
    for (uint64_t i = first_thread(); i < uint64_t(a.rows) * a.cols; i += n_all_threads())
        y[i / a.cols * a.y_cols + a.y_first + i % a.cols] =
            x[i / a.cols * a.x_cols + a.x_first + i % a.cols];
}

void copy_cols_launch(const CopyColsArgs& a, float* y, const float* x, cudaStream_t stream)
{
    KS_LAUNCH(copy_cols_kernel, blocks_for(uint64_t(a.rows) * a.cols), n_threads, stream, a, y, x);
}

} // namespace ks
