// The reference's reading of a cache: where an index of a head lies, its key and its value, and
// whether a token sees it.
#pragma once

#include "kernels/cpu/codec_rows.h"
#include "runtime/base/backend.h"

#include <cmath>
#include <complex>

namespace ks
{

// A row of a cache as floats: in place if it is f32, else decoded into `scratch`.
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

// A key or a query x after RoPE for its index. Without n_rope_on_read it is x, else it is in
// `scratch`, which may be x.
inline const float* roped(const AttentionArgs& a, const KvSlots& slots, uint32_t index,
                          const float* x, float* scratch)
{
    if (!a.n_rope_on_read) return x;
    const float* angles = slots.rope_table.ptr() + uint64_t(index) * a.n_rope_on_read;
    for (uint32_t i = a.n_rope_on_read; i < a.head_dim; i++) scratch[i] = x[i];
    for (uint32_t i = 0; i < a.n_rope_on_read / 2; i++) {
        const uint32_t first = first_of_pair(a.pairs, i),
                       second = second_of_pair(a.pairs, i, a.n_rope_on_read);
        const double u = x[first], v = x[second], c = angles[2 * i], s = angles[2 * i + 1];
        scratch[first] = float(u * c - v * s);
        scratch[second] = float(u * s + v * c);
    }
    return scratch;
}

// The indexes of one KV head, as its tokens see them (kernels/common/slots.h).
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
    // The slot of an index, or its row in the staged chunk.
    uint32_t row(uint32_t index) const
    {
        if (in_chunk(index)) return chunk_row(kv_head, index, before, a.chunk_rows);
        if (slots.table) return slots.table.ptr<uint32_t>()[begin + index];
        return ring_slot(kv_head, index, a.n_rows, a.n_pinned);
    }
    const float* stored(uint32_t index, const Tensor& plain, const Tensor& coded,
                        const Tensor& chunk, float* scratch) const
    {
        if (in_chunk(index)) return cached_row(chunk, row(index), a.head_dim, scratch);
        if (in_coded_pool(index, coded_begin, coded_end))
            return cached_row(coded, row(index) - first_coded_slot(a.n_kv_heads, a.n_rows),
                              a.head_dim, scratch);
        return cached_row(plain, row(index), a.head_dim, scratch);
    }
    const float* stored_key(uint32_t index, float* scratch) const
    {
        return stored(index, slots.k, slots.coded_k, slots.chunk_k, scratch);
    }
    // The key after RoPE.
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
    // The part of a logit that comes from the keys' bias, where keys are stored without it. `query`
    // is the offset of the query's products with the bias.
    double bias(uint32_t index, const Queries& q, uint64_t query) const
    {
        if (!a.n_bias_dims) return 0;
        const float* c = (index < a.n_clamped ? q.bias_clamped : q.bias).ptr() + query;
        uint32_t position =
            slots.head_layout.ptr<uint32_t>()[kv_head * layout_words + layout_position] + index -
            before;
        if (index < before) position = slots.positions.ptr<uint32_t>()[begin + index];
        const uint32_t half = a.n_bias_dims / 2;
        double sum = 0;
        for (uint32_t i = 0; i < half; i++) {
            std::complex<double> phasor = 1;
            for (uint32_t digit = 0, rest = position; digit < phasor_digits;
                 digit++, rest /= phasor_base) {
                const float* row =
                    slots.bias_phasors.ptr() +
                    uint64_t(phasor_base * digit + rest % phasor_base) * a.n_bias_dims;
                phasor *= std::complex<double>(row[i], row[half + i]);
            }
            sum += c[phasor_dim(i, a.n_bias_dims, a.pairs)] * phasor.real() +
                   c[phasor_dim(half + i, a.n_bias_dims, a.pairs)] * phasor.imag();
        }
        return sum;
    }
    // A logit from the product of a query and a key.
    double logit(double product) const
    {
        const double logit = product * a.scale;
        return a.softcap != 0 ? a.softcap * std::tanh(logit / a.softcap) : logit;
    }
    // Log-weight a (0) or b (1) of an index.
    double weight(uint32_t index, uint32_t which) const
    {
        return slots.weights && !in_chunk(index) ? slots.weights.ptr()[2ull * row(index) + which]
                                                 : 0.0;
    }
};

// Checks that the tensors of an attention have the shapes that its args state.
void check_slots(const AttentionArgs& a, const Queries& q, const KvSlots& slots);

} // namespace ks
