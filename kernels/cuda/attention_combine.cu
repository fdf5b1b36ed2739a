// Combines the partial results of a query's splits into its output. One block per (token, head).
#include "kernels/cuda/acts.cuh"
#include "kernels/cuda/hadamard.cuh"

namespace ks
{

constexpr uint combine_warps = 8u;
constexpr uint combine_dims = 256u; // dims that are summed at a time

// Stores value d of a query's output. The lanes of a warp have 32 neighbouring values.
DEVICE void store_output(const AttentionArgs& a, uint query, uint d, float v, float* y,
                         ActGroup* acts)
{
    y[uint64_t(query) * a.head_dim + d] = v;
    if (acts != nullptr)
        store_int8(v, int8_copy_of(acts, a.n_tokens, query / a.n_heads,
                                   query % a.n_heads * a.head_dim + d));
}

// The warps divide the splits among them, up to the last split with a slot.
// twin: also writes y in int8, unless acts is null
__global__ void
attention_combine_kernel(AttentionArgs a, uint n_splits, float* y, // (n_tokens, n_heads * head_dim)
                         float* lse,                               // (n_tokens, n_heads) or null
                         const float* partials, // (n_tokens * n_heads, n_splits, 4 + head_dim)
                         ActGroup* acts)        // (n_heads * head_dim / 32, n_tokens) or null
{
    begin_kernel();
    KS_SHARED(float, weights, [max_splits]);
    KS_SHARED(float, scratch, [4u * combine_warps]);
    KS_SHARED(float, sums, [combine_warps * combine_dims]);
    KS_SHARED(float, head, [codec_max_dim]); // input of the inverse Hadamard transform
    const uint query = blockIdx.x, stride = 4u + a.head_dim, n_warps = blockDim.x / 32u,
               warp = threadIdx.x / 32u, lane = threadIdx.x % 32u;
    const float* from = partials + uint64_t(query) * n_splits * stride;
    float top = masked_logit, norm_top = masked_logit, norm = 0.f, last = 0.f;
    for (uint i = threadIdx.x; i < n_splits; i += blockDim.x) {
        top = fmaxf(top, from[i * stride]);
        norm_top = fmaxf(norm_top, from[i * stride + 1u]);
    }
    top = block_max(top, scratch);
    norm_top = block_max(norm_top, scratch + combine_warps);
    for (uint i = threadIdx.x; i < n_splits; i += blockDim.x) {
        const float own = from[i * stride],
                    weight = own > 0.5f * masked_logit ? power_of_two(own - top) : 0.f;
        weights[i] = weight;
        if (weight > 0.f) last = float(i + 1u);
        norm += from[i * stride + 2u] * power_of_two(from[i * stride + 1u] - norm_top);
    }
    norm = block_sum(norm, scratch + 2u * combine_warps);
    const uint end = uint(block_max(last, scratch + 3u * combine_warps));
    const float scale = top > 0.5f * masked_logit ? power_of_two(top - norm_top) / norm : 0.f;
    for (uint base = 0u; base < a.head_dim; base += combine_dims) {
        const uint n = min(combine_dims, a.head_dim - base);
        float sum[combine_dims / 32u] = {};
        KS_UNROLL_BY(4)
        for (uint i = warp; i < end; i += n_warps) {
            const float weight = weights[i];
            KS_UNROLL
            for (uint j = 0u; j < combine_dims / 32u; j++)
                if (32u * j + lane < n)
                    sum[j] += from[i * stride + 4u + base + 32u * j + lane] * weight;
        }
        KS_UNROLL
        for (uint j = 0u; j < combine_dims / 32u; j++)
            sums[warp * combine_dims + 32u * j + lane] = sum[j];
        __syncthreads();
        for (uint d = threadIdx.x; d < n; d += blockDim.x) {
            float total = 0.f;
            for (uint w = 0u; w < n_warps; w++) total += sums[w * combine_dims + d];
            if (a.hadamard != 0u)
                head[base + d] = total * scale;
            else
                store_output(a, query, base + d, total * scale, y, acts);
        }
        __syncthreads();
    }
    if (a.hadamard != 0u && warp == 0u) {
        hadamard_head(head, a.head_dim, lane, true);
        for (uint d = lane; d < a.head_dim; d += 32u) store_output(a, query, d, head[d], y, acts);
    }
    if (threadIdx.x == 0u && lse != nullptr) lse[query] = norm_top + log2f(norm);
}

void attention_combine_launch(const AttentionArgs& a, uint n_splits, float* y, float* lse,
                              const float* partials, ActGroup* acts, cudaStream_t stream)
{
    // about four splits per warp
    const uint warps = n_splits < 4u * combine_warps ? (n_splits + 3u) / 4u : combine_warps;
    KS_LAUNCH(attention_combine_kernel, a.n_tokens * a.n_heads, 32u * warps, stream, a, n_splits, y,
              lse, partials, acts);
}

} // namespace ks
