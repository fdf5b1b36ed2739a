// Moves rows of the cache: copies rows of equal formats, encodes plain rows into coded ones.
// One warp per copied row or group, one thread per encoded row, one block per encoded group.
#include "kernels/cuda/store.cuh"

namespace ks
{

__global__ void kv_move_kernel(KvMoveArgs a, CudaCache to, // (n_rows, head_dim) f32 or f16
                               CudaCache from,             // (n_rows, head_dim) of the same format
                               const uint* moves)          // (n_moves, 2)
{
    begin_kernel();
    for (uint i = first_thread() / 32u; i < a.n_moves; i += n_all_threads() / 32u)
        for (uint k = threadIdx.x % 32u; k < a.head_dim; k += 32u) {
            const uint64_t source = uint64_t(moves[2u * i]) * a.head_dim + k,
                           at = uint64_t(moves[2u * i + 1u]) * a.head_dim + k;
            if (to.format == plain_f32)
                to.words[at] = from.words[source];
            else
                reinterpret_cast<uint16_t*>(to.words)[at] =
                    reinterpret_cast<const uint16_t*>(from.words)[source];
        }
}

// Copies coded rows. The first move of a group has the source and the target of the whole group.
template <class C>
__global__ void kv_copy_kernel(KvMoveArgs a, CudaCache to, CudaCache from, const uint* moves)
{
    begin_kernel();
    const uint d = a.head_dim, n_tail = C::n_tail(d), words = C::words(d), lane = threadIdx.x % 32u;
    for (uint i = first_thread() / 32u; i < a.n_moves / C::group; i += n_all_threads() / 32u) {
        const uint source = moves[2u * i * C::group], at = moves[2u * i * C::group + 1u];
        const uint* in = row_words<C>(from, source, d);
        uint* out = row_words<C>(to, at, d);
        for (uint k = lane; k < words; k += 32u) out[k] = in[k];
        uint8_t* tails = reinterpret_cast<uint8_t*>(to.words + uint64_t(to.n_rows) * words);
        if (lane < n_tail)
            tails[uint64_t(at) * n_tail + lane] =
                uint8_t(row_tail<C>(from, source, d) >> (8u * lane));
    }
}

template <class C>
__global__ void kv_encode_rows_kernel(KvMoveArgs a, CudaCache to, CudaCache from, const uint* moves)
{
    begin_kernel();
    float x[codec_max_dim];
    uint row[max_row_words];
    for (uint i = first_thread(); i < a.n_moves; i += n_all_threads()) {
        decode_row(from, moves[2u * i], a.head_dim, 0u, 1u,
                   [&](uint k, float value) { x[k] = value; });
        C::encode(x, row, a.head_dim);
        store_row<C>(to, moves[2u * i + 1u], a.head_dim, row);
    }
}

// Computes the result of kivi_group_encode with one thread per dim.
__global__ void kv_encode_group_kernel(KvMoveArgs a, CudaCache to, CudaCache from,
                                       const uint* moves, uint bits)
{
    begin_kernel();
    KS_SHARED(uint, planes, [kivi_rows * codec_max_dim / 8u]);
    const uint d = a.head_dim, max_code = (1u << bits) - 1u, row_words = bits * d / 32u;
    const uint* move = moves + 2u * kivi_rows * blockIdx.x;
    uint* out = to.words + uint64_t(move[1] / kivi_rows) * kivi_group_words(bits, d);
    for (uint i = threadIdx.x; i < kivi_rows * row_words; i += n_threads) planes[i] = 0u;
    __syncthreads();
    for (uint i = threadIdx.x; i < d; i += n_threads) {
        float x[kivi_rows], lowest = 0.f, highest = 0.f;
        for (uint r = 0u; r < kivi_rows; r++) {
            const uint64_t at = uint64_t(move[2u * r]) * d + i;
            x[r] =
                coded_value(from.format == plain_f32
                                ? BITS_TO_FLOAT(from.words[at])
                                : HALF_TO_FLOAT(reinterpret_cast<const uint16_t*>(from.words)[at]));
            lowest = r == 0u || x[r] < lowest ? x[r] : lowest;
            highest = r == 0u || x[r] > highest ? x[r] : highest;
        }
        const uint range = kivi_range(lowest, highest, max_code), bit = plane_bit(i, d, bits);
        out[i] = range;
        for (uint r = 0u; r < kivi_rows; r++)
            atomicOr(&planes[r * row_words + bit / 32u], kivi_code(x[r], range, max_code)
                                                             << (bit & 31u));
    }
    __syncthreads();
    for (uint i = threadIdx.x; i < kivi_rows * row_words; i += n_threads) out[d + i] = planes[i];
}

void kv_move_launch(const KvMoveArgs& a, CudaCache to, CudaCache from, const uint* moves,
                    cudaStream_t stream)
{
    if (to.format < first_codec) {
        KS_LAUNCH(kv_move_kernel, blocks_for(32ull * a.n_moves), n_threads, stream, a, to, from,
                  moves);
        return;
    }
#define KS_CASE(name, number)                                                                      \
    if (to.format == number && from.format == number)                                              \
        KS_LAUNCH(kv_copy_kernel<RowCodec<codec_##name>>, blocks_for(32ull * a.n_moves),           \
                  n_threads, stream, a, to, from, moves);                                          \
    else if (to.format == number)                                                                  \
        KS_LAUNCH(kv_encode_rows_kernel<RowCodec<codec_##name>>, blocks_for(a.n_moves), n_threads, \
                  stream, a, to, from, moves);
    CODECS(KS_CASE)
#undef KS_CASE
#define KS_CASE(name, number)                                                                      \
    if (to.format == number && from.format == number)                                              \
        KS_LAUNCH(kv_copy_kernel<GroupCodec<codec_##name>>,                                        \
                  blocks_for(32ull * a.n_moves / kivi_rows), n_threads, stream, a, to, from,       \
                  moves);                                                                          \
    else if (to.format == number)                                                                  \
        KS_LAUNCH(kv_encode_group_kernel, a.n_moves / kivi_rows, n_threads, stream, a, to, from,   \
                  moves, (codec_##name::group_words(64u) - 64u) / 64u);
    GROUP_CODECS(KS_CASE)
#undef KS_CASE
}

} // namespace ks
