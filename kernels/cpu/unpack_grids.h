// Unpacks the formats with a grid, IQ1 to IQ3 (unpack.h). Looking up the entries of the grid takes
// most of the time, so the groups of a block share one loop.
#pragma once

#include "kernels/cpu/unpack.h"

namespace ks
{

// The grids of IQ1 and IQ2 with the level of value i of an entry in nibble 2 i % 8 + i / 4, of IQ3
// with byte i of an entry the level of value i.
template <uint32_t n>
struct Grid {
    uint32_t words[n] = {};
};

template <uint32_t n>
constexpr Grid<n> iq2_grid(const uint32_t (&pairs)[n / 2])
{
    Grid<n> grid;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t entry = pairs[i / 2] >> (16 * (i & 1));
        for (uint32_t k = 0; k < 8; k++)
            grid.words[i] |= (entry >> (2 * k) & 3) << (8 * (k & 3) + 4 * (k / 4));
    }
    return grid;
}

template <uint32_t n>
constexpr Grid<n> iq3_grid(const uint32_t (&pairs)[n / 2], const uint8_t (&levels)[8])
{
    Grid<n> grid;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t entry = pairs[i / 2] >> (16 * (i & 1));
        for (uint32_t k = 0; k < 4; k++)
            grid.words[i] |= uint32_t(levels[entry >> (4 * k) & 7]) << (8 * k);
    }
    return grid;
}

constexpr int8_t kIq2Levels[16] = {8, 25, 43};
constexpr Grid<256> kIq2XxsGrid = iq2_grid<256>({IQ2_XXS_GRID});
constexpr Grid<512> kIq2XsGrid = iq2_grid<512>({IQ2_XS_GRID});
constexpr Grid<1024> kIq2SGrid = iq2_grid<1024>({IQ2_S_GRID});
constexpr Grid<2048> kIq1Grid = iq2_grid<2048>({IQ1_GRID});
constexpr Grid<256> kIq3XxsGrid = iq3_grid<256>({IQ3_XXS_GRID}, {4, 12, 20, 28, 36, 44, 52, 62});
constexpr Grid<512> kIq3SGrid = iq3_grid<512>({IQ3_S_GRID}, {1, 3, 5, 7, 9, 11, 13, 15});

// even_signs of formats.h for eight rows.
template <class S>
KS_INLINE typename S::W even_signs(typename S::W file)
{
    typename S::W signs = (file & S::each(0x7f)) | ((file << 1) & S::each(0x7f00)) |
                          ((file << 2) & S::each(0x7f0000)) | ((file << 3) & S::each(0x7f000000));
    typename S::W odd = signs ^ (signs >> 4);
    odd = odd ^ (odd >> 2);
    odd = odd ^ (odd >> 1);
    return signs | ((odd & S::each(0x01010101)) << 7);
}

// Sixteen values of a format with a grid. index[i]: the entry of values 8i .. 8i + 7 in IQ2, of
// values 4i .. 4i + 3 in IQ3. signs: bit 4 first + k is the sign of value k.
template <class S, uint32_t n>
KS_INLINE void iq2_values(const Grid<n>& grid, const typename S::W* index, typename S::W signs,
                          int first, typename S::W* q)
{
    KS_UNROLL(4)
    for (uint32_t i = 0; i < 4; i += 2) {
        const typename S::W both = S::gather(grid.words, index[i / 2]);
        KS_UNROLL(2)
        for (uint32_t j = 0; j < 2; j++)
            q[i + j] =
                S::negate_bytes(S::look_up(bits<S>(both, int(4 * j), 0x0f0f0f0f), kIq2Levels),
                                signs, first + int(i + j));
    }
}
template <class S, uint32_t n>
KS_INLINE void iq3_values(const Grid<n>& grid, const typename S::W* index, typename S::W signs,
                          int first, typename S::W* q)
{
    KS_UNROLL(4)
    for (uint32_t i = 0; i < 4; i++)
        q[i] = S::negate_bytes(S::gather(grid.words, index[i]), signs, first + int(i));
}

