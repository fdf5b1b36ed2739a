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

// Where a slot lies, and its log-weights.
struct ManySlot {
    uint index, source, row;
    float more, less;
};

// Of halves.
struct alignas(16) ManyRow {
    const uint *key, *value;
};

template <bool coded> struct ManySlots {
    uint index[many_slots];
    float more[many_slots], less[many_slots];
    uint source[coded ? many_slots : 1u], row[coded ? many_slots : 1u];
    ManyRow rows[coded ? 1u : many_slots];
    Span tile;     // those behind its last one repeat it
    uint are_seen; // by all of the block's queries, and none repeats another
    uint is_rough; // some are of no halves
};

// Rows of halves, two to a word.
template <uint d, bool coded> struct ManyTile {
    static constexpr uint row_words = d / 2u + 4u;   // rows of fragments never meet in a bank
    static constexpr uint n_parts = coded ? 2u : 1u; // the nearest halves, and what is left
    uint keys[n_parts][many_slots * row_words];
    uint values[n_parts][many_slots * row_words];
};

// While products are made of one tile, a cache of halves copies the next, and the slots of the one behind it are looked up.
template <uint d, bool coded> struct ManyShared {
    static constexpr uint n_tiles = coded ? 1u : 2u, n_slots = 3u;
    ManyTile<d, coded> tiles[n_tiles];
    ManySlots<coded> slots[n_slots];
    Levels levels[coded ? pass_chunk + 1u : 1u];
    Head head;
    Span share, tokens; // of this block: slots and queries
};

// The tile that begins at slot nth: far slots are the first ones, and have tiles of their own.
DEVICE Span tile_from(const AttentionArgs& a, const Head& h, uint nth, uint end)
{
    const uint index = index_of(h, nth);
    if (index < a.n_far) end = min(end, nth + a.n_far - index);
    return {nth, min(end, nth + many_slots)};
}

DEVICE ManySlot find_slot(const AttentionArgs& a, const CudaSlots& s, const Head& h, const Span& tile)
{
    if (tile.begin == tile.end) return {};
    const uint index = index_of(h, min(tile.begin + threadIdx.x % 32u, tile.end - 1u));
    const uint source = source_of(a, h, index), slot = slot_of(a, s, h, index);
    return {index, source, row_of_slot(a, source, slot), log_weight(a, s, h, index, slot, 0u), log_weight(a, s, h, index, slot, 1u)};
}

DEVICE bool is_rough(const CudaSlots& s, uint source)
{
    return pool_of(s, source, false).format != plain_f16 || pool_of(s, source, true).format != plain_f16;
}

// By one warp: a tile's slots as its lanes found them, for queries of some tokens.
template <bool coded>
DEVICE void put_slots(const AttentionArgs& a, const CudaSlots& s, const Head& h, const Span& tokens, const ManySlot& slot, const Span& tile,
                      ManySlots<coded>& to)
{
    const uint lane = threadIdx.x % 32u;
    const bool seen = sees(a, h, tokens.begin, slot.index) && sees(a, h, tokens.end - 1u, slot.index);
    const bool all = __all_sync(all_lanes, seen && tile.begin + lane < tile.end) != 0;
    if (lane == 0u) to.tile = tile;
    if (lane == 0u) to.are_seen = all;
    to.index[lane] = slot.index;
    to.more[lane] = slot.more;
    to.less[lane] = slot.less;
    if constexpr (coded) {
        const bool rough = __any_sync(all_lanes, is_rough(s, slot.source)) != 0;
        if (lane == 0u) to.is_rough = rough;
        to.source[lane] = slot.source;
        to.row[lane] = slot.row;
    } else {
        const uint64_t at = uint64_t(slot.row) * (a.head_dim / 2u);
        to.rows[lane] = {pool_of(s, slot.source, false).words + at, pool_of(s, slot.source, true).words + at};
    }
}

// What the nearest half leaves of a value; values above the halves' range have none that is near.
DEVICE float rest_of(float x) { return x - HALF_TO_FLOAT(nearest_half(x)); }
DEVICE float in_range(float x) { return fminf(65504.f, fmaxf(-65504.f, x)); }

