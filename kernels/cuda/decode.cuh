// The slots of a round of attention_decode, which a warp finds together: in runs of one kind, by
// places; and what it asks memory for ahead.
#pragma once

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/slots.cuh"

namespace ks
{

constexpr uint decode_warps = n_threads / 32u;
constexpr uint no_slot = ~0u;

// A warp's slots of one round: lane i knows where the ith is. kind: the pool that it lies in,
// whether it is far, and the group of keys that are coded together.
struct DecodeSlot {
    uint row, kind;
};
constexpr uint decode_clamped = 4u, decode_none = 8u, decode_group = 16u;

// Of the round's slots, n neighbours of one kind, which begin at place 0; places that lanes ask for
// at a time are neighbours, lanes of one row take every 32 / lanes-th slot. row: one of the run's;
// place: of this lane's slot, which may be none of them (has).
struct DecodeRun {
    uint n, kind, row, place;
    bool has;
};

// rows: the run's, by place; beyond them one of them.
template <uint lanes>
DEVICE DecodeRun run_from(const DecodeSlot& mine, uint first, uint* rows)
{
    constexpr uint lane_groups = 32u / lanes;
    const uint nth = (threadIdx.x - first) % 32u;
    DecodeRun run;
    run.kind = __shfl_sync(all_lanes, mine.kind, int(first));
    run.row = __shfl_sync(all_lanes, mine.row, int(first));
    const uint same_kind = __ballot_sync(all_lanes, mine.kind == run.kind) >> first;
    run.n = uint(__popc(same_kind & ~(same_kind + 1u)));
    run.place = nth % lane_groups * lanes + nth / lane_groups;
    run.has = nth < run.n;
    rows[run.place] = run.has ? mine.row : run.row;
    __syncwarp();
    return run;
}

// The slot that this lane has in the round that begins at nth, if any.
DEVICE uint slot_at(const AttentionArgs& a, const CudaSlots& s, const Head& h, const Span& share,
                    uint before, uint nth)
{
    const uint mine = nth + threadIdx.x % 32u;
    return mine < share.end && mine - before < count_slots(h)
               ? slot_of(a, s, h, index_of(h, mine - before))
               : no_slot;
}

// This lane's number, told anew: what follows from it is made where it is used, not before the loop
// for all codecs at once.
DEVICE uint opaque_lane()
{
    return __shfl_sync(all_lanes, threadIdx.x % 32u, int(threadIdx.x % 32u));
}

// Where the rows of a cache lie, whatever its format; a group's bytes are shared out to its rows.
struct RowAddresses {
    const char *rows, *tails;
    uint row_bytes, tail_bytes;
};

template <uint d>
DEVICE RowAddresses addresses_of(const CudaCache& cache)
{
    RowAddresses to = {reinterpret_cast<const char*>(cache.words), nullptr,
                       cache.format == plain_f16 ? 2u * d : 4u * d, 0u};
    with_codec(cache.format, [&](auto codec) {
        using C = decltype(codec);
        const uint* tails = cache.words + uint64_t(cache.n_rows / C::group) * C::words(d);
        to = {reinterpret_cast<const char*>(cache.words), reinterpret_cast<const char*>(tails),
              4u * C::words(d) / C::group, C::n_tail(d)};
    });
    return to;
}

// Every `step` bytes from `from` to `end`, and the last one.
DEVICE void prefetch_bytes(const char* at, uint from, uint end, uint step)
{
    KS_UNROLL_BY(1)
    for (uint i = from; i < end + 31u; i += step) prefetch(at + min(i, end - 1u));
}

// Coded rows of the next round are asked for before this one's are read: else each round waits for
// memory twice. Where they are neighbours lanes share their bytes, which costs a multiprocessor a
// quarter. slot: this lane's, or unknown, of an index.
DEVICE void prefetch_slots(const AttentionArgs& a, const Head& h, uint slot, uint index,
                           const RowAddresses (&addresses)[2])
{
    const bool coded = slot != no_slot && source_of(a, h, index) == pass_coded;
    const uint row = row_of_slot(a, pass_coded, slot), first = __shfl_sync(all_lanes, row, 0);
    const bool together =
        __ballot_sync(all_lanes, coded && row == first + threadIdx.x % 32u) == all_lanes;
    KS_UNROLL_BY(1)
    for (uint i = 0u; i < 2u && coded; i++) {
        const uint bytes = addresses[i].row_bytes, from = together ? threadIdx.x % 32u * 32u : 0u;
        prefetch_bytes(addresses[i].rows + uint64_t(together ? first : row) * bytes, from,
                       together ? 32u * bytes : bytes, together ? 1024u : 32u);
        if (addresses[i].tail_bytes != 0u)
            prefetch(addresses[i].tails + uint64_t(row) * addresses[i].tail_bytes);
    }
}

} // namespace ks
