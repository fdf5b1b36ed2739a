// The launchers of the kernels, called in the order of the stream. Pointers are device pointers.
// Formats of caches are as in cache.cuh, formats of weights their place in FORMATS.
#pragma once

#include <cuda_runtime.h>

#include "kernels/common/parts.h"

namespace ks
{

// A cache, or consecutive rows of one.
struct CudaCache {
    uint* words;
    uint n_rows;
    uint format;
};

// The slots of a layer, as KvSlots in runtime/base/backend.h. Absent parts are null.
struct CudaSlots {
    CudaCache k, v, coded_k, coded_v, chunk_k, chunk_v;
    const uint* table;
    const float* weights;
    const uint* head_layout;
    const uint* positions;
    const float* bias_phasors;
    const float* rope_table;
};

// The chunk's queries, as Queries in runtime/base/backend.h. If attention applies RoPE to keys, q
// already has RoPE.
struct CudaQueries {
    const float *q, *q_clamped, *bias, *bias_clamped;
};

// 32 activations in int8, in two halves of 16.
struct alignas(16) ActGroup {
    int q[8];
    float scale[2];
    float sum[2]; // scale times the sum of q
};
static_assert(sizeof(ActGroup) == 4 * act_words, "shaders have the same layout");

// The data of select, as Selection in runtime/base/backend.h.
struct CudaSelection {
    uint *table, *head_layout, *state;
    float* query;
    const float* scores;
    uint16_t* bounds;
    uint n_pages; // pages per head
};

// The blocks of select share the candidates of a head, or of heads that select together.
constexpr uint select_threads = 256u;
constexpr uint max_select_shares = 256u; // shares per head; one thread of a block reads each
constexpr uint select_passes = 3u, select_digits = 2048u;

// Scratch of select.
struct CudaSelectScratch {
    float* query;       // (n_heads, head_dim) the mean query
    float* before_rope; // (n_heads, head_dim) before RoPE
    float* logits;      // (n_heads, stride)
    float* votes;       // (n_kv_heads, stride)
    // (n_heads, n_shares, 2): a share's maximum logit, and the sum of exp(logit - maximum)
    float* norms;
    // (n_kv_heads, select_passes, select_digits): histograms of the scores' digits
    uint* digits;
    // (n_kv_heads, select_passes, 3): TopK after each pass
    uint* found;
    // (n_kv_heads, n_shares): a share's numbers of scores above the key and equal to it
    uint64_t* counts;
    // [0]: 1 if the last selection is reused. [1]: new tokens, or tokens_to_refresh for a new
    // selection.
    uint* words;
    uint stride, n_shares;
};

struct CudaSelect {
    SelectArgs s;
    AttentionArgs a;
    CudaSlots slots;
    CudaSelection to;
    CudaSelectScratch scratch;
    // the chunk's queries, after RoPE and before it; q_before_rope may be null
    const float *q, *q_before_rope;
};

constexpr uint max_targets = 3u; // tensors per launch

// Heads of several tensors, and the angles of their RoPE. Without RoPE the angles are null.
struct RopeTargets {
    RopeArgs a[max_targets];
    uint n;
    float* y[max_targets];
    const float *x[max_targets], *angles[max_targets];
};

void fill_launch(uint64_t n, uint* to, uint word, cudaStream_t stream);
void embed_launch(const EmbedArgs& a, uint format, float* y, const uint* w, const uint* ids,
                  cudaStream_t stream);
// With acts, the kernel also writes y in int8. Then dim or cols is a multiple of 32.
void norm_launch(const NormArgs& a, float* y, const float* x, const float* w, ActGroup* acts,
                 cudaStream_t stream);
void rope_launch(const RopeTargets& to, cudaStream_t stream);
void glu_launch(const GluArgs& a, float* y, const float* gate, const float* up, ActGroup* acts,
                uint cols, cudaStream_t stream);
void add_launch(const AddArgs& a, float* x, const float* b, cudaStream_t stream);
void scale_launch(const ScaleArgs& a, float* x, const float* s, cudaStream_t stream);
void copy_cols_launch(const CopyColsArgs& a, float* y, const float* x, cudaStream_t stream);
void softcap_launch(const SoftcapArgs& a, float* x, cudaStream_t stream);
void conv_launch(const ConvArgs& a, float* y, const float* x, const float* w, const float* bias,
                 float* state, cudaStream_t stream);
// The output and ScanInputs of runtime/base/backend.h. Absent parts are null.
struct ScanTensors {
    float* y;
    const float *x, *dt, *beta, *a, *d, *dt_bias;
    float* state;
};
void delta_launch(const ScanArgs& a, const ScanTensors& in, cudaStream_t stream);
void ssm_scan_launch(const ScanArgs& a, const ScanTensors& in, cudaStream_t stream);
void argmax_launch(const ArgmaxArgs& a, uint* best, const float* x, cudaStream_t stream);

void quantize_launch(const MatmulArgs& a, ActGroup* acts, const float* x, cudaStream_t stream);
// The weights that x is multiplied with, all of one format. They replace MatmulArgs::rows.
struct MatmulTargets {
    float* y[max_targets];
    const uint* w[max_targets];
    uint rows[max_targets], n;
    float scale[max_targets]; // of the products
};
void matmul_launch(const MatmulArgs& a, uint format, const MatmulTargets& to, const float* x,
                   const ActGroup* acts, cudaStream_t stream);
// Whether matmul_launch reads the int8 activations of quantize_launch.
bool matmul_uses_int8(uint format);

void route_launch(const RouteArgs& a, uint* ids, float* weights, const float* logits,
                  const float* bias, cudaStream_t stream);
void list_experts_launch(const ExpertsArgs& a, uint max_blocks, uint* list, const uint* ids,
                         cudaStream_t stream);
// The weights that x is multiplied with, all of one format; absent parts are null.
struct ExpertsTargets {
    float* y[2];
    const uint* w[2];
    const float *scales[2], *bias[2];
    uint n;
};
// list: ids, or with max_blocks the list of list_experts.
void matmul_experts_launch(const ExpertsArgs& a, uint format, const ExpertsTargets& to,
                           uint max_blocks, const float* x, const ActGroup* acts, const uint* list,
                           cudaStream_t stream);
void combine_experts_launch(const CombineExpertsArgs& a, float* y, const float* z,
                            const float* weights, cudaStream_t stream);

void kv_write_launch(const KvWriteArgs& a, CudaCache to_k, CudaCache to_v, const float* k,
                     const float* v, const uint* table, const uint* head_layout,
                     cudaStream_t stream);
void kv_read_launch(const KvReadArgs& a, float* y, CudaCache from, const uint* rows,
                    cudaStream_t stream);
void kv_move_launch(const KvMoveArgs& a, CudaCache to, CudaCache from, const uint* moves,
                    cudaStream_t stream);

constexpr uint max_splits = 1024u; // splits of a query's slots
// slots per split at least: with fewer, partial results cost too much
constexpr uint min_share = 128u;

// rows: queries of a KV head per block. blocks: blocks per multiprocessor.
struct AttentionShare {
    uint rows, blocks;
};
// Queries of a KV head per block: of the general kernel, and of attention_prefill.
FN uint attention_rows(uint head_dim)
{
    return 1024u / head_dim < 16u ? 1024u / head_dim : 16u;
}
constexpr uint prefill_rows = 64u;
FN bool prefill_supports(uint head_dim)
{
    return head_dim == 64u || head_dim == 128u;
}

// roped: (n_tokens, n_heads * head_dim), the queries after RoPE, for keys to which attention
// applies RoPE
void rope_queries_launch(const AttentionArgs& a, float* roped, const float* q,
                         const float* rope_table, const uint* head_layout, cudaStream_t stream);
void attention_launch(const AttentionArgs& a, uint n_splits, float* partials, CudaQueries q,
                      CudaSlots s, cudaStream_t stream);
// Whether a logit is just the product of a query and a stored key: no log-weights, no key bias, no
// RoPE on read, no softcap. All other cases need the general kernel.
bool logits_are_dot_products(const AttentionArgs& a, const CudaSlots& s);
// The variant for few queries and heads of 64, 128 or 256 values.
bool attention_decode_can(const AttentionArgs& a, const CudaSlots& s);
AttentionShare attention_decode_share(const AttentionArgs& a, const CudaSlots& s);
void attention_decode_launch(const AttentionArgs& a, uint n_splits, float* partials, CudaQueries q,
                             CudaSlots s, cudaStream_t stream);
// Whether all pools of a layer are f16.
bool all_f16(const CudaSlots& s);
// Scratch for dequantized rows: slots_per_round slots of every split and head. Round n has the
// slots of a split from n * slots_per_round on.
struct DequantScratch {
    // (n_splits, n_kv_heads, slots_per_round, dequantized_words()); null if all pools are f16
    uint* words;
    uint slots_per_round, n_rounds, round;
};
void attention_dequantize_launch(const AttentionArgs& a, uint n_splits,
                                 const DequantScratch& scratch, const CudaSlots& s,
                                 cudaStream_t stream);
// The variant for many queries, on the tensor cores.
bool attention_prefill_can(const AttentionArgs& a, const CudaSlots& s);
void attention_prefill_launch(const AttentionArgs& a, uint n_splits, float* partials, CudaQueries q,
                              CudaSlots s, DequantScratch scratch, cudaStream_t stream);
void attention_combine_launch(const AttentionArgs& a, uint n_splits, float* y, float* lse,
                              const float* partials, ActGroup* acts, cudaStream_t stream);
void attention_sinks_launch(const SinksArgs& a, float* y, float* lse, const float* sinks,
                            cudaStream_t stream);
void kv_score_launch(const KvScoreArgs& s, const AttentionArgs& a, ScoreDecay decay, float* scores,
                     float* chunk_scores, CudaQueries q, CudaSlots all, const float* lse,
                     cudaStream_t stream);
void select_launch(const CudaSelect& c, cudaStream_t stream);
// The part of select that computes the logits of all candidates, for heads of 64, 128 or 256
// values and logits without a softcap.
bool select_keys_can(const CudaSelect& c);
void select_keys_launch(const CudaSelect& c, cudaStream_t stream);

} // namespace ks
