// Attention with many queries, as in prefill, on the tensor cores. A warp has 16 queries, a block
// 64.
// A float is split into two f16: the nearest f16 (hi) and the nearest f16 of the residual (lo). All
// products that matter are summed, so results are as exact as in f32. An f16 cache has no
// residuals.
// Other caches are dequantized once for all blocks of queries (attention_dequantize.cu), in rounds:
// as many slots as the scratch holds. Between rounds a block keeps its state in its partial result.
// twin: none, this is a fast variant of attention
#include "kernels/cuda/prefill.cuh"

namespace ks
{

// A warp's 16 queries as fragments, one per 16 dims.
template <uint d>
struct PrefillQueries {
    uint hi[d / 16u][4], lo[d / 16u][4];
};

// The address of this lane's dims in query lane / 4 (low = 0) or lane / 4 + 8 (low = 1) of the
// warp.
template <uint d>
DEVICE const float* query_of(const AttentionArgs& a, const float* q, uint head, uint first_row,
                             uint low)
{
    const uint lane = threadIdx.x % 32u;
    return q + query_at(a, head, min(first_row + lane / 4u + 8u * low, last_query(a))) * d +
           2u * (lane % 4u);
}

DEVICE void load_fragment(const AttentionArgs& a, const float* x, uint i, uint low, uint (&hi)[4],
                          uint (&lo)[4])
{
    KS_UNROLL
    for (uint half = 0u; half < 2u; half++) {
        const float u = in_range(x[16u * i + 8u * half] * a.scale * log2e),
                    v = in_range(x[16u * i + 8u * half + 1u] * a.scale * log2e);
        hi[2u * half + low] = pack_f16(u, v);
        lo[2u * half + low] = pack_f16(residual_of(u), residual_of(v));
    }
}

template <uint d>
DEVICE void load_fragments(const AttentionArgs& a, const float* q, uint head, uint first_row,
                           PrefillQueries<d>& out)
{
    KS_UNROLL
    for (uint low = 0u; low < 2u; low++) {
        const float* x = query_of<d>(a, q, head, first_row, low);
        KS_UNROLL
        for (uint i = 0u; i < d / 16u; i++) load_fragment(a, x, i, low, out.hi[i], out.lo[i]);
    }
}

// Loads fragments of a tile. Keys: 16 dims of eight slots, then of the next eight slots. Values:
// eight dims of 16 slots, then the next eight dims.
template <uint row_words>
DEVICE void load_keys(const uint* rows, uint slot, uint dim, uint (&out)[2][2])
{
    const uint lane = threadIdx.x % 32u;
    load_matrices(rows,
                  (slot + lane / 16u * 8u + lane % 8u) * row_words + dim / 2u + lane / 8u % 2u * 4u,
                  out);
}

template <uint row_words>
DEVICE void load_values(const uint* rows, uint slot, uint dim, uint (&out)[2][2])
{
    const uint lane = threadIdx.x % 32u;
    load_transposed_matrices(rows, (slot + lane % 16u) * row_words + dim / 2u + lane / 16u * 4u,
                             out);
}

// Computes the logits of 16 queries and the tile's 32 slots. logits[j][e]: element e of this lane
// for slots 8 j to 8 j + 7.
template <uint d, bool coded>
DEVICE void prefill_logits(const PrefillQueries<d>& q, const PrefillTile<d, coded>& tile,
                           bool has_residual, float (&logits)[4][4])
{
    constexpr uint row_words = PrefillTile<d, coded>::row_words;
    KS_UNROLL
    for (uint i = 0u; i < 16u; i++) logits[i / 4u][i % 4u] = 0.f;
    KS_UNROLL
    for (uint i = 0u; i < d / 16u; i++) {
        uint keys[2][2][2];
        load_keys<row_words>(tile.keys[0], 0u, 16u * i, keys[0]);
        load_keys<row_words>(tile.keys[0], 16u, 16u * i, keys[1]);
        KS_UNROLL
        for (uint j = 0u; j < 4u; j++) mma_m16n8k16_f16(logits[j], q.hi[i], keys[j / 2u][j % 2u]);
        KS_UNROLL
        for (uint j = 0u; j < 4u; j++) mma_m16n8k16_f16(logits[j], q.lo[i], keys[j / 2u][j % 2u]);
    }
    if constexpr (coded) {
        if (!has_residual) return;
        KS_UNROLL
        for (uint i = 0u; i < d / 16u; i++) {
            uint residuals[2][2][2];
            load_keys<row_words>(tile.keys[1], 0u, 16u * i, residuals[0]);
            load_keys<row_words>(tile.keys[1], 16u, 16u * i, residuals[1]);
            KS_UNROLL
            for (uint j = 0u; j < 4u; j++)
                mma_m16n8k16_f16(logits[j], q.hi[i], residuals[j / 2u][j % 2u]);
        }
    }
}

// Masks the slots that the tokens of this lane's two queries do not see.
template <bool coded>
DEVICE void mask_logits(const AttentionArgs& a, const Head& h, uint first_row,
                        const PrefillSlots<coded>& slots, float (&logits)[4][4])
{
    const uint group = a.n_heads / a.n_kv_heads, row = first_row + threadIdx.x % 32u / 4u,
               tokens[2] = {row / group, (row + 8u) / group};
    KS_UNROLL
    for (uint i = 0u; i < 16u; i++) {
        const uint slot = 8u * (i / 4u) + 2u * (threadIdx.x % 4u) + i % 2u;
        const bool seen = (slot < slots.tile.end - slots.tile.begin) &
                          sees(a, h, tokens[i % 4u / 2u], slots.index[slot]);
        logits[i / 4u][i % 4u] = seen ? logits[i / 4u][i % 4u] : masked_logit;
    }
}

// The initial running maximum: above masked logits, so that their weight is 0, and below
// visible ones.
constexpr float initial_max = 0.5f * masked_logit;

// The softmax state of this lane's two queries: lane / 4 and lane / 4 + 8 of the warp.
struct PrefillState {
    float top[2], norm[2]; // norm: this lane's share
};

DEVICE float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(all_lanes, x, 1));
    return fmaxf(x, __shfl_xor_sync(all_lanes, x, 2));
}