// iq1_levels of formats.h for eight rows: sixteen values from two entries. Bit 0 of minus[i]: minus
// of entry i. Its other bits are 0.
template <class S>
KS_INLINE void iq1_values(const typename S::W* index, const typename S::W* minus, typename S::W* q)
{
    KS_UNROLL(2)
    for (uint32_t i = 0; i < 2; i++) {
        const typename S::W both = S::gather(kIq1Grid.words, index[i]);
        const typename S::W plus =
            S::each(0x79797979) - ((S::each(0) - minus[i]) & S::each(0x02020202));
        KS_UNROLL(2)
        for (uint32_t j = 0; j < 2; j++)
            q[2 * i + j] =
                ((bits<S>(both, int(4 * j), 0x0f0f0f0f) << 3) + plus) ^ S::each(0x80808080);
    }
}

// Twice s + 1/2, for s in the bits of `mask` from `shift` on.
template <class S>
KS_INLINE typename S::F odd_scale(typename S::W words, int shift, uint32_t mask = 15)
{
    return S::to_float((bits<S>(words, shift, mask) << 1) | S::each(1));
}

template <class S>
struct Unpack<S, format_iq2_xxs> {
    using F = format_iq2_xxs;
    using Group = SignedGroup<S>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        const typename S::F d = tile_half<S>(at) * S::broadcast(0.125f);
        for (uint32_t g = 0; g < 8; g++) {
            const typename S::W four = tile_word<S, F>(at, 2 * g),
                                head = tile_word<S, F>(at, 2 * g + 1), signs = even_signs<S>(head);
            Group w;
            w.d = d * odd_scale<S>(head, 28);
            KS_UNROLL(2)
            for (uint32_t part = 0; part < 2; part++) {
                const typename S::W index[2] = {bits<S>(four, int(16 * part), 255),
                                                bits<S>(four, int(16 * part + 8), 255)};
                iq2_values<S>(kIq2XxsGrid, index, signs, int(4 * part), w.q);
                body(w, g, part);
            }
        }
    }
};

template <class S>
struct Unpack<S, format_iq2_xs> {
    using F = format_iq2_xs;
    using Group = SignedGroup<S>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        const typename S::F d = tile_half<S>(at) * S::broadcast(0.125f);
        for (uint32_t g = 0; g < 8; g++) {
            const typename S::W scales = tile_word<S, F>(at, 16 + g / 4) >> int(8 * (g & 3));
            Group w;
            KS_UNROLL(2)
            for (uint32_t part = 0; part < 2; part++) {
                const typename S::W two = tile_word<S, F>(at, 2 * g + part);
                const typename S::W index[2] = {bits<S>(two, 0, 511), bits<S>(two, 16, 511)};
                // seven signs of either half, side by side
                const typename S::W signs =
                    even_signs<S>(bits<S>(two, 9, 127) | (bits<S>(two, 25, 127) << 7));
                w.d = d * odd_scale<S>(scales, int(4 * part));
                iq2_values<S>(kIq2XsGrid, index, signs, 0, w.q);
                body(w, g, part);
            }
        }
    }
};

template <class S>
struct Unpack<S, format_iq2_s> {
    using F = format_iq2_s;
    using Group = SignedGroup<S>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        const typename S::F d = tile_half<S>(at) * S::broadcast(0.125f);
        for (uint32_t g = 0; g < 8; g++) {
            const typename S::W low = tile_word<S, F>(at, g), signs = tile_word<S, F>(at, 8 + g);
            const typename S::W high = tile_word<S, F>(at, 16 + g / 4) >> int(8 * (g & 3)),
                                scales = tile_word<S, F>(at, 18 + g / 4) >> int(8 * (g & 3));
            Group w;
            KS_UNROLL(2)
            for (uint32_t part = 0; part < 2; part++) {
                typename S::W index[2];
                KS_UNROLL(2)
                for (uint32_t i = 0; i < 2; i++)
                    index[i] = bits<S>(low, int(16 * part + 8 * i), 255) |
                               (bits<S>(high, int(4 * part + 2 * i), 3) << 8);
                w.d = d * odd_scale<S>(scales, int(4 * part));
                iq2_values<S>(kIq2SGrid, index, signs, int(4 * part), w.q);
                body(w, g, part);
            }
        }
    }
};

