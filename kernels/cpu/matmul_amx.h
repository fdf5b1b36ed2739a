// The products with quantised weights by AMX, for sixteen tokens and more. A tile register holds 16 rows of 64 bytes, and
// word j of two weight tiles over j is what it wants as a right side: 16 tokens x 32 values times 32 values x 16 weight rows
// are one instruction. Only 32, because every block of 32 has scales of its own; or 16 twice, where halves differ. The dots
// are exact integers, and what follows is in the order of matmul.h: the results are those of AVX2, bit for bit.
#pragma once

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd_avx2.h"

// Takes what has fewer tokens: every processor with AMX has it. Tests, which run without, give another.
#ifndef KS_AMX_FEW
#define KS_AMX_FEW kMatmulAvx512Vnni
#endif

namespace ks
{
namespace // as in simd_avx2.h
{

constexpr uint32_t kAmxTokens = 16; // rows of a register
constexpr uint32_t kAmxChunk = 64;  // tokens whose sums stay in the first-level cache while weights pass

// The registers: 0 dots, 1 dots of second halves; activations: 2 whole, 4 and 5 halves; weights: 3 whole, 6 and 7 halves.
struct alignas(64) AmxConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 32, 64, 16, 16, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 8, 16, 16, 4, 4};
};
static_assert(sizeof(AmxConfig) == 64, "the processor's layout");
static constexpr AmxConfig kAmxConfig;

using AmxDots = int32_t[kAmxTokens][2 * tile_rows];

// One block of two weight tiles.
template <class F> struct AmxBlock {
    using Group = typename Unpack<Avx2, F>::Group;
    static constexpr uint32_t n_groups = F::block / 32, n_parts = Group::kind == group_signed ? 2 : 1;
    alignas(64) uint32_t words[n_groups][8][2 * tile_rows]; // the groups' q
    Group groups[n_groups][n_parts][2];

    KS_INLINE void unpack(const uint32_t* at, uint32_t tile)
    {
        Unpack<Avx2, F>::groups(at, [&](const Group& w, uint32_t g, uint32_t part) KS_INLINED {
            constexpr uint32_t n = 8 / n_parts;
            KS_UNROLL(8)
            for (uint32_t j = 0; j < n; j++)
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(words[g][n * part + j] + tile_rows * tile), w.q[j].v);
            groups[g][part][tile] = w;
        });
    }
};

template <GroupKind kind> KS_INLINE void amx_load_weights(const uint32_t (*words)[2 * tile_rows])
{
    if constexpr (kind == group_offset) {
        _tile_loadd(3, words, 64);
    } else {
        _tile_loadd(6, words, 64);
        _tile_loadd(7, words + 4, 64);
    }
}

// The dots of sixteen tokens with the weights that are loaded.
template <GroupKind kind> KS_INLINE void amx_multiply(const ActBlock* a, AmxDots* dots)
{
    _tile_zero(0);
    if constexpr (kind == group_offset) {
        _tile_loadd(2, a->q, sizeof(ActBlock));
        _tile_dpbsud(0, 2, 3);
    } else {
        _tile_zero(1);
        _tile_loadd(4, a->q, sizeof(ActBlock));
        _tile_loadd(5, a->q + 16, sizeof(ActBlock));
        if constexpr (kind == group_signed) {
            _tile_dpbssd(0, 4, 6);
            _tile_dpbssd(1, 5, 7);
        } else {
            _tile_dpbsud(0, 4, 6);
            _tile_dpbsud(1, 5, 7);
        }
        _tile_stored(1, dots[1], 64);
    }
    _tile_stored(0, dots[0], 64);
}

// One token, one tile.
template <class Group>
KS_INLINE Avx2::F8 amx_add(Avx2::F8 sum, const Group (*w)[2], uint32_t tile, const ActBlock* a, const int32_t* first, const int32_t* second)
{
    Avx2::W8 dots = Avx2::words(reinterpret_cast<const uint32_t*>(first) + tile_rows * tile);
    if constexpr (Group::kind == group_offset) {
        add_dots<Avx2, 1>(&sum, w[0][tile], a, &dots, 0);
        return sum;
    } else {
        Avx2::W8 more = Avx2::words(reinterpret_cast<const uint32_t*>(second) + tile_rows * tile);
        if constexpr (Group::kind == group_signed) {
            add_dots<Avx2, 1>(&sum, w[0][tile], a, &dots, 0);
            add_dots<Avx2, 1>(&sum, w[1][tile], a, &more, 1);
        } else if constexpr (Group::kind == group_small) {
            const Avx2::W8 both[2] = {dots, more};
            add_dots<Avx2, 1>(&sum, w[0][tile], a, both, 0);
        } else {
            const Avx2::W8* scale = w[0][tile].scale; // int16 in both halves of its words
            dots.v = _mm256_mullo_epi32(dots.v, _mm256_srai_epi32(scale[0].v, 16));
            dots = dots + Avx2::W8{_mm256_mullo_epi32(more.v, _mm256_srai_epi32(scale[1].v, 16))};
            add_dots<Avx2, 1>(&sum, w[0][tile], a, &dots, 0);
        }
        return sum;
    }
}

