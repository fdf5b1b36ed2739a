// Kernel arguments. Each struct is the push-constant block of shaders/<op>.comp and the by-value argument of
// kernels/cuda/<op>.cu. 4-byte members only, 128 bytes at most (Vulkan's guaranteed minimum). Shapes are here; what
// changes with every step (token ids, positions, slots, angles) is in buffers.
#ifndef KS_COMMON_ARGS_H
#define KS_COMMON_ARGS_H

#include "kernels/common/lang.h"

CONST uint act_silu = 0u; // x * sigmoid(x)
CONST uint act_gelu = 1u; // the tanh form

CONST uint rope_neighbours = 0u; // rotates (2i, 2i + 1)
CONST uint rope_halves = 1u;     // rotates (i, i + n_rot / 2)

struct EmbedArgs {
    uint n_tokens;
    uint dim;
    float scale; // sqrt(dim) in gemma, 1 elsewhere
};

struct RmsnormArgs {
    uint rows; // tokens, or tokens * heads for a per-head norm
    uint dim;
    float eps;
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
    uint pairs; // rope_neighbours or rope_halves
};

struct RotateArgs {
    uint n_tokens;
    uint n_heads;
    uint head_dim;
    uint inverse; // 1: back
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
CONST uint view_before = 0u;
CONST uint view_begin = 1u;
CONST uint view_coded_begin = 2u;
CONST uint view_coded_end = 3u;
CONST uint view_words = 4u;

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

struct AttentionArgs {
    uint n_tokens;
    uint n_heads;
    uint n_kv_heads;
    uint head_dim;
    uint n_rows;     // of the plain pool, per head
    uint n_pinned;   // of a ring: seen through every window
    uint window;     // 0: every earlier token is visible; else a token sees as many, itself included (rings only)
    uint chunk_rows; // per head, where the chunk is staged; else 0
    uint n_far;      // leading indexes that are seen by queries of their own, rotated for a position that is not too far away
    float scale;
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

struct ArgmaxArgs {
    uint rows;
    uint cols;
};

// The first index that is still there when tokens up to `end` were written to a ring; without a table only.
FN uint RING_OLDEST(uint end, uint n_rows, uint n_pinned)
{
    return end > n_rows ? end - (n_rows - n_pinned) : 0u;
}

FN uint RING_ROW(uint index, uint n_rows, uint n_pinned)
{
    return index < n_pinned ? index : n_pinned + (index - n_pinned) % (n_rows - n_pinned);
}

#ifndef GLSL
#define KS_ARGS(T) static_assert(sizeof(T) % 4 == 0 && sizeof(T) <= 128, #T)
KS_ARGS(EmbedArgs);
KS_ARGS(RmsnormArgs);
KS_ARGS(MatmulArgs);
KS_ARGS(RopeArgs);
KS_ARGS(RotateArgs);
KS_ARGS(GluArgs);
KS_ARGS(AddArgs);
KS_ARGS(SoftcapArgs);
KS_ARGS(KvWriteArgs);
KS_ARGS(KvReadArgs);
KS_ARGS(KvMoveArgs);
KS_ARGS(KvScoreArgs);
KS_ARGS(AttentionArgs);
KS_ARGS(ArgmaxArgs);
#undef KS_ARGS
#endif

#endif
