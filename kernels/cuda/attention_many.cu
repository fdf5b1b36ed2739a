// Attention of many queries, as prompts have them, on the tensor cores: a warp has 16 queries, a block 64, and a tile of slots is decoded
// once for all. A float is the sum of two halves, the nearest one and the nearest to what is left, and products are of all pairs that
// matter, so that what comes out is as exact as f32. A cache of halves has nothing left.
// twin: none, it is the fast one of attention
#include "kernels/cuda/eight.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/slots.cuh"

namespace ks
{

constexpr uint many_slots = 32u;
constexpr uint slot_words = many_slots / 2u + 4u; // of a dim of values: rows of fragments never meet in a bank

// Words hold two halves: of neighbouring dims of a key, of neighbouring slots of a value.
template <uint d> struct ManyTile {
    static constexpr uint key_words = d / 2u + 4u;
    uint keys[2][many_slots * key_words]; // the nearest halves, and what is left
    uint values[2][d * slot_words];
    uint index[many_slots];
    float more[many_slots], less[many_slots]; // log-weights
    uint is_rough;                            // something is left
    Levels levels[3];
};

DEVICE uint two_halves(float x, float y) { return nearest_half(x) | nearest_half(y) << 16; }
// What the nearest half leaves of a value; values above the halves' range have none that is near.
DEVICE float rest_of(float x) { return x - HALF_TO_FLOAT(nearest_half(x)); }
DEVICE float in_range(float x) { return fminf(65504.f, fmaxf(-65504.f, x)); }

// Keys and values of n slots from nth on; the places after them are zeros, which products with a weight of 0 leave alone.
template <uint d, bool coded>
DEVICE void load_tile(const AttentionArgs& a, const CudaSlots& s, const Head& h, uint nth, uint n, ManyTile<d>& tile)
{
    constexpr uint eights = d / 8u;
    if (threadIdx.x < n) {
        const uint index = index_of(h, nth + threadIdx.x), slot = slot_of(a, s, h, index);
        tile.index[threadIdx.x] = index;
        tile.more[threadIdx.x] = log_weight(a, s, h, index, slot, 0u);
        tile.less[threadIdx.x] = log_weight(a, s, h, index, slot, 1u);
    }
    uint16_t *near = reinterpret_cast<uint16_t*>(tile.values[0]), *left = reinterpret_cast<uint16_t*>(tile.values[1]);
    for (uint i = threadIdx.x; i < many_slots * eights; i += n_threads) {
        const uint slot = i / eights, j = i % eights;
        float key[8] = {}, value[8] = {};
        bool rough = false;
        if (slot < n) {
            const uint index = index_of(h, nth + slot), source = source_of(a, h, index), row = row_of_slot(a, source, slot_of(a, s, h, index));
            load_eight<coded>(pool_of(s, source, false), row, j, d, tile.levels[source].k, key);
            load_eight<coded>(pool_of(s, source, true), row, j, d, tile.levels[source].v, value);
            rough = coded && (pool_of(s, source, false).format != plain_f16 || pool_of(s, source, true).format != plain_f16);
        }
        if (rough) atomicOr(&tile.is_rough, 1u);
        KS_UNROLL
        for (uint k = 0u; k < 8u; k += 2u) {
            const uint at = slot * ManyTile<d>::key_words + 4u * j + k / 2u;
            const float x = in_range(key[k]), y = in_range(key[k + 1u]);
            tile.keys[0][at] = two_halves(x, y);
            tile.keys[1][at] = two_halves(rest_of(x), rest_of(y));
        }
        KS_UNROLL
        for (uint k = 0u; k < 8u; k++) {
            const uint at = (8u * j + k) * 2u * slot_words + slot;
            const float x = in_range(value[k]);
            near[at] = uint16_t(nearest_half(x));
            left[at] = uint16_t(nearest_half(rest_of(x)));
        }
    }
}

// A warp's 16 queries as fragments, those of each 16 dims.
template <uint d> struct ManyQueries {
    uint near[d / 16u][4], left[d / 16u][4];
};

template <uint d> DEVICE void load_fragments(const AttentionArgs& a, const float* q, uint head, uint first_row, ManyQueries<d>& out)
{
    const uint group = a.n_heads / a.n_kv_heads, lane = threadIdx.x % 32u;
    KS_UNROLL
    for (uint low = 0u; low < 2u; low++) {
        const uint query = min(first_row + lane / 4u + 8u * low, a.n_tokens * group - 1u);
        const float* x = q + (uint64_t(query / group) * a.n_heads + head * group + query % group) * d + 2u * (lane % 4u);
        KS_UNROLL
        for (uint i = 0u; i < d / 16u; i++)
            KS_UNROLL
            for (uint half = 0u; half < 2u; half++) {
                const float u = in_range(x[16u * i + 8u * half] * a.scale * log2e), v = in_range(x[16u * i + 8u * half + 1u] * a.scale * log2e);
                out.near[i][2u * half + low] = two_halves(u, v);
                out.left[i][2u * half + low] = two_halves(rest_of(u), rest_of(v));
            }
    }
}

// The logits of 16 queries and the tile's 32 slots: tile j of 8 slots, element e of this lane.
template <uint d> DEVICE void many_logits(const ManyQueries<d>& q, const ManyTile<d>& tile, bool rough, float (&logits)[4][4])
{
    const uint lane = threadIdx.x % 32u;
    KS_UNROLL
    for (uint j = 0u; j < 4u; j++) {
        const uint at = (8u * j + lane / 4u) * ManyTile<d>::key_words + lane % 4u;
        KS_UNROLL
        for (uint e = 0u; e < 4u; e++) logits[j][e] = 0.f;
        KS_UNROLL
        for (uint i = 0u; i < d / 16u; i++) {
            const uint key[2] = {tile.keys[0][at + 8u * i], tile.keys[0][at + 8u * i + 4u]};
            mma_m16n8k16_f16(logits[j], q.near[i], key);
            mma_m16n8k16_f16(logits[j], q.left[i], key);
            if (!rough) continue;
            const uint rest[2] = {tile.keys[1][at + 8u * i], tile.keys[1][at + 8u * i + 4u]};
            mma_m16n8k16_f16(logits[j], q.near[i], rest);
        }
    }
}

// Of two queries, l / 4 and l / 4 + 8 of the warp's.
struct ManyState {
    float top[2], norm_top[2], norm[2]; // norm: this lane's share
};

DEVICE float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(all_lanes, x, 1));
    return fmaxf(x, __shfl_xor_sync(all_lanes, x, 2));
}

