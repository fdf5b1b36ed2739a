// The products and the softmax of six queries with a tile, for the chunk kernel.
#pragma once

#include "kernels/cpu/attention_tile.h"

namespace ks
{
namespace // as in simd_avx2.h
{

// The arrays of a chunk, f32.
struct ChunkScratch {
    uint32_t width;   // head_dim rounded up to whole panels
    float* q;         // (kAttentionRows, width), scaled
    float* q_clamped; // (kAttentionRows, width), the clamped queries, scaled
    float* out;       // (kAttentionRows, width)
    float* keys;      // (kAttentionTile / kPanel) panels (width, kPanel): a column per position
    float* values;    // (width / kPanel) panels (kAttentionTile, kPanel): a row per position
    float* decoded;   // (kAttentionTile, head_dim), decoded rows
    float* weights;   // (kRowBlock, kAttentionTile)
    float* top;       // (kAttentionRows), running maximum of the group of indexes
    float* norm;      // (kAttentionRows)
    float* total;     // (kAttentionRows, width), like `out` but over all earlier groups
    float* total_top; // (kAttentionRows), like `top` over all earlier groups
    float* total_norm;

    KS_INLINE ChunkScratch(float* scratch, uint32_t head_dim)
        : width((head_dim + kPanel - 1) / kPanel * kPanel)
    {
        q = scratch;
        q_clamped = q + kAttentionRows * width;
        out = q_clamped + kAttentionRows * width;
        keys = out + kAttentionRows * width;
        values = keys + kAttentionTile * width;
        decoded = values + kAttentionTile * width;
        weights = decoded + kAttentionTile * width;
        top = weights + kRowBlock * kAttentionTile;
        norm = top + kAttentionRows;
        total_top = norm + kAttentionRows;
        total_norm = total_top + kAttentionRows;
        total = total_norm + kAttentionRows;
    }
    KS_INLINE Sums group_sums(uint32_t r) const
    {
        return {top + r, norm + r, out + size_t(r) * width};
    }
    KS_INLINE Sums total_sums(uint32_t r) const
    {
        return {total_top + r, total_norm + r, total + size_t(r) * width};
    }
};

// Panels of 16 columns that six rows meet at once: with fewer vectors, sums wait for each other.
template <class S>
constexpr uint32_t kPanels = S::Wide::lanes == kPanel ? 2 : 1;

// Vectors of a row of n_panels panels, and their places in arrays with rows of panels of `stride`.
template <class S, uint32_t n_panels>
struct PanelRow {
    using V = typename S::Wide;
    static constexpr uint32_t per_panel = kPanel / V::lanes, n = n_panels * per_panel;

