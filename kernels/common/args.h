// Arguments of the ops. Each struct is a parameter of kernels/cuda/<op>.cu, and is in the
// push-constant block of shaders/<op>.comp. Members have 4 bytes, a struct at most 96 (Vulkan
// promises 128 for a block). Arguments hold shapes. What changes in each step (token ids,
// positions, slots, angles) is in buffers.
#ifndef KS_COMMON_ARGS_H
#define KS_COMMON_ARGS_H

#include "kernels/common/select.h"
#include "kernels/common/slots.h"

CONST uint norm_rms = 0u;   // x / sqrt(mean(x^2) + eps) * w
CONST uint norm_layer = 1u; // (x - mean(x)) / sqrt(variance(x) + eps) * w

CONST uint act_silu = 0u;    // x * sigmoid(x)
CONST uint act_gelu = 1u;    // the tanh form
CONST uint act_relu2 = 2u;   // max(0, x)^2
CONST uint act_sigmoid = 3u; // 1 / (1 + e^-x)
// x > 0: alpha_p x^2 + beta x, else (expm1(min(x, eps)) - x) alpha_n + beta x
CONST uint act_xielu = 4u;
// Gated: g sigmoid(1.702 g) (u + 1), where g = min(x, 7) and u = up, clamped to -7 .. 7.
CONST uint act_swiglu_oai = 5u;
CONST float swiglu_oai_alpha = 1.702f;
CONST float swiglu_oai_limit = 7.f;
CONST uint act_none = 6u; // x

// What the router makes of its logits: probabilities over all experts, each expert's own, or
// probabilities over the chosen experts.
CONST uint route_softmax = 0u;
CONST uint route_sigmoid = 1u;
CONST uint route_softmax_chosen = 2u;
CONST uint route_max_experts = 1024u;
CONST uint route_max_used = 32u;
CONST float route_least_sum = 6.103515625e-5f; // that weights are divided by

CONST uint rope_interleaved = 0u; // pairs (2i, 2i + 1)
CONST uint rope_neox = 1u;        // pairs (i, i + n_rot / 2)

struct EmbedArgs {
    uint n_tokens;
    uint dim;
    float scale; // sqrt(dim) in gemma, 1 elsewhere
};

struct NormArgs {
    uint rows; // tokens, or tokens * heads for a per-head norm
    uint dim;
    float eps;
    uint first_row; // of x
    uint kind;      // norm_rms or norm_layer
    uint w_rows;    // row r has row r % w_rows of w: heads with weights of their own, else 1
};

struct MatmulArgs {
    uint n_tokens;
    uint rows; // of the weight: values per token of y
    uint cols; // of the weight: values per token of x
    uint accumulate; // 1: y += W x, 0: y = W x
};

// The experts with the largest scores are chosen, on ties the lower index. A score is the
// probability plus the bias, and the logit itself without biases and groups, or of
// route_softmax_chosen. With groups, only the n_groups_used groups with the largest sums of their
// two best scores take part.
struct RouteArgs {
    uint n_tokens;
    uint n_experts;
    uint n_used; // of a token
    uint kind;
    uint normalise;     // 1: weights are divided by their sum
    uint n_groups;      // of equal size; 1: none
    uint n_groups_used; // of them
    float scale;        // of the weights
};

struct ExpertsArgs {
    uint n_tokens;
    uint n_used; // experts of a token
    uint n_experts;
    uint rows;       // of one expert's weight
    uint cols;       // of the weight
    uint per_choice; // 1: each chosen expert of a token has its own row of x, 0: a token has one
};

struct CombineExpertsArgs {
    uint n_tokens;
    uint n_used;
    uint dim;
    uint accumulate; // 1: y += the sum, 0: y = the sum
    float scale;     // of the sum
};

struct RopeArgs {
    uint n_tokens;
    uint n_heads;
    uint head_dim;
    uint n_rot; // the first n_rot dims of a head get RoPE, the others stay as they are
    uint pairs; // rope_interleaved or rope_neox
    // 0: a row of angles per token. Else all tokens share n_groups rows, and each row is for
    // n_heads / n_groups heads.
    uint n_groups;
    uint hadamard; // 1: then multiply a head by H D: signs (hadamard_sign), Walsh-Hadamard blocks
};

