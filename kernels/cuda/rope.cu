// Rotates pairs of a head's values, one thread per pair or value that passes
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

// x may be y
__global__ void rope_kernel(RopeArgs a, float* y, const float* x, // (n_tokens, n_heads * head_dim)
                            const float* angles)                  // (n_tokens, n_rot) or (n_groups, n_rot)
{
    begin_kernel();
    uint n_pairs = a.n_rot / 2u, n_each = a.head_dim - n_pairs, n = a.n_tokens * a.n_heads * n_each;
    for (uint i = first_thread(); i < n; i += threads_of_all()) {
        uint head = i / n_each * a.head_dim, pair = i % n_each, t = i / n_each / a.n_heads;
        if (pair >= n_pairs) {
            y[head + n_pairs + pair] = x[head + n_pairs + pair];
            continue;
        }
        uint by = a.n_groups == 0u ? t : i / n_each % a.n_heads / (a.n_heads / a.n_groups);
        uint first = head + (a.pairs == rope_neighbours ? 2u * pair : pair);
        uint second = a.pairs == rope_neighbours ? first + 1u : first + n_pairs;
        float c = angles[by * a.n_rot + 2u * pair], s = angles[by * a.n_rot + 2u * pair + 1u], u = x[first], v = x[second];
        y[first] = u * c - v * s;
        y[second] = u * s + v * c;
    }
}

void rope_launch(const RopeArgs& a, float* y, const float* x, const float* angles, cudaStream_t stream)
{
    const uint64_t n = uint64_t(a.n_tokens) * a.n_heads * (a.head_dim - a.n_rot / 2u);
    KS_LAUNCH(rope_kernel, blocks_for(n), n_threads, stream, a, y, x, angles);
}

} // namespace ks
