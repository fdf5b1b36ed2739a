// The slots of a layer that some tokens see, in the order of the text, over all pools.
// kernels/common/slots.h has the rules.
#pragma once

#include "kernels/cuda/cache.cuh"

namespace ks
{

// The indexes of one KV head that tokens [first_token, end_token) see: [0, a_end) and
// [b_begin, b_end). `before` indexes are held before the chunk. `begin`: the first in the table.
struct Head {
    uint head, before, begin, coded_begin, coded_end, oldest, a_end, b_begin, b_end;
};

// all: with the indexes outside the window, as far as they are still held.
DEVICE Head find_head(const AttentionArgs& a, const CudaSlots& s, uint head, uint first_token,
                      uint end_token, bool all)
{
    const uint* head_layout = s.head_layout + head * layout_words;
    Head h;
    h.head = head;
    h.before = head_layout[layout_n_held];
    h.begin = head_layout[layout_table_begin];
    h.coded_begin = head_layout[layout_coded_begin];
    h.coded_end = head_layout[layout_coded_end];
    h.oldest =
        oldest_index(s.table != nullptr, h.before, a.n_tokens, a.chunk_rows, a.n_rows, a.n_pinned);
    h.b_end = h.before + end_token;
    h.a_end = min(a.n_pinned, h.b_end);
    h.b_begin = max(h.oldest, h.a_end);
    if (!all) h.b_begin = max(h.b_begin, window_begin(h.before + first_token, a.window));
    h.b_begin = min(h.b_begin, h.b_end);
    return h;
}

DEVICE uint count_slots(const Head& h)
{
    return h.a_end + h.b_end - h.b_begin;
}
DEVICE uint index_of(const Head& h, uint nth)
{
    return nth < h.a_end ? nth : h.b_begin + nth - h.a_end;
}
DEVICE bool in_chunk(const AttentionArgs& a, const Head& h, uint index)
{
    return is_staged(index, h.before, a.chunk_rows);
}

struct Span {
    uint begin, end;
};

// The nth of n parts of a span. There are fewer parts, followed by empty ones, if n parts would be
// shorter than `least`. Parts begin at multiples of `unit`, and their lengths differ by one unit.
DEVICE Span part_of(const Span& all, uint nth, uint n, uint least, uint unit)
{
    const uint size = all.end - all.begin, units = (size + unit - 1u) / unit,
               parts = max(1u, min(n, (size + least - 1u) / least));
    const auto begin_of = [&](uint part) {
        return min(all.begin +
                       unit * (min(part, parts) * (units / parts) + min(part, units % parts)),
                   all.end);
    };
    return {begin_of(nth), begin_of(nth + 1u)};
}
// This block's share of a head's slots. `before` empty places precede the first slot.
DEVICE Span share_of(const Head& h, uint before = 0u, uint unit = 1u)
{
    return part_of({0u, count_slots(h) + before}, blockIdx.z, gridDim.z, min_share, unit);
}
// Empty places before the first slot, with which groups of keys begin at multiples of kivi_rows.
DEVICE uint places_before(const Head& h)
{
    return (h.b_begin - h.a_end - h.coded_begin) % kivi_rows;
}

// The number of a KV head's query among the queries of all heads. A KV head's queries are numbered
// by (token, head of the group).
DEVICE uint64_t query_at(const AttentionArgs& a, uint head, uint query)
{
    const uint group = a.n_heads / a.n_kv_heads;
    return uint64_t(query / group) * a.n_heads + head * group + query % group;
}
DEVICE uint last_query(const AttentionArgs& a)
{
    return a.n_tokens * (a.n_heads / a.n_kv_heads) - 1u;
}

// This block's partial result of a query: three numbers, a gap and head_dim sums
// (attention_combine.cu).
DEVICE float* partial_of(const AttentionArgs& a, float* partials, uint head, uint query)
{
    return partials + (query_at(a, head, query) * gridDim.z + blockIdx.z) * (4u + a.head_dim);
}

// The slot of an index, or its row in the staged chunk.
DEVICE uint slot_of(const AttentionArgs& a, const CudaSlots& s, const Head& h, uint index)
{
    if (in_chunk(a, h, index)) return chunk_row(h.head, index, h.before, a.chunk_rows);
    if (s.table != nullptr) return s.table[h.begin + index];
    return ring_slot(h.head, index, a.n_rows, a.n_pinned);
}

// The pool that an index lies in: pass_plain, pass_coded or pass_chunk.
DEVICE uint source_of(const AttentionArgs& a, const Head& h, uint index)
{
    return in_chunk(a, h, index)                              ? pass_chunk
           : in_coded_pool(index, h.coded_begin, h.coded_end) ? pass_coded
                                                              : pass_plain;
}

DEVICE CudaCache pool_of(const CudaSlots& s, uint source, bool values)
{
    if (source == pass_plain) return values ? s.v : s.k;
    if (source == pass_coded) return values ? s.coded_v : s.coded_k;
    return values ? s.chunk_v : s.chunk_k;
}

// A slot's row in its pool.
DEVICE uint row_of_slot(const AttentionArgs& a, uint source, uint slot)
{
    return source == pass_coded ? slot - first_coded_slot(a.n_kv_heads, a.n_rows) : slot;
}

DEVICE bool sees(const AttentionArgs& a, const Head& h, uint t, uint index)
{
    return is_visible(index, h.before + t, h.oldest, a.n_pinned, a.window);
}

// Log-weight a (0) or b (1) of a slot, in units of log2.
DEVICE float log_weight(const AttentionArgs& a, const CudaSlots& s, const Head& h, uint index,
                        uint slot, uint which)
{
    return s.weights == nullptr || in_chunk(a, h, index) ? 0.f
                                                         : s.weights[2u * slot + which] * log2e;
}

// The position of an index in the text. Known if keys are stored without their bias.
DEVICE uint position_of(const CudaSlots& s, const Head& h, uint index)
{
    return index < h.before
               ? s.positions[h.begin + index]
               : s.head_layout[h.head * layout_words + layout_position] + index - h.before;
}

// Pair i of the product of a position's rows of `bias_phasors`, for its digits from `digit` on.
// `rest` is the position without its lower digits. Leading zeros are skipped, since their factor
// is 1.
struct PhasorPair {
    float cosine, sine;
};
DEVICE PhasorPair phasor_pair(const AttentionArgs& a, const CudaSlots& s, uint rest, uint digit,
                              uint i)
{
    PhasorPair w = {1.f, 0.f};
    for (bool lowest = digit == 0u; digit < phasor_digits && (rest != 0u || lowest);
         digit++, rest /= phasor_base, lowest = false) {
        const float* row =
            s.bias_phasors + uint64_t(phasor_base * digit + rest % phasor_base) * a.n_bias_dims;
        const float u = row[i], v = row[a.n_bias_dims / 2u + i];
        w = {w.cosine * u - w.sine * v, w.cosine * v + w.sine * u};
    }
    return w;
}

// The logit of a product of query and key.
DEVICE float logit_of(const AttentionArgs& a, float product)
{
    const float logit = product * a.scale;
    return a.softcap != 0.f ? a.softcap * tanhf(logit / a.softcap) : logit;
}

constexpr uint tile_values = 2048u + 32u; // of a tile in shared memory
// An odd stride puts the same dim of neighbouring rows, which lanes read together, in different
// banks.
DEVICE uint tile_stride(uint n)
{
    return n | 1u;
}

// Decodes the keys or values of n visible slots from the nth on to a tile (n, tile_stride). `slots`
// has their slots.
DEVICE void decode_tile(const AttentionArgs& a, const CudaSlots& s, const Head& h, uint nth, uint n,
                        bool values, const uint* slots, float* tile)
{
    for (uint i = threadIdx.x / 32u; i < n; i += n_threads / 32u) {
        const uint source = source_of(a, h, index_of(h, nth + i));
        decode_row(pool_of(s, source, values), row_of_slot(a, source, slots[i]), a.head_dim,
                   threadIdx.x % 32u, 32u,
                   [&](uint d, float value) { tile[i * tile_stride(a.head_dim) + d] = value; });
    }
}

// The phasors of a tile's positions, (n, tile_stride of n_bias_dims).
DEVICE void fill_phasors(const AttentionArgs& a, const CudaSlots& s, const Head& h, uint nth,
                         uint n, float* bias_phasors)
{
    const uint half = a.n_bias_dims / 2u;
    for (uint i = threadIdx.x; i < n * half; i += n_threads) {
        const PhasorPair w =
            phasor_pair(a, s, position_of(s, h, index_of(h, nth + i / half)), 0u, i % half);
        float* phasor = bias_phasors + i / half * tile_stride(a.n_bias_dims) + i % half;
        phasor[0] = w.cosine, phasor[half] = w.sine;
    }
}

// Applies RoPE to the keys of a tile, by their indexes.
DEVICE void rope_tile(const AttentionArgs& a, const CudaSlots& s, const Head& h, uint nth, uint n,
                      float* tile)
{
    const uint half = a.n_rope_on_read / 2u;
    for (uint i = threadIdx.x; i < n * half; i += n_threads) {
        const uint pair = i % half;
        const float* angles =
            s.rope_table + uint64_t(index_of(h, nth + i / half)) * a.n_rope_on_read;
        float* key = tile + i / half * tile_stride(a.head_dim);
        float &u = key[first_of_pair(a.pairs, pair)],
              &v = key[second_of_pair(a.pairs, pair, a.n_rope_on_read)];
        const float x = u, y = v, c = angles[2u * pair], d = angles[2u * pair + 1u];
        u = x * c - y * d;
        v = x * d + y * c;
    }
}

} // namespace ks
