// Arguments after an op's Args in the push constants, for ops that run in parts: over parts of a weight or cache that
// exceed the largest bindable buffer range, and over parts of the slots of a layer.
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

// One pass of attention or kv_score over slots of a layer: slots of one pool, for one set of queries.
CONST uint pass_plain = 0u;
CONST uint pass_coded = 1u;
CONST uint pass_chunk = 2u;

struct SlotPass {
    uint source;      // pass_plain, pass_coded or pass_chunk
    uint first_index; // indexes [first_index, end_index) are visible to the queries of this pass
    uint end_index;
    uint pool_rows;   // rows of the whole pool, over all heads
    uint first_row;   // rows [first_row, first_row + n_rows) of the pool are bound
    uint n_rows;
    uint n_splits;    // workgroups that share a head's slots
    uint continues;   // 1: what an earlier pass found is there already
    uint first_slot;  // of those seen, in their order: this pass takes pass_slots from there on, each split as many
    uint restored;    // not 0: so many of each head instead, whose rows lie restored, in the order of the slots, in a pool of f32
};
CONST uint pass_slots = 8192u; // some devices abort a shader whose loops exceed 65,535 iterations

struct ScoreDecay {
    float keep;       // factor of the scores from before the chunk
    float log_of_two; // log2 of KvScoreArgs::decay
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
