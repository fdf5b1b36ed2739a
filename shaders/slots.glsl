// The slots of a layer that one pass sees: slots of one pool, in the order of the text.
// kernels/common/slots.h has the rules. Before it is included: args `a` (PassArgs) and `pass`
// (SlotPass), the constants head_dim and `flags`, and the buffers `table` and `head_layout`.
// GENERAL: the shader also takes log-weights, a softcap, keys stored before RoPE, and keys without
// their bias.
// Then some arrays share buffers. Behind the queries of Q_WORD are their products with the bias
// (with has_bias), then the head layout (with has_weights). With has_weights the buffer
// head_layout has the log-weights.
const bool has_table = (flags & 1u) != 0u;
#ifdef GENERAL
const bool has_weights = (flags & 2u) != 0u;
const bool has_rope_on_read = (flags & 4u) != 0u;
const bool has_bias = (flags & 8u) != 0u;
const bool has_softcap = (flags & 16u) != 0u;

uint layout_word(uint i)
{
    if (!has_weights) return head_layout[i];
    return Q_WORD((has_bias ? 2u : 1u) * a.n_tokens * a.n_heads * head_dim + i);
}
// Log-weight a (0) or b (1) of a slot.
float log_weight(uint slot, uint which)
{
    if (!has_weights || pass.source == pass_chunk) return 0.f;
    return uintBitsToFloat(head_layout[2u * slot + which]);
}
#else
uint layout_word(uint i) { return head_layout[i]; }
#endif

// The indexes of one KV head that tokens [first_token, end_token) see in this pass: [a_begin,
// a_end) and [b_begin, b_end). `before` indexes are held before the chunk. `begin`: the first in
// the table.
struct Slots {
    uint head;
    uint before;
    uint begin;
    uint oldest;
    uint a_begin;
    uint a_end;
    uint b_begin;
    uint b_end;
};

// all: with the indexes outside the window, as far as they are still held.
Slots find_slots(uint head, uint first_token, uint end_token, bool all)
{
    Slots s;
    uint at = head * layout_words, coded_begin = layout_word(at + layout_coded_begin);
    uint coded_end = layout_word(at + layout_coded_end);
    s.head = head;
    s.before = layout_word(at + layout_n_held);
    s.begin = layout_word(at + layout_table_begin);
    s.oldest = oldest_index(has_table, s.before, a.n_tokens, a.chunk_rows, a.n_rows, a.n_pinned);
    uint end = a.chunk_rows != 0u ? s.before : s.before + end_token;
    s.a_begin = s.a_end = s.b_begin = s.b_end = 0u;
    if (pass.source == pass_chunk) {
        s.a_begin = s.before;
        s.a_end = s.before + end_token;
    } else if (pass.source == pass_coded) {
        s.a_begin = coded_begin;
        s.a_end = coded_end;
    } else if (has_table) {
        s.a_end = min(coded_begin, end);
        s.b_begin = coded_end;
        s.b_end = end;
    } else {
        s.a_end = min(a.n_pinned, end);
        s.b_begin = max(s.oldest, a.n_pinned);
        if (!all) s.b_begin = max(s.b_begin, window_begin(s.before + first_token, a.window));
        s.b_end = end;
    }
    s.a_begin = max(s.a_begin, pass.first_index);
    s.a_end = max(min(s.a_end, pass.end_index), s.a_begin);
    s.b_begin = max(max(s.b_begin, pass.first_index), s.a_end);
    s.b_end = max(min(s.b_end, pass.end_index), s.b_begin);
    return s;
}

uint count_slots(Slots s) { return s.a_end - s.a_begin + s.b_end - s.b_begin; }

uint index_of(Slots s, uint nth)
{
    uint n = s.a_end - s.a_begin;
    return nth < n ? s.a_begin + nth : s.b_begin + nth - n;
}

// The slot of an index, or its row in the staged chunk.
uint slot_of(Slots s, uint index)
{
    if (pass.source == pass_chunk) return chunk_row(s.head, index, s.before, a.chunk_rows);
    if (has_table) return table[s.begin + index];
    return ring_slot(s.head, index, a.n_rows, a.n_pinned);
}

#ifdef GENERAL
// The position of an index in the text. Known if keys are stored without their bias.
uint position_of(Slots s, uint index)
{
    if (!has_bias) return 0u;
    if (index < s.before) return table[a.n_table + s.begin + index];
    return layout_word(s.head * layout_words + layout_position) + index - s.before;
}
#endif

// The bound row of a slot. Of slots that are not in this pass it is at least pass.n_rows.
uint row_of_slot(uint slot)
{
    uint first = pass.source == pass_coded ? first_coded_slot(a.n_kv_heads, a.n_rows) : 0u;
    return slot - first - pass.first_row;
}

bool sees(Slots s, uint t, uint index)
{
    return is_visible(index, s.before + t, s.oldest, a.n_pinned, a.window);
}
