// General attention over the slots of a layer, in f32. attention_decode and attention_prefill are
// its fast variants.
// A block has some queries of a KV head and some of its slots. A KV head's queries are numbered by
// (token, head of the group). The block writes a partial result for attention_combine.
// twin: the shader makes one pass per pool, since its bindings are few and small. Here a tile has
// slots of any pool.
#include "kernels/cuda/slots.cuh"

namespace ks
{

// Applies RoPE to the queries, for keys to which attention itself applies RoPE.
__global__ void rope_queries_kernel(AttentionArgs a, float* roped, // (n_tokens, n_heads * head_dim)
                                    const float* q,                // (n_tokens, n_heads * head_dim)
                                    const float* rope_table,       // (indexes, n_rope_on_read)
                                    const uint* head_layout)       // (n_kv_heads, layout_words)
{
    begin_kernel();
    const uint n_each = a.head_dim - a.n_rope_on_read / 2u;
    for (uint i = first_thread(); i < a.n_tokens * a.n_heads * n_each; i += n_all_threads()) {
        uint query = i / n_each, pair = i % n_each, h = query % a.n_heads, own = query / a.n_heads;
        own += head_layout[h / (a.n_heads / a.n_kv_heads) * layout_words + layout_n_held];
        const float* x = q + uint64_t(query) * a.head_dim;
        float* y = roped + uint64_t(query) * a.head_dim;
        if (pair >= a.n_rope_on_read / 2u) {
            y[pair + a.n_rope_on_read / 2u] = x[pair + a.n_rope_on_read / 2u];
            continue;
        }
        uint first = first_of_pair(a.pairs, pair),
             second = second_of_pair(a.pairs, pair, a.n_rope_on_read);
        const float* angles = rope_table + uint64_t(own) * a.n_rope_on_read + 2u * pair;
        y[first] = x[first] * angles[0] - x[second] * angles[1];
        y[second] = x[first] * angles[1] + x[second] * angles[0];
    }
}

void rope_queries_launch(const AttentionArgs& a, float* roped, const float* q,
                         const float* rope_table, const uint* head_layout, cudaStream_t stream)
{
    KS_LAUNCH(rope_queries_kernel, blocks_for(uint64_t(a.n_tokens) * a.n_heads * a.head_dim),
              n_threads, stream, a, roped, q, rope_table, head_layout);
}

constexpr uint max_rows = 16u, max_slots = 32u;

struct Softmax {
    // running maxima, norms and rescaling factors of the queries
    float top[max_rows], norm_top[max_rows], norm[max_rows], shrink[max_rows];
    float num_logit[max_rows * max_slots]; // logits plus log-weight a, then the weights of values
    float den_logit[max_rows * max_slots]; // logits plus log-weight b
};

DEVICE uint slots_of_tile(uint head_dim)
{
    return min(2048u / head_dim, max_slots);
}

// Computes the logits of the tile's slots.
DEVICE void compute_logits(const AttentionArgs& a, const CudaSlots& s, const CudaQueries& q,
                           const Head& h, uint nth, uint n, uint first_row, const uint* slots,
                           const float* tile, const float* bias_phasors, Softmax& soft)
{
    const uint n_slots = slots_of_tile(a.head_dim), n_rows = attention_rows(a.head_dim),
               group = a.n_heads / a.n_kv_heads;
    for (uint i = threadIdx.x; i < n_rows * n_slots; i += n_threads) {
        const uint query = first_row + i / n_slots, slot = i % n_slots, t = query / group,
                   index = index_of(h, nth + slot);
        const bool seen = slot < n && t < a.n_tokens && sees(a, h, t, index);
        if (!seen) {
            soft.num_logit[i] = soft.den_logit[i] = masked_logit;
            continue;
        }
        const uint64_t from = query_at(a, h.head, query) * a.head_dim;
        const float *x = (index < a.n_clamped ? q.q_clamped : q.q) + from,
                    *key = tile + slot * tile_stride(a.head_dim);
        float sum = 0.f;
        for (uint d = 0u; d < a.head_dim; d++) sum += x[d] * key[d];
        const float* c = index < a.n_clamped ? q.bias_clamped : q.bias;
        for (uint d = 0u; d < a.n_bias_dims; d++)
            sum += c[from + phasor_dim(d, a.n_bias_dims, a.pairs)] *
                   bias_phasors[slot * tile_stride(a.n_bias_dims) + d];
        const float logit = logit_of(a, sum) * log2e;
        soft.num_logit[i] =
            fmaxf(masked_logit, logit + log_weight(a, s, h, index, slots[slot], 0u));
        soft.den_logit[i] =
            fmaxf(masked_logit, logit + log_weight(a, s, h, index, slots[slot], 1u));
    }
}

// Updates a query's running maxima. num_logit becomes the weights of values.
DEVICE void update_softmax(Softmax& soft, uint r, uint n_slots)
{
    float new_top = soft.top[r], new_norm_top = soft.norm_top[r];
    float *num_logit = soft.num_logit + r * n_slots, *den_logit = soft.den_logit + r * n_slots;
    for (uint i = 0u; i < n_slots; i++) {
        new_top = fmaxf(new_top, num_logit[i]);
        new_norm_top = fmaxf(new_norm_top, den_logit[i]);
    }
    soft.shrink[r] = power_of_two(soft.top[r] - new_top);
    soft.norm[r] *= power_of_two(soft.norm_top[r] - new_norm_top);
    for (uint i = 0u; i < n_slots; i++) {
        num_logit[i] =
            num_logit[i] > 0.5f * masked_logit ? power_of_two(num_logit[i] - new_top) : 0.f;
        soft.norm[r] +=
            den_logit[i] > 0.5f * masked_logit ? power_of_two(den_logit[i] - new_norm_top) : 0.f;
    }
    soft.top[r] = new_top;
    soft.norm_top[r] = new_norm_top;
}

// Supports everything in AttentionArgs: also log-weights, a softcap, keys stored without their
// bias, and RoPE applied to keys as they are read.
__global__ void __launch_bounds__(n_threads, 2)
    attention_kernel(AttentionArgs a,
                     float* partials, // (n_tokens * n_heads, n_splits, 4 + head_dim)
                     CudaQueries q, CudaSlots s)
{
    begin_kernel();
    KS_SHARED(float, tile, [tile_values]);
    KS_SHARED(float, bias_phasors, [tile_values]);
    KS_SHARED(Softmax, softs, [1]);
    KS_SHARED(uint, slots, [max_slots]);
    Softmax& soft = softs[0];
    const uint group = a.n_heads / a.n_kv_heads, n_rows = attention_rows(a.head_dim),
               n_slots = slots_of_tile(a.head_dim);
    const uint first_row = blockIdx.x * n_rows,
               n_queries = min(n_rows, a.n_tokens * group - first_row);
    const Head h = find_head(a, s, blockIdx.y, first_row / group,
                             (first_row + n_queries - 1u) / group + 1u, false);
    const Span share = share_of(h);

    // thread (r * head_dim + d) % n_threads has value d of query r
    float sum[8];
    KS_UNROLL
    for (uint j = 0u; j < 8u; j++) sum[j] = 0.f;
    if (threadIdx.x < n_rows) {
        soft.top[threadIdx.x] = soft.norm_top[threadIdx.x] = masked_logit;
        soft.norm[threadIdx.x] = 0.f;
    }
    for (uint nth = share.begin; nth < share.end; nth += n_slots) {
        const uint n = min(n_slots, share.end - nth);
        if (threadIdx.x < n) slots[threadIdx.x] = slot_of(a, s, h, index_of(h, nth + threadIdx.x));
        fill_phasors(a, s, h, nth, n, bias_phasors);
        __syncthreads();
        decode_tile(a, s, h, nth, n, false, slots, tile);
        __syncthreads();
        rope_tile(a, s, h, nth, n, tile);
        __syncthreads();
        compute_logits(a, s, q, h, nth, n, first_row, slots, tile, bias_phasors, soft);
        __syncthreads();
        if (threadIdx.x < n_rows) update_softmax(soft, threadIdx.x, n_slots);
        decode_tile(a, s, h, nth, n, true, slots, tile);
        __syncthreads();
        KS_UNROLL
        for (uint j = 0u; j < 8u; j++) {
            const uint i = threadIdx.x + j * n_threads, r = min(i / a.head_dim, n_rows - 1u),
                       d = i % a.head_dim;
            sum[j] *= soft.shrink[r];
            for (uint slot = 0u; slot < n; slot++)
                sum[j] +=
                    soft.num_logit[r * n_slots + slot] * tile[slot * tile_stride(a.head_dim) + d];
        }
        __syncthreads();
    }
    if (threadIdx.x < n_queries) {
        float* at = partial_of(a, partials, h.head, first_row + threadIdx.x);
        at[0] = soft.top[threadIdx.x];
        at[1] = soft.norm_top[threadIdx.x];
        at[2] = soft.norm[threadIdx.x];
    }
    KS_UNROLL
    for (uint j = 0u; j < 8u; j++) {
        const uint i = threadIdx.x + j * n_threads, r = i / a.head_dim;
        if (r < n_queries)
            partial_of(a, partials, h.head, first_row + r)[4u + i % a.head_dim] = sum[j];
    }
}

void attention_launch(const AttentionArgs& a, uint n_splits, float* partials, CudaQueries q,
                      CudaSlots s, cudaStream_t stream)
{
    const uint n = a.n_tokens * (a.n_heads / a.n_kv_heads), rows = attention_rows(a.head_dim);
    KS_LAUNCH(attention_kernel, dim3((n + rows - 1u) / rows, a.n_kv_heads, n_splits), n_threads,
              stream, a, partials, q, s);
}

} // namespace ks