// Eight dims as words of a row, and at `left` what their nearest halves leave, or null.
DEVICE void put_eight(const float (&x)[8], uint* near, uint* left)
{
    uint words[4], rest[4];
    KS_UNROLL
    for (uint k = 0u; k < 8u; k += 2u) {
        const float u = in_range(x[k]), v = in_range(x[k + 1u]);
        words[k / 2u] = two_halves(u, v);
        rest[k / 2u] = two_halves(rest_of(u), rest_of(v));
    }
    *reinterpret_cast<uint4*>(near) = make_uint4(words[0], words[1], words[2], words[3]);
    if (left != nullptr) *reinterpret_cast<uint4*>(left) = make_uint4(rest[0], rest[1], rest[2], rest[3]);
}

// Begins to copy the keys and values of slots in pools of halves.
template <uint d> DEVICE void copy_tile(const ManySlots<false>& slots, ManyTile<d, false>& tile)
{
    constexpr uint eights = d / 8u, at_once = n_threads / eights; // slots
    const uint slot = threadIdx.x / eights, j = threadIdx.x % eights;
    if (slots.tile.begin == slots.tile.end) return;
    ManyRow rows[many_slots / at_once];
    KS_UNROLL
    for (uint i = 0u; i < many_slots / at_once; i++) rows[i] = slots.rows[slot + i * at_once];
    KS_UNROLL
    for (uint i = 0u; i < many_slots / at_once; i++) {
        const uint at = (slot + i * at_once) * ManyTile<d, false>::row_words + 4u * j;
        copy_16(tile.keys[0] + at, rows[i].key + 4u * j);
        copy_16(tile.values[0] + at, rows[i].value + 4u * j);
    }
}

// Sixteen dims of a row, eights j and the next: neighbours lie in the same words, and the format is asked for once.
template <uint n_words>
DEVICE void decode_sixteen(const CudaCache& cache, uint row, uint j, uint d, const float* levels, uint at, bool rough,
                           uint (&parts)[2][n_words])
{
    float x[2][8];
    load_eights<true, 2u>(cache, row, j, d, levels, x);
    KS_UNROLL
    for (uint k = 0u; k < 2u; k++) put_eight(x[k], parts[0] + at + 4u * k, rough ? parts[1] + at + 4u * k : nullptr);
}

template <uint d> DEVICE void decode_tile(const CudaSlots& s, const ManySlots<true>& slots, const Levels* levels, ManyTile<d, true>& tile)
{
    constexpr uint pairs = d / 16u;
    const bool rough = slots.is_rough != 0u;
    for (uint i = threadIdx.x; i < many_slots * pairs; i += n_threads) {
        const uint slot = i / pairs, j = 2u * (i % pairs), at = slot * ManyTile<d, true>::row_words + 4u * j;
        const uint source = slots.source[slot], row = slots.row[slot];
        decode_sixteen(pool_of(s, source, false), row, j, d, levels[source].k, at, rough, tile.keys);
        decode_sixteen(pool_of(s, source, true), row, j, d, levels[source].v, at, rough, tile.values);
    }
}

// The waves of a tile's slots, in the place of their keys: where the values of a head are that they meet.
template <uint d>
DEVICE void put_waves(const AttentionArgs& a, const CudaSlots& s, const Head& h, const ManySlots<true>& slots, ManyTile<d, true>& tile)
{
    const uint half = a.n_wave / 2u;
    for (uint i = threadIdx.x; i < many_slots * half; i += n_threads) {
        const uint slot = i / half, pair = i % half;
        const WavePair w = wave_pair(a, s, position_of(s, h, slots.index[slot]), 0u, pair);
        KS_UNROLL
        for (uint part = 0u; part < 2u; part++) {
            uint16_t* row = reinterpret_cast<uint16_t*>(tile.keys[part] + slot * ManyTile<d, true>::row_words);
            row[WAVE_PLACE(pair, a.n_wave, a.pairs)] = uint16_t(nearest_half(part == 0u ? w.cosine : rest_of(w.cosine)));
            row[WAVE_PLACE(half + pair, a.n_wave, a.pairs)] = uint16_t(nearest_half(part == 0u ? w.sine : rest_of(w.sine)));
        }
    }
}

