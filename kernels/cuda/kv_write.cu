// Stores the heads of the chunk's tokens: one thread per value, or per row where it is encoded
#include "kernels/cuda/store.cuh"

namespace ks
{

// Of token i / n_kv_heads, head i % n_kv_heads.
DEVICE uint row_of(const KvWriteArgs& a, const uint* table, const uint* view, uint i)
{
    uint h = i % a.n_kv_heads, t = i / a.n_kv_heads, index = view[h * view_words + view_before] + t;
    if (a.staged != 0u) return h * a.n_rows + t;
    if (table != nullptr) return table[view[h * view_words + view_begin] + index];
    return h * a.n_rows + RING_ROW(index, a.n_rows, a.n_pinned);
}

__global__ void kv_write_kernel(KvWriteArgs a, CudaCache to, // (n_kv_heads * n_rows, head_dim) f32 or f16
                                const float* x,              // (n_tokens, n_kv_heads * head_dim)
                                const uint* table,           // slots
                                const uint* view)            // (n_kv_heads, view_words)
{
    begin_kernel();
    uint n = a.n_tokens * a.n_kv_heads * a.head_dim;
    for (uint i = first_thread(); i < n; i += threads_of_all())
        store_value(to, row_of(a, table, view, i / a.head_dim), i % a.head_dim, a.head_dim, x[i]);
}

template <class C> __global__ void kv_encode_kernel(KvWriteArgs a, CudaCache to, const float* x, const uint* table, const uint* view)
{
    begin_kernel();
    uint row[most_row_words];
    for (uint i = first_thread(); i < a.n_tokens * a.n_kv_heads; i += threads_of_all()) {
        C::encode(x + uint64_t(i) * a.head_dim, row, a.head_dim);
        store_row<C>(to, row_of(a, table, view, i), a.head_dim, row);
    }
}

void kv_write_launch(const KvWriteArgs& a, CudaCache to, const float* x, const uint* table, const uint* view, cudaStream_t stream)
{
    const uint n = a.n_tokens * a.n_kv_heads;
    if (to.format < first_codec) KS_LAUNCH(kv_write_kernel, blocks_for(uint64_t(n) * a.head_dim), n_threads, stream, a, to, x, table, view);
    uint nth = first_codec;
#define KS_CASE(name) \
    if (to.format == nth++) KS_LAUNCH(kv_encode_kernel<RowCodec<codec_##name>>, blocks_for(n), n_threads, stream, a, to, x, table, view);
    CODECS(KS_CASE)
#undef KS_CASE
}

} // namespace ks
