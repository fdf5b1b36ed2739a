// y[t] += scale * sum of weights[t, j] * z[t, j], or y[t] = that.
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

__global__ void combine_experts_kernel(CombineExpertsArgs a, float* y, // (n_tokens, dim)
                                       const float* z,                 // (n_tokens * n_used, dim)
                                       const float* weights)           // (n_tokens, n_used)
{
    begin_kernel();
    for (uint i = first_thread(); i < a.n_tokens * a.dim; i += n_all_threads()) {
        const uint first = i / a.dim * a.n_used;
        float sum = 0.f;
        for (uint j = first; j < first + a.n_used; j++)
            sum += weights[j] * z[uint64_t(j) * a.dim + i % a.dim];
        sum *= a.scale;
        y[i] = a.accumulate != 0u ? y[i] + sum : sum;
    }
}

void combine_experts_launch(const CombineExpertsArgs& a, float* y, const float* z,
                            const float* weights, cudaStream_t stream)
{
    KS_LAUNCH(combine_experts_kernel, blocks_for(uint64_t(a.n_tokens) * a.dim), n_threads, stream,
              a, y, z, weights);
}

} // namespace ks