// A warp's 16 queries as fragments, those of each 16 dims.
template <uint d> struct ManyQueries {
    uint near[d / 16u][4], left[d / 16u][4];
};

// This lane's two queries, and those of their dims [16 i, 16 i + 16) that are its own.
template <uint d> DEVICE const float* query_of(const AttentionArgs& a, const float* q, uint head, uint first_row, uint low)
{
    const uint lane = threadIdx.x % 32u;
    return q + query_at(a, head, min(first_row + lane / 4u + 8u * low, last_query(a))) * d + 2u * (lane % 4u);
}

DEVICE void load_fragment(const AttentionArgs& a, const float* x, uint i, uint low, uint (&near)[4], uint (&left)[4])
{
    KS_UNROLL
    for (uint half = 0u; half < 2u; half++) {
        const float u = in_range(x[16u * i + 8u * half] * a.scale * log2e), v = in_range(x[16u * i + 8u * half + 1u] * a.scale * log2e);
        near[2u * half + low] = two_halves(u, v);
        left[2u * half + low] = two_halves(rest_of(u), rest_of(v));
    }
}

template <uint d> DEVICE void load_fragments(const AttentionArgs& a, const float* q, uint head, uint first_row, ManyQueries<d>& out)
{
    KS_UNROLL
    for (uint low = 0u; low < 2u; low++) {
        const float* x = query_of<d>(a, q, head, first_row, low);
        KS_UNROLL
        for (uint i = 0u; i < d / 16u; i++) load_fragment(a, x, i, low, out.near[i], out.left[i]);
    }
}

// Rows of a tile as fragments: of keys, eight slots and 16 dims each in two words, and the next eight slots; of values, 16 slots and
// eight dims, and the next eight dims.
template <uint row_words> DEVICE void load_keys(const uint* rows, uint slot, uint dim, uint (&out)[2][2])
{
    const uint lane = threadIdx.x % 32u;
    load_matrices(rows, (slot + lane / 16u * 8u + lane % 8u) * row_words + dim / 2u + lane / 8u % 2u * 4u, out);
}

template <uint row_words> DEVICE void load_values(const uint* rows, uint slot, uint dim, uint (&out)[2][2])
{
    const uint lane = threadIdx.x % 32u;
    load_turned_matrices(rows, (slot + lane % 16u) * row_words + dim / 2u + lane / 16u * 4u, out);
}

// The logits of 16 queries and the tile's 32 slots: tile j of 8 slots, element e of this lane.
template <uint d, bool coded>
DEVICE void many_logits(const ManyQueries<d>& q, const ManyTile<d, coded>& tile, bool rough, float (&logits)[4][4])
{
    constexpr uint row_words = ManyTile<d, coded>::row_words;
    KS_UNROLL
    for (uint i = 0u; i < 16u; i++) logits[i / 4u][i % 4u] = 0.f;
    KS_UNROLL
    for (uint i = 0u; i < d / 16u; i++) {
        uint keys[2][2][2];
        load_keys<row_words>(tile.keys[0], 0u, 16u * i, keys[0]);
        load_keys<row_words>(tile.keys[0], 16u, 16u * i, keys[1]);
        KS_UNROLL
        for (uint j = 0u; j < 4u; j++) mma_m16n8k16_f16(logits[j], q.near[i], keys[j / 2u][j % 2u]);
        KS_UNROLL
        for (uint j = 0u; j < 4u; j++) mma_m16n8k16_f16(logits[j], q.left[i], keys[j / 2u][j % 2u]);
    }
    if constexpr (coded) {
        if (!rough) return;
        KS_UNROLL
        for (uint i = 0u; i < d / 16u; i++) {
            uint rest[2][2][2];
            load_keys<row_words>(tile.keys[1], 0u, 16u * i, rest[0]);
            load_keys<row_words>(tile.keys[1], 16u, 16u * i, rest[1]);
            KS_UNROLL
            for (uint j = 0u; j < 4u; j++) mma_m16n8k16_f16(logits[j], q.near[i], rest[j / 2u][j % 2u]);
        }
    }
}

