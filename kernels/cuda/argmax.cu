// best[r] = the lowest index of the largest x[r]. One block per row.
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

constexpr uint argmax_threads = 512u;

__global__ void argmax_kernel(ArgmaxArgs a, uint* best, // (rows)
                              const float* x)           // (rows, cols)
{
    begin_kernel();
    KS_SHARED(float, value, [argmax_threads]);
    KS_SHARED(uint, index, [argmax_threads]);
    const float* row = x + uint64_t(blockIdx.x) * a.cols;
    uint t = threadIdx.x, mine = min(t, a.cols - 1u);
    for (uint i = t; i < a.cols; i += argmax_threads) mine = row[i] > row[mine] ? i : mine;
    index[t] = mine;
    value[t] = row[mine];
    __syncthreads();
    for (uint s = argmax_threads / 2u; s > 0u; s >>= 1) {
        if (t < s &&
            (value[t + s] > value[t] || (value[t + s] == value[t] && index[t + s] < index[t]))) {
            value[t] = value[t + s];
            index[t] = index[t + s];
        }
        __syncthreads();
    }
    if (t == 0u) best[blockIdx.x] = index[0];
}

void argmax_launch(const ArgmaxArgs& a, uint* best, const float* x, cudaStream_t stream)
{
    KS_LAUNCH(argmax_kernel, a.rows, argmax_threads, stream, a, best, x);
}

} // namespace ks
