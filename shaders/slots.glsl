// The slots of a layer that one pass sees: those of one pool, in the order of the text. Before it is included: args `a`
// (PassArgs), `pass` (SlotPass), the constants head_dim and `flags`, and the buffers table and view. GENERAL: the shader also takes
// log-weights, keys that are turned as they are read, and keys without their bias. Q_WORD then has, behind the queries, their products
// with the bias where has_waves, and then the view where has_weights; `view` is the log-weights of slots instead.
const bool has_table = (flags & 1u) != 0u;
#ifdef GENERAL
const bool has_weights = (flags & 2u) != 0u;
const bool has_rope_on_read = (flags & 4u) != 0u;
const bool has_waves = (flags & 8u) != 0u;

uint layout_word(uint i) { return has_weights ? Q_WORD((has_waves ? 2u : 1u) * a.n_tokens * a.n_heads * head_dim + i) : head_layout[i]; }
// Log-weight a (0) or b (1).
float log_weight(uint slot, uint which) { return has_weights && pass.source != pass_chunk ? uintBitsToFloat(head_layout[2u * slot + which]) : 0.f; }
#else
uint layout_word(uint i) { return head_layout[i]; }
#endif

// Of one KV head, and of tokens [first_token, end_token): indexes [0, a_end) and [b_begin, b_end) but for the first a_begin.
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

// all: also what a window hides, as far as it is there.
Slots find_slots(uint head, uint first_token, uint end_token, bool all)
{
    Slots s;
    uint at = head * layout_words, coded_begin = layout_word(at + layout_coded_begin), coded_end = layout_word(at + layout_coded_end);
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

// Where an index lies, over all pools: as in the table, or a row.
uint slot_of(Slots s, uint index)
{
    if (pass.source == pass_chunk) return s.head * a.chunk_rows + index - s.before;
    if (has_table) return table[s.begin + index];
    return s.head * a.n_rows + ring_row(index, a.n_rows, a.n_pinned);
}

#ifdef GENERAL
// Where it is in the text; known where keys come without their bias.
uint position_of(Slots s, uint index)
{
    if (!has_waves) return 0u;
    return index < s.before ? table[a.n_table + s.begin + index] : layout_word(s.head * layout_words + layout_position) + index - s.before;
}
#endif

// Its row among those that are bound; others are not below pass.n_rows.
uint row_of_slot(uint slot) { return slot - (pass.source == pass_coded ? a.n_kv_heads * a.n_rows : 0u) - pass.first_row; }

bool sees(Slots s, uint t, uint index)
{
    return is_visible(index, s.before + t, s.oldest, a.n_pinned, a.window);
}
