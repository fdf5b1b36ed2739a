// Attention of a few queries, as decoding has them: every warp goes over slots of its own, reads a key and a value once for all queries
// of the block, and keeps its own maxima; barriers are at the end only.
// twin: none, it is the fast one of attention
#include "kernels/cuda/eight.cuh"
#include "kernels/cuda/slots.cuh"

namespace ks
{

constexpr uint few_warps = n_threads / 32u;

// What a warp found, and what it is at.
template <uint d, uint n_rows> struct FewTile {
    float weights[few_warps][32][n_rows]; // logits, then weights of values, of a warp's slots
    float top[few_warps][n_rows], norm_top[few_warps][n_rows], norm[few_warps][n_rows];
    float sums[few_warps][n_rows][d];
    Levels levels[3]; // of each pool
};

template <uint n_rows> struct FewState {
    float top[n_rows], norm_top[n_rows], norm[n_rows]; // norm: this lane's share
};

// Where a query of the KV head begins; after the last one, that one.
template <uint d> DEVICE uint64_t query_at(const AttentionArgs& a, uint head, uint query)
{
    const uint group = a.n_heads / a.n_kv_heads;
    query = min(query, a.n_tokens * group - 1u);
    return (uint64_t(query / group) * a.n_heads + head * group + query % group) * d;
}

// A lane's eight dims of the queries.
template <uint d, uint n_rows>
DEVICE void load_queries(const AttentionArgs& a, const float* q, uint head, uint first_row, uint j, float (&out)[n_rows][8])
{
    KS_UNROLL
    for (uint r = 0u; r < n_rows; r++) {
        const float* x = q + query_at<d>(a, head, first_row + r) + 8u * j;
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) out[r][i] = x[i] * a.scale * log2e;
    }
}

// A warp's slots of one round: lane i knows the ith.
struct FewSlot {
    uint index, source, slot, row;
};

// The logits of n slots, into weights.
template <uint d, uint n_rows, bool coded>
DEVICE void few_logits(const AttentionArgs& a, const CudaSlots& s, const CudaQueries& q, uint head, uint first_row, const FewSlot& mine, uint n,
                       const Levels* levels, float (*weights)[n_rows])
{
    constexpr uint lanes = d / 8u, each = 32u / lanes;
    const uint lane = threadIdx.x % 32u, j = lane % lanes;
    KS_UNROLL_BY(1)
    for (uint i = 0u; i < 32u; i += each) {
        const uint nth = i + lane / lanes, row = __shfl_sync(all_lanes, mine.row, int(nth));
        const uint source = __shfl_sync(all_lanes, mine.source, int(nth)), index = __shfl_sync(all_lanes, mine.index, int(nth));
        float key[8] = {};
        if (nth < n) load_eight<coded>(pool_of(s, source, false), row, j, d, levels[source].k, key);
        const float* from = nth < n && index < a.n_far ? q.other : q.q;
        KS_UNROLL_BY(1)
        for (uint r = 0u; r < n_rows; r++) {
            const float* x = from + query_at<d>(a, head, first_row + r) + 8u * j;
            float sum = 0.f;
            KS_UNROLL
            for (uint k = 0u; k < 8u; k++) sum += x[k] * a.scale * log2e * key[k];
            sum = share_sum<lanes>(sum);
            if (j == 0u) weights[nth][r] = sum;
        }
    }
    __syncwarp();
}