// Converts logits to weights of values. shrink: the factors by which earlier sums shrink.
DEVICE void prefill_weights(PrefillState& state, float (&logits)[4][4], float (&shrink)[2])
{
    KS_UNROLL
    for (uint low = 0u; low < 2u; low++) {
        float top = state.top[low], sum = 0.f;
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) top = fmaxf(top, logits[i / 2u][2u * low + i % 2u]);
        top = quad_max(top);
        shrink[low] = power_of_two_flushed(state.top[low] - top);
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) {
            float& logit = logits[i / 2u][2u * low + i % 2u];
            logit = power_of_two_flushed(logit - top);
            sum += logit;
        }
        state.top[low] = top;
        state.norm[low] = state.norm[low] * shrink[low] + sum;
    }
}

// Adds the weighted values. sum[j][e]: element e of this lane for dims 8 j to 8 j + 7.
template <uint d, bool coded>
DEVICE void prefill_values(const float (&weights)[4][4], const float (&shrink)[2],
                           const PrefillTile<d, coded>& tile, bool has_residual,
                           float (&sum)[d / 8u][4])
{
    constexpr uint row_words = PrefillTile<d, coded>::row_words;
    // the weights as fragments, one per 16 slots
    uint hi[2][4], lo[2][4];
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) {
        const float u = weights[i / 2u][2u * (i % 2u)], v = weights[i / 2u][2u * (i % 2u) + 1u];
        hi[i / 4u][i % 4u] = pack_f16(u, v);
        lo[i / 4u][i % 4u] = pack_f16(residual_of(u), residual_of(v));
    }
    if (__any_sync(all_lanes, shrink[0] != 1.f || shrink[1] != 1.f)) {
        KS_UNROLL
        for (uint i = 0u; i < d / 2u; i++) sum[i / 4u][i % 4u] *= shrink[i % 4u / 2u];
    }
    // 16 slots and 32 dims per iteration
    KS_UNROLL
    for (uint i = 0u; i < d / 16u; i++) {
        uint values[2][2][2];
        load_values<row_words>(tile.values[0], i % 2u * 16u, i / 2u * 32u, values[0]);
        load_values<row_words>(tile.values[0], i % 2u * 16u, i / 2u * 32u + 16u, values[1]);
        KS_UNROLL
        for (uint j = 0u; j < 4u; j++)
            mma_m16n8k16_f16(sum[i / 2u * 4u + j], hi[i % 2u], values[j / 2u][j % 2u]);
        KS_UNROLL
        for (uint j = 0u; j < 4u; j++)
            mma_m16n8k16_f16(sum[i / 2u * 4u + j], lo[i % 2u], values[j / 2u][j % 2u]);
    }
    if constexpr (coded) {
        if (!has_residual) return;
        KS_UNROLL
        for (uint i = 0u; i < d / 16u; i++) {
            uint residuals[2][2][2];
            load_values<row_words>(tile.values[1], i % 2u * 16u, i / 2u * 32u, residuals[0]);
            load_values<row_words>(tile.values[1], i % 2u * 16u, i / 2u * 32u + 16u, residuals[1]);
            KS_UNROLL
            for (uint j = 0u; j < 4u; j++)
                mma_m16n8k16_f16(sum[i / 2u * 4u + j], hi[i % 2u], residuals[j / 2u][j % 2u]);
        }
    }
}

