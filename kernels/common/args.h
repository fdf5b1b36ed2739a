// Kernel arguments. Each struct is the push-constant block of shaders/<op>.comp and the by-value argument of
// kernels/cuda/<op>.cu. 4-byte members only, 96 bytes at most (Vulkan guarantees 128). Shapes are here; what
// changes with every step (token ids, positions, slots, angles) is in buffers.
#ifndef KS_COMMON_ARGS_H
#define KS_COMMON_ARGS_H

#include "kernels/common/lang.h"

CONST uint act_silu = 0u; // x * sigmoid(x)
CONST uint act_gelu = 1u; // the tanh form

CONST uint rope_interleaved = 0u; // rotates (2i, 2i + 1)
CONST uint rope_neox = 1u;     // rotates (i, i + n_rot / 2)

struct EmbedArgs {
    uint n_tokens;
    uint dim;
    float scale; // sqrt(dim) in gemma, 1 elsewhere
};

struct RmsnormArgs {
    uint rows; // tokens, or tokens * heads for a per-head norm
    uint dim;
    float eps;
    uint first_row; // of x
};

struct MatmulArgs {
    uint n_tokens;
    uint rows; // of the weight: values per token of y
    uint cols; // of the weight: values per token of x
    uint accumulate; // 1: y += W x, 0: y = W x
};

struct RopeArgs {
    uint n_tokens;
    uint n_heads;
    uint head_dim;
    uint n_rot; // leading values of a head that rotate; the rest pass
    uint pairs;    // rope_interleaved or rope_neox
    uint n_groups; // 0: every token has angles of its own; else all have the same, of each n_heads / n_groups heads in turn
    uint hadamard;  // 1: then heads are rotated by H D: D the signs of hadamard_sign, H the Walsh-Hadamard transform of each hadamard_block
};

struct GluArgs {
    uint n; // values
    uint act;
};

struct AddArgs {
    uint rows;
    uint cols;
    uint b_rows; // 1: b is a bias added to every row, else rows
};

struct SoftcapArgs {
    uint n;
    float cap; // x = cap * tanh(x / cap)
};

// A layer's slots, seen by the kernels. A slot has an index; indexes follow the text's order and begin at 0. The tokens of the
// chunk have the indexes after those held. Where an index lies:
//   with a table   slot table[begin + index]: a row of the plain pool, or, from the number of its rows on, of the coded pool
//   without        a ring: the first n_pinned rows stay, position p >= n_pinned is in row n_pinned + (p - n_pinned) % the rest;
//                  an index is then the token's position
//   staged         the chunk's own tokens lie apart, token t in row t, until the layer has been read
// Per head, in the buffer `view`: how many indexes come before the chunk, begin, and which indexes [coded_begin, coded_end) lie in
// the coded pool: those between the pinned and the recent ones.
CONST uint layout_n_held = 0u;
CONST uint layout_table_begin = 1u;
CONST uint layout_coded_begin = 2u;
CONST uint layout_coded_end = 3u;
CONST uint layout_position = 4u; // of the chunk's first token in the text
CONST uint layout_words = 5u;

// Keys may be stored without the model's bias b, which position p turns to R(p) b: large and the same for every text, it would
// take most of a code's range. A logit is then q . k + c . w(p), where c (Queries::bias) is the query times the bias, pair by pair
// as complex numbers, and w(p), the wave of p, has the cosine and the sine of each pair's angle at the pair's places. A wave is
// the product of one row of `waves` per digit of p, the lowest first: row wave_base * i + digit i. Rows have all cosines, then all sines.
CONST uint wave_base = 256u;
CONST uint wave_digits = 4u;

struct KvWriteArgs {
    uint n_tokens;
    uint n_kv_heads;
    uint head_dim;
    uint n_rows;   // per head
    uint n_pinned; // of a ring
    uint staged;   // 1: token t goes to row t
};

struct KvReadArgs {
    uint n;
    uint head_dim;
};

struct KvMoveArgs {
    uint n_moves;
    uint head_dim;
};

// Keys may also be stored as they were before RoPE. Attention then turns a key, as it is read, by its index, and a query by its own,
// with row index of `turns`: positions without gaps, whatever was given up or left out between. select asks keys as if all were
// at index 0 and token t of the chunk at n_last + t.
struct AttentionArgs {
    uint n_tokens;
    uint n_heads;
    uint n_kv_heads;
    uint head_dim;
    uint n_rows;     // of the plain pool, per head
    uint n_pinned;   // of a ring: seen through every window
    uint window;     // 0: every earlier token is visible; else a token sees as many indexes, itself included
    uint chunk_rows; // per head, where the chunk is staged; else 0
    uint n_clamped;      // leading indexes that are seen by queries of their own, rotated for a position that is not too far away
    float scale;
    uint n_wave; // values of a wave, where keys are stored without their bias; else 0
    uint n_rope_on_read; // leading values of a head that attention turns, where keys and queries come as before RoPE; else 0
    uint pairs;  // where these values are
    uint hadamard; // 1: values come rotated; what is made of them is rotated back, by D H
};

