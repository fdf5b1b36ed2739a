// Attention with few queries per KV head, as in decode. Each warp has its own slots. It reads a key
// and a value once for all queries of the block, and keeps its own running maxima. Block barriers
// come only before the first and after the last slots.
// twin: the shader goes over one pool at a time
#include "kernels/cuda/codecs.cuh"
#include "kernels/cuda/decode_rows.cuh"

namespace ks
{

// The shared memory of a block: state and results per warp, and the queries.
template <uint d, uint n_rows>
struct DecodeTile {
    // a run's logits, then its weights
    float weights[decode_warps][n_rows][32];
    uint rows[decode_warps][32]; // the rows of a run
    Span shares[decode_warps];   // the warp's slots
    float top[decode_warps][n_rows], norm[decode_warps][n_rows];
    float sums[decode_warps][n_rows][d];
    alignas(16) float queries[2][n_rows][d]; // the queries, and the clamped queries
    Levels levels[3];                        // per pool
    RowAddresses addresses[2];               // of the coded keys and the coded values
    uint planes[2];                          // of the keys and the values
};

// Loads the block's queries, scaled. Missing queries repeat the last one. For each octet of a lane,
// `out` has the first four dims of all lanes, then the last four.
template <uint d, uint n_rows, uint lanes>
DEVICE void fill_queries(const AttentionArgs& a, const float* q, uint head, uint first_row,
                         uint plane, float (&out)[n_rows][d])
{
    KS_UNROLL
    for (uint first = 0u; first < n_rows * d; first += n_threads) {
        const uint i = first + threadIdx.x;
        if (n_rows * d % n_threads != 0u && i >= n_rows * d) break;
        const uint r = i / d, at = i % d / 4u;
        const LaneDims dims = dims_of_lane<d / (8u * lanes)>(plane, at % lanes, at / lanes / 2u);
        const float* x = q + query_at(a, head, min(first_row + r, last_query(a))) * d;
        out[r][i % d] = x[dims[at / lanes % 2u * 4u + i % 4u]] * a.scale * log2e;
    }
}

// Adds up the sums that the warp's lanes have for the same dims, and stores them.
template <uint d, uint n_octets>
DEVICE void store_sums(float (&sum)[n_octets][8], uint plane, float (&out)[d])
{
    constexpr uint lanes = d / (8u * n_octets);
    const uint lane = threadIdx.x % 32u;
    KS_UNROLL
    for (uint e = 0u; e < n_octets; e++) {
        const LaneDims dims = dims_of_lane<n_octets>(plane, lane % lanes, e);
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) {
            KS_UNROLL
            for (uint distance = lanes; distance < 32u; distance *= 2u)
                sum[e][k] += __shfl_xor_sync(all_lanes, sum[e][k], int(distance));
            if (lane < lanes) out[dims[k]] = sum[e][k];
        }
    }
}

// Combines the warps' results into the block's partial result.
template <uint d, uint n_rows>
DEVICE void combine_warps(const AttentionArgs& a, float* partials, uint head, uint first_row,
                          const DecodeTile<d, n_rows>& tile)
{
    const uint n = a.n_tokens * (a.n_heads / a.n_kv_heads);
    for (uint i = threadIdx.x; i < n_rows * d; i += n_threads) {
        const uint r = i / d, query = first_row + r;
        if (query >= n) continue;
        float top = masked_logit, norm = 0.f, sum = 0.f;
        for (uint w = 0u; w < decode_warps; w++) top = fmaxf(top, tile.top[w][r]);
        for (uint w = 0u; w < decode_warps; w++) {
            const float shrink = power_of_two(tile.top[w][r] - top);
            norm += tile.norm[w][r] * shrink;
            sum += tile.sums[w][r][i % d] * shrink;
        }
        float* out = partial_of(a, partials, head, query);
        out[4u + i % d] = sum;
        if (i % d != 0u) continue;
        out[0] = out[1] = top;
        out[2] = norm;
    }
}

// Blocks per multiprocessor: enough to keep many rows in flight, few enough that no kernel spills
// registers.
constexpr uint decode_blocks(uint d, uint n_rows, bool coded)
{
    if (coded) return n_rows == 1u ? d == 256u ? 3u : 4u : n_rows == 2u && d != 256u ? 3u : 2u;
    return n_rows == 4u || (d == 256u && n_rows == 3u) ? 3u : 4u;
}