struct GluArgs {
    uint n; // values
    uint act;
    uint gate_group;                   // values that share a gate; 1 unless gates are per head
    uint gated;                        // 0: y = act(gate), without up
    float alpha_p, alpha_n, beta, eps; // of act_xielu
};

struct AddArgs {
    uint rows;
    uint cols;
    uint b_rows; // 1: b is a bias added to every row, else rows
};

struct ScaleArgs {
    uint rows;
    uint cols;
};

struct CopyColsArgs {
    uint rows;
    uint cols;            // of a row that are copied
    uint y_cols, y_first; // values of a row of y, the first that is written
    uint x_cols, x_first; // values of a row of x, the first that is read
};

struct SoftcapArgs {
    uint n;
    float cap; // x = cap * tanh(x / cap)
};

// Coded keys are stored without the model's bias b. After RoPE the bias is R(p) b at position p: it
// is large and equal in every text, and would take most of a code's range.
// A logit is then dot(q, k) + dot(c, w(p)). c (Queries::bias) is the query times the bias, pair by
// pair as complex numbers. w(p) are the phasors of p: the cosine and the sine of each pair's angle.
// w(p) is the product of rows of the table `bias_phasors`, one for each digit of p in base
// phasor_base. For digit i, the lowest first, it is row phasor_base * i + digit. A row has all
// cosines, then all sines.
CONST uint phasor_base = 256u;
CONST uint phasor_digits = 4u;

struct KvWriteArgs {
    uint n_tokens;
    uint n_kv_heads;
    uint head_dim;
    uint n_rows;   // per head
    uint n_pinned; // of a ring
    uint staged;   // 1: token t goes to row t of the chunk's buffer
};

struct KvReadArgs {
    uint n;
    uint head_dim;
};

struct KvMoveArgs {
    uint n_moves;
    uint head_dim;
};

// With n_rope_on_read keys are stored before RoPE (positions=compact). Attention applies RoPE to a
// key and to a query by their indexes, with row `index` of rope_table, so evicted tokens leave no
// gaps. select scores keys without RoPE, which is index 0, and token t of the chunk at index
// n_last + t.
struct AttentionArgs {
    uint n_tokens;
    uint n_heads;
    uint n_kv_heads;
    uint head_dim;
    uint n_rows;     // of the plain pool, per head
    uint n_pinned;   // of a ring: visible outside the window, too
    uint window;     // indexes that a query sees, its own included; 0: all earlier ones
    uint chunk_rows; // per head, where the chunk is staged; else 0
    uint n_clamped;  // leading indexes, read with q_clamped: queries at a nearer position
    float scale;
    uint n_bias_dims;    // dims of the bias, where keys are stored without it; else 0
    uint n_rope_on_read; // dims of RoPE, where keys and queries come as before RoPE; else 0
    uint pairs;          // of these dims: rope_interleaved or rope_neox
    uint hadamard;       // 1: stored values were multiplied by H D; the result is multiplied by D H
    // A logit becomes softcap * tanh(logit / softcap), before masks and log-weights. 0: none
    float softcap;
};

struct SinksArgs {
    uint n_tokens;
    uint n_heads;
    uint head_dim;
};

// Attention scores of a slot, from the probabilities of queries [first_query, n_tokens).
CONST uint score_sum = 0u;   // += probability
CONST uint score_below = 1u; // += 1 where the probability is below 1 / (visible slots)

CONST uint score_decays = 0u; // earlier scores are multiplied by the decay of the tokens
CONST uint score_clears = 1u; // they are cleared
CONST uint score_adds = 2u;   // they stay, for another layer has scored the same tokens

struct KvScoreArgs {
    uint first_query;
    uint kind;
    uint before; // score_decays, score_clears or score_adds
    float decay; // factor of a score, for every later token
};

