// Tiles of slots of attention_prefill: which slots they have, where the rows lie, and how rows are
// copied to shared memory.
#pragma once

#include "kernels/cuda/dequantized.cuh"
#include "kernels/cuda/mma.cuh"

namespace ks
{

constexpr uint prefill_slots = 32u; // slots per tile

// Where a slot lies.
struct PrefillSlot {
    uint index, source, row;
};

// Addresses of a slot's f16, two per word.
struct alignas(16) PrefillRow {
    const uint *key, *value;
};

// The row was dequantized. The residuals follow the values.
constexpr uint key_residual = 1u, value_residual = 2u;

template <bool coded>
struct PrefillSlots {
    uint index[prefill_slots];
    PrefillRow rows[prefill_slots];
    uint residuals[coded ? prefill_slots : 1u], any_residual;
    Span tile; // entries after the last slot of the tile repeat it
    // every query of the block sees every slot, and no entry is a repetition
    uint all_visible;
};

// Rows of f16, two per word.
template <uint d, bool coded>
struct PrefillTile {
    // padded, so that the rows of a fragment have no bank conflicts
    static constexpr uint row_words = d / 2u + 4u;
    // the nearest f16 and the residuals
    static constexpr uint n_parts = coded ? 2u : 1u;
    static constexpr uint n_words = prefill_slots * row_words;
    uint keys[n_parts][n_words];
    uint values[n_parts][n_words];
};

// A pipeline: while one tile is multiplied, the next is copied, and the slots of the one after it
// are looked up. With residuals only one tile fits. Then its values are copied while its keys are
// multiplied, and the next keys while its values are.
template <uint d, bool coded>
struct PrefillShared {
    static constexpr uint n_tiles = coded ? 1u : 2u, n_slots = 3u;
    PrefillTile<d, coded> tiles[n_tiles];
    PrefillSlots<coded> slots[n_slots];
    Head head;
    // round: slots of the split and round. share: those of them that a query of the block may see.
    // tokens: the tokens of the block's queries.
    Span round, share, tokens;
};

// Finds the block's slots and tokens. One thread calls it.
template <uint d, bool coded>
DEVICE void find_share(const AttentionArgs& a, const CudaSlots& s, const DequantScratch& scratch,
                       PrefillShared<d, coded>& shared)
{
    const uint group = a.n_heads / a.n_kv_heads, row = blockIdx.x * prefill_rows,
               end_row = min(row + prefill_rows, a.n_tokens * group);
    shared.tokens = {row / group, (end_row - 1u) / group + 1u};
    shared.head = find_head(a, s, blockIdx.y, shared.tokens.begin, shared.tokens.end, false);
    if constexpr (coded) {
        const Head all = find_head(a, s, blockIdx.y, 0u, a.n_tokens, false);
        shared.round = round_of(scratch, share_of(all));
        shared.share = visible_of(all, shared.head, shared.round);
        shared.head = all;
    } else
        shared.round = shared.share = share_of(shared.head);
}

// The tile that begins at slot nth. The slots of clamped queries are the first ones and have tiles
// of their own.
DEVICE Span tile_from(const AttentionArgs& a, const Head& h, uint nth, uint end)
{
    const uint index = index_of(h, nth);
    if (index < a.n_clamped) end = min(end, nth + a.n_clamped - index);
    return {nth, min(end, nth + prefill_slots)};
}

DEVICE PrefillSlot find_slot(const AttentionArgs& a, const CudaSlots& s, const Head& h,
                             const Span& tile)
{
    if (tile.begin == tile.end) return {};
    const uint index = index_of(h, min(tile.begin + threadIdx.x % 32u, tile.end - 1u));
    const uint source = source_of(a, h, index);
    return {index, source, row_of_slot(a, source, slot_of(a, s, h, index))};
}

// Stores the slots of a tile, which the lanes of one warp found.
template <uint d, bool coded>
DEVICE void store_slots(const AttentionArgs& a, const CudaSlots& s, const DequantScratch& scratch,
                        const PrefillShared<d, coded>& shared, const PrefillSlot& slot,
                        const Span& tile, PrefillSlots<coded>& to)
{
    const Head& h = shared.head;
    const Span& tokens = shared.tokens;
    const uint lane = threadIdx.x % 32u;
    const bool seen =
        sees(a, h, tokens.begin, slot.index) && sees(a, h, tokens.end - 1u, slot.index);
    const bool all = __all_sync(all_lanes, seen && tile.begin + lane < tile.end) != 0;
    if (lane == 0u) to.tile = tile;
    if (lane == 0u) to.all_visible = all;
    to.index[lane] = slot.index;
    const CudaCache keys = pool_of(s, slot.source, false), values = pool_of(s, slot.source, true);
    const uint64_t at = uint64_t(slot.row) * (d / 2u);
    PrefillRow row = {keys.words + at, values.words + at};
    if constexpr (coded) {
        const bool key = keys.format != plain_f16, value = values.format != plain_f16;
        const uint nth =
            tile.begin == tile.end ? tile.begin : min(tile.begin + lane, tile.end - 1u);
        const uint* dequantized = dequantized_row(a, scratch, h.head, nth - shared.round.begin);
        if (key) row.key = dequantized;
        if (value) row.value = dequantized + d;
        to.residuals[lane] = (key ? key_residual : 0u) | (value ? value_residual : 0u);
        const uint any = (__any_sync(all_lanes, key) ? key_residual : 0u) |
                         (__any_sync(all_lanes, value) ? value_residual : 0u);
        if (lane == 0u) to.any_residual = any;
    }
    to.rows[lane] = row;
}

// Starts to copy the keys and values of a tile from pools of f16.
template <uint d>
DEVICE void copy_tile(const PrefillSlots<false>& slots, PrefillTile<d, false>& tile)
{
    constexpr uint octets = d / 8u, at_once = n_threads / octets; // slots copied at a time
    const uint slot = threadIdx.x / octets, j = threadIdx.x % octets;
    if (slots.tile.begin == slots.tile.end) return;
    PrefillRow rows[prefill_slots / at_once];
    KS_UNROLL
    for (uint i = 0u; i < prefill_slots / at_once; i++) rows[i] = slots.rows[slot + i * at_once];
    KS_UNROLL
    for (uint i = 0u; i < prefill_slots / at_once; i++) {
        const uint at = (slot + i * at_once) * PrefillTile<d, false>::row_words + 4u * j;
        copy_16(tile.keys[0] + at, rows[i].key + 4u * j);
        copy_16(tile.values[0] + at, rows[i].value + 4u * j);
    }
}

// Starts to copy the keys or the values of a tile with residuals. A row of an f16 pool has zeros as
// residuals.
template <uint d>
DEVICE void copy_parts(const PrefillSlots<true>& slots, bool values,
                       uint (&parts)[2][PrefillTile<d, true>::n_words])
{
    constexpr uint octets = d / 8u, at_once = n_threads / octets; // slots
    const uint which = values ? value_residual : key_residual, j = 4u * (threadIdx.x % octets);
    if (slots.tile.begin == slots.tile.end) return;
    KS_UNROLL
    for (uint slot = threadIdx.x / octets; slot < prefill_slots; slot += at_once) {
        const uint* row = values ? slots.rows[slot].value : slots.rows[slot].key;
        const uint at = slot * PrefillTile<d, true>::row_words + j;
        copy_16(parts[0] + at, row + j);
        if ((slots.any_residual & which) == 0u) continue;
        if ((slots.residuals[slot] & which) != 0u)
            copy_16(parts[1] + at, row + d / 2u + j);
        else
            *reinterpret_cast<uint4*>(parts[1] + at) = make_uint4(0u, 0u, 0u, 0u);
    }
}

} // namespace ks
