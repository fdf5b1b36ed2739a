// y[i] = cache row rows[i], dequantized. One warp per row.
#include "kernels/cuda/cache.cuh"

namespace ks
{

__global__ void kv_read_kernel(KvReadArgs a, float* y, // (n, head_dim)
                               CudaCache from,         // (n_rows, head_dim) f32, f16 or coded
                               const uint* rows)       // (n)
{
    begin_kernel();
    uint n_warps = n_all_threads() / 32u;
    for (uint i = first_thread() / 32u; i < a.n; i += n_warps) {
        float* out = y + uint64_t(i) * a.head_dim;
        decode_row(from, rows[i], a.head_dim, threadIdx.x % 32u, 32u,
                   [&](uint k, float value) { out[k] = value; });
    }
}

void kv_read_launch(const KvReadArgs& a, float* y, CudaCache from, const uint* rows,
                    cudaStream_t stream)
{
    KS_LAUNCH(kv_read_kernel, blocks_for(32ull * a.n), n_threads, stream, a, y, from, rows);
}

} // namespace ks