struct SelectArgs {
    uint kind;
    // Indexes that are read. The chunk and, in a reused choice, newer indexes come on top.
    uint n_read;
    uint n_first; // at least n_clamped
    uint n_last;  // the newest before the chunk
    uint stride;  // entries of the resulting table, per head
    uint shared_across_heads; // 1: all heads hold the same tokens and read the same ones
    uint must_reselect; // 1: the last choice is no longer valid, since indexes have changed
    // A choice is reused while the cosine of the queries is at least this, for at most n_last / 2
    // tokens. 1: never.
    float reuse;
    uint unit; // indexes that are chosen together: 1, select_page, or a block
};

struct ArgmaxArgs {
    uint rows;
    uint cols;
};

CONST uint max_conv_kernel = 8u;
CONST uint conv_tokens = 64u; // of a thread on GPUs
struct ConvArgs {
    uint n_tokens;
    uint cols;
    uint kernel; // inputs that a token sees, its own included; 2 to max_conv_kernel
    uint act;    // act_none or act_silu
    uint biased; // 1: y has a bias
};

// A token of x has, for delta: queries and keys (n_groups, state_dim) each, then values (n_heads,
// head_dim), head_dim equal to state_dim. For ssm_scan: values (n_heads, head_dim), then B and C
// (n_groups, state_dim) each.
CONST uint scan_lanes = 16u; // state_dim is a multiple of it
CONST uint max_state_dim = 256u;
struct ScanArgs {
    uint n_tokens;
    uint n_heads;
    uint n_groups;  // queries and keys, or B and C, that heads share
    uint head_dim;  // rows of a head's state
    uint state_dim; // columns of it
    float eps;      // of the norms of delta's queries and keys
};
FN uint scan_cols(ScanArgs a) { return a.n_heads * a.head_dim + 2u * a.n_groups * a.state_dim; }
// The group of a head: delta's heads alternate between groups, those of ssm_scan are in order.
FN uint delta_group(ScanArgs a, uint head) { return head % a.n_groups; }
FN uint ssm_group(ScanArgs a, uint head) { return head / (a.n_heads / a.n_groups); }

// The dims of RoPE's pair i.
FN uint first_of_pair(uint pairs, uint i) { return pairs == rope_interleaved ? 2u * i : i; }
FN uint second_of_pair(uint pairs, uint i, uint n_rot)
{
    return pairs == rope_interleaved ? 2u * i + 1u : i + n_rot / 2u;
}
// The pair that dim d of the first n_rot dims belongs to, and whether d is its second value.
FN uint pair_of(uint pairs, uint d, uint n_rot)
{
    return pairs == rope_interleaved ? d / 2u : d % (n_rot / 2u);
}
FN bool is_second(uint pairs, uint d, uint n_rot)
{
    return pairs == rope_interleaved ? (d & 1u) != 0u : d >= n_rot / 2u;
}

// The dim of a head that value i of a row of phasors belongs to.
FN uint phasor_dim(uint i, uint n_bias_dims, uint pairs)
{
    uint pair = i % (n_bias_dims / 2u);
    return pairs == rope_neox ? i : 2u * pair + i / (n_bias_dims / 2u);
}

#ifndef GLSL
#define KS_ARGS(T) static_assert(sizeof(T) % 4 == 0 && sizeof(T) <= 96, #T)
KS_ARGS(EmbedArgs);
KS_ARGS(NormArgs);
KS_ARGS(MatmulArgs);
KS_ARGS(RouteArgs);
KS_ARGS(ExpertsArgs);
KS_ARGS(CombineExpertsArgs);
KS_ARGS(RopeArgs);
KS_ARGS(GluArgs);
KS_ARGS(AddArgs);
KS_ARGS(ScaleArgs);
KS_ARGS(CopyColsArgs);
KS_ARGS(SoftcapArgs);
KS_ARGS(KvWriteArgs);
KS_ARGS(KvReadArgs);
KS_ARGS(KvMoveArgs);
KS_ARGS(SinksArgs);
KS_ARGS(KvScoreArgs);
KS_ARGS(AttentionArgs);
KS_ARGS(SelectArgs);
KS_ARGS(ArgmaxArgs);
KS_ARGS(ConvArgs);
KS_ARGS(ScanArgs);
#undef KS_ARGS
#endif

#endif
