// The rows of a round that attention_many reads as halves, restored once for all of its queries: each block has the keys and the values of
// some slots of a head.
// twin: the shader has keys or values, as floats
#include "kernels/cuda/codecs.cuh"
#include "kernels/cuda/restored.cuh"

namespace ks
{

constexpr uint restored_slots = 32u; // of a block

struct RestoreShared {
    Levels levels[pass_chunk + 1u];
    uint source[restored_slots], row[restored_slots];
    Head head;
    Span round;
};

// Eight dims as words of a row, and what their nearest halves leave.
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
    *reinterpret_cast<uint4*>(left) = make_uint4(rest[0], rest[1], rest[2], rest[3]);
}

// Sixteen dims of a row, eights j and the next: neighbours lie in the same words, and the format is asked for once.
template <uint d> DEVICE void restore_sixteen(const CudaCache& cache, uint row, uint j, const float* levels, uint* to)
{
    if (cache.format == plain_f16) return;
    with_loader<true>(cache.format, [&](auto loader) {
        KS_UNROLL
        for (uint k = 0u; k < 2u; k++) {
            float x[8];
            loader.load(cache, row, j + k, d, levels, x);
            put_eight(x, to + 4u * (j + k), to + d / 2u + 4u * (j + k));
        }
    });
}

template <uint d> __global__ void attention_restore_kernel(AttentionArgs a, RestoredRoom room, CudaSlots s)
{
    begin_kernel();
    KS_SHARED(RestoreShared, all_shared, [1]);
    RestoreShared& shared = all_shared[0];
    const Head& h = shared.head;
    if (threadIdx.x == 0u) {
        shared.head = find_head(a, s, blockIdx.y, 0u, a.n_tokens, false);
        shared.round = round_of(room, share_of(h));
    }
    fill_levels(shared.levels, s);
    __syncthreads();
    const uint first = restored_slots * blockIdx.x, count = shared.round.end - shared.round.begin;
    if (first >= count) return;
    const uint n = min(restored_slots, count - first);
    if (threadIdx.x < n) {
        const uint index = index_of(h, shared.round.begin + first + threadIdx.x), source = source_of(a, h, index);
        shared.source[threadIdx.x] = source;
        shared.row[threadIdx.x] = row_of_slot(a, source, slot_of(a, s, h, index));
    }
    __syncthreads();
    constexpr uint pairs = d / 16u;
    for (uint i = threadIdx.x; i < n * pairs; i += n_threads) {
        const uint slot = i / pairs, j = 2u * (i % pairs), source = shared.source[slot], row = shared.row[slot];
        uint* to = restored_row(a, room, h.head, first + slot);
        restore_sixteen<d>(pool_of(s, source, false), row, j, shared.levels[source].k, to);
        restore_sixteen<d>(pool_of(s, source, true), row, j, shared.levels[source].v, to + d);
    }
}

void attention_restore_launch(const AttentionArgs& a, uint n_splits, const RestoredRoom& room, const CudaSlots& s, cudaStream_t stream)
{
    const dim3 grid((room.each + restored_slots - 1u) / restored_slots, a.n_kv_heads, n_splits);
    if (a.head_dim == 64u)
        KS_LAUNCH(attention_restore_kernel<64u>, grid, n_threads, stream, a, room, s);
    else
        KS_LAUNCH(attention_restore_kernel<128u>, grid, n_threads, stream, a, room, s);
}

bool is_plain(const AttentionArgs& a, const CudaSlots& s)
{
    return a.n_turn == 0u && a.n_wave == 0u && s.weights == nullptr;
}

bool are_halves(const CudaSlots& s)
{
    for (const CudaCache* cache : {&s.k, &s.v, &s.coded_k, &s.coded_v, &s.chunk_k, &s.chunk_v})
        if (cache->words != nullptr && cache->format != plain_f16) return false;
    return true;
}

} // namespace ks