    static KS_INLINE size_t at(uint32_t i, size_t stride)
    {
        return i / per_panel * stride + i % per_panel * V::lanes;
    }
};

// weights[r][16 panel ..] = q[r] . keys, for the queries q (kRowBlock, width) of a block.
template <class S, uint32_t n_panels>
void block_logits(const ChunkScratch& s, const float* q, uint32_t head_dim, uint32_t panel)
{
    using V = typename S::Wide;
    using Row = PanelRow<S, n_panels>;
    constexpr uint32_t n = Row::n;
    // Sums over every eighth dim are added as ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)).
    // waiting[level] holds the left operand of a level until the right one is complete.
    typename V::F sums[n * kRowBlock], waiting[3][n * kRowBlock];
    for (uint32_t eighth = 0, level = 0; level < 3; eighth++) {
        const float* keys = s.keys + (size_t(panel) * s.width + eighth) * kPanel;
        KS_UNROLL(12)
        for (uint32_t i = 0; i < n * kRowBlock; i++) sums[i] = V::zero();
        for (uint32_t d = eighth; d < head_dim; d += 8, keys += 8 * kPanel) {
            typename V::F key[n];
            KS_UNROLL(2)
            for (uint32_t i = 0; i < n; i++)
                key[i] = V::load(keys + Row::at(i, size_t(s.width) * kPanel));
            KS_UNROLL(6)
            for (uint32_t r = 0; r < kRowBlock; r++) {
                typename V::F value = V::broadcast(q[size_t(r) * s.width + d]);
                KS_UNROLL(2)
                for (uint32_t i = 0; i < n; i++)
                    sums[n * r + i] = V::fma(value, key[i], sums[n * r + i]);
            }
        }
        for (level = 0; eighth >> level & 1; level++) {
            KS_UNROLL(12)
            for (uint32_t i = 0; i < n * kRowBlock; i++) sums[i] = waiting[level][i] + sums[i];
        }
        KS_UNROLL(12)
        for (uint32_t i = 0; level < 3 && i < n * kRowBlock; i++) waiting[level][i] = sums[i];
    }
    KS_UNROLL(12)
    for (uint32_t i = 0; i < n * kRowBlock; i++)
        V::store(s.weights + i / n * kAttentionTile + panel * kPanel + Row::at(i % n, kPanel),
                 sums[i]);
}

// block_logits for panels [left, right) and the queries from row `first` on. The first n_clamped
// columns meet the clamped queries.
template <class S>
void block_logits_of_panels(const ChunkScratch& s, uint32_t first, uint32_t head_dim, uint32_t left,
                            uint32_t right, uint32_t n_clamped)
{
    const float* q = s.q + size_t(first) * s.width;
    for (uint32_t panel = left; panel < right; panel++) {
        const uint32_t begin = panel * kPanel, end = begin + kPanel;
        if (begin >= n_clamped && panel + kPanels<S> <= right) {
            block_logits<S, kPanels<S>>(s, q, head_dim, panel);
            panel += kPanels<S> - 1;
            continue;
        }
        float unclamped[kRowBlock][kPanel];
        if (end > n_clamped) block_logits<S, 1>(s, q, head_dim, panel);
        if (begin >= n_clamped) continue;
        for (uint32_t i = 0; i < kRowBlock; i++)
            for (uint32_t k = n_clamped; k < end; k++)
                unclamped[i][k - begin] = s.weights[i * kAttentionTile + k];
        block_logits<S, 1>(s, s.q_clamped + size_t(first) * s.width, head_dim, panel);
        for (uint32_t i = 0; i < kRowBlock; i++)
            for (uint32_t k = n_clamped; k < end; k++)
                s.weights[i * kAttentionTile + k] = unclamped[i][k - begin];
    }
}

// out[r][16 panel ..] = out * shrink[r] + weights[r] . values, over columns [begin, end) of the
// tile.
template <class S, uint32_t n_panels>
void block_outputs(const ChunkScratch& s, float* out, const float* shrink, uint32_t panel,
                   uint32_t begin, uint32_t end)
{
    using V = typename S::Wide;
    using Row = PanelRow<S, n_panels>;
    constexpr uint32_t n = Row::n;
    const float* values = s.values + (size_t(panel) * kAttentionTile + begin) * kPanel;
    out += panel * kPanel;
    typename V::F sums[kRowBlock][n];
    KS_UNROLL(6)
    for (uint32_t r = 0; r < kRowBlock; r++) KS_UNROLL(2)
    for (uint32_t i = 0; i < n; i++)
        sums[r][i] =
            V::load(out + size_t(r) * s.width + Row::at(i, kPanel)) * V::broadcast(shrink[r]);
    for (uint32_t p = begin; p < end; p++, values += kPanel) {
        typename V::F value[n];
        KS_UNROLL(2)
        for (uint32_t i = 0; i < n; i++)
            value[i] = V::load(values + Row::at(i, size_t(kAttentionTile) * kPanel));
        KS_UNROLL(6)
        for (uint32_t r = 0; r < kRowBlock; r++) {
            typename V::F weight = V::broadcast(s.weights[r * kAttentionTile + p]);
            KS_UNROLL(2)
            for (uint32_t i = 0; i < n; i++) sums[r][i] = V::fma(weight, value[i], sums[r][i]);
        }
    }
    KS_UNROLL(6)
    for (uint32_t r = 0; r < kRowBlock; r++) KS_UNROLL(2)
    for (uint32_t i = 0; i < n; i++)
        V::store(out + size_t(r) * s.width + Row::at(i, kPanel), sums[r][i]);
}

// sums + x, eight lanes after the other.
template <class S>
KS_INLINE typename S::F8 add_eights(typename S::F8 sums, typename S::Wide::F x)
{
    if constexpr (S::Wide::lanes == 16)
        return sums + S::Wide::low(x) + S::Wide::high(x);
    else
        return sums + x;
}

template <class S>
KS_INLINE float largest_of(typename S::Wide::F x)
{
    if constexpr (S::Wide::lanes == 16)
        return S::largest(S::max(S::Wide::low(x), S::Wide::high(x)));
    else
        return S::largest(x);
}

// to_weights for the rows of a block, whose n columns are kAttentionTile apart. A row alone waits
// for its own sums.
template <class S>
KS_INLINE void block_to_weights(float* w, uint32_t n, const Columns* seen, float* top, float* norm,
                                float* shrink)
{
    using V = typename S::Wide;
    typename V::F tops[kRowBlock];
    KS_UNROLL(6)
    for (uint32_t r = 0; r < kRowBlock; r++) {
        mask_columns(w + r * kAttentionTile, n, seen[r].hole, seen[r].begin, seen[r].end);
        tops[r] = V::broadcast(top[r]);
    }
    for (uint32_t i = 0; i < n; i += V::lanes) KS_UNROLL(6)
    for (uint32_t r = 0; r < kRowBlock; r++)
        tops[r] = V::max(V::load(w + r * kAttentionTile + i), tops[r]);
    float new_top[8] = {}, before[8] = {};
    typename S::F8 sums[kRowBlock];
    KS_UNROLL(6)
    for (uint32_t r = 0; r < kRowBlock; r++) {
        new_top[r] = largest_of<S>(tops[r]);
        tops[r] = V::broadcast(new_top[r]);
        before[r] = top[r] - new_top[r];
        sums[r] = S::zero();
    }
    S::store(before, exp2_of_negative<S>(S::load(before)));
    for (uint32_t i = 0; i < n; i += V::lanes) KS_UNROLL(6)
    for (uint32_t r = 0; r < kRowBlock; r++) {
        float* at = w + r * kAttentionTile + i;
        const typename V::F x = exp2_of_negative<V>(V::load(at) - tops[r]);
        V::store(at, x);
        sums[r] = add_eights<S>(sums[r], x);
    }
    for (uint32_t r = 0; r < kRowBlock; r++) {
        shrink[r] = 1;
        if (new_top[r] <= kLowest) { // all columns so far are masked
            for (uint32_t i = 0; i < n; i++) w[r * kAttentionTile + i] = 0;
            continue;
        }
        shrink[r] = before[r];
        top[r] = new_top[r];
        norm[r] = norm[r] * before[r] + S::sum(sums[r]);
    }
}

} // namespace
} // namespace ks