// What attention's probabilities say about each slot, from queries [first_query, n_tokens).
CONST uint score_sum = 0u;   // += probability
CONST uint score_below = 1u; // += 1 where the probability is below 1 / (slots that the query sees)

struct KvScoreArgs {
    uint first_query;
    uint kind;
    uint reset;  // 1: what was there is forgotten
    float decay; // of what a query added, with every token after it
};

// Which indexes of a head a step reads: the first, the last, and of those between, the candidates, the ones that the chunk's
// queries, in the mean, ask for most. Of equal ones the newer.
CONST uint select_soft = 0u;  // by their probabilities among the candidates, summed over the query heads
CONST uint select_hard = 1u;  // by how many query heads have them among their own best; reference only
CONST uint select_sum = 2u;   // by the sum of their logits; reference only
CONST uint select_pages = 3u; // whole pages, by the most that any key between a page's bounds could come to with a query head
CONST uint select_page = 16u; // indexes
// Whole blocks, by the logits in the mean of the few keys in each that attention looked at most, summed over the query heads.
CONST uint select_blocks = 4u;
CONST uint select_n_representatives = 4u; // keys of a block

struct SelectArgs {
    uint kind;
    uint n_read;  // indexes at most, beside the chunk's own and those that came since a choice that is used again
    uint n_first; // far queries are for some of these only
    uint n_last;  // before the chunk
    uint stride;  // of the table that is made, per head
    uint shared_across_heads;   // 1: the heads hold the same tokens, and all read the same
    uint must_reselect;   // 1: indexes are not what they were at the last call, or it is a chunk: a choice is made in any case
    float reuse;  // a choice is used again where the cosine of the queries comes to this, for n_last / 2 tokens at most; 1: never
    uint unit;    // indexes that are chosen together: 1, select_page, or those of a block
};

// What is known of the choice that was made last.
CONST uint select_tokens = 0u;  // in the chunk of the last call
CONST uint select_n_since = 1u;   // tokens that came since the choice
CONST uint select_choices = 2u; // made so far; 0: nothing is known of any unit
CONST uint select_reuses = 3u;  // calls that used one again
CONST uint select_words = 4u;

// The tokens, the last of a head's, whose units are to be looked at anew: those since the choice, or all.
FN uint tokens_to_refresh(uint must_reselect, uint choices, uint n_since_choice)
{
    return must_reselect != 0u || choices == 0u ? 0xFFFFFFFFu : n_since_choice;
}

struct ArgmaxArgs {
    uint rows;
    uint cols;
};

// The first index that is still there when tokens up to `end` were written to a ring; without a table only.
FN uint ring_oldest(uint end, uint n_rows, uint n_pinned)
{
    return end > n_rows ? end - (n_rows - n_pinned) : 0u;
}

FN uint ring_row(uint index, uint n_rows, uint n_pinned)
{
    return index < n_pinned ? index : n_pinned + (index - n_pinned) % (n_rows - n_pinned);
}

// Where value i of a row of waves belongs in a head.
FN uint WAVE_PLACE(uint i, uint n_wave, uint pairs)
{
    uint pair = i % (n_wave / 2u);
    return pairs == rope_neox ? i : 2u * pair + i / (n_wave / 2u);
}

#ifndef GLSL
#define KS_ARGS(T) static_assert(sizeof(T) % 4 == 0 && sizeof(T) <= 96, #T)
KS_ARGS(EmbedArgs);
KS_ARGS(RmsnormArgs);
KS_ARGS(MatmulArgs);
KS_ARGS(RopeArgs);
KS_ARGS(GluArgs);
KS_ARGS(AddArgs);
KS_ARGS(SoftcapArgs);
KS_ARGS(KvWriteArgs);
KS_ARGS(KvReadArgs);
KS_ARGS(KvMoveArgs);
KS_ARGS(KvScoreArgs);
KS_ARGS(AttentionArgs);
KS_ARGS(SelectArgs);
KS_ARGS(ArgmaxArgs);
#undef KS_ARGS
#endif

#endif