// The same where all slots lie in one pool and none is far: the lanes' rows, the last one's again where there are fewer.
template <uint d, uint n_rows, class Loader>
DEVICE void few_logits_alike(Loader, const CudaCache& keys, uint rows, const float (&near)[n_rows][8], const float* levels, float (*weights)[n_rows])
{
    constexpr uint lanes = d / 8u, each = 32u / lanes;
    const uint lane = threadIdx.x % 32u, j = lane % lanes;
    KS_UNROLL_BY(Loader::unroll)
    for (uint i = 0u; i < 32u; i += each) {
        const uint nth = i + lane / lanes, row = __shfl_sync(all_lanes, rows, int(nth));
        float key[8];
        Loader::load(keys, row, j, d, levels, key);
        KS_UNROLL
        for (uint r = 0u; r < n_rows; r++) {
            float sum = 0.f;
            KS_UNROLL
            for (uint k = 0u; k < 8u; k++) sum += near[r][k] * key[k];
            sum = share_sum<lanes>(sum);
            if (j == 0u) weights[nth][r] = sum;
        }
    }
    __syncwarp();
}

// The logits become weights of values; the maxima move, and what was summed shrinks.
template <uint n_rows>
DEVICE void few_weights(const AttentionArgs& a, const CudaSlots& s, const Head& h, uint first_row, const FewSlot& mine, bool has,
                        FewState<n_rows>& state, float (&sum)[n_rows][8], float (*weights)[n_rows])
{
    const uint lane = threadIdx.x % 32u, group = a.n_heads / a.n_kv_heads;
    float more = 0.f, less = 0.f;
    if (has) more = log_weight(a, s, h, mine.index, mine.slot, 0u), less = log_weight(a, s, h, mine.index, mine.slot, 1u);
    KS_UNROLL
    for (uint r = 0u; r < n_rows; r++) {
        const bool seen = has && sees(a, h, (first_row + r) / group, mine.index);
        const float over = seen ? fmaxf(none, weights[lane][r] + more) : none, under = seen ? fmaxf(none, weights[lane][r] + less) : none;
        const float top = fmaxf(state.top[r], warp_max(over)), norm_top = fmaxf(state.norm_top[r], warp_max(under));
        const float shrink = power_of_two(state.top[r] - top), p = over > 0.5f * none ? power_of_two(over - top) : 0.f;
        state.norm[r] *= power_of_two(state.norm_top[r] - norm_top);
        state.norm[r] += under > 0.5f * none ? power_of_two(under - norm_top) : 0.f;
        state.top[r] = top;
        state.norm_top[r] = norm_top;
        weights[lane][r] = p;
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) sum[r][k] *= shrink;
    }
    __syncwarp();
}

template <uint d, uint n_rows, bool coded>
DEVICE void few_values(const CudaSlots& s, const FewSlot& mine, uint n, const Levels* levels, float (*weights)[n_rows], float (&sum)[n_rows][8])
{
    constexpr uint lanes = d / 8u, each = 32u / lanes;
    const uint lane = threadIdx.x % 32u;
    KS_UNROLL_BY(1)
    for (uint i = 0u; i < 32u; i += each) {
        const uint nth = i + lane / lanes, row = __shfl_sync(all_lanes, mine.row, int(nth));
        const uint source = __shfl_sync(all_lanes, mine.source, int(nth));
        float value[8] = {};
        if (nth < n) load_eight<coded>(pool_of(s, source, true), row, lane % lanes, d, levels[source].v, value);
        KS_UNROLL
        for (uint r = 0u; r < n_rows; r++) {
            const float p = weights[nth][r];
            KS_UNROLL
            for (uint k = 0u; k < 8u; k++) sum[r][k] += p * value[k];
        }
    }
    __syncwarp();
}

template <uint d, uint n_rows, class Loader>
DEVICE void few_values_alike(Loader, const CudaCache& values, uint rows, const float* levels, float (*weights)[n_rows], float (&sum)[n_rows][8])
{
    constexpr uint lanes = d / 8u, each = 32u / lanes;
    const uint lane = threadIdx.x % 32u;
    KS_UNROLL_BY(Loader::unroll)
    for (uint i = 0u; i < 32u; i += each) {
        const uint nth = i + lane / lanes, row = __shfl_sync(all_lanes, rows, int(nth));
        float value[8];
        Loader::load(values, row, lane % lanes, d, levels, value);
        KS_UNROLL
        for (uint r = 0u; r < n_rows; r++) {
            const float p = weights[nth][r];
            KS_UNROLL
            for (uint k = 0u; k < 8u; k++) sum[r][k] += p * value[k];
        }
    }
    __syncwarp();
}