template <class S>
struct Unpack<S, format_iq3_xxs> {
    using F = format_iq3_xxs;
    using Group = SignedGroup<S>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        const typename S::F d = tile_half<S>(at) * S::broadcast(0.25f);
        for (uint32_t g = 0; g < 8; g++) {
            const typename S::W head = tile_word<S, F>(at, 16 + g), signs = even_signs<S>(head);
            Group w;
            w.d = d * odd_scale<S>(head, 28);
            KS_UNROLL(2)
            for (uint32_t part = 0; part < 2; part++) {
                const typename S::W four = tile_word<S, F>(at, 2 * g + part);
                typename S::W index[4];
                KS_UNROLL(4)
                for (uint32_t i = 0; i < 4; i++) index[i] = bits<S>(four, int(8 * i), 255);
                iq3_values<S>(kIq3XxsGrid, index, signs, int(4 * part), w.q);
                body(w, g, part);
            }
        }
    }
};

template <class S>
struct Unpack<S, format_iq3_s> {
    using F = format_iq3_s;
    using Group = SignedGroup<S>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        const typename S::F d = tile_half<S>(at);
        for (uint32_t g = 0; g < 8; g++) {
            const typename S::W signs = tile_word<S, F>(at, 18 + g),
                                high = tile_word<S, F>(at, 16 + g / 4) >> int(8 * (g & 3));
            Group w;
            w.d = d * odd_scale<S>(tile_word<S, F>(at, 26), int(4 * g));
            KS_UNROLL(2)
            for (uint32_t part = 0; part < 2; part++) {
                const typename S::W four = tile_word<S, F>(at, 2 * g + part);
                typename S::W index[4];
                KS_UNROLL(4)
                for (uint32_t i = 0; i < 4; i++)
                    index[i] =
                        bits<S>(four, int(8 * i), 255) | (bits<S>(high, int(4 * part + i), 1) << 8);
                iq3_values<S>(kIq3SGrid, index, signs, int(4 * part), w.q);
                body(w, g, part);
            }
        }
    }
};

template <class S>
struct Unpack<S, format_iq1_s> {
    using F = format_iq1_s;
    using Group = SignedGroup<S>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        const typename S::F d = tile_half<S>(at) * S::broadcast(0.125f);
        for (uint32_t g = 0; g < 8; g++) {
            const typename S::W low = tile_word<S, F>(at, g),
                                head = tile_word<S, F>(at, 8 + g / 2) >> int(16 * (g & 1));
            Group w;
            w.d = d * odd_scale<S>(head, 12, 7);
            KS_UNROLL(2)
            for (uint32_t part = 0; part < 2; part++) {
                typename S::W index[2], minus[2];
                KS_UNROLL(2)
                for (uint32_t i = 0; i < 2; i++) {
                    index[i] = bits<S>(low, int(16 * part + 8 * i), 255) |
                               (bits<S>(head, int(6 * part + 3 * i), 7) << 8);
                    minus[i] = bits<S>(head, 15, 1);
                }
                iq1_values<S>(index, minus, w.q);
                body(w, g, part);
            }
        }
    }
};

template <class S>
struct Unpack<S, format_iq1_m> {
    using F = format_iq1_m;
    using Group = SignedGroup<S>;
    template <class Body>
    KS_INLINE static void groups(Blocks<S> at, const Body& body)
    {
        const typename S::W a = tile_word<S, F>(at, 12), b = tile_word<S, F>(at, 13);
        typename S::F d, unused;
        S::half2(bits<S>(a, 12, 15) | bits<S>(a, 24, 0xf0) | bits<S>(b, 4, 0xf00) |
                     bits<S>(b, 16, 0xf000),
                 &d, &unused);
        d = d * S::broadcast(0.125f);
        for (uint32_t g = 0; g < 8; g++) {
            const typename S::W low = tile_word<S, F>(at, g),
                                head = tile_word<S, F>(at, 8 + g / 2) >> int(16 * (g & 1));
            const typename S::W scales = (g < 4 ? a : b) >> int(16 * (g / 2 & 1) + 6 * (g & 1));
            Group w;
            KS_UNROLL(2)
            for (uint32_t part = 0; part < 2; part++) {
                w.d = d * odd_scale<S>(scales, int(3 * part), 7);
                typename S::W index[2], minus[2];
                KS_UNROLL(2)
                for (uint32_t i = 0; i < 2; i++) {
                    const int from = int(8 * part + 4 * i);
                    index[i] = bits<S>(low, 2 * from, 255) | (bits<S>(head, from, 7) << 8);
                    minus[i] = bits<S>(head, from + 3, 1);
                }
                iq1_values<S>(index, minus, w.q);
                body(w, g, part);
            }
        }
    }
};

} // namespace ks
