// The slots of a round of attention_decode. A warp finds them together, divides them into runs of
// one kind, and prefetches the next round.
#pragma once

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/slots.cuh"

namespace ks
{

constexpr uint decode_warps = n_threads / 32u;
constexpr uint no_slot = ~0u;

// Slot i of a warp's round, in lane i. kind: the pool, plus decode_clamped for a clamped query,
// plus decode_group times the group for keys that are coded in groups.
struct DecodeSlot {
    uint row, kind;
};
constexpr uint decode_clamped = 4u, decode_none = 8u, decode_group = 16u;

// A run: n consecutive slots of a round that have one kind. Slots get places in [0, 32). The lanes
// of one group of lanes read consecutive places, which hold every 32 / lanes-th slot. row: some row
// of the run. place: the place of this lane's slot. has: whether that slot is in the run.
struct DecodeRun {
    uint n, kind, row, place;
    bool has;
};

// Finds the run that begins at slot `first` of the round. rows: the run's rows by place; places
// outside the run repeat one of its rows.
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

// This lane's slot in the round that begins at nth, or no_slot.
DEVICE uint slot_at(const AttentionArgs& a, const CudaSlots& s, const Head& h, const Span& share,
                    uint before, uint nth)
{
    const uint mine = nth + threadIdx.x % 32u;
    return mine < share.end && mine - before < count_slots(h)
               ? slot_of(a, s, h, index_of(h, mine - before))
               : no_slot;
}

// This lane's number, passed through a shuffle to hide it from the compiler. Otherwise the compiler
// computes the addresses of all codecs before the loop, which takes registers.
DEVICE uint opaque_lane()
{
    return __shfl_sync(all_lanes, threadIdx.x % 32u, int(threadIdx.x % 32u));
}

// The addresses of a cache's rows in any format. A group's bytes are divided evenly among its rows.
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

// Prefetches every step-th byte of [from, end) and the last one.
DEVICE void prefetch_bytes(const char* at, uint from, uint end, uint step)
{
    KS_UNROLL_BY(1)
    for (uint i = from; i < end + 31u; i += step) prefetch(at + min(i, end - 1u));
}

// Prefetches the coded rows of the next round, or each round would wait for memory twice. If the
// rows are neighbours, the lanes share their bytes: that takes a quarter of the time. slot: this
// lane's slot, which has this index, or no_slot.
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