// n_tokens <= kAmxChunk from `token` on, two tiles from `tile` on. A tile without a neighbour is computed twice.
template <class F> void amx_chunk(const MatmulTask& m, uint32_t tile, uint32_t token, uint32_t n_tokens)
{
    using Block = AmxBlock<F>;
    constexpr GroupKind kind = Block::Group::kind;
    const uint32_t n_tiles = m.n_tiles - tile < 2 ? 1 : 2;
    const uint32_t* at[2] = {tile_begin<F>(m, tile), tile_begin<F>(m, tile + n_tiles - 1)};
    Block block;
    AmxDots dots[2];
    Avx2::F8 sums[kAmxChunk][2];
    for (uint32_t t = 0; t < n_tokens; t++) sums[t][0] = sums[t][1] = Avx2::zero();
    const ActBlock* acts = m.acts;
    for (uint32_t b = 0; b < m.cols / F::block; b++) {
        for (uint32_t i = 0; i < 2; i++, at[i - 1] += F::half_words + tile_rows * F::words) block.unpack(at[i], i);
        asm volatile("" ::: "memory"); // compilers do not see that loading a register reads the words
        for (uint32_t g = 0; g < Block::n_groups; g++, acts += m.n_tokens) {
            amx_load_weights<kind>(block.words[g]);
            for (uint32_t t = 0; t < n_tokens; t += kAmxTokens) {
                const uint32_t end = t + kAmxTokens < n_tokens ? t + kAmxTokens : n_tokens;
                // Sixteen that are all there: the last of them include some that were done before.
                const uint32_t last = m.n_tokens - kAmxTokens, from = token + t < last ? token + t : last;
                amx_multiply<kind>(acts + from, dots);
                for (uint32_t i = t; i < end; i++) {
                    const uint32_t row = token + i - from;
                    for (uint32_t n = 0; n < 2; n++)
                        sums[i][n] = amx_add(sums[i][n], block.groups[g], n, acts + token + i, dots[0][row], dots[1][row]);
                }
            }
        }
    }
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t n = 0; n < n_tiles; n++) write_rows<Avx2>(m, tile + n, token + t, sums[t][n]);
}

template <int format> void amx_few(const MatmulTask& m)
{
    KS_AMX_FEW->matmul[format](m);
}

// The registers are set up for each call, because they are a thread's own and the caller owns the threads.
template <class F, int format> void matmul_amx(const MatmulTask& m)
{
    if (m.n_tokens < kAmxTokens) return amx_few<format>(m);
    _tile_loadconfig(&kAmxConfig);
    for (uint32_t tile = 0; tile < m.n_tiles; tile += 2)
        for (uint32_t t = 0; t < m.n_tokens; t += kAmxChunk)
            amx_chunk<F>(m, tile, t, m.n_tokens - t < kAmxChunk ? m.n_tokens - t : kAmxChunk);
    _tile_release();
}

// Two registers of dots in turn, each begun anew as for every group.
inline uint64_t amx_dot_peak(uint32_t n_rounds)
{
    alignas(64) uint8_t ones[16][64];
    memset(ones, 1, sizeof ones);
    asm volatile("" : : "r"(ones) : "memory");
    _tile_loadconfig(&kAmxConfig);
    _tile_loadd(2, ones, 64);
    _tile_loadd(3, ones, 64);
    for (uint32_t i = 0; i < n_rounds; i++) {
        _tile_zero(0);
        _tile_dpbsud(0, 2, 3);
        _tile_zero(1);
        _tile_dpbsud(1, 2, 3);
    }
    _tile_release();
    return uint64_t(n_rounds) * 2 * kAmxTokens * (2 * tile_rows) * 32;
}

template <class F, int format> constexpr MatmulKernel amx_kernel()
{
    if constexpr (F::block == 1)
        return amx_few<format>;
    else
        return matmul_amx<F, format>;
}

} // namespace

#define KS_AMX_HALVES_ENTRY(name) takes_halves<Avx2, format_##name>(),
#define KS_AMX_ENTRY(name) amx_kernel<format_##name, cpu_format_##name>(),
#define KS_AMX_KERNELS                                                                                                                     \
    {                                                                                                                                      \
        quantize<Avx2>, {FORMATS(KS_AMX_HALVES_ENTRY)}, {FORMATS(KS_AMX_ENTRY)}, amx_dot_peak                                              \
    }

} // namespace ks
