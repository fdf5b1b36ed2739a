// Dequantizes the rows of a round to f16, once for all queries of attention_prefill. Each block has
// the keys and the values of some slots of a head.
// twin: the shader has keys or values, as floats
#include "kernels/cuda/codecs.cuh"
#include "kernels/cuda/dequantized.cuh"

namespace ks
{

constexpr uint dequantized_slots = 32u; // slots per block

struct DequantShared {
    Levels levels[pass_chunk + 1u];
    uint source[dequantized_slots], row[dequantized_slots];
    Head head;
    Span round;
};

// Stores eight dims as f16 (hi) and their residuals (lo).
DEVICE void store_octet(const float (&x)[8], uint* hi, uint* lo)
{
    uint hi_words[4], lo_words[4];
    KS_UNROLL
    for (uint k = 0u; k < 8u; k += 2u) {
        const float u = in_range(x[k]), v = in_range(x[k + 1u]);
        hi_words[k / 2u] = pack_f16(u, v);
        lo_words[k / 2u] = pack_f16(residual_of(u), residual_of(v));
    }
    *reinterpret_cast<uint4*>(hi) = make_uint4(hi_words[0], hi_words[1], hi_words[2], hi_words[3]);
    *reinterpret_cast<uint4*>(lo) = make_uint4(lo_words[0], lo_words[1], lo_words[2], lo_words[3]);
}

// Dequantizes sixteen dims of a row: octets j and j + 1. Neighbouring octets lie in the same words,
// and the format is examined once.
template <uint d>
DEVICE void dequantize_sixteen(const CudaCache& cache, uint row, uint j, const float* levels,
                               uint* to)
{
    if (cache.format == plain_f16) return;
    with_loader<true>(cache.format, [&](auto loader) {
        KS_UNROLL
        for (uint k = 0u; k < 2u; k++) {
            float x[8];
            loader.load(cache, row, j + k, d, levels, x);
            store_octet(x, to + 4u * (j + k), to + d / 2u + 4u * (j + k));
        }
    });
}

template <uint d>
__global__ void attention_dequantize_kernel(AttentionArgs a, DequantScratch scratch, CudaSlots s)
{
    begin_kernel();
    KS_SHARED(DequantShared, all_shared, [1]);
    DequantShared& shared = all_shared[0];
    const Head& h = shared.head;
    if (threadIdx.x == 0u) {
        shared.head = find_head(a, s, blockIdx.y, 0u, a.n_tokens, false);
        shared.round = round_of(scratch, share_of(h));
    }
    fill_levels(shared.levels, s);
    __syncthreads();
    const uint first = dequantized_slots * blockIdx.x,
               count = shared.round.end - shared.round.begin;
    if (first >= count) return;
    const uint n = min(dequantized_slots, count - first);
    if (threadIdx.x < n) {
        const uint index = index_of(h, shared.round.begin + first + threadIdx.x),
                   source = source_of(a, h, index);
        shared.source[threadIdx.x] = source;
        shared.row[threadIdx.x] = row_of_slot(a, source, slot_of(a, s, h, index));
    }
    __syncthreads();
    constexpr uint pairs = d / 16u;
    for (uint i = threadIdx.x; i < n * pairs; i += n_threads) {
        const uint slot = i / pairs, j = 2u * (i % pairs), source = shared.source[slot],
                   row = shared.row[slot];
        uint* to = dequantized_row(a, scratch, h.head, first + slot);
        dequantize_sixteen<d>(pool_of(s, source, false), row, j, shared.levels[source].k, to);
        dequantize_sixteen<d>(pool_of(s, source, true), row, j, shared.levels[source].v, to + d);
    }
}

void attention_dequantize_launch(const AttentionArgs& a, uint n_splits,
                                 const DequantScratch& scratch, const CudaSlots& s,
                                 cudaStream_t stream)
{
    const dim3 grid((scratch.slots_per_round + dequantized_slots - 1u) / dequantized_slots,
                    a.n_kv_heads, n_splits);
    if (a.head_dim == 64u)
        KS_LAUNCH(attention_dequantize_kernel<64u>, grid, n_threads, stream, a, scratch, s);
    else
        KS_LAUNCH(attention_dequantize_kernel<128u>, grid, n_threads, stream, a, scratch, s);
}

bool logits_are_dot_products(const AttentionArgs& a, const CudaSlots& s)
{
    return a.n_rope_on_read == 0u && a.n_bias_dims == 0u && a.softcap == 0.f &&
           s.weights == nullptr;
}

bool all_f16(const CudaSlots& s)
{
    for (const CudaCache* cache : {&s.k, &s.v, &s.coded_k, &s.coded_v, &s.chunk_k, &s.chunk_v})
        if (cache->words != nullptr && cache->format != plain_f16) return false;
    return true;
}

} // namespace ks
