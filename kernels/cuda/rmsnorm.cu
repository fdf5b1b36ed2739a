// y[r] = x[first_row + r], divided by its rms, * w, one block per row
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

// x may be y
__global__ void rmsnorm_kernel(RmsnormArgs a, float* y, const float* x, // (rows, dim), x from first_row on
                               const float* w)                          // (dim)
{
    begin_kernel();
    KS_SHARED(float, part, [32]); // of each warp
    uint t = threadIdx.x;
    const float* from = x + (a.first_row + uint64_t(blockIdx.x)) * a.dim;
    float* to = y + uint64_t(blockIdx.x) * a.dim;
    float sum = 0.f;
    for (uint i = t; i < a.dim; i += blockDim.x) sum += from[i] * from[i];
    sum = block_sum(sum, part);
    float scale = 1.f / sqrtf(sum / float(a.dim) + a.eps);
    for (uint i = t; i < a.dim; i += blockDim.x) to[i] = from[i] * scale * w[i];
}

void rmsnorm_launch(const RmsnormArgs& a, float* y, const float* x, const float* w, cudaStream_t stream)
{
    const uint threads = a.dim <= 128u ? 32u : a.dim <= 1024u ? 128u : 512u; // a few values each
    KS_LAUNCH(rmsnorm_kernel, a.rows, threads, stream, a, y, x, w);
}

} // namespace ks
