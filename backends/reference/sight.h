// Where an index of a head lies, and what a token sees of it.
#pragma once

#include "kernels/cpu/codec_rows.h"
#include "runtime/base/backend.h"

namespace ks
{

// A row of a cache as floats: where it is, or decoded into `room`.
inline const float* cached_row(const Tensor& cache, uint64_t row, uint32_t head_dim, float* room)
{
    if (cache.format == Format::f32) return cache.ptr() + row * head_dim;
    const CodedRow coded = coded_row(cache, row);
    decode_row(cache.format, coded.words, coded.tail, head_dim, room);
    return room;
}

// What a token of one head sees, index by index.
struct Sight {
    const AttentionArgs& a;
    const KvSlots& slots;
    uint32_t kv_head, before, begin, coded_begin, coded_end, oldest;

    Sight(const AttentionArgs& args, const KvSlots& s, uint32_t head) : a(args), slots(s), kv_head(head)
    {
        const uint32_t* view = slots.view.ptr<uint32_t>() + head * view_words;
        before = view[view_before];
        begin = view[view_begin];
        coded_begin = view[view_coded_begin];
        coded_end = view[view_coded_end];
        oldest = slots.table ? 0 : RING_OLDEST(before + (a.chunk_rows ? 0 : a.n_tokens), a.n_rows, a.n_pinned);
    }
    bool sees(uint32_t t, uint32_t index) const
    {
        uint32_t own = before + t;
        if (index > own) return false;
        if (index < a.n_pinned && index < own) return true;
        return index >= oldest && (a.window == 0 || own - index < a.window);
    }
    bool in_chunk(uint32_t index) const { return a.chunk_rows && index >= before; }
    uint32_t row(uint32_t index) const
    {
        if (in_chunk(index)) return kv_head * a.chunk_rows + index - before;
        if (slots.table) return slots.table.ptr<uint32_t>()[begin + index];
        return kv_head * a.n_rows + RING_ROW(index, a.n_rows, a.n_pinned);
    }
    const float* stored(uint32_t index, const Tensor& plain, const Tensor& coded, const Tensor& chunk, float* room) const
    {
        if (in_chunk(index)) return cached_row(chunk, row(index), a.head_dim, room);
        if (index < coded_begin || index >= coded_end) return cached_row(plain, row(index), a.head_dim, room);
        return cached_row(coded, row(index) - a.n_kv_heads * a.n_rows, a.head_dim, room);
    }
    const float* key(uint32_t index, float* room) const { return stored(index, slots.k, slots.coded_k, slots.chunk_k, room); }
    const float* value(uint32_t index, float* room) const { return stored(index, slots.v, slots.coded_v, slots.chunk_v, room); }
    // The log-weights a (0) and b (1).
    double weight(uint32_t index, uint32_t which) const
    {
        return slots.weights && !in_chunk(index) ? slots.weights.ptr()[2ull * row(index) + which] : 0.0;
    }
};

// The tensors of an attention have the shapes that its args say.
void check_slots(const AttentionArgs& a, const Queries& q, const KvSlots& slots);

} // namespace ks
