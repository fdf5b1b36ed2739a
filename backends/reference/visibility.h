// Where an index of a head lies, and what a token sees of it.
#pragma once

#include "kernels/cpu/codec_rows.h"
#include "runtime/base/backend.h"

#include <complex>

namespace ks
{

// A row of a cache as floats: where it is, or decoded into `room`.
inline const float* cached_row(const Tensor& cache, uint64_t row, uint32_t head_dim, float* scratch)
{
    if (cache.format == Format::f32) return cache.ptr() + row * head_dim;
    const uint32_t group = codec_info(cache.format).group;
    if (group > 1) {
        decode_group_row(cache.format, coded_group(cache, row), uint32_t(row % group), head_dim,
                         scratch);
        return scratch;
    }
    const CodedRow coded = coded_row(cache, row);
    decode_row(cache.format, coded.words, coded.tail, head_dim, scratch);
    return scratch;
}

// A key or a query as it meets others: turned by its index where attention has to, into `room`,
// which x may be.
inline const float* roped(const AttentionArgs& a, const KvSlots& slots, uint32_t index,
                          const float* x, float* scratch)
{
    if (!a.n_rope_on_read) return x;
    const float* angles = slots.rope_table.ptr() + uint64_t(index) * a.n_rope_on_read;
    for (uint32_t i = a.n_rope_on_read; i < a.head_dim; i++) scratch[i] = x[i];
    for (uint32_t i = 0; i < a.n_rope_on_read / 2; i++) {
        const bool neighbours = a.pairs == rope_interleaved;
        const uint32_t first = neighbours ? 2 * i : i,
                       second = neighbours ? 2 * i + 1 : i + a.n_rope_on_read / 2;
        const double u = x[first], v = x[second], c = angles[2 * i], s = angles[2 * i + 1];
        scratch[first] = float(u * c - v * s);
        scratch[second] = float(u * s + v * c);
    }
    return scratch;
}

// What a token of one head sees, index by index.
struct Visibility {
    const AttentionArgs& a;
    const KvSlots& slots;
    uint32_t kv_head, before, begin, coded_begin, coded_end, oldest;

    Visibility(const AttentionArgs& args, const KvSlots& s, uint32_t head)
        : a(args), slots(s), kv_head(head)
    {
        const uint32_t* head_layout = slots.head_layout.ptr<uint32_t>() + head * layout_words;
        before = head_layout[layout_n_held];
        begin = head_layout[layout_table_begin];
        coded_begin = head_layout[layout_coded_begin];
        coded_end = head_layout[layout_coded_end];
        oldest =
            oldest_index(bool(slots.table), before, a.n_tokens, a.chunk_rows, a.n_rows, a.n_pinned);
    }
    bool sees(uint32_t t, uint32_t index) const
    {
        return is_visible(index, before + t, oldest, a.n_pinned, a.window);
    }
    bool in_chunk(uint32_t index) const { return is_staged(index, before, a.chunk_rows); }
    uint32_t row(uint32_t index) const
    {
        if (in_chunk(index)) return kv_head * a.chunk_rows + index - before;
        if (slots.table) return slots.table.ptr<uint32_t>()[begin + index];
        return kv_head * a.n_rows + ring_row(index, a.n_rows, a.n_pinned);
    }
    const float* stored(uint32_t index, const Tensor& plain, const Tensor& coded,
                        const Tensor& chunk, float* scratch) const
    {
        if (in_chunk(index)) return cached_row(chunk, row(index), a.head_dim, scratch);
        if (in_coded_pool(index, coded_begin, coded_end))
            return cached_row(coded, row(index) - a.n_kv_heads * a.n_rows, a.head_dim, scratch);
        return cached_row(plain, row(index), a.head_dim, scratch);
    }
    const float* stored_key(uint32_t index, float* scratch) const
    {
        return stored(index, slots.k, slots.coded_k, slots.chunk_k, scratch);
    }
    // As a token meets it.
    const float* key(uint32_t index, float* scratch) const
    {
        return roped(a, slots, index, stored_key(index, scratch), scratch);
    }
    const float* query(uint32_t t, const float* x, float* scratch) const
    {
        return roped(a, slots, before + t, x, scratch);
    }
    const float* value(uint32_t index, float* scratch) const
    {
        return stored(index, slots.v, slots.coded_v, slots.chunk_v, scratch);
    }
    // What the bias adds to a query's product with the key.
    double bias(uint32_t index, const Queries& q, uint64_t query) const
    {
        if (!a.n_wave) return 0;
        const float* c = (index < a.n_clamped ? q.bias_clamped : q.bias).ptr() + query;
        uint32_t position =
            slots.head_layout.ptr<uint32_t>()[kv_head * layout_words + layout_position] + index -
            before;
        if (index < before) position = slots.positions.ptr<uint32_t>()[begin + index];
        const uint32_t half = a.n_wave / 2;
        double sum = 0;
        for (uint32_t i = 0; i < half; i++) {
            std::complex<double> wave = 1;
            for (uint32_t digit = 0, rest = position; digit < wave_digits;
                 digit++, rest /= wave_base) {
                const float* row =
                    slots.waves.ptr() + uint64_t(wave_base * digit + rest % wave_base) * a.n_wave;
                wave *= std::complex<double>(row[i], row[half + i]);
            }
            sum += c[WAVE_PLACE(i, a.n_wave, a.pairs)] * wave.real() +
                   c[WAVE_PLACE(half + i, a.n_wave, a.pairs)] * wave.imag();
        }
        return sum;
    }
    // The log-weights a (0) and b (1).
    double weight(uint32_t index, uint32_t which) const
    {
        return slots.weights && !in_chunk(index) ? slots.weights.ptr()[2ull * row(index) + which]
                                                 : 0.0;
    }
};

// The tensors of an attention have the shapes that its args say.
void check_slots(const AttentionArgs& a, const Queries& q, const KvSlots& slots);

} // namespace ks
