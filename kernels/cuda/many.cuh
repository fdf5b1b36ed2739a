// A tile of slots as attention_many meets it: which slots, where their rows lie, and how these come to shared memory.
#pragma once

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/restored.cuh"

namespace ks
{

constexpr uint many_slots = 32u; // of a tile

// Where a slot lies.
struct ManySlot {
    uint index, source, row;
};

// Of halves, two to a word.
struct alignas(16) ManyRow {
    const uint *key, *value;
};

constexpr uint key_left = 1u, value_left = 2u; // the row was restored: what its halves leave comes behind them

template <bool coded> struct ManySlots {
    uint index[many_slots];
    ManyRow rows[many_slots];
    uint left[coded ? many_slots : 1u], any_left;
    Span tile;     // those behind its last one repeat it
    uint are_seen; // by all of the block's queries, and none repeats another
};

// Rows of halves, two to a word.
template <uint d, bool coded> struct ManyTile {
    static constexpr uint row_words = d / 2u + 4u;   // rows of fragments never meet in a bank
    static constexpr uint n_parts = coded ? 2u : 1u; // the nearest halves, and what is left
    static constexpr uint n_words = many_slots * row_words;
    uint keys[n_parts][n_words];
    uint values[n_parts][n_words];
};

// While products are made of one tile, the next is copied, and the slots of the one behind it are looked up. With parts there is room for
// one tile: its values come while its keys are met, and the next keys in their place.
template <uint d, bool coded> struct ManyShared {
    static constexpr uint n_tiles = coded ? 1u : 2u, n_slots = 3u;
    ManyTile<d, coded> tiles[n_tiles];
    ManySlots<coded> slots[n_slots];
    Head head;
    Span round, share, tokens; // of this block: slots, also those that none of its queries sees, slots, and queries
};

// Where this block's slots and queries begin and end, by one thread.
template <uint d, bool coded>
DEVICE void find_share(const AttentionArgs& a, const CudaSlots& s, const RestoredRoom& room, ManyShared<d, coded>& shared)
{
    const uint group = a.n_heads / a.n_kv_heads, row = blockIdx.x * many_rows, end_row = min(row + many_rows, a.n_tokens * group);
    shared.tokens = {row / group, (end_row - 1u) / group + 1u};
    shared.head = find_head(a, s, blockIdx.y, shared.tokens.begin, shared.tokens.end, false);
    if constexpr (coded) {
        const Head all = find_head(a, s, blockIdx.y, 0u, a.n_tokens, false);
        shared.round = round_of(room, share_of(all));
        shared.share = seen_of(all, shared.head, shared.round);
        shared.head = all;
    } else
        shared.round = shared.share = share_of(shared.head);
}

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
    const uint source = source_of(a, h, index);
    return {index, source, row_of_slot(a, source, slot_of(a, s, h, index))};
}

// By one warp: a tile's slots as its lanes found them, for queries of some tokens.
template <uint d, bool coded>
DEVICE void put_slots(const AttentionArgs& a, const CudaSlots& s, const RestoredRoom& room, const ManyShared<d, coded>& shared,
                      const ManySlot& slot, const Span& tile, ManySlots<coded>& to)
{
    const Head& h = shared.head;
    const Span& tokens = shared.tokens;
    const uint lane = threadIdx.x % 32u;
    const bool seen = sees(a, h, tokens.begin, slot.index) && sees(a, h, tokens.end - 1u, slot.index);
    const bool all = __all_sync(all_lanes, seen && tile.begin + lane < tile.end) != 0;
    if (lane == 0u) to.tile = tile;
    if (lane == 0u) to.are_seen = all;
    to.index[lane] = slot.index;
    const CudaCache keys = pool_of(s, slot.source, false), values = pool_of(s, slot.source, true);
    const uint64_t at = uint64_t(slot.row) * (d / 2u);
    ManyRow row = {keys.words + at, values.words + at};
    if constexpr (coded) {
        const bool key = keys.format != plain_f16, value = values.format != plain_f16;
        const uint nth = tile.begin == tile.end ? tile.begin : min(tile.begin + lane, tile.end - 1u);
        const uint* restored = restored_row(a, room, h.head, nth - shared.round.begin);
        if (key) row.key = restored;
        if (value) row.value = restored + d;
        to.left[lane] = (key ? key_left : 0u) | (value ? value_left : 0u);
        const uint any = (__any_sync(all_lanes, key) ? key_left : 0u) | (__any_sync(all_lanes, value) ? value_left : 0u);
        if (lane == 0u) to.any_left = any;
    }
    to.rows[lane] = row;
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

// Begins to copy the keys or the values of a tile with parts. A row of a pool of halves leaves nothing.
template <uint d> DEVICE void copy_parts(const ManySlots<true>& slots, bool values, uint (&parts)[2][ManyTile<d, true>::n_words])
{
    constexpr uint eights = d / 8u, at_once = n_threads / eights; // slots
    const uint which = values ? value_left : key_left, j = 4u * (threadIdx.x % eights);
    if (slots.tile.begin == slots.tile.end) return;
    KS_UNROLL
    for (uint slot = threadIdx.x / eights; slot < many_slots; slot += at_once) {
        const uint* row = values ? slots.rows[slot].value : slots.rows[slot].key;
        const uint at = slot * ManyTile<d, true>::row_words + j;
        copy_16(parts[0] + at, row + j);
        if ((slots.any_left & which) == 0u) continue;
        if ((slots.left[slot] & which) != 0u)
            copy_16(parts[1] + at, row + d / 2u + j);
        else
            *reinterpret_cast<uint4*>(parts[1] + at) = make_uint4(0u, 0u, 0u, 0u);
    }
}

} // namespace ks