// What the warps found becomes the block's partial result.
template <uint d, uint n_rows> DEVICE void fold_warps(const AttentionArgs& a, float* partials, uint head, uint first_row, const FewTile<d, n_rows>& tile)
{
    const uint n = a.n_tokens * (a.n_heads / a.n_kv_heads);
    for (uint i = threadIdx.x; i < n_rows * d; i += n_threads) {
        const uint r = i / d, query = first_row + r;
        if (query >= n) continue;
        float top = none, norm_top = none, norm = 0.f, sum = 0.f;
        for (uint w = 0u; w < few_warps; w++) {
            top = fmaxf(top, tile.top[w][r]);
            norm_top = fmaxf(norm_top, tile.norm_top[w][r]);
        }
        for (uint w = 0u; w < few_warps; w++) {
            norm += tile.norm[w][r] * power_of_two(tile.norm_top[w][r] - norm_top);
            sum += tile.sums[w][r][i % d] * power_of_two(tile.top[w][r] - top);
        }
        float* out = partial_of(a, partials, head, query);
        out[4u + i % d] = sum;
        if (i % d != 0u) continue;
        out[0] = top;
        out[1] = norm_top;
        out[2] = norm;
    }
}

// Of a multiprocessor, so that enough rows are on their way; of so many no kernel spills.
template <uint d, uint n_rows, bool coded> struct FewBlocks {
    static constexpr uint n = coded ? (d == 64u ? 3u : 2u) : n_rows == 4u ? 3u : 4u;
};

template <uint d, uint n_rows, bool coded> __global__ void __launch_bounds__(n_threads, FewBlocks<d, n_rows, coded>::n)
attention_few_kernel(AttentionArgs a, float* partials, // (n_tokens * n_heads, n_splits, 4 + head_dim)
                     CudaQueries q, CudaSlots s)
{
    begin_kernel();
    using Tile = FewTile<d, n_rows>;
    KS_SHARED(Tile, tiles, [1]);
    Tile& tile = tiles[0];
    constexpr uint lanes = d / 8u;
    const uint group = a.n_heads / a.n_kv_heads, lane = threadIdx.x % 32u, warp = threadIdx.x / 32u, first_row = blockIdx.x * n_rows;
    const uint end_row = min(first_row + n_rows, a.n_tokens * group);
    const Head h = find_head(a, s, blockIdx.y, first_row / group, (end_row - 1u) / group + 1u, false);
    const Span share = share_of(h);
    fill_levels(tile.levels, s);
    __syncthreads();

    float near[n_rows][8], sum[n_rows][8];
    FewState<n_rows> state;
    load_queries<d, n_rows>(a, q.q, h.head, first_row, lane % lanes, near);
    KS_UNROLL
    for (uint r = 0u; r < n_rows; r++) {
        state.top[r] = state.norm_top[r] = none;
        state.norm[r] = 0.f;
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) sum[r][k] = 0.f;
    }
    for (uint nth = share.begin + 32u * warp; nth < share.end; nth += 32u * few_warps) {
        const uint n = min(32u, share.end - nth);
        FewSlot mine = {};
        if (lane < n) {
            mine.index = index_of(h, nth + lane);
            mine.source = source_of(a, h, mine.index);
            mine.slot = slot_of(a, s, h, mine.index);
            mine.row = row_of_slot(a, mine.source, mine.slot);
        }
        const uint source = __shfl_sync(all_lanes, mine.source, 0), rows = __shfl_sync(all_lanes, mine.row, int(min(lane, n - 1u)));
        const CudaCache keys = pool_of(s, source, false), values = pool_of(s, source, true);
        const bool alike = __all_sync(all_lanes, lane >= n || (mine.source == source && mine.index >= a.n_far)) != 0;
        if (alike)
            with_loader<coded>(keys.format, [&](auto loader) { few_logits_alike<d>(loader, keys, rows, near, tile.levels[source].k, tile.weights[warp]); });
        else
            few_logits<d, n_rows, coded>(a, s, q, h.head, first_row, mine, n, tile.levels, tile.weights[warp]);
        few_weights<n_rows>(a, s, h, first_row, mine, lane < n, state, sum, tile.weights[warp]);
        if (alike)
            with_loader<coded>(values.format, [&](auto loader) { few_values_alike<d>(loader, values, rows, tile.levels[source].v, tile.weights[warp], sum); });
        else
            few_values<d, n_rows, coded>(s, mine, n, tile.levels, tile.weights[warp], sum);
    }
    KS_UNROLL
    for (uint r = 0u; r < n_rows; r++) {
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) {
            KS_UNROLL
            for (uint apart = lanes; apart < 32u; apart *= 2u) sum[r][k] += __shfl_xor_sync(all_lanes, sum[r][k], int(apart));
            if (lane < lanes) tile.sums[warp][r][8u * lane + k] = sum[r][k];
        }
        const float norm = warp_sum(state.norm[r]);
        if (lane != 0u) continue;
        tile.top[warp][r] = state.top[r];
        tile.norm_top[warp][r] = state.norm_top[r];
        tile.norm[warp][r] = norm;
    }
    __syncthreads();
    fold_warps<d, n_rows>(a, partials, h.head, first_row, tile);
}

