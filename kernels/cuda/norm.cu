// RMSNorm, or LayerNorm without a bias: y[r] = norm(x[first_row + r]) * w[r % w_rows]. One block
// per row.
#include "kernels/cuda/acts.cuh"

namespace ks
{

// twin: also writes y in int8, unless acts is null. y may be x.
__global__ void norm_kernel(NormArgs a, float* y,
                            const float* x, // (rows, dim), x from first_row on
                            const float* w, // (w_rows, dim)
                            ActGroup* acts) // (dim / 32, rows)
{
    begin_kernel();
    KS_SHARED(float, parts, [2][32]); // a partial sum per warp: of the mean, of the squares
    uint t = threadIdx.x;
    const float* from = x + (a.first_row + uint64_t(blockIdx.x)) * a.dim;
    float* to = y + uint64_t(blockIdx.x) * a.dim;
    const float* weight = w + uint64_t(blockIdx.x % a.w_rows) * a.dim;
    float mean = 0.f, sum = 0.f;
    if (a.kind == norm_layer) {
        for (uint i = t; i < a.dim; i += blockDim.x) sum += from[i];
        mean = block_sum(sum, parts[0]) / float(a.dim);
        sum = 0.f;
    }
    for (uint i = t; i < a.dim; i += blockDim.x) sum += (from[i] - mean) * (from[i] - mean);
    sum = block_sum(sum, parts[1]);
    float scale = 1.f / sqrtf(sum / float(a.dim) + a.eps);
    for (uint i = t; i < a.dim; i += blockDim.x) {
        const float v = (from[i] - mean) * scale * weight[i];
        to[i] = v;
        // all lanes are active: dim is a multiple of 32
        if (acts != nullptr) store_int8(v, int8_copy_of(acts, a.rows, blockIdx.x, i));
    }
}

void norm_launch(const NormArgs& a, float* y, const float* x, const float* w, ActGroup* acts,
                 cudaStream_t stream)
{
    // at most a few values per thread
    const uint threads = a.dim <= 128u ? 32u : a.dim <= 1024u ? 128u : 512u;
    KS_LAUNCH(norm_kernel, a.rows, threads, stream, a, y, x, w, acts);
}

} // namespace ks
