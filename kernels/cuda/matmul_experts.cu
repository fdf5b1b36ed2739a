// y[t, j] = scales[e] W[e] x + bias[e] for the expert e = ids[t, j].
// One block per tile of eight rows and per choice or, with several tokens, per block of up to eight
// choices of one expert (list_experts.cu).
// twin: shaders/matmul_experts.comp has no int8 kernels and takes one weight at a time
#include "kernels/cuda/matvec.cuh"

namespace ks
{

// The choices of a block.
struct Choices {
    uint expert, n;
    const uint* all; // null: only `first`
    uint first;
    DEVICE_MEMBER uint operator[](uint i) const
    {
        return all != nullptr ? all[min(i, n - 1u)] : first;
    }
};

DEVICE Choices find_choices(const uint* list, uint max_blocks)
{
    if (max_blocks == 0u) return {list[blockIdx.y], 1u, nullptr, blockIdx.y};
    const uint* block = list + 3u * blockIdx.y;
    return {block[0], block[2], list + 3u * max_blocks + block[1], 0u};
}

template <class F, uint n_vec_tokens>
__global__ void __launch_bounds__(n_threads, 2)
    matmul_experts_kernel(ExpertsArgs a, ExpertsTargets targets, uint max_blocks,
                          const float* x,                    // rows of cols values
                          const ActGroup* __restrict__ acts, // or (cols / 32, rows of x)
                          const uint* list)                  // ids, or the list of choices
{
    begin_kernel();
    KS_SHARED(float, scratch, [n_vec_tokens * n_threads]);
    const Choices choices = find_choices(list, max_blocks);
    if (choices.n == 0u) return; // the whole block returns
    const uint n_tiles = a.rows / tile_rows, nth = blockIdx.x / n_tiles,
               tile = blockIdx.x % n_tiles,
               n_rows = a.per_choice != 0u ? a.n_tokens * a.n_used : a.n_tokens;
    const uint* w = targets.w[nth];
    float sum[n_vec_tokens] = {};
    KS_SHARED(uint, rows, [n_vec_tokens]); // saves registers
    if (threadIdx.x < n_vec_tokens)
        rows[threadIdx.x] = choices[threadIdx.x] / (a.per_choice != 0u ? 1u : a.n_used);
    __syncthreads();
    const uint at = choices.expert * n_tiles + tile;
    if constexpr (F::block == 1u)
        add_values<F>(sum, a.cols, w, at, x, rows);
    else
        add_int8<F>(sum, a.cols, w, at, acts, n_rows, rows);
    store_vectors(sum, scratch, [&](uint t, uint r, float total) {
        const uint row = tile * tile_rows + r;
        if (t >= choices.n) return;
        if (targets.scales[nth] != nullptr) total *= targets.scales[nth][choices.expert];
        if (targets.bias[nth] != nullptr)
            total += targets.bias[nth][uint64_t(choices.expert) * a.rows + row];
        targets.y[nth][uint64_t(choices[t]) * a.rows + row] = total;
    });
}

template <class F>
static void multiply_experts(const ExpertsArgs& a, const ExpertsTargets& to, uint max_blocks,
                             const float* x, const ActGroup* acts, const uint* list,
                             cudaStream_t stream)
{
    const uint tiles = to.n * (a.rows / tile_rows);
    if (max_blocks == 0u)
        KS_LAUNCH((matmul_experts_kernel<F, 1u>), dim3(tiles, a.n_tokens * a.n_used), n_threads,
                  stream, a, to, max_blocks, x, acts, list);
    else
        KS_LAUNCH((matmul_experts_kernel<F, experts_block>), dim3(tiles, max_blocks), n_threads,
                  stream, a, to, max_blocks, x, acts, list);
}

void matmul_experts_launch(const ExpertsArgs& a, uint format, const ExpertsTargets& to,
                           uint max_blocks, const float* x, const ActGroup* acts, const uint* list,
                           cudaStream_t stream)
{
    uint nth = 0u;
#define KS_CASE(name)                                                                              \
    if (format == nth++)                                                                           \
        return multiply_experts<format_##name>(a, to, max_blocks, x, acts, list, stream);
    FORMATS(KS_CASE)
#undef KS_CASE
}

} // namespace ks