constexpr uint most_few_rows = 4u; // of a block

template <uint d, bool coded> static void launch_few(const AttentionArgs& a, uint n_splits, float* partials, const CudaQueries& q,
                                                     const CudaSlots& s, cudaStream_t stream)
{
    const uint n = a.n_tokens * (a.n_heads / a.n_kv_heads), blocks = (n + most_few_rows - 1u) / most_few_rows;
    const dim3 grid(blocks, a.n_kv_heads, n_splits);
    const uint rows = (n + blocks - 1u) / blocks;
    if (!coded && rows == 1u)
        KS_LAUNCH((attention_few_kernel<d, 1u, false>), grid, n_threads, stream, a, partials, q, s);
    else if (!coded && rows == 3u)
        KS_LAUNCH((attention_few_kernel<d, 3u, false>), grid, n_threads, stream, a, partials, q, s);
    else if (rows <= 2u) // codes take longer to compile than a row to compute
        KS_LAUNCH((attention_few_kernel<d, 2u, coded>), grid, n_threads, stream, a, partials, q, s);
    else
        KS_LAUNCH((attention_few_kernel<d, 4u, coded>), grid, n_threads, stream, a, partials, q, s);
}

template <uint d> static void launch_few(const AttentionArgs& a, uint n_splits, float* partials, const CudaQueries& q, const CudaSlots& s,
                                         cudaStream_t stream)
{
    if (are_halves(s))
        launch_few<d, false>(a, n_splits, partials, q, s, stream);
    else
        launch_few<d, true>(a, n_splits, partials, q, s, stream);
}

bool attention_few_can(const AttentionArgs& a)
{
    const bool few = a.n_tokens * (a.n_heads / a.n_kv_heads) <= 4u * most_few_rows && a.n_tokens <= 4u;
    return few && !a.n_turn && !a.n_wave && (a.head_dim == 64u || a.head_dim == 128u || a.head_dim == 256u);
}

void attention_few_launch(const AttentionArgs& a, uint n_splits, float* partials, CudaQueries q, CudaSlots s, cudaStream_t stream)
{
    if (a.head_dim == 64u) launch_few<64u>(a, n_splits, partials, q, s, stream);
    if (a.head_dim == 128u) launch_few<128u>(a, n_splits, partials, q, s, stream);
    if (a.head_dim == 256u) launch_few<256u>(a, n_splits, partials, q, s, stream);
}

} // namespace ks