template <uint d>
DEVICE void store_partials(const AttentionArgs& a, float* partials, uint head, uint first_row,
                           const PrefillState& state, const float (&sum)[d / 8u][4])
{
    const uint lane = threadIdx.x % 32u, group = a.n_heads / a.n_kv_heads;
    KS_UNROLL
    for (uint low = 0u; low < 2u; low++) {
        const uint query = first_row + lane / 4u + 8u * low;
        float norm = state.norm[low] + __shfl_xor_sync(all_lanes, state.norm[low], 1);
        norm += __shfl_xor_sync(all_lanes, norm, 2);
        if (query >= a.n_tokens * group) continue;
        float* out = partial_of(a, partials, head, query);
        if (lane % 4u == 0u) {
            out[0] = out[1] = state.top[low];
            out[2] = norm;
        }
        KS_UNROLL
        for (uint j = 0u; j < d / 8u; j++) {
            out[4u + 8u * j + 2u * (lane % 4u)] = sum[j][2u * low];
            out[4u + 8u * j + 2u * (lane % 4u) + 1u] = sum[j][2u * low + 1u];
        }
    }
}

// Loads the state that the previous round left in the partial result.
template <uint d>
DEVICE void load_partials(const AttentionArgs& a, float* partials, uint head, uint first_row,
                          PrefillState& state, float (&sum)[d / 8u][4])
{
    const uint lane = threadIdx.x % 32u, group = a.n_heads / a.n_kv_heads;
    KS_UNROLL
    for (uint low = 0u; low < 2u; low++) {
        const uint query = first_row + lane / 4u + 8u * low;
        if (query >= a.n_tokens * group) continue;
        const float* from = partial_of(a, partials, head, query);
        state.top[low] = from[0];
        state.norm[low] = lane % 4u == 0u ? from[2] : 0.f;
        KS_UNROLL
        for (uint j = 0u; j < d / 8u; j++) {
            sum[j][2u * low] = from[4u + 8u * j + 2u * (lane % 4u)];
            sum[j][2u * low + 1u] = from[4u + 8u * j + 2u * (lane % 4u) + 1u];
        }
    }
}

// Blocks per multiprocessor that its registers suffice for.
constexpr uint prefill_blocks(uint d, bool coded)
{
    return d != 64u ? 2u : coded || mma_is_emulated ? 3u : 4u;
}

