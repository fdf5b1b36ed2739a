// Attention of a few queries, as decoding has them: every warp goes over slots of its own, reads a key and a value once for all queries
// of the block, and keeps its own maxima; barriers are at the end only.
// twin: none, it is the fast one of attention
#include "kernels/cuda/lanes.cuh"
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

// A lane's eight dims of the queries, the last one's again where there are fewer.
template <uint d, uint n_rows>
DEVICE void load_queries(const AttentionArgs& a, const float* q, uint head, uint first_row, LaneDims dims, float (&out)[n_rows][8])
{
    KS_UNROLL
    for (uint r = 0u; r < n_rows; r++) {
        const float* x = q + query_at(a, head, min(first_row + r, last_query(a))) * d;
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) out[r][k] = x[dims[k]] * a.scale * log2e;
    }
}

// Each of n sums over the lanes that share a slot, of the first n lanes the nth has the nth. n: a power of two, at most that of lanes.
template <uint lanes, uint n> DEVICE float share_sums(float (&sums)[n], uint j)
{
    KS_UNROLL
    for (uint apart = 1u; apart < lanes; apart *= 2u)
        KS_UNROLL
        for (uint r = 0u; r < max(1u, n / (2u * apart)); r++) {
            if (apart >= n) {
                sums[0] += __shfl_xor_sync(all_lanes, sums[0], int(apart));
                continue;
            }
            // Of two sums a lane goes on with one, and has told the other to the lane that goes on with that.
            const bool odd = (j & apart) != 0u;
            const float even_sum = sums[2u * r % n], odd_sum = sums[(2u * r + 1u) % n];
            sums[r] = (odd ? odd_sum : even_sum) + __shfl_xor_sync(all_lanes, odd ? even_sum : odd_sum, int(apart));
        }
    return sums[0];
}

// A warp's slots of one round: lane i knows the ith. kind: the pool that it lies in, whether it is far, and the group of keys that are
// coded together.
struct FewSlot {
    uint index, slot, row, kind;
};
constexpr uint few_far = 4u, few_none = 8u, few_group = 16u;

// Of the round's slots, n neighbours of one kind from `first` on, and this lane's row of them, the last one's again where there are fewer.
struct FewRun {
    uint first, n, kind, rows;
};

DEVICE FewRun run_from(const FewSlot& mine, uint first, bool by_groups)
{
    const uint kind = by_groups ? mine.kind : mine.kind % few_group;
    FewRun run;
    run.first = first;
    run.kind = __shfl_sync(all_lanes, kind, int(first));
    const uint alike = __ballot_sync(all_lanes, kind == run.kind) >> first;
    run.n = uint(__popc(alike & ~(alike + 1u)));
    run.rows = __shfl_sync(all_lanes, mine.row, int(first + min(threadIdx.x % 32u, run.n - 1u)));
    return run;
}

// This lane's number, told anew: what follows from it is made where it is used, not before the loop for all codecs at once.
DEVICE uint told_lane() { return __shfl_sync(all_lanes, threadIdx.x % 32u, int(threadIdx.x % 32u)); }

// use(which of those on their way, which of the run, the row's factors, this lane's dims of it).
template <uint d, class Loader, class Use>
DEVICE void for_rows(Loader, const CudaCache& cache, const FewRun& run, uint plane, const float* levels, const Use& use)
{
    constexpr uint lanes = d / 8u, each = 32u / lanes, n = Loader::n_rows;
    const uint lane = told_lane(), mine = lane / lanes;
    const Lane at = {lane % lanes, d, dims_of_lane(plane, lane % lanes)};
    uint shared[Loader::n_shared];
    Loader::fetch_shared(cache, run.rows, at, shared);
    KS_UNROLL_BY(1)
    for (uint first = 0u; first < run.n; first += each * n) {
        uint words[n][Loader::n_words];
        KS_UNROLL
        for (uint k = 0u; k < n; k++) Loader::fetch(cache, __shfl_sync(all_lanes, run.rows, int(first + each * k + mine)), at, words[k]);
        if (first == 0u) Loader::decode_shared(shared);
        KS_UNROLL
        for (uint k = 0u; k < n; k++) {
            float values[8], factors[2] = {1.f, 1.f};
            Loader::decode(cache, at, words[k], shared, levels, factors, values);
            use(k, first + each * k + mine, factors, values);
        }
    }
}

