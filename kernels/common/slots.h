// Where the tokens of one KV head lie, and which of them a query sees. All devices call these
// rules.
//
// A held token has an index: its place in the order of the text, from 0, without gaps. The tokens
// of the chunk follow those held before. An index lies
//   in a table   in slot table[begin + index]. Slots number the rows of the plain pool, then those
//                of the coded pool
//   in a ring    in row ring_row(index). The first n_pinned rows stay; later tokens go round in the
//                others. Here an index is the token's position. A ring has no coded pool
//   in a chunk   that is staged: token t of the chunk in row t of a buffer of its own
#ifndef KS_COMMON_SLOTS_H
#define KS_COMMON_SLOTS_H

#include "kernels/common/lang.h"

// Words of the head layout. The buffer has layout_words for each KV head.
CONST uint layout_n_held = 0u;      // indexes before the chunk
CONST uint layout_table_begin = 1u; // the head's first entry in the table
CONST uint layout_coded_begin = 2u; // indexes [coded_begin, coded_end) lie in the coded pool,
CONST uint layout_coded_end = 3u;   // the others in the plain one
CONST uint layout_position = 4u;    // of the chunk's first token in the text
CONST uint layout_words = 5u;

// The first index that a ring of n_rows rows still holds when tokens up to `end` have been written.
FN uint ring_oldest(uint end, uint n_rows, uint n_pinned)
{
    return end > n_rows ? end - (n_rows - n_pinned) : 0u;
}

FN uint ring_row(uint index, uint n_rows, uint n_pinned)
{
    return index < n_pinned ? index : n_pinned + (index - n_pinned) % (n_rows - n_pinned);
}

// The slot of an index in a ring: its row, over all heads.
FN uint ring_slot(uint head, uint index, uint n_rows, uint n_pinned)
{
    return head * n_rows + ring_row(index, n_rows, n_pinned);
}

// The row of an index in the buffer of a staged chunk, over all heads.
FN uint chunk_row(uint head, uint index, uint n_held, uint chunk_rows)
{
    return head * chunk_rows + index - n_held;
}

// The first slot of the coded pool: row r of that pool is slot first_coded_slot + r.
FN uint first_coded_slot(uint n_kv_heads, uint n_rows) { return n_kv_heads * n_rows; }

// The first index that is held, beside the pinned ones. A chunk that is not staged is in the ring.
FN uint oldest_index(bool has_table, uint n_held, uint n_tokens, uint chunk_rows, uint n_rows,
                     uint n_pinned)
{
    return has_table
               ? 0u
               : ring_oldest(n_held + (chunk_rows != 0u ? 0u : n_tokens), n_rows, n_pinned);
}

// The first index in the window of a query at index `own`. window 0: no limit.
FN uint window_begin(uint own, uint window)
{
    return window != 0u && own + 1u > window ? own + 1u - window : 0u;
}

// Whether a query at index `own` sees an index. It sees its own index and earlier ones that are
// pinned, or that are still held and in the window. The expression has no branches, since prefill
// evaluates it for every logit.
FN bool is_visible(uint index, uint own, uint oldest, uint n_pinned, uint window)
{
    return (index <= own) KS_AND(((index < n_pinned) KS_AND(index < own))
                                 KS_OR((index >= oldest)
                                       KS_AND((window == 0u) KS_OR(own - index < window))));
}

// Whether an index is in the staged chunk.
FN bool is_staged(uint index, uint n_held, uint chunk_rows)
{
    return chunk_rows != 0u && index >= n_held;
}

// Whether an index that is not staged lies in the coded pool.
FN bool in_coded_pool(uint index, uint coded_begin, uint coded_end)
{
    return index >= coded_begin && index < coded_end;
}

#endif