// Logits become weights of values; returns by how much what was summed shrinks.
template <uint d>
DEVICE void many_weights(const AttentionArgs& a, const Head& h, uint first_row, uint n, const ManyTile<d>& tile, ManyState& state,
                         float (&logits)[4][4], float (&shrink)[2])
{
    const uint lane = threadIdx.x % 32u, group = a.n_heads / a.n_kv_heads;
    KS_UNROLL
    for (uint low = 0u; low < 2u; low++) {
        const uint query = first_row + lane / 4u + 8u * low, t = query / group;
        float over[8], under[8], top = state.top[low], norm_top = state.norm_top[low];
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) {
            const uint slot = 8u * (i / 2u) + 2u * (lane % 4u) + i % 2u;
            const bool seen = slot < n && t < a.n_tokens && sees(a, h, t, tile.index[slot]);
            const float logit = logits[i / 2u][2u * low + i % 2u];
            over[i] = seen ? fmaxf(none, logit + tile.more[slot]) : none;
            under[i] = seen ? fmaxf(none, logit + tile.less[slot]) : none;
            top = fmaxf(top, over[i]);
            norm_top = fmaxf(norm_top, under[i]);
        }
        top = quad_max(top);
        norm_top = quad_max(norm_top);
        shrink[low] = power_of_two(state.top[low] - top);
        state.norm[low] *= power_of_two(state.norm_top[low] - norm_top);
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) {
            logits[i / 2u][2u * low + i % 2u] = over[i] > 0.5f * none ? power_of_two(over[i] - top) : 0.f;
            state.norm[low] += under[i] > 0.5f * none ? power_of_two(under[i] - norm_top) : 0.f;
        }
        state.top[low] = top;
        state.norm_top[low] = norm_top;
    }
}

template <uint d>
DEVICE void many_values(const float (&weights)[4][4], const float (&shrink)[2], const ManyTile<d>& tile, bool rough, float (&sum)[d / 8u][4])
{
    const uint lane = threadIdx.x % 32u;
    uint near[2][4], left[2][4]; // the weights as fragments, of each 16 slots
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) {
        const float u = weights[i / 2u][2u * (i % 2u)], v = weights[i / 2u][2u * (i % 2u) + 1u];
        near[i / 4u][i % 4u] = two_halves(u, v);
        left[i / 4u][i % 4u] = two_halves(rest_of(u), rest_of(v));
    }
    KS_UNROLL
    for (uint j = 0u; j < d / 8u; j++) {
        KS_UNROLL
        for (uint e = 0u; e < 4u; e++) sum[j][e] *= shrink[e / 2u];
        KS_UNROLL
        for (uint i = 0u; i < 2u; i++) {
            const uint at = (8u * j + lane / 4u) * slot_words + 8u * i + lane % 4u;
            const uint value[2] = {tile.values[0][at], tile.values[0][at + 4u]};
            mma_m16n8k16_f16(sum[j], near[i], value);
            mma_m16n8k16_f16(sum[j], left[i], value);
            if (!rough) continue;
            const uint rest[2] = {tile.values[1][at], tile.values[1][at + 4u]};
            mma_m16n8k16_f16(sum[j], near[i], rest);
        }
    }
}

