// to[i] = word
// twin: none, Vulkan has vkCmdFillBuffer
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

__global__ void fill_kernel(uint64_t n, uint* to, uint word)
{
    begin_kernel();
    for (uint64_t i = first_thread(); i < n; i += n_all_threads()) to[i] = word;
}

void fill_launch(uint64_t n, uint* to, uint word, cudaStream_t stream)
{
    KS_LAUNCH(fill_kernel, blocks_for(n), n_threads, stream, n, to, word);
}

} // namespace ks