template <uint d, uint n_rows, bool coded>
__global__ void __launch_bounds__(n_threads, decode_blocks(d, n_rows, coded))
    attention_decode_kernel(AttentionArgs a,
                            float* partials, // (n_tokens * n_heads, n_splits, 4 + head_dim)
                            CudaQueries q, CudaSlots s)
{
    begin_kernel();
    using Tile = DecodeTile<d, n_rows>;
    KS_SHARED(Tile, tiles, [1]);
    Tile& tile = tiles[0];
    constexpr uint n_octets = coded && n_rows * d < 1024u ? 2u : 1u, lanes = d / (8u * n_octets);
    const uint group = a.n_heads / a.n_kv_heads, lane = threadIdx.x % 32u, warp = threadIdx.x / 32u,
               first_row = blockIdx.x * n_rows;
    uint* rows = tile.rows[warp];
    const uint end_row = min(first_row + n_rows, a.n_tokens * group);
    const Head h =
        find_head(a, s, blockIdx.y, first_row / group, (end_row - 1u) / group + 1u, false);
    if (coded) fill_levels(tile.levels, s);
    if (coded && threadIdx.x < 2u) {
        const CudaCache& of_codes = threadIdx.x == 0u ? s.coded_k : s.coded_v;
        tile.planes[threadIdx.x] = plane_of_pools(threadIdx.x == 0u ? s.k : s.v, of_codes);
        if (of_codes.words != nullptr) tile.addresses[threadIdx.x] = addresses_of<d>(of_codes);
    }
    const bool in_groups = coded && is_group_codec(s.coded_k.format);
    const uint before = in_groups ? places_before(h) : 0u, unit = in_groups ? kivi_rows
                                                                  : coded   ? 16u
                                                                            : 8u;
    const Span own = part_of(share_of(h, before, unit), warp, decode_warps, 1u, unit);
    if (lane == 0u) tile.shares[warp] = own;
    // with coded pools or several queries, shared memory saves registers
    const Span& share = n_rows == 1u && !coded ? own : tile.shares[warp];
    __syncwarp();
    uint nth = share.begin, next = slot_at(a, s, h, share, before, nth),
         later = slot_at(a, s, h, share, before, nth + 32u);
    __syncthreads();
    float sum[n_rows][n_octets][8];
    DecodeState<n_rows> state;
    for (uint i = 0u; i < (a.n_clamped != 0u ? 2u : 1u); i++)
        fill_queries<d, n_rows, lanes>(a, i == 0u ? q.q : q.q_clamped, h.head, first_row,
                                       coded ? tile.planes[0] : 0u, tile.queries[i]);
    KS_UNROLL
    for (uint r = 0u; r < n_rows; r++) {
        state.top[r] = masked_logit;
        state.norm[r] = 0.f;
        KS_UNROLL
        for (uint i = 0u; i < 8u * n_octets; i++) sum[r][i / 8u][i % 8u] = 0.f;
    }
    __syncthreads();
    for (; nth < share.end; nth += 32u) {
        const uint n = min(32u, share.end - nth), slot = next;
        next = later;
        later = slot_at(a, s, h, share, before, nth + 64u);
        if (coded && nth + 32u < share.end)
            prefetch_slots(a, h, next, index_of(h, nth + 32u + lane - before), tile.addresses);
        DecodeSlot mine = {0u, decode_none};
        if (slot != no_slot) {
            const uint index = index_of(h, nth + lane - before), source = source_of(a, h, index);
            mine.row = row_of_slot(a, source, slot);
            mine.kind = source | (index < a.n_clamped ? decode_clamped : 0u);
            if (in_groups && source == pass_coded) mine.kind |= mine.row / kivi_rows * decode_group;
        }
        DecodeRun run;
        for (uint first = 0u; first < n; first += run.n) {
            run = run_from<lanes>(mine, first, rows);
            if (run.kind == decode_none) continue;
            const uint lane_id = coded ? opaque_lane() : lane, j = lane_id % lanes,
                       begin = lane_id / lanes * lanes, source = run.kind % decode_clamped;
            const bool q_clamped = (run.kind & decode_clamped) != 0u;
            const auto query = [&](uint r, uint e, float(&out)[8]) {
                load_query<d, lanes>(tile.queries[q_clamped ? 1u : 0u][r], j, e, out);
            };
            with_lane_rows<d, n_octets, coded, false>(
                pool_of(s, source, false), run.row, coded ? tile.planes[0] : 0u, j,
                [&](const auto& reader) {
                    decode_logits<d, n_rows, n_octets>(reader, run, rows, begin, query,
                                                       tile.levels[source].k, tile.weights[warp]);
                });
            __syncwarp();
            float weights[n_rows];
            decode_weights(a, h, first_row, index_of(h, nth + lane_id - before), run, state, sum,
                           tile.weights[warp], weights);
            with_lane_rows<d, n_octets, coded, true>(
                pool_of(s, source, true), run.row, coded ? tile.planes[1] : 0u, j,
                [&](const auto& reader) {
                    decode_values<d>(reader, run, rows, begin, weights, tile.levels[source].v,
                                     tile.weights[warp], sum);
                });
            __syncwarp();
        }
    }
    KS_UNROLL
    for (uint r = 0u; r < n_rows; r++) {
        store_sums<d>(sum[r], coded ? tile.planes[1] : 0u, tile.sums[warp][r]);
        const float norm = warp_sum(state.norm[r]);
        if (lane != 0u) continue;
        tile.top[warp][r] = state.top[r];
        tile.norm[warp][r] = norm;
    }
    __syncthreads();
    combine_warps<d, n_rows>(a, partials, h.head, first_row, tile);
}

