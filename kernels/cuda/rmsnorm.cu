// RMSNorm: y[r] = x[first_row + r] / rms(x[first_row + r]) * w. One block per row.
#include "kernels/cuda/acts.cuh"

namespace ks
{

// twin: also writes y in int8, unless acts is null. y may be x.
__global__ void rmsnorm_kernel(RmsnormArgs a, float* y,
                               const float* x, // (rows, dim), x from first_row on
                               const float* w, // (dim)
                               ActGroup* acts) // (dim / 32, rows)
{
    begin_kernel();
    KS_SHARED(float, part, [32]); // a partial sum per warp
    uint t = threadIdx.x;
    const float* from = x + (a.first_row + uint64_t(blockIdx.x)) * a.dim;
    float* to = y + uint64_t(blockIdx.x) * a.dim;
    float sum = 0.f;
    for (uint i = t; i < a.dim; i += blockDim.x) sum += from[i] * from[i];
    sum = block_sum(sum, part);
    float scale = 1.f / sqrtf(sum / float(a.dim) + a.eps);
    for (uint i = t; i < a.dim; i += blockDim.x) {
        const float v = from[i] * scale * w[i];
        to[i] = v;
        // all lanes are active: dim is a multiple of 32
        if (acts != nullptr) store_int8(v, int8_copy_of(acts, a.rows, blockIdx.x, i));
    }
}

void rmsnorm_launch(const RmsnormArgs& a, float* y, const float* x, const float* w, ActGroup* acts,
                    cudaStream_t stream)
{
    // at most a few values per thread
    const uint threads = a.dim <= 128u ? 32u : a.dim <= 1024u ? 128u : 512u;
    KS_LAUNCH(rmsnorm_kernel, a.rows, threads, stream, a, y, x, w, acts);
}

} // namespace ks
