// y[t] = table[ids[t]] * scale. One block per token.
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

#include "kernels/common/formats.h"

namespace ks
{

template <class F>
__global__ void embed_kernel(EmbedArgs a, float* y, // (n_tokens, dim)
                             const uint* w,         // (vocab, dim) tiles
                             const uint* ids)       // (n_tokens)
{
    begin_kernel();
    uint t = blockIdx.x, row = ids[t];
    constexpr uint stride = F::half_words + tile_rows * F::words;
    const uint* tile = w + uint64_t(row / tile_rows) * (a.dim / F::block) * stride;
    for (uint k = threadIdx.x; k < a.dim; k += n_threads)
        y[uint64_t(t) * a.dim + k] =
            F::value(tile + k / F::block * stride, 0u, row % tile_rows, k % F::block) * a.scale;
}

void embed_launch(const EmbedArgs& a, uint format, float* y, const uint* w, const uint* ids,
                  cudaStream_t stream)
{
    uint nth = 0u;
#define KS_CASE(name)                                                                              \
    if (format == nth++)                                                                           \
        KS_LAUNCH(embed_kernel<format_##name>, a.n_tokens, n_threads, stream, a, y, w, ids);
    FORMATS(KS_CASE)
#undef KS_CASE
}

} // namespace ks
