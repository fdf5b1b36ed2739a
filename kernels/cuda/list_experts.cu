// Lists the choices of each expert in blocks (ExpertsPart), in one block of threads. The order of
// the choices of an expert does not matter.
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

// max_blocks: experts_max_blocks().
__global__ void list_experts_kernel(ExpertsArgs a, uint max_blocks,
                                    uint* list,      // (3 * max_blocks + n_tokens * n_used)
                                    const uint* ids) // (n_tokens, n_used)
{
    begin_kernel();
    KS_SHARED(uint, count, [route_max_experts]);
    KS_SHARED(uint, first, [route_max_experts]);
    KS_SHARED(uint, first_block, [route_max_experts]);
    KS_SHARED(uint, n_blocks, [1]);
    const uint n = a.n_tokens * a.n_used;
    for (uint e = threadIdx.x; e < a.n_experts; e += n_threads) count[e] = 0u;
    __syncthreads();
    for (uint i = threadIdx.x; i < n; i += n_threads) atomicAdd(&count[ids[i]], 1u);
    __syncthreads();
    if (threadIdx.x == 0u) {
        uint choices = 0u, blocks = 0u;
        for (uint e = 0u; e < a.n_experts; e++) {
            first[e] = choices;
            first_block[e] = blocks;
            choices += count[e];
            blocks += (count[e] + experts_block - 1u) / experts_block;
        }
        n_blocks[0] = blocks;
    }
    __syncthreads();
    for (uint e = threadIdx.x; e < a.n_experts; e += n_threads)
        for (uint i = 0u; i < count[e]; i += experts_block) {
            uint* block = list + 3u * (first_block[e] + i / experts_block);
            block[0] = e;
            block[1] = first[e] + i;
            block[2] = min(experts_block, count[e] - i);
        }
    for (uint b = n_blocks[0] + threadIdx.x; b < max_blocks; b += n_threads) list[3u * b + 2u] = 0u;
    __syncthreads();
    for (uint i = threadIdx.x; i < n; i += n_threads)
        list[3u * max_blocks + atomicAdd(&first[ids[i]], 1u)] = i;
}

void list_experts_launch(const ExpertsArgs& a, uint max_blocks, uint* list, const uint* ids,
                         cudaStream_t stream)
{
    KS_LAUNCH(list_experts_kernel, 1u, n_threads, stream, a, max_blocks, list, ids);
}

} // namespace ks
