// Adds e^sinks[h] to the denominator of each head: y *= 2^(lse - after), lse = after.
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

// One block per token and head.
__global__ void attention_sinks_kernel(SinksArgs a, float* y, // (n_tokens, n_heads * head_dim)
                                       float* lse,            // (n_tokens, n_heads)
                                       const float* sinks)    // (n_heads)
{
    begin_kernel();
    const uint i = blockIdx.x;
    const float before = lse[i], sink = sinks[i % a.n_heads] * log2e,
                after = fmaxf(before, sink) + log2f(1.f + power_of_two(-fabsf(before - sink))),
                factor = power_of_two(before - after);
    __syncthreads();
    for (uint d = threadIdx.x; d < a.head_dim; d += n_threads)
        y[uint64_t(i) * a.head_dim + d] *= factor;
    if (threadIdx.x == 0u) lse[i] = after;
}

void attention_sinks_launch(const SinksArgs& a, float* y, float* lse, const float* sinks,
                            cudaStream_t stream)
{
    KS_LAUNCH(attention_sinks_kernel, a.n_tokens * a.n_heads, n_threads, stream, a, y, lse, sinks);
}

} // namespace ks
