// Attention scores: what the slots of a layer get from the chunk's queries. Each block goes over
// tiles of slots of a KV head. It decodes the keys, and the threads of a slot share its queries.
// twin: as in attention, a tile has slots of any pool
#include "kernels/cuda/slots.cuh"

namespace ks
{

constexpr uint score_slots = 32u;

DEVICE uint slots_of_score(uint head_dim) // a power of two
{
    uint n = score_slots;
    while (n * head_dim > 2048u) n /= 2u;
    return n;
}

struct ScoreTile {
    float keys[tile_values], bias_phasors[tile_values];
    float sums[n_threads];
    uint slots[score_slots];
};

// The score that query head `head` of token t adds to a slot.
DEVICE float query_score(const KvScoreArgs& s, const AttentionArgs& a, const CudaQueries& q,
                         const Head& h, const float* lse, uint t, uint head, uint slot, uint index,
                         float log_weight, const ScoreTile& tile)
{
    const uint own = h.before + t,
               first =
                   max(h.oldest, a.window != 0u && own + 1u > a.window ? own + 1u - a.window : 0u);
    const float n_visible = float(own + 1u - (first > a.n_pinned ? first - a.n_pinned : 0u));
    const bool q_clamped = index < a.n_clamped;
    const uint64_t from = (uint64_t(t) * a.n_heads + head) * a.head_dim;
    const float *x = (q_clamped ? q.q_clamped : q.q) + from,
                *c = q_clamped ? q.bias_clamped : q.bias;
    const float *key = tile.keys + slot * tile_stride(a.head_dim),
                *phasor = tile.bias_phasors + slot * tile_stride(a.n_bias_dims);
    float logit = 0.f;
    for (uint d = 0u; d < a.head_dim; d++) logit += x[d] * key[d];
    for (uint d = 0u; d < a.n_bias_dims; d++)
        logit += c[from + phasor_dim(d, a.n_bias_dims, a.pairs)] * phasor[d];
    const float p =
        power_of_two(logit_of(a, logit) * log2e + log_weight - lse[t * a.n_heads + head]);
    // A token that sees one slot has the mean probability exactly, whatever the rounding of lse. So
    // score_below does not count it.
    return s.kind == score_below ? (n_visible > 1.f && p * n_visible < 1.f ? 1.f : 0.f) : p;
}

__global__ void __launch_bounds__(n_threads, 2)
    kv_score_kernel(KvScoreArgs s, AttentionArgs a, ScoreDecay decay, float* scores, // (slots)
                    float* chunk_scores, // (n_kv_heads * chunk_rows), if the chunk is staged
                    CudaQueries q, CudaSlots all, const float* lse) // (n_tokens, n_heads)
{
    begin_kernel();
    KS_SHARED(ScoreTile, tiles, [1]);
    ScoreTile& tile = tiles[0];
    const uint n_slots = slots_of_score(a.head_dim), n_shares = n_threads / n_slots,
               slot = threadIdx.x % n_slots, share = threadIdx.x / n_slots;
    const Head h = find_head(a, all, blockIdx.y, 0u, a.n_tokens, true);
    const uint count = count_slots(h), group = a.n_heads / a.n_kv_heads;
    for (uint nth = blockIdx.x * n_slots; nth < count; nth += gridDim.x * n_slots) {
        const uint n = min(n_slots, count - nth), index = index_of(h, nth + slot);
        if (threadIdx.x < n) tile.slots[threadIdx.x] = slot_of(a, all, h, index);
        fill_phasors(a, all, h, nth, n, tile.bias_phasors);
        __syncthreads();
        decode_tile(a, all, h, nth, n, false, tile.slots, tile.keys);
        __syncthreads();
        rope_tile(a, all, h, nth, n, tile.keys);
        __syncthreads();
        const float b =
            slot < n ? fmaxf(masked_logit, log_weight(a, all, h, index, tile.slots[slot], 1u))
                     : 0.f;
        float sum = 0.f;
        for (uint i = share; slot < n && i < (a.n_tokens - s.first_query) * group; i += n_shares) {
            const uint t = s.first_query + i / group, head = h.head * group + i % group;
            if (sees(a, h, t, index))
                sum += query_score(s, a, q, h, lse, t, head, slot, index, b, tile) *
                       power_of_two(float(a.n_tokens - 1u - t) * decay.log2_decay);
        }
        tile.sums[threadIdx.x] = sum;
        __syncthreads();
        if (share == 0u && slot < n) {
            for (uint i = 1u; i < n_shares; i++) sum += tile.sums[i * n_slots + slot];
            const bool in_chunk_now = in_chunk(a, h, index);
            float* out = (in_chunk_now ? chunk_scores : scores) + tile.slots[slot];
            *out = in_chunk_now && s.before != score_adds ? sum : *out * decay.keep + sum;
        }
        __syncthreads();
    }
}

void kv_score_launch(const KvScoreArgs& s, const AttentionArgs& a, ScoreDecay decay, float* scores,
                     float* chunk_scores, CudaQueries q, CudaSlots all, const float* lse,
                     cudaStream_t stream)
{
    // blocks that share the tiles of a head
    constexpr uint blocks_of_head = 64u;
    KS_LAUNCH(kv_score_kernel, dim3(blocks_of_head, a.n_kv_heads), n_threads, stream, s, a, decay,
              scores, chunk_scores, q, all, lse);
}

} // namespace ks
