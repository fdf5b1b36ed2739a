// Arguments of ops that run in parts. A weight or a cache is in parts where it exceeds the largest
// bindable range. Attention also runs over parts of a layer's slots. In the push constants these
// arguments follow an op's Args.
#ifndef KS_COMMON_PARTS_H
#define KS_COMMON_PARTS_H

#include "kernels/common/args.h"

// The part of a weight that is bound.
struct RowRange {
    uint first_row; // a multiple of eight
    uint n_rows;
};

// The bound rows of the experts' weights, and what else their product has. The list of choices
// has max_blocks blocks of three words: an expert, its first place among the choices, and how many
// of them the block has. Then it has all choices, by expert. A choice is an expert of a token: its
// number is token * n_used + place.
struct ExpertsPart {
    uint first_row; // a multiple of eight
    uint n_rows;
    uint has_scales;
    uint has_bias;
    uint max_blocks;
};
CONST uint experts_block = 8u; // most choices of a block
FN uint experts_max_blocks(uint n_choices, uint n_experts)
{
    return n_choices / experts_block + (n_choices < n_experts ? n_choices : n_experts);
}

// The bound part of a cache with pool_rows rows.
struct CachePart {
    uint first_row;
    uint n_rows;
    uint pool_rows;
};

// Words of 32 int8 activations: 8 of values, then two scales and two sums, for 16 values each. A
// sum is the scale times the sum of the int8 values.
CONST uint act_words = 12u;

// Values of a row of delta's or ssm_scan's state in each thread of a subgroup, at most.
CONST uint scan_values = 8u;

// One pass of attention or kv_score over slots of a layer. They lie in one pool and are read with
// one set of queries, clamped or not.
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
    uint first_slot;  // the pass takes pass_slots visible slots from this one on, shared by splits
};
CONST uint pass_slots = 8192u; // some devices abort a shader whose loops exceed 65,535 iterations

// More arguments of an attention pass.
struct SplitPass {
    uint n_splits;  // workgroups that share a head's slots
    uint continues; // 1: continue from the partial results of an earlier pass
    uint dequantized; // slots per head whose rows attention_dequantize has written as f32; or 0
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
    uint n_bias_dims;
    uint n_rope_on_read;
    uint pairs;
    uint n_table; // words of the table; with n_bias_dims the positions of its slots follow it
    float softcap;
};

// Arguments of attention_combine.
struct CombineArgs {
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
    float scale;
    float softcap;
};

struct ScoreDecay {
    float keep;       // factor of the scores from before
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