// What waves, in the place of keys, add to them: products with the queries times the keys' bias.
template <uint d>
DEVICE void add_biases(const AttentionArgs& a, const float* bias, uint head, uint first_row, const ManyTile<d, true>& tile, float (&logits)[4][4])
{
    constexpr uint row_words = ManyTile<d, true>::row_words;
    const float *first = query_of<d>(a, bias, head, first_row, 0u), *second = query_of<d>(a, bias, head, first_row, 1u);
    KS_UNROLL_BY(1)
    for (uint i = 0u; i < a.n_wave / 16u; i++) {
        uint near[4], left[4];
        load_fragment(a, first, i, 0u, near, left);
        load_fragment(a, second, i, 1u, near, left);
        KS_UNROLL
        for (uint part = 0u; part < 2u; part++) {
            uint waves[2][2][2];
            load_keys<row_words>(tile.keys[part], 0u, 16u * i, waves[0]);
            load_keys<row_words>(tile.keys[part], 16u, 16u * i, waves[1]);
            KS_UNROLL
            for (uint j = 0u; j < 4u; j++) mma_m16n8k16_f16(logits[j], near, waves[j / 2u][j % 2u]);
            if (part == 1u) continue;
            KS_UNROLL
            for (uint j = 0u; j < 4u; j++) mma_m16n8k16_f16(logits[j], left, waves[j / 2u][j % 2u]);
        }
    }
}

// Of logits that are not all seen, by tokens of this lane's two queries.
template <bool coded>
DEVICE void hide(const AttentionArgs& a, const Head& h, uint first_row, const ManySlots<coded>& slots, float (&logits)[4][4])
{
    const uint group = a.n_heads / a.n_kv_heads, row = first_row + threadIdx.x % 32u / 4u, tokens[2] = {row / group, (row + 8u) / group};
    KS_UNROLL
    for (uint i = 0u; i < 16u; i++) {
        const uint slot = 8u * (i / 4u) + 2u * (threadIdx.x % 4u) + i % 2u;
        const bool seen = (slot < slots.tile.end - slots.tile.begin) & sees(a, h, tokens[i % 4u / 2u], slots.index[slot]);
        logits[i / 4u][i % 4u] = seen ? logits[i / 4u][i % 4u] : none;
    }
}

constexpr float unseen = 0.5f * none; // above what is hidden, which weighs 0 beside it, and below what is not

// Of two queries, l / 4 and l / 4 + 8 of the warp's.
struct ManyState {
    float top[2], norm_top[2], norm[2]; // norm: this lane's share
};

DEVICE float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(all_lanes, x, 1));
    return fmaxf(x, __shfl_xor_sync(all_lanes, x, 2));
}

// The norm of logits that have log-weights, and what weighs their values.
template <bool coded> DEVICE void add_log_weights(const ManySlots<coded>& slots, ManyState& state, float (&logits)[4][4])
{
    KS_UNROLL
    for (uint low = 0u; low < 2u; low++) {
        float under[8], top = state.norm_top[low];
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) {
            const uint slot = 8u * (i / 2u) + 2u * (threadIdx.x % 4u) + i % 2u;
            float& logit = logits[i / 2u][2u * low + i % 2u];
            under[i] = fmaxf(none, logit + slots.less[slot]);
            logit = fmaxf(none, logit + slots.more[slot]);
            top = fmaxf(top, under[i]);
        }
        top = quad_max(top);
        state.norm[low] *= power_of_two_flushed(state.norm_top[low] - top);
        KS_UNROLL
        for (uint i = 0u; i < 8u; i++) state.norm[low] += power_of_two_flushed(under[i] - top);
        state.norm_top[low] = top;
    }
}

