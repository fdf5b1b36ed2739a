// The partial results of a query's splits become its output: one block per (token, head)
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

__global__ void attention_fold_kernel(AttentionArgs a, uint n_splits, float* y, // (n_tokens, n_heads * head_dim)
                                      float* lse,                               // (n_tokens, n_heads), or none
                                      const float* partials)                    // (n_tokens * n_heads, n_splits, 4 + head_dim)
{
    uint query = blockIdx.x, stride = 4u + a.head_dim;
    const float* from = partials + uint64_t(query) * n_splits * stride;
    float top = none, norm_top = none, norm = 0.f;
    for (uint i = 0u; i < n_splits; i++) {
        top = fmaxf(top, from[i * stride]);
        norm_top = fmaxf(norm_top, from[i * stride + 1u]);
    }
    for (uint i = 0u; i < n_splits; i++) norm += from[i * stride + 2u] * power_of_two(from[i * stride + 1u] - norm_top);
    float scale = top > 0.5f * none ? power_of_two(top - norm_top) / norm : 0.f;
    for (uint d = threadIdx.x; d < a.head_dim; d += n_threads) {
        float sum = 0.f;
        for (uint i = 0u; i < n_splits; i++) sum += from[i * stride + 4u + d] * power_of_two(from[i * stride] - top);
        y[uint64_t(query) * a.head_dim + d] = sum * scale;
    }
    if (threadIdx.x == 0u && lse != nullptr) lse[query] = norm_top + log2f(norm);
}

void attention_fold_launch(const AttentionArgs& a, uint n_splits, float* y, float* lse, const float* partials, cudaStream_t stream)
{
    KS_LAUNCH(attention_fold_kernel, a.n_tokens * a.n_heads, n_threads, stream, a, n_splits, y, lse, partials);
}

} // namespace ks