template <uint d>
DEVICE void put_partials(const AttentionArgs& a, float* partials, uint head, uint first_row, const ManyState& state, const float (&sum)[d / 8u][4])
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
            out[0] = state.top[low];
            out[1] = state.norm_top[low];
            out[2] = norm;
        }
        KS_UNROLL
        for (uint j = 0u; j < d / 8u; j++) {
            out[4u + 8u * j + 2u * (lane % 4u)] = sum[j][2u * low];
            out[4u + 8u * j + 2u * (lane % 4u) + 1u] = sum[j][2u * low + 1u];
        }
    }
}

template <uint d, bool coded> __global__ void __launch_bounds__(n_threads, 2)
attention_many_kernel(AttentionArgs a, float* partials, // (n_tokens * n_heads, n_splits, 4 + head_dim)
                      CudaQueries q, CudaSlots s)
{
    using Tile = ManyTile<d>;
    KS_SHARED(Tile, tiles, [1]);
    ManyTile<d>& tile = tiles[0];
    const uint group = a.n_heads / a.n_kv_heads, block_row = blockIdx.x * many_rows, first_row = block_row + threadIdx.x / 32u * 16u;
    const uint end_row = min(block_row + many_rows, a.n_tokens * group);
    const Head h = find_head(a, s, blockIdx.y, block_row / group, (end_row - 1u) / group + 1u, false);
    const Span share = share_of(h);
    fill_levels(tile.levels, s);
    ManyQueries<d> queries;
    ManyState state = {{none, none}, {none, none}, {0.f, 0.f}};
    float sum[d / 8u][4];
    KS_UNROLL
    for (uint i = 0u; i < d / 2u; i++) sum[i / 4u][i % 4u] = 0.f;
    bool far = false, loaded = false;
    for (uint nth = share.begin, n; nth < share.end; nth += n) {
        // Far slots are the first ones, and have tiles of their own.
        const uint index = index_of(h, nth);
        const bool now_far = index < a.n_far;
        n = min(many_slots, share.end - nth);
        if (now_far) n = min(n, a.n_far - index);
        if (!loaded || now_far != far) load_fragments<d>(a, now_far ? q.other : q.q, h.head, first_row, queries);
        far = now_far;
        loaded = true;
        if (threadIdx.x == 0u) tile.is_rough = 0u;
        __syncthreads();
        load_tile<d, coded>(a, s, h, nth, n, tile);
        __syncthreads();
        float logits[4][4], shrink[2];
        const bool rough = coded && tile.is_rough != 0u;
        many_logits<d>(queries, tile, rough, logits);
        many_weights<d>(a, h, first_row, n, tile, state, logits, shrink);
        many_values<d>(logits, shrink, tile, rough, sum);
        __syncthreads();
    }
    put_partials<d>(a, partials, h.head, first_row, state, sum);
}

bool attention_many_can(const AttentionArgs& a)
{
    return !a.n_turn && !a.n_wave && (a.head_dim == 64u || a.head_dim == 128u);
}

void attention_many_launch(const AttentionArgs& a, uint n_splits, float* partials, CudaQueries q, CudaSlots s, cudaStream_t stream)
{
    const dim3 grid((a.n_tokens * (a.n_heads / a.n_kv_heads) + many_rows - 1u) / many_rows, a.n_kv_heads, n_splits);
    const bool coded = !are_halves(s);
    if (a.head_dim == 64u && coded) KS_LAUNCH((attention_many_kernel<64u, true>), grid, n_threads, stream, a, partials, q, s);
    if (a.head_dim == 64u && !coded) KS_LAUNCH((attention_many_kernel<64u, false>), grid, n_threads, stream, a, partials, q, s);
    if (a.head_dim == 128u && coded) KS_LAUNCH((attention_many_kernel<128u, true>), grid, n_threads, stream, a, partials, q, s);
    if (a.head_dim == 128u && !coded) KS_LAUNCH((attention_many_kernel<128u, false>), grid, n_threads, stream, a, partials, q, s);
}

} // namespace ks
