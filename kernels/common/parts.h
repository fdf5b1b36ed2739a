// Arguments of ops that run in parts: over parts of a weight or cache that exceed the largest
// bindable range, and over parts of a layer's slots. They follow an op's Args in the push
// constants.
#ifndef KS_COMMON_PARTS_H
#define KS_COMMON_PARTS_H

#include "kernels/common/args.h"

// The part of a weight that is bound.
struct RowRange {
    uint first_row; // a multiple of eight
    uint n_rows;
};

// The bound part of a cache with pool_rows rows.
struct CachePart {
    uint first_row;
    uint n_rows;
    uint pool_rows;
};

// Words of 32 int8 activations: the values, a scale for each half, the sum of each half.
CONST uint act_words = 12u;

// One pass of attention or kv_score over slots of a layer: slots of one pool, for one set of
// queries.
CONST uint pass_plain = 0u;
CONST uint pass_coded = 1u;
CONST uint pass_chunk = 2u;

struct SlotPass {
    uint source;      // pass_plain, pass_coded or pass_chunk
    uint first_index; // indexes [first_index, end_index) belong to the queries of this pass
    uint end_index;
    uint pool_rows;   // rows of the whole pool, over all heads
    uint first_row;   // rows [first_row, first_row + n_rows) of the pool are bound
    uint n_rows;
    uint first_slot;  // the pass begins at this visible slot and takes pass_slots, shared by splits
};
CONST uint pass_slots = 8192u; // some devices abort a shader whose loops exceed 65,535 iterations

// More arguments of an attention pass.
struct SplitPass {
    uint n_splits;  // workgroups that share a head's slots
    uint continues; // 1: continue from the partial results of an earlier pass
    uint dequantized; // not 0: slots per head, whose rows attention_dequantize has written as f32
};

// The AttentionArgs that a pass over slots needs; head_dim is a specialisation constant.
struct PassArgs {
    uint n_tokens;
    uint n_heads;
    uint n_kv_heads;
    uint n_rows;
    uint n_pinned;
    uint window;
    uint chunk_rows;
    float scale;
    uint n_wave;
    uint n_rope_on_read;
    uint pairs;
    uint n_table; // words of the table; with n_wave the positions of its slots follow
};

// Of attention_combine.
struct FoldArgs {
    uint head_dim;
    uint hadamard;
    uint n_splits;
    uint has_lse;
};

// The AttentionArgs that select needs.
struct SelectShape {
    uint n_tokens;
    uint n_heads;
    uint n_kv_heads;
    uint n_rows;
    uint chunk_rows;
    uint n_rope_on_read;
    uint pairs;
    float scale;
};

struct ScoreDecay {
    float keep;       // factor of the scores from before the chunk
    float log2_decay; // log2 of KvScoreArgs::decay
};

// One step of select, over the keys of at most one pool.
struct SelectPass {
    uint source;     // pass_plain or pass_coded
    uint first_row;  // rows [first_row, first_row + n_rows) of the pool are bound
    uint n_rows;
    uint pool_rows;
    uint stride;     // candidates per head that fit into the scratch
    uint continues;  // 1: continue from the results of an earlier pass
    uint n_pages;    // capacity in pages per head
};

#endif
