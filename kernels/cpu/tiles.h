// Access to weight tiles (kernels/common/formats.h) and to the sums of their rows. A kernel reads
// two tiles at a time, which keeps more reads of memory in flight than one.
#pragma once

#include "kernels/cpu/cpu_kernels.h"

namespace ks
{

template <class F>
constexpr uint32_t block_words = F::half_words + tile_rows* F::words;

// The blocks of some columns in the tiles that are multiplied at once: as many as fill the lanes
// of S, one or two.
template <class S>
struct Blocks {
    static constexpr uint32_t n_tiles = S::lanes / tile_rows;
    const uint32_t* first;
    size_t stride; // words from the first to the second
};

// Word j of each row.
template <class S, class F>
KS_INLINE typename S::W tile_word(Blocks<S> at, uint32_t j)
{
    const uint32_t* words = at.first + F::half_words + tile_rows * j;
    if constexpr (at.n_tiles == 2)
        return S::words_of_two(words, words + at.stride);
    else
        return S::words(words);
}

template <class S>
KS_INLINE typename S::F tile_half(Blocks<S> at)
{
    auto* halves = reinterpret_cast<const uint16_t*>(at.first);
    if constexpr (at.n_tiles == 2)
        return S::halves_of_two(halves, halves + 2 * at.stride);
    else
        return S::load_half(halves);
}

// The byte of each row that is outside the words.
template <class S>
KS_INLINE typename S::W tile_byte(Blocks<S> at)
{
    auto* bytes = reinterpret_cast<const uint8_t*>(at.first);
    if constexpr (at.n_tiles == 2)
        return S::bytes_of_two(bytes, bytes + 4 * at.stride);
    else
        return S::load_bytes(reinterpret_cast<const int8_t*>(bytes)) & S::each(255);
}

// Writes the sums of one token, of the tiles from `tile` on, times the scale to y. The last tile
// may have fewer than eight rows.
template <class S>
KS_INLINE void write_rows(const MatmulTask& m, uint32_t tile, uint32_t token, typename S::F sum)
{
    float* y = m.y + size_t(m.y_rows ? m.y_rows[token] : token) * m.y_stride + tile * tile_rows;
    const uint32_t end = m.n_rows < m.n_tiles * tile_rows ? m.n_rows : m.n_tiles * tile_rows,
                   n_rows = end - tile * tile_rows;
    sum = sum * S::broadcast(m.scale);
    if (n_rows >= S::lanes) {
        S::store(y, m.accumulate ? S::load(y) + sum : sum);
        return;
    }
    float rows[S::lanes];
    S::store(rows, sum);
    for (uint32_t r = 0; r < n_rows; r++) y[r] = m.accumulate ? y[r] + rows[r] : rows[r];
}

// Prefetches the part-th of n_parts of what write_rows writes for all tokens.
KS_INLINE static void prefetch_rows(const MatmulTask& m, uint32_t tile, uint32_t part,
                                    uint32_t n_parts)
{
    const uint32_t share = (m.n_tokens + n_parts - 1) / n_parts, begin = share * part,
                   end = begin + share < m.n_tokens ? begin + share : m.n_tokens;
    for (uint32_t t = begin; t < end; t++)
        __builtin_prefetch(m.y + size_t(m.y_rows ? m.y_rows[t] : t) * m.y_stride + tile * tile_rows,
                           1, 2);
}

// The first blocks of the tiles from `tile` on. A missing second tile is replaced by the first.
template <class S, class F>
KS_INLINE Blocks<S> first_blocks(const MatmulTask& m, uint32_t tile)
{
    const size_t tile_words = size_t(m.cols / F::block) * block_words<F>;
    return {m.tiles + tile * tile_words, tile + 1 < m.n_tiles ? tile_words : 0};
}

// Prefetches bytes [begin, end) of the blocks at `ahead`. The hardware prefetcher loses track of
// blocks whose fields are not read in order.
template <class S>
KS_INLINE void prefetch_blocks(const MatmulTask& m, Blocks<S> ahead, uint32_t begin, uint32_t end)
{
    KS_UNROLL(2)
    for (uint32_t tile = 0; tile < ahead.n_tiles; tile++) {
        auto* bytes = reinterpret_cast<const char*>(ahead.first + tile * ahead.stride);
        KS_UNROLL(8)
        for (uint32_t line = (begin + 63) / 64; line < (end + 63) / 64; line++) {
            if (m.prefetch_to_l2)
                __builtin_prefetch(bytes + 64 * line, 0, 2);
            else
                __builtin_prefetch(bytes + 64 * line);
        }
    }
}

// How many blocks ahead of their use blocks are prefetched: 2 KiB into L1, of which about 50 reads
// can be in flight, or 8 KiB into L2.
template <class F>
KS_INLINE uint32_t prefetch_distance(const MatmulTask& m)
{
    const uint32_t n_bytes = m.prefetch_to_l2 ? 8192 : 2048, n_blocks = m.cols / F::block,
                   n = n_bytes / (4 * block_words<F>)+1;
    return n < n_blocks ? n : n_blocks;
}

// The blocks n further than block b of n_blocks. Behind the end of n_tiles tiles that are read
// together follow the next ones.
template <class S, class F>
KS_INLINE Blocks<S> blocks_ahead(Blocks<S> at, uint32_t n, uint32_t b, uint32_t n_blocks,
                                 uint32_t n_tiles)
{
    const size_t skipped = b + n < n_blocks ? 0 : size_t(n_tiles - 1) * n_blocks;
    return {at.first + (n + skipped) * block_words<F>, at.stride};
}

} // namespace ks