// Logits become weights of values; returns by how much what was summed shrinks.
DEVICE void many_weights(bool normed, ManyState& state, float (&logits)[4][4], float (&shrink)[2])
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
        if (normed) continue;
        state.norm_top[low] = top;
        state.norm[low] = state.norm[low] * shrink[low] + sum;
    }
}

// sum of this lane: tile j of 8 dims, element e.
template <uint d, bool coded>
DEVICE void many_values(const float (&weights)[4][4], const float (&shrink)[2], const ManyTile<d, coded>& tile, bool rough,
                        float (&sum)[d / 8u][4])
{
    constexpr uint row_words = ManyTile<d, coded>::row_words;
    uint near[2][4], left[2][4]; // the weights as fragments, of each 16 slots
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) {
        const float u = weights[i / 2u][2u * (i % 2u)], v = weights[i / 2u][2u * (i % 2u) + 1u];
        near[i / 4u][i % 4u] = two_halves(u, v);
        left[i / 4u][i % 4u] = two_halves(rest_of(u), rest_of(v));
    }
    if (__any_sync(all_lanes, shrink[0] != 1.f || shrink[1] != 1.f)) {
        KS_UNROLL
        for (uint i = 0u; i < d / 2u; i++) sum[i / 4u][i % 4u] *= shrink[i % 4u / 2u];
    }
    KS_UNROLL
    for (uint i = 0u; i < d / 16u; i++) { // of each 16 slots, each 32 dims
        uint values[2][2][2];
        load_values<row_words>(tile.values[0], i % 2u * 16u, i / 2u * 32u, values[0]);
        load_values<row_words>(tile.values[0], i % 2u * 16u, i / 2u * 32u + 16u, values[1]);
        KS_UNROLL
        for (uint j = 0u; j < 4u; j++) mma_m16n8k16_f16(sum[i / 2u * 4u + j], near[i % 2u], values[j / 2u][j % 2u]);
        KS_UNROLL
        for (uint j = 0u; j < 4u; j++) mma_m16n8k16_f16(sum[i / 2u * 4u + j], left[i % 2u], values[j / 2u][j % 2u]);
    }
    if constexpr (coded) {
        if (!rough) return;
        KS_UNROLL
        for (uint i = 0u; i < d / 16u; i++) {
            uint rest[2][2][2];
            load_values<row_words>(tile.values[1], i % 2u * 16u, i / 2u * 32u, rest[0]);
            load_values<row_words>(tile.values[1], i % 2u * 16u, i / 2u * 32u + 16u, rest[1]);
            KS_UNROLL
            for (uint j = 0u; j < 4u; j++) mma_m16n8k16_f16(sum[i / 2u * 4u + j], near[i % 2u], rest[j / 2u][j % 2u]);
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

// Blocks that a multiprocessor's registers are for.
constexpr uint many_blocks(uint d, bool coded) { return d != 64u ? 2u : coded || mma_is_by_hand ? 3u : 4u; }

template <uint d, bool coded, bool waves> __global__ void __launch_bounds__(n_threads, many_blocks(d, coded))
attention_many_kernel(AttentionArgs a, float* partials, // (n_tokens * n_heads, n_splits, 4 + head_dim)
                      CudaQueries q, CudaSlots s)
{
    begin_kernel();
    using Shared = ManyShared<d, coded>;
    KS_SHARED(Shared, all_shared, [1]);
    Shared& shared = all_shared[0];
    const uint group = a.n_heads / a.n_kv_heads, block_row = blockIdx.x * many_rows, first_row = block_row + threadIdx.x / 32u * 16u;
    const uint end_row = min(block_row + many_rows, a.n_tokens * group);
    const Head& h = shared.head;
    if (threadIdx.x == 0u) {
        shared.tokens = {block_row / group, (end_row - 1u) / group + 1u};
        shared.head = find_head(a, s, blockIdx.y, shared.tokens.begin, shared.tokens.end, false);
        shared.share = share_of(h);
    }
    __syncthreads();
    const bool looks_up = threadIdx.x < 32u;
    if (looks_up) {
        const Span tile = tile_from(a, h, shared.share.begin, shared.share.end), next = tile_from(a, h, tile.end, shared.share.end);
        put_slots<coded>(a, s, h, shared.tokens, find_slot(a, s, h, tile), tile, shared.slots[0]);
        put_slots<coded>(a, s, h, shared.tokens, find_slot(a, s, h, next), next, shared.slots[1]);
    }
    if constexpr (coded) fill_levels(shared.levels, s);
    __syncthreads();
    if constexpr (!coded) copy_tile<d>(shared.slots[0], shared.tiles[0]);
    ManyQueries<d> queries;
    ManyState state = {{unseen, unseen}, {unseen, unseen}, {0.f, 0.f}};
    float sum[d / 8u][4];
    KS_UNROLL
    for (uint i = 0u; i < d / 2u; i++) sum[i / 4u][i % 4u] = 0.f;
    bool far = false;
    for (uint nth = 0u; shared.slots[nth % Shared::n_slots].tile.begin < shared.share.end; nth++) {
        const ManySlots<coded> &slots = shared.slots[nth % Shared::n_slots], &next = shared.slots[(nth + 1u) % Shared::n_slots];
        ManyTile<d, coded>& rows = shared.tiles[nth % Shared::n_tiles];
        const bool now_far = slots.index[0] < a.n_far;
        if (nth == 0u || now_far != far) load_fragments<d>(a, now_far ? q.other : q.q, blockIdx.y, first_row, queries);
        far = now_far;
        if constexpr (!coded) wait_for_copies();
        __syncthreads();
        if constexpr (coded) {
            decode_tile<d>(s, slots, shared.levels, rows);
            __syncthreads();
        } else
            copy_tile<d>(next, shared.tiles[(nth + 1u) % Shared::n_tiles]);
        const Span later = tile_from(a, h, next.tile.end, shared.share.end);
        ManySlot found = {};
        if (looks_up) found = find_slot(a, s, h, later);
        float logits[4][4], shrink[2];
        const bool rough = coded && slots.is_rough != 0u;
        many_logits<d, coded>(queries, rows, rough, logits);
        if constexpr (waves) {
            __syncthreads();
            put_waves<d>(a, s, h, slots, rows);
            __syncthreads();
            add_biases<d>(a, now_far ? q.bias_other : q.bias, blockIdx.y, first_row, rows, logits);
        }
        if (looks_up) put_slots<coded>(a, s, h, shared.tokens, found, later, shared.slots[(nth + 2u) % Shared::n_slots]);
        if (slots.are_seen == 0u) hide(a, h, first_row, slots, logits);
        if (s.weights != nullptr) add_log_weights(slots, state, logits);
        many_weights(s.weights != nullptr, state, logits, shrink);
        many_values<d, coded>(logits, shrink, rows, rough, sum);
    }
    put_partials<d>(a, partials, blockIdx.y, first_row, state, sum);
}

bool attention_many_can(const AttentionArgs& a)
{
    return !a.n_turn && a.n_wave % 16u == 0u && (a.head_dim == 64u || a.head_dim == 128u);
}

template <uint d>
static void launch_many(const AttentionArgs& a, dim3 grid, float* partials, const CudaQueries& q, const CudaSlots& s, cudaStream_t stream)
{
    if (a.n_wave != 0u)
        KS_LAUNCH((attention_many_kernel<d, true, true>), grid, n_threads, stream, a, partials, q, s);
    else if (are_halves(s))
        KS_LAUNCH((attention_many_kernel<d, false, false>), grid, n_threads, stream, a, partials, q, s);
    else
        KS_LAUNCH((attention_many_kernel<d, true, false>), grid, n_threads, stream, a, partials, q, s);
}

void attention_many_launch(const AttentionArgs& a, uint n_splits, float* partials, CudaQueries q, CudaSlots s, cudaStream_t stream)
{
    const dim3 grid((a.n_tokens * (a.n_heads / a.n_kv_heads) + many_rows - 1u) / many_rows, a.n_kv_heads, n_splits);
    (a.head_dim == 64u ? launch_many<64u> : launch_many<128u>)(a, grid, partials, q, s, stream);
}

} // namespace ks
