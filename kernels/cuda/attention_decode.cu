// Attention of a few queries, as decoding has them: every warp goes over slots of its own, reads a
// key and a value once for all queries of the block, and keeps its own maxima; barriers are before
// the first slots and after the last ones.
// twin: the shader goes over one pool at a time
#include "kernels/cuda/codecs.cuh"
#include "kernels/cuda/decode.cuh"

namespace ks
{

// What a warp found, and what it is at.
template <uint d, uint n_rows>
struct DecodeTile {
    float weights[decode_warps][n_rows]
                 [32];           // logits of a warp's slots, then weights of a run's rows
    uint rows[decode_warps][32]; // of a run
    Span shares[decode_warps];   // of the slots
    float top[decode_warps][n_rows], norm[decode_warps][n_rows];
    float sums[decode_warps][n_rows][d];
    alignas(16) float queries[2][n_rows][d]; // and those for far slots
    Levels levels[3];                        // of each pool
    RowPlaces places[2];                     // of coded keys and values
    uint planes[2];                          // of all keys and values
};

template <uint n_rows>
struct DecodeState {
    float top[n_rows], norm[n_rows]; // norm: this lane's share
};

// The queries, the last one's again where there are fewer: four dims of each lane, then four more.
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

// Lane j's eth eight of one of them.
template <uint d, uint lanes>
DEVICE void load_query(const float (&query)[d], uint j, uint e, float (&out)[8])
{
    KS_UNROLL
    for (uint i = 0u; i < 2u; i++) {
        const float4 four = reinterpret_cast<const float4*>(query)[(2u * e + i) * lanes + j];
        out[4u * i] = four.x, out[4u * i + 1u] = four.y, out[4u * i + 2u] = four.z,
                 out[4u * i + 3u] = four.w;
    }
}

// Each of n sums over the lanes that share a slot, of the first n lanes the nth has the nth. n: a
// power of two, at most that of lanes.
template <uint lanes, uint n>
DEVICE float share_sums(float (&sums)[n], uint j)
{
    KS_UNROLL
    for (uint distance = 1u; distance < lanes; distance *= 2u) KS_UNROLL
    for (uint r = 0u; r < max(1u, n / (2u * distance)); r++) {
        if (distance >= n) {
            sums[0] += __shfl_xor_sync(all_lanes, sums[0], int(distance));
            continue;
        }
        // Of two sums a lane goes on with one, and has told the other to the lane that goes on with
        // that.
        const bool odd = (j & distance) != 0u;
        const float even_sum = sums[2u * r % n], odd_sum = sums[(2u * r + 1u) % n];
        sums[r] = (odd ? odd_sum : even_sum) +
                  __shfl_xor_sync(all_lanes, odd ? even_sum : odd_sum, int(distance));
    }
    return sums[0];
}

// As many rows are on their way at a time, at most those that a round has for a lane.
template <class Rows, uint lanes>
constexpr uint rows_at_once = Rows::n_rows < lanes ? Rows::n_rows : lanes;
template <uint n_rows>
constexpr uint decode_part =
    n_rows == 1u ? 4u : 32u; // of those on their way: a block with more queries has less to lose

template <uint n>
struct alignas(4u * n) SomeRows {
    uint of[n];
};

// use(which row of those on their way, its place, its words), after start(). begin: the place of
// the lanes' first row. part: after so many rows it looks whether the run ends.
template <uint lanes, uint n, uint part, class Rows, class Start, class Use>
DEVICE void for_rows(const Rows& reader, const DecodeRun& run, const uint* rows, uint begin,
                     const Start& start, const Use& use)
{
    constexpr uint each = 32u / lanes;
    if (!Rows::late) start();
    KS_UNROLL_BY(1)
    for (uint first = 0u; first < run.n; first += each * n) {
        const uint place = begin + first / each;
        const SomeRows<n> some = *reinterpret_cast<const SomeRows<n>*>(rows + place);
        uint words[n][Rows::n_words];
        KS_UNROLL
        for (uint k = 0u; k < n; k++) reader.fetch(some.of[k], words[k]);
        if (Rows::late && first == 0u) start();
        KS_UNROLL
        for (uint k = 0u; k < n; k++) {
            if (k != 0u && k % part == 0u && first + k * each >= run.n) break;
            use(k, place + k, words[k]);
        }
    }
}

// A row's product with a query, of a lane's octets.
template <class Rows, uint n_octets, uint n>
DEVICE float decode_product(const LaneOctet<n> (&key)[n_octets], const float (&by)[n_octets][8],
                            const float (&base)[n_octets][n])
{
    float sums[n_octets];
    KS_UNROLL
    for (uint e = 0u; e < n_octets; e++) {
        KS_UNROLL
        for (uint f = 0u; f < n; f++) {
            float part = base[e][f];
            KS_UNROLL
            for (uint k = 8u / n * f; k < 8u / n * (f + 1u); k++)
                part += by[e][k] * key[e].values[k];
            sums[e] = f == 0u ? part * key[e].factors[f] : sums[e] + part * key[e].factors[f];
        }
        sums[e] *= key[e].scale;
    }
    return n_octets == 1u ? sums[0] : sums[0] + sums[n_octets - 1u];
}

// The logits of a run, by place. query(r, e, to where its eth eight goes).
template <uint d, uint n_rows, uint n_octets, class Rows, class Query>
DEVICE void decode_logits(const Rows& reader, const DecodeRun& run, const uint* rows, uint begin,
                          const Query& query, const float* levels, float (*logits)[32])
{
    constexpr uint lanes = d / (8u * n_octets), wide = n_rows == 3u ? 4u : n_rows,
                   most = lanes / wide < 4u ? lanes / wide : 4u, n = Rows::n_factors;
    constexpr uint at_once = rows_at_once<Rows, lanes>,
                   n_keys = at_once < most ? at_once : most; // whose sums are shared at a time
    const uint j = threadIdx.x % lanes;
    float sums[n_keys * wide], by[n_rows][n_octets][8], base[n_rows][n_octets][n];
    const auto start = [&] {
        KS_UNROLL
        for (uint r = 0u; r < n_rows; r++) KS_UNROLL
        for (uint e = 0u; e < n_octets; e++) {
            float octet[8];
            query(r, e, octet);
            reader.turn(octet, e, by[r][e], base[r][e]);
        }
    };
    for_rows<lanes, at_once, decode_part<n_rows>>(
        reader, run, rows, begin, start,
        [&](uint nth_on_way, uint place, const uint(&words)[Rows::n_words]) {
            const uint at = nth_on_way % n_keys;
            LaneOctet<n> key[n_octets];
            KS_UNROLL
            for (uint e = 0u; e < n_octets; e++) key[e] = reader.decode(words, e, levels);
            KS_UNROLL
            for (uint r = 0u; r < wide; r++)
                sums[at * wide + r] = decode_product<Rows>(key, by[r % n_rows], base[r % n_rows]);
            if (at + 1u < n_keys) return;
            const float sum = share_sums<lanes, n_keys * wide>(sums, j) * Rows::down;
            if (j >= n_keys * wide || j % wide >= n_rows) return;
            float& logit = logits[j % wide][place - (n_keys - 1u) + j / wide];
            logit = sum;
        });
}

// The logits of a run become weights of values, of this lane's slot or 0; the maxima move, and what
// was summed shrinks.
template <uint n_rows, uint n_octets>
DEVICE void decode_weights(const AttentionArgs& a, const Head& h, uint first_row, uint index,
                           const DecodeRun& run, DecodeState<n_rows>& state,
                           float (&sum)[n_rows][n_octets][8], const float (*logits)[32],
                           float (&weights)[n_rows])
{
    const uint group = a.n_heads / a.n_kv_heads;
    KS_UNROLL
    for (uint r = 0u; r < n_rows; r++) {
        const bool seen = run.has && sees(a, h, (first_row + r) / group, index);
        const float logit = seen ? fmaxf(masked_logit, logits[r][run.place]) : masked_logit;
        const float top = fmaxf(state.top[r], warp_max(logit)),
                    shrink = power_of_two_flushed(state.top[r] - top);
        weights[r] = logit > 0.5f * masked_logit ? power_of_two_flushed(logit - top) : 0.f;
        state.norm[r] = state.norm[r] * shrink + weights[r];
        state.top[r] = top;
        KS_UNROLL
        for (uint i = 0u; i < 8u * n_octets; i++) sum[r][i / 8u][i % 8u] *= shrink;
    }
}

// room: for the weights, by place.
template <uint d, uint n_rows, uint n_octets, class Rows>
DEVICE void decode_values(const Rows& reader, const DecodeRun& run, const uint* rows, uint begin,
                          const float (&weights)[n_rows], const float* levels, float (*scratch)[32],
                          float (&sum)[n_rows][n_octets][8])
{
    constexpr uint n = Rows::n_factors, lanes = d / (8u * n_octets);
    float base[n_rows][n_octets][n] = {};
    KS_UNROLL
    for (uint r = 0u; r < n_rows; r++) {
        scratch[r][run.place] = weights[r] * Rows::up;
        KS_UNROLL
        for (uint i = 0u; i < 8u * n_octets; i++)
            sum[r][i / 8u][i % 8u] *= reader.place(i % 8u) / Rows::down;
    }
    __syncwarp();
    for_rows<lanes, rows_at_once<Rows, lanes>, decode_part<n_rows>>(
        reader, run, rows, begin, [] {},
        [&](uint, uint place, const uint(&words)[Rows::n_words]) {
            KS_UNROLL
            for (uint e = 0u; e < n_octets; e++) {
                const LaneOctet<n> value = reader.decode(words, e, levels);
                KS_UNROLL
                for (uint r = 0u; r < n_rows; r++) {
                    const float weight = scratch[r][place] * value.scale;
                    KS_UNROLL
                    for (uint f = 0u; f < n; f++) {
                        const float p = weight * value.factors[f];
                        if (Rows::are_codes) base[r][e][f] += weight * value.offsets[f];
                        KS_UNROLL
                        for (uint k = 8u / n * f; k < 8u / n * (f + 1u); k++)
                            sum[r][e][k] += p * value.values[k];
                    }
                }
            }
        });
    KS_UNROLL
    for (uint r = 0u; r < n_rows; r++) KS_UNROLL
    for (uint i = 0u; i < 8u * n_octets; i++) {
        const uint e = i / 8u, k = i % 8u;
        if constexpr (Rows::are_codes)
            sum[r][e][k] = sum[r][e][k] * (Rows::down / reader.place(k)) +
                           base[r][e][k * n / 8u] * (Rows::offset / Rows::up);
    }
}

// What lanes of several rows have of the same dims is a warp's sum.
template <uint d, uint n_octets>
DEVICE void keep_sums(float (&sum)[n_octets][8], uint plane, float (&out)[d])
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

// What the warps found becomes the block's partial result.
template <uint d, uint n_rows>
DEVICE void fold_warps(const AttentionArgs& a, float* partials, uint head, uint first_row,
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

// Of a multiprocessor, so that enough rows are on their way; of so many no kernel spills.
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
        if (of_codes.words != nullptr) tile.places[threadIdx.x] = places_of<d>(of_codes);
    }
    const bool in_groups = coded && is_group_codec(s.coded_k.format);
    const uint before = in_groups ? places_before(h) : 0u, unit = in_groups ? kivi_rows
                                                                  : coded   ? 16u
                                                                            : 8u;
    const Span own = part_of(share_of(h, before, unit), warp, decode_warps, 1u, unit);
    if (lane == 0u) tile.shares[warp] = own;
    const Span& share =
        n_rows == 1u ? own : tile.shares[warp]; // registers are few where queries are many
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
            prefetch_slots(a, h, next, index_of(h, nth + 32u + lane - before), tile.places);
        DecodeSlot mine = {0u, decode_none};
        if (slot != unknown_slot) {
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
        keep_sums<d>(sum[r], coded ? tile.planes[1] : 0u, tile.sums[warp][r]);
        const float norm = warp_sum(state.norm[r]);
        if (lane != 0u) continue;
        tile.top[warp][r] = state.top[r];
        tile.norm[warp][r] = norm;
    }
    __syncthreads();
    fold_warps<d, n_rows>(a, partials, h.head, first_row, tile);
}

constexpr uint max_decode_rows = 4u; // of a block

static uint decode_row_blocks(const AttentionArgs& a)
{
    return (a.n_tokens * (a.n_heads / a.n_kv_heads) + max_decode_rows - 1u) / max_decode_rows;
}

// The queries of a block of the kernel that runs: codes take longer to compile than a row to
// compute.
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
    if (are_halves(s))
        launch_decode<d, false>(a, n_splits, partials, q, s, stream);
    else
        launch_decode<d, true>(a, n_splits, partials, q, s, stream);
}

// Whether lanes read a pool's rows by the dims that another pool's codec asks for: of keys no codec
// is one of values alone, nor the other way round.
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
    const bool few =
        a.n_tokens * (a.n_heads / a.n_kv_heads) <= 4u * max_decode_rows && a.n_tokens <= 4u;
    return few && is_plain(a, s) && (a.head_dim == 64u || a.head_dim == 128u || a.head_dim == 256u);
}

AttentionShare attention_decode_share(const AttentionArgs& a, const CudaSlots& s)
{
    const bool coded = !are_halves(s);
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
