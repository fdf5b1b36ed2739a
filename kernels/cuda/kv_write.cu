// Stores the keys and values of a chunk in the cache. One thread per value of a plain row, one
// thread per coded row.
#include "kernels/cuda/store.cuh"

namespace ks
{

// The row for head i % n_kv_heads of token i / n_kv_heads.
DEVICE uint row_of(const KvWriteArgs& a, const uint* table, const uint* head_layout, uint i)
{
    uint h = i % a.n_kv_heads, t = i / a.n_kv_heads,
         index = head_layout[h * layout_words + layout_n_held] + t;
    if (a.staged != 0u) return h * a.n_rows + t;
    if (table != nullptr) return table[head_layout[h * layout_words + layout_table_begin] + index];
    return ring_slot(h, index, a.n_rows, a.n_pinned);
}

// twin: one launch writes keys and values; either may be null
__global__ void kv_write_kernel(KvWriteArgs a, CudaCache to_k,
                                CudaCache to_v, // (n_kv_heads * n_rows, head_dim) f32 or f16
                                const float* k, const float* v, // (n_tokens, n_kv_heads * head_dim)
                                const uint* table,              // slots, or null
                                const uint* head_layout)        // (n_kv_heads, layout_words)
{
    begin_kernel();
    const uint n = a.n_tokens * a.n_kv_heads * a.head_dim;
    for (uint i = first_thread(); i < n; i += n_all_threads()) {
        const uint row = row_of(a, table, head_layout, i / a.head_dim);
        if (k != nullptr) store_value(to_k, row, i % a.head_dim, a.head_dim, k[i]);
        if (v != nullptr) store_value(to_v, row, i % a.head_dim, a.head_dim, v[i]);
    }
}

template <class C>
__global__ void kv_encode_kernel(KvWriteArgs a, CudaCache to, const float* x, const uint* table,
                                 const uint* head_layout)
{
    begin_kernel();
    uint row[max_row_words];
    for (uint i = first_thread(); i < a.n_tokens * a.n_kv_heads; i += n_all_threads()) {
        C::encode(x + uint64_t(i) * a.head_dim, row, a.head_dim);
        store_row<C>(to, row_of(a, table, head_layout, i), a.head_dim, row);
    }
}

static void encode_launch(const KvWriteArgs& a, CudaCache to, const float* x, const uint* table,
                          const uint* head_layout, cudaStream_t stream)
{
    const uint blocks = blocks_for(a.n_tokens * a.n_kv_heads);
#define KS_CASE(name, number)                                                                      \
    if (to.format == number)                                                                       \
        KS_LAUNCH(kv_encode_kernel<RowCodec<codec_##name>>, blocks, n_threads, stream, a, to, x,   \
                  table, head_layout);
    CODECS(KS_CASE)
#undef KS_CASE
}

void kv_write_launch(const KvWriteArgs& a, CudaCache to_k, CudaCache to_v, const float* k,
                     const float* v, const uint* table, const uint* head_layout,
                     cudaStream_t stream)
{
    const bool coded_k = to_k.format >= first_codec, coded_v = to_v.format >= first_codec;
    if (coded_k) encode_launch(a, to_k, k, table, head_layout, stream);
    if (coded_v) encode_launch(a, to_v, v, table, head_layout, stream);
    const uint blocks = blocks_for(uint64_t(a.n_tokens) * a.n_kv_heads * a.head_dim);
    const float *plain_k = coded_k ? nullptr : k, *plain_v = coded_v ? nullptr : v;
    if (plain_k || plain_v)
        KS_LAUNCH(kv_write_kernel, blocks, n_threads, stream, a, to_k, to_v, plain_k, plain_v,
                  table, head_layout);
}

} // namespace ks