// The logits of a run, into weights.
template <uint d, uint n_rows, class Loader>
DEVICE void few_logits(Loader loader, const CudaCache& keys, const FewRun& run, uint plane, const float (&queries)[n_rows][8],
                       const float* levels, float (*weights)[n_rows])
{
    constexpr uint lanes = d / 8u, each = 32u / lanes, wide = n_rows == 3u ? 4u : n_rows, most = lanes / wide;
    constexpr uint n_keys = Loader::n_rows < most ? Loader::n_rows : most; // whose sums lanes share at a time
    const uint j = threadIdx.x % lanes;
    float sums[n_keys * wide];
    for_rows<d>(loader, keys, run, plane, levels, [&](uint nth_on_way, uint nth, const float (&factors)[2], const float (&key)[8]) {
        const uint at = nth_on_way % n_keys;
        KS_UNROLL
        for (uint r = 0u; r < wide; r++) {
            float parts[2] = {0.f, 0.f};
            KS_UNROLL
            for (uint k = 0u; k < 8u; k++) parts[k / 4u * (Loader::n_factors - 1u)] += queries[r % n_rows][k] * key[k];
            sums[at * wide + r] = Loader::n_factors == 1u ? parts[0] * factors[0] : parts[0] * factors[0] + parts[1] * factors[1];
        }
        if (at + 1u < n_keys) return;
        const float sum = share_sums<lanes, n_keys * wide>(sums, j);
        const uint slot = nth - each * (n_keys - 1u - j / wide), r = j % wide;
        if (j < n_keys * wide && r < n_rows && slot < run.n) weights[run.first + slot][r] = sum;
    });
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

template <uint d, uint n_rows, class Loader>
DEVICE void few_values(Loader loader, const CudaCache& values, const FewRun& run, uint plane, const float* levels, float (*weights)[n_rows],
                       float (&sum)[n_rows][8])
{
    for_rows<d>(loader, values, run, plane, levels, [&](uint, uint nth, const float (&factors)[2], const float (&value)[8]) {
        KS_UNROLL
        for (uint r = 0u; r < n_rows; r++) {
            const float p = nth < run.n ? weights[run.first + nth][r] : 0.f, parts[2] = {p * factors[0], p * factors[1]};
            KS_UNROLL
            for (uint k = 0u; k < 8u; k++) sum[r][k] += parts[k / 4u * (Loader::n_factors - 1u)] * value[k];
        }
    });
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
constexpr uint few_blocks(uint d, uint n_rows, bool coded)
{
    return n_rows == 4u ? coded ? 2u : 3u : coded && (n_rows == 2u || d == 256u) ? 3u : 4u;
}

template <uint d, uint n_rows, bool coded> __global__ void __launch_bounds__(n_threads, few_blocks(d, n_rows, coded))
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
    const uint k_plane = coded ? plane_of_pools(s.k, s.coded_k) : 0u, v_plane = coded ? plane_of_pools(s.v, s.coded_v) : 0u;
    const LaneDims k_dims = dims_of_lane(k_plane, lane % lanes), v_dims = dims_of_lane(v_plane, lane % lanes);
    if (coded) fill_levels(tile.levels, s);
    __syncthreads();
    const Head h = find_head(a, s, blockIdx.y, first_row / group, (end_row - 1u) / group + 1u, false);
    const Span share = share_of(h);
    float queries[n_rows][8], sum[n_rows][8];
    FewState<n_rows> state;
    load_queries<d, n_rows>(a, q.q, h.head, first_row, k_dims, queries);
    uint asked = 0u; // few_far: the queries are those for far slots
    KS_UNROLL
    for (uint r = 0u; r < n_rows; r++) {
        state.top[r] = state.norm_top[r] = none;
        state.norm[r] = 0.f;
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) sum[r][k] = 0.f;
    }
    for (uint nth = share.begin + 32u * warp; nth < share.end; nth += 32u * few_warps) {
        const uint n = min(32u, share.end - nth);
        FewSlot mine = {0u, 0u, 0u, few_none};
        if (lane < n) {
            const uint source = source_of(a, h, mine.index = index_of(h, nth + lane));
            mine.slot = slot_of(a, s, h, mine.index);
            mine.row = row_of_slot(a, source, mine.slot);
            mine.kind = source | (mine.index < a.n_far ? few_far : 0u);
            if (coded && is_group_codec(pool_of(s, source, false).format)) mine.kind |= mine.row / kivi_rows * few_group;
        }
        FewRun run;
        for (uint first = 0u; first < n; first += run.n) {
            run = run_from(mine, first, true);
            if ((run.kind & few_far) != asked) load_queries<d, n_rows>(a, asked == 0u ? q.other : q.q, h.head, first_row, dims_of_lane(k_plane, told_lane() % lanes), queries);
            asked = run.kind & few_far;
            const CudaCache keys = pool_of(s, run.kind % few_far, false);
            with_lane_loader<coded>(keys.format, k_plane, [&](auto loader) {
                few_logits<d, n_rows>(loader, keys, run, k_plane, queries, tile.levels[run.kind % few_far].k, tile.weights[warp]);
            });
        }
        __syncwarp();
        few_weights<n_rows>(a, s, h, first_row, mine, lane < n, state, sum, tile.weights[warp]);
        for (uint first = 0u; first < n; first += run.n) {
            run = run_from(mine, first, false);
            const CudaCache values = pool_of(s, run.kind % few_far, true);
            with_lane_loader<coded>(values.format, v_plane, [&](auto loader) {
                few_values<d, n_rows>(loader, values, run, v_plane, tile.levels[run.kind % few_far].v, tile.weights[warp], sum);
            });
        }
        __syncwarp();
    }
    KS_UNROLL
    for (uint r = 0u; r < n_rows; r++) {
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) {
            KS_UNROLL
            for (uint apart = lanes; apart < 32u; apart *= 2u) sum[r][k] += __shfl_xor_sync(all_lanes, sum[r][k], int(apart));
            if (lane < lanes) tile.sums[warp][r][v_dims[k]] = sum[r][k];
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
    if (rows == 1u)
        KS_LAUNCH((attention_few_kernel<d, 1u, coded>), grid, n_threads, stream, a, partials, q, s);
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

// Whether a pool's rows can be read by the lanes' dims that another pool's codec asks for.
static bool has_plane(const CudaCache& cache, uint plane) { return cache.words == nullptr || cache.format < first_codec || plane_of(cache.format) == plane; }

bool attention_few_can(const AttentionArgs& a, const CudaSlots& s)
{
    const uint k_plane = plane_of_pools(s.k, s.coded_k), v_plane = plane_of_pools(s.v, s.coded_v);
    if (!has_plane(s.k, k_plane) || !has_plane(s.chunk_k, k_plane) || !has_plane(s.v, v_plane) || !has_plane(s.chunk_v, v_plane)) return false;
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