constexpr uint max_decode_rows = 4u; // queries per block

static uint decode_row_blocks(const AttentionArgs& a)
{
    return (a.n_tokens * (a.n_heads / a.n_kv_heads) + max_decode_rows - 1u) / max_decode_rows;
}

// The queries per block of the kernel variant. Coded pools have no variant with three queries: it
// would take long to compile, and a fourth query is cheap.
static uint decode_rows(const AttentionArgs& a, bool coded)
{
    const uint blocks = decode_row_blocks(a),
               rows = (a.n_tokens * (a.n_heads / a.n_kv_heads) + blocks - 1u) / blocks;
    return coded && rows == 3u ? max_decode_rows : rows;
}

template <uint d, bool coded>
static void launch_decode(const AttentionArgs& a, uint n_splits, float* partials,
                          const CudaQueries& q, const CudaSlots& s, cudaStream_t stream)
{
    const dim3 grid(decode_row_blocks(a), a.n_kv_heads, n_splits);
    const uint rows = decode_rows(a, coded);
    if (rows == 1u)
        KS_LAUNCH((attention_decode_kernel<d, 1u, coded>), grid, n_threads, stream, a, partials, q,
                  s);
    else if (!coded && rows == 3u)
        KS_LAUNCH((attention_decode_kernel<d, 3u, false>), grid, n_threads, stream, a, partials, q,
                  s);
    else if (rows == 2u)
        KS_LAUNCH((attention_decode_kernel<d, 2u, coded>), grid, n_threads, stream, a, partials, q,
                  s);
    else
        KS_LAUNCH((attention_decode_kernel<d, 4u, coded>), grid, n_threads, stream, a, partials, q,
                  s);
}

template <uint d>
static void launch_decode(const AttentionArgs& a, uint n_splits, float* partials,
                          const CudaQueries& q, const CudaSlots& s, cudaStream_t stream)
{
    if (all_f16(s))
        launch_decode<d, false>(a, n_splits, partials, q, s, stream);
    else
        launch_decode<d, true>(a, n_splits, partials, q, s, stream);
}

// Whether decode can read a pool: its rows have the dims of `plane`, and its codec is for keys or
// for values as needed.
static bool can_read(const CudaCache& cache, bool values, uint plane)
{
    if (cache.words == nullptr || cache.format < first_codec) return true;
    const LaneFormat format = lane_format_of(cache.format);
    return format.plane == plane && (values ? format.of_values : format.of_keys);
}

bool attention_decode_can(const AttentionArgs& a, const CudaSlots& s)
{
    const uint k_plane = plane_of_pools(s.k, s.coded_k), v_plane = plane_of_pools(s.v, s.coded_v);
    for (const CudaCache* keys : {&s.k, &s.coded_k, &s.chunk_k})
        if (!can_read(*keys, false, k_plane)) return false;
    for (const CudaCache* rows : {&s.v, &s.coded_v, &s.chunk_v})
        if (!can_read(*rows, true, v_plane)) return false;
    const bool is_decode =
        a.n_tokens * (a.n_heads / a.n_kv_heads) <= 4u * max_decode_rows && a.n_tokens <= 4u;
    return is_decode && logits_are_dot_products(a, s) &&
           (a.head_dim == 64u || a.head_dim == 128u || a.head_dim == 256u);
}

AttentionShare attention_decode_share(const AttentionArgs& a, const CudaSlots& s)
{
    const bool coded = !all_f16(s);
    return {max_decode_rows, decode_blocks(a.head_dim, decode_rows(a, coded), coded)};
}

void attention_decode_launch(const AttentionArgs& a, uint n_splits, float* partials, CudaQueries q,
                             CudaSlots s, cudaStream_t stream)
{
    if (a.head_dim == 64u) launch_decode<64u>(a, n_splits, partials, q, s, stream);
    if (a.head_dim == 128u) launch_decode<128u>(a, n_splits, partials, q, s, stream);
    if (a.head_dim == 256u) launch_decode<256u>(a, n_splits, partials, q, s, stream);
}

} // namespace ks
