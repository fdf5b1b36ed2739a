// The key bias in the logits of a tile, for keys that are stored without it. args.h in
// kernels/common defines the phasors: the cosines and sines of a position.
#pragma once

#include "kernels/cpu/attention_tile.h"

namespace ks
{
namespace // as in simd_avx2.h
{

// The complex product of the phasors of all digits of a position except the lowest. `upper` is
// position / phasor_base.
template <class S>
void upper_phasors(const AttentionTask& task, uint32_t upper, float* phasors)
{
    const uint32_t n = task.a.n_bias_dims, half = n / 2;
    const float* row = task.bias_phasors + size_t(phasor_base + upper % phasor_base) * n;
    for (uint32_t i = 0; i < n; i += 8) S::store(phasors + i, S::load(row + i));
    for (uint32_t digit = 2, rest = upper / phasor_base; rest; digit++, rest /= phasor_base) {
        row = task.bias_phasors + size_t(phasor_base * digit + rest % phasor_base) * n;
        for (uint32_t i = 0; i < half; i += 8) {
            const typename S::F8 c = S::load(phasors + i), s = S::load(phasors + half + i),
                                 row_c = S::load(row + i), row_s = S::load(row + half + i);
            S::store(phasors + i, c * row_c - s * row_s);
            S::store(phasors + half + i, c * row_s + s * row_c);
        }
    }
}

// Writes the phasors of a tile's n columns, the first of which has index p, to
// phasors (n_bias_dims, kAttentionTile). Dims are in the order of a head.
template <class S>
void load_phasors(const AttentionTask& task, uint32_t kv_head, uint32_t p, uint32_t n,
                  float* phasors)
{
    const uint32_t *head_layout = task.head_layout + kv_head * layout_words,
                   n_bias_dims = task.a.n_bias_dims, half = n_bias_dims / 2;
    float scratch[8 * codec_max_dim];
    for (uint32_t column = 0; column < n; column += 8) {
        const float *low[8], *upper[8];
        for (uint32_t i = 0, last = 0; i < 8; i++) {
            const uint32_t index = p + (column + i < n ? column + i : n - 1),
                           before = head_layout[layout_n_held];
            const uint32_t position = index < before
                                          ? task.positions[head_layout[layout_table_begin] + index]
                                          : head_layout[layout_position] + (index - before);
            low[i] = task.bias_phasors + size_t(position % phasor_base) * n_bias_dims;
            upper[i] =
                i && position / phasor_base == last ? upper[i - 1] : scratch + i * n_bias_dims;
            last = position / phasor_base;
            if (upper[i] == scratch + i * n_bias_dims)
                upper_phasors<S>(task, last, scratch + i * n_bias_dims);
        }
        for (uint32_t d = 0; d < n_bias_dims; d += 8) { // cosines, then sines
            const uint32_t from = d < half ? d : d - half;
            const uint32_t place = phasor_dim(d, n_bias_dims, task.a.pairs),
                           step = task.a.pairs == rope_neox ? 1 : 2;
            typename S::F8 block[8];
            KS_UNROLL(8)
            for (uint32_t i = 0; i < 8; i++) {
                const typename S::F8 c = S::load(low[i] + from), s = S::load(low[i] + half + from);
                const typename S::F8 u = S::load(upper[i] + from),
                                     v = S::load(upper[i] + half + from);
                block[i] = d < half ? c * u - s * v : c * v + s * u;
            }
            S::transpose(block);
            for (uint32_t i = 0; i < 8; i++)
                S::store(phasors + size_t(place + step * i) * kAttentionTile + column, block[i]);
        }
    }
}

// out[column] = query . phasors of the column, for the first n columns, rounded up to 32.
template <class S>
void phasor_products(const float* phasors, const float* query, uint32_t n_bias_dims, uint32_t n,
                     float* out)
{
    for (uint32_t column = 0; column < n; column += 32) {
        typename S::F8 sums[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
        for (uint32_t d = 0; d < n_bias_dims; d++) {
            const typename S::F8 value = S::broadcast(query[d]);
            KS_UNROLL(4)
            for (uint32_t i = 0; i < 4; i++)
                sums[i] = S::fma(
                    value, S::load(phasors + size_t(d) * kAttentionTile + column + 8 * i), sums[i]);
        }
        for (uint32_t i = 0; i < 4; i++) S::store(out + column + 8 * i, sums[i]);
    }
}

// Adds the bias term to the logits of one query, `row` of (n_tokens * n_heads).
template <class S>
void add_bias(const AttentionTask& task, const TileRows& rows, const float* phasors, size_t row,
              uint32_t n, float* logits)
{
    float unclamped[kAttentionTile], clamped[kAttentionTile];
    const uint32_t n_clamped = columns_before(task.a.n_clamped, rows.first, n);
    const float scale = task.a.scale * kLog2e;
    phasor_products<S>(phasors, task.bias + row * task.a.head_dim, task.a.n_bias_dims, n,
                       unclamped);
    if (n_clamped)
        phasor_products<S>(phasors, task.bias_clamped + row * task.a.head_dim, task.a.n_bias_dims,
                           n_clamped, clamped);
    for (uint32_t i = 0; i < n; i++)
        logits[i] += (i < n_clamped ? clamped[i] : unclamped[i]) * scale;
}

// Adds the bias terms of rows r0 .. r0 + 5 of a chunk, whose logits are kAttentionTile apart.
template <class S>
void add_biases(const AttentionTask& task, const TileRows& rows, const float* phasors,
                uint32_t kv_head, uint32_t token, uint32_t r0, uint32_t n_rows, uint32_t n,
                float* logits)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads;
    for (uint32_t i = 0; i < kRowBlock && r0 + i < n_rows; i++) {
        const size_t query =
            size_t(token + (r0 + i) / group) * task.a.n_heads + kv_head * group + (r0 + i) % group;
        add_bias<S>(task, rows, phasors, query, n, logits + i * kAttentionTile);
    }
}

} // namespace
} // namespace ks
