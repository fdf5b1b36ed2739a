// Causal convolution of each column. One thread per column and conv_tokens tokens. The threads of
// the first tokens read the state, so they also update it.
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

// Input t of column c of the state's rows and then those of x.
DEVICE float input_at(const ConvArgs& a, const float* state, const float* x, uint64_t t, uint c)
{
    const uint n_kept = a.kernel - 1u;
    return t < n_kept ? state[t * a.cols + c] : x[(t - n_kept) * a.cols + c];
}

__global__ void conv_kernel(ConvArgs a, float* y, // (n_tokens, cols)
                            const float* x,       // (n_tokens, cols)
                            const float* w,       // (kernel, cols)
                            const float* bias,    // (cols), or null
                            float* state)         // (kernel - 1, cols)
{
    begin_kernel();
    const uint c = first_thread(), first = blockIdx.y * conv_tokens;
    if (c >= a.cols) return;
    const uint end = first + conv_tokens < a.n_tokens ? first + conv_tokens : a.n_tokens;
    for (uint t = first; t < end; t++) {
        float sum = bias != nullptr ? bias[c] : 0.f;
        for (uint j = 0u; j < a.kernel; j++)
            sum += w[j * a.cols + c] * input_at(a, state, x, t + j, c);
        y[uint64_t(t) * a.cols + c] = a.act == act_silu ? sum * sigmoid(sum) : sum;
    }
    for (uint j = 0u; first == 0u && j + 1u < a.kernel; j++)
        state[j * a.cols + c] = input_at(a, state, x, a.n_tokens + j, c);
}

void conv_launch(const ConvArgs& a, float* y, const float* x, const float* w, const float* bias,
                 float* state, cudaStream_t stream)
{
    const dim3 grid((a.cols + n_threads - 1u) / n_threads,
                    (a.n_tokens + conv_tokens - 1u) / conv_tokens);
    KS_LAUNCH(conv_kernel, grid, n_threads, stream, a, y, x, w, bias, state);
}

} // namespace ks