template <uint d, bool coded>
__global__ void __launch_bounds__(n_threads, prefill_blocks(d, coded))
    attention_prefill_kernel(AttentionArgs a,
                             float* partials, // (n_tokens * n_heads, n_splits, 4 + head_dim)
                             CudaQueries q, CudaSlots s, DequantScratch scratch)
{
    begin_kernel();
    using Shared = PrefillShared<d, coded>;
    KS_SHARED(Shared, all_shared, [1]);
    Shared& shared = all_shared[0];
    const uint first_row = blockIdx.x * prefill_rows + threadIdx.x / 32u * 16u;
    const Head& h = shared.head;
    if (threadIdx.x == 0u) find_share<d, coded>(a, s, scratch, shared);
    __syncthreads();
    if (scratch.round != 0u && shared.share.begin == shared.share.end) return;
    const bool looks_up = threadIdx.x < 32u;
    if (looks_up) {
        const Span tile = tile_from(a, h, shared.share.begin, shared.share.end),
                   next = tile_from(a, h, tile.end, shared.share.end);
        store_slots<d, coded>(a, s, scratch, shared, find_slot(a, s, h, tile), tile,
                              shared.slots[0]);
        store_slots<d, coded>(a, s, scratch, shared, find_slot(a, s, h, next), next,
                              shared.slots[1]);
    }
    __syncthreads();
    if constexpr (coded)
        copy_parts<d>(shared.slots[0], false, shared.tiles[0].keys);
    else
        copy_tile<d>(shared.slots[0], shared.tiles[0]);
    PrefillQueries<d> queries;
    PrefillState state = {{initial_max, initial_max}, {0.f, 0.f}};
    float sum[d / 8u][4];
    KS_UNROLL
    for (uint i = 0u; i < d / 2u; i++) sum[i / 4u][i % 4u] = 0.f;
    if (scratch.round != 0u) load_partials<d>(a, partials, blockIdx.y, first_row, state, sum);
    bool q_clamped = false;
    for (uint nth = 0u; shared.slots[nth % Shared::n_slots].tile.begin < shared.share.end; nth++) {
        const PrefillSlots<coded>&slots = shared.slots[nth % Shared::n_slots],
              &next = shared.slots[(nth + 1u) % Shared::n_slots];
        PrefillTile<d, coded>& rows = shared.tiles[nth % Shared::n_tiles];
        const bool now_clamped = slots.index[0] < a.n_clamped;
        if (nth == 0u || now_clamped != q_clamped)
            load_fragments<d>(a, now_clamped ? q.q_clamped : q.q, blockIdx.y, first_row, queries);
        q_clamped = now_clamped;
        wait_for_copies();
        __syncthreads();
        if constexpr (coded)
            copy_parts<d>(slots, true, rows.values);
        else
            copy_tile<d>(next, shared.tiles[(nth + 1u) % Shared::n_tiles]);
        const Span later = tile_from(a, h, next.tile.end, shared.share.end);
        PrefillSlot found = {};
        if (looks_up) found = find_slot(a, s, h, later);
        float logits[4][4], shrink[2];
        prefill_logits<d, coded>(queries, rows, coded && (slots.any_residual & key_residual) != 0u,
                                 logits);
        if constexpr (coded) {
            wait_for_copies();
            __syncthreads();
            copy_parts<d>(next, false, rows.keys);
        }
        if (looks_up)
            store_slots<d, coded>(a, s, scratch, shared, found, later,
                                  shared.slots[(nth + 2u) % Shared::n_slots]);
        if (slots.all_visible == 0u) mask_logits(a, h, first_row, slots, logits);
        prefill_weights(state, logits, shrink);
        prefill_values<d, coded>(logits, shrink, rows,
                                 coded && (slots.any_residual & value_residual) != 0u, sum);
    }
    store_partials<d>(a, partials, blockIdx.y, first_row, state, sum);
}

bool attention_prefill_can(const AttentionArgs& a, const CudaSlots& s)
{
    return logits_are_dot_products(a, s) && prefill_supports(a.head_dim);
}

template <uint d>
static void launch_prefill(const AttentionArgs& a, dim3 grid, float* partials, const CudaQueries& q,
                           const CudaSlots& s, const DequantScratch& scratch, cudaStream_t stream)
{
    if (scratch.words == nullptr)
        KS_LAUNCH((attention_prefill_kernel<d, false>), grid, n_threads, stream, a, partials, q, s,
                  scratch);
    else
        KS_LAUNCH((attention_prefill_kernel<d, true>), grid, n_threads, stream, a, partials, q, s,
                  scratch);
}

void attention_prefill_launch(const AttentionArgs& a, uint n_splits, float* partials, CudaQueries q,
                              CudaSlots s, DequantScratch scratch, cudaStream_t stream)
{
    const dim3 grid((a.n_tokens * (a.n_heads / a.n_kv_heads) + prefill_rows - 1u) / prefill_rows,
                    a.n_kv_heads, n_splits);
    for (; scratch.n_rounds > scratch.round; scratch.round++) {
        if (scratch.words != nullptr) attention_dequantize_launch(a, n_splits, scratch, s, stream);
        (a.head_dim == 64u ? launch_prefill<64u> : launch_prefill<128u>)(a, grid, partials, q, s,
                                                                         scratch, stream);
    }
}

} // namespace ks
