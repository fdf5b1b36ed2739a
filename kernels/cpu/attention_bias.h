// What the keys' bias adds to the logits of a tile, where keys are stored without it
// (kernels/common/args.h).
#pragma once

#include "kernels/cpu/attention_tile.h"

namespace ks
{
namespace // as in simd_avx2.h
{

// The product of the rows of a position's digits but the lowest, `upper` being the position without
// it.
template <class S>
void upper_wave(const AttentionTask& task, uint32_t upper, float* wave)
{
    const uint32_t n = task.a.n_wave, half = n / 2;
    const float* row = task.waves + size_t(wave_base + upper % wave_base) * n;
    for (uint32_t i = 0; i < n; i += 8) S::store(wave + i, S::load(row + i));
    for (uint32_t digit = 2, rest = upper / wave_base; rest; digit++, rest /= wave_base) {
        row = task.waves + size_t(wave_base * digit + rest % wave_base) * n;
        for (uint32_t i = 0; i < half; i += 8) {
            const typename S::F8 c = S::load(wave + i), s = S::load(wave + half + i),
                                 row_c = S::load(row + i), row_s = S::load(row + half + i);
            S::store(wave + i, c * row_c - s * row_s);
            S::store(wave + half + i, c * row_s + s * row_c);
        }
    }
}

// The waves of a tile's n columns, the first of which has index p: waves (n_wave, kAttentionTile)
// in a head's order.
template <class S>
void load_waves(const AttentionTask& task, uint32_t kv_head, uint32_t p, uint32_t n, float* waves)
{
    const uint32_t *head_layout = task.head_layout + kv_head * layout_words, n_wave = task.a.n_wave,
                   half = n_wave / 2;
    float scratch[8 * codec_max_dim];
    for (uint32_t column = 0; column < n; column += 8) {
        const float *low[8], *upper[8];
        for (uint32_t i = 0, last = 0; i < 8; i++) {
            const uint32_t index = p + (column + i < n ? column + i : n - 1),
                           before = head_layout[layout_n_held];
            const uint32_t position = index < before
                                          ? task.positions[head_layout[layout_table_begin] + index]
                                          : head_layout[layout_position] + (index - before);
            low[i] = task.waves + size_t(position % wave_base) * n_wave;
            upper[i] = i && position / wave_base == last ? upper[i - 1] : scratch + i * n_wave;
            last = position / wave_base;
            if (upper[i] == scratch + i * n_wave) upper_wave<S>(task, last, scratch + i * n_wave);
        }
        for (uint32_t d = 0; d < n_wave; d += 8) { // cosines, then sines
            const uint32_t from = d < half ? d : d - half;
            const uint32_t place = WAVE_PLACE(d, n_wave, task.a.pairs),
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
                S::store(waves + size_t(place + step * i) * kAttentionTile + column, block[i]);
        }
    }
}

// out[column] = query . wave of the column, for the first n columns and up to 31 more
template <class S>
void wave_products(const float* waves, const float* query, uint32_t n_wave, uint32_t n, float* out)
{
    for (uint32_t column = 0; column < n; column += 32) {
        typename S::F8 sums[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
        for (uint32_t d = 0; d < n_wave; d++) {
            const typename S::F8 value = S::broadcast(query[d]);
            KS_UNROLL(4)
            for (uint32_t i = 0; i < 4; i++)
                sums[i] = S::fma(
                    value, S::load(waves + size_t(d) * kAttentionTile + column + 8 * i), sums[i]);
        }
        for (uint32_t i = 0; i < 4; i++) S::store(out + column + 8 * i, sums[i]);
    }
}

// logits += what the bias adds for one query, `row` of (n_tokens * n_heads).
template <class S>
void add_bias(const AttentionTask& task, const TileRows& rows, const float* waves, size_t row,
              uint32_t n, float* logits)
{
    float near[kAttentionTile], q_clamped[kAttentionTile];
    const uint32_t n_clamped = columns_before(task.a.n_clamped, rows.first, n);
    const float scale = task.a.scale * kLog2e;
    wave_products<S>(waves, task.bias + row * task.a.head_dim, task.a.n_wave, n, near);
    if (n_clamped)
        wave_products<S>(waves, task.bias_clamped + row * task.a.head_dim, task.a.n_wave, n_clamped,
                         q_clamped);
    for (uint32_t i = 0; i < n; i++) logits[i] += (i < n_clamped ? q_clamped[i] : near[i]) * scale;
}

// The same for rows r0 .. r0 + 5 of a chunk, whose logits are kAttentionTile apart.
template <class S>
void add_biases(const AttentionTask& task, const TileRows& rows, const float* waves,
                uint32_t kv_head, uint32_t token, uint32_t r0, uint32_t n_rows, uint32_t n,
                float* logits)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads;
    for (uint32_t i = 0; i < kSix && r0 + i < n_rows; i++) {
        const size_t query =
            size_t(token + (r0 + i) / group) * task.a.n_heads + kv_head * group + (r0 + i) % group;
        add_bias<S>(task, rows, waves, query, n, logits + i * kAttentionTile);
    }
}

} // namespace
} // namespace ks
