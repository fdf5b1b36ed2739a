// The launchers: one for each op and kernel, called in the order of the stream. Pointers are the
// device's; formats are those of cache.cuh for caches and their place in FORMATS for weights.
#pragma once

#include <cuda_runtime.h>

#include "kernels/common/parts.h"

namespace ks
{

// A cache, or a part of one in its rows' order.
struct CudaCache {
    uint* words;
    uint n_rows;
    uint format;
};

// The slots of a layer (runtime/base/backend.h has their meaning). Null where there are none.
struct CudaSlots {
    CudaCache k, v, coded_k, coded_v, chunk_k, chunk_v;
    const uint* table;
    const float* weights;
    const uint* head_layout;
    const uint* positions;
    const float* waves;
    const float* rope_table;
};

// The chunk's queries; those that meet keys which attention turns are turned already.
struct CudaQueries {
    const float *q, *q_clamped, *bias, *bias_clamped;
};

// 32 activations in int8, by halves.
struct alignas(16) ActGroup {
    int q[8];
    float scale[2];
    float sum[2]; // scale times the sum of q
};
static_assert(sizeof(ActGroup) == 4 * act_words, "shaders have the same layout");

// What a choice is made of, and where it goes (Selection in runtime/base/backend.h).
struct CudaSelection {
    uint *table, *head_layout, *state;
    float* query;
    const float* scores;
    uint16_t* bounds;
    uint n_pages; // of a head
};

// How blocks share what a choice is made of: the candidates of a head, or of heads that choose
// together.
constexpr uint select_threads = 256u;
constexpr uint max_select_shares = 256u; // a thread for each
constexpr uint select_passes = 3u, select_digits = 2048u;

// Scratch of select.
struct CudaSelectRoom {
    float* query;  // (n_heads, head_dim) the mean query
    float* plain;  // (n_heads, head_dim) before RoPE
    float* logits; // (n_heads, stride)
    float* votes;  // (n_kv_heads, stride)
    float* norms;  // (n_heads, n_shares, 2) the highest of a share's logits, and what their powers
                   // come to beside it
    uint* digits;  // (n_kv_heads, select_passes, select_digits) how many scores have a digit
    uint* found;   // (n_kv_heads, select_passes, 3) TopK
    uint64_t* counts; // (n_kv_heads, n_shares) how many of a share's scores are above the key, and
                      // equal to it
    uint* words;      // 1 if the last choice is used again, how many tokens came since
    uint stride, n_shares;
};

struct CudaSelect {
    SelectArgs s;
    AttentionArgs a;
    CudaSlots slots;
    CudaSelection to;
    CudaSelectRoom scratch;
    const float *q, *plain; // the chunk's queries, and what they were before RoPE, or none
};

constexpr uint max_targets = 3u; // that share a launch

// Heads and what turns them; angles are null where nothing does.
struct RopeTargets {
    RopeArgs a[max_targets];
    uint n;
    float* y[max_targets];
    const float *x[max_targets], *angles[max_targets];
};

void fill_launch(uint64_t n, uint* to, uint word, cudaStream_t stream);
void embed_launch(const EmbedArgs& a, uint format, float* y, const uint* w, const uint* ids,
                  cudaStream_t stream);
// Where acts are not null, y is also there in bytes: rows or columns are then multiples of 32
// values.
void rmsnorm_launch(const RmsnormArgs& a, float* y, const float* x, const float* w, ActGroup* acts,
                    cudaStream_t stream);
void rope_launch(const RopeTargets& to, cudaStream_t stream);
void glu_launch(const GluArgs& a, float* y, const float* gate, const float* up, ActGroup* acts,
                uint cols, cudaStream_t stream);
void add_launch(const AddArgs& a, float* x, const float* b, cudaStream_t stream);
void softcap_launch(const SoftcapArgs& a, float* x, cudaStream_t stream);
void argmax_launch(const ArgmaxArgs& a, uint* best, const float* x, cudaStream_t stream);

void quantize_launch(const MatmulArgs& a, ActGroup* acts, const float* x, cudaStream_t stream);
// What x is multiplied with: weights of one format. The rows of a MatmulArgs are not asked.
struct MatmulTargets {
    float* y[max_targets];
    const uint* w[max_targets];
    uint rows[max_targets], n;
};
void matmul_launch(const MatmulArgs& a, uint format, const MatmulTargets& to, const float* x,
                   const ActGroup* acts, cudaStream_t stream);
// Whether matmul_launch wants quantize_launch's blocks.
bool matmul_uses_int8(uint format);

void kv_write_launch(const KvWriteArgs& a, CudaCache to_k, CudaCache to_v, const float* k,
                     const float* v, const uint* table, const uint* head_layout,
                     cudaStream_t stream);
void kv_read_launch(const KvReadArgs& a, float* y, CudaCache from, const uint* rows,
                    cudaStream_t stream);
void kv_move_launch(const KvMoveArgs& a, CudaCache to, CudaCache from, const uint* moves,
                    cudaStream_t stream);

constexpr uint max_splits = 1024u; // blocks that share the slots of a query
constexpr uint least_share = 128u; // slots: of fewer, partial results cost more than they are worth

// Queries of a KV head that a block of attention has, and how many such blocks a multiprocessor has
// at a time.
struct AttentionShare {
    uint rows, blocks;
};
// Queries of a KV head that a block of attention has; on the tensor cores more.
FN uint attention_rows(uint head_dim)
{
    return 1024u / head_dim < 16u ? 1024u / head_dim : 16u;
}
constexpr uint prefill_rows = 64u;
FN bool prefill_supports(uint head_dim)
{
    return head_dim == 64u || head_dim == 128u;
}

// turned (n_tokens, n_heads * head_dim): queries as they meet keys that attention turns
void rope_queries_launch(const AttentionArgs& a, float* roped, const float* q,
                         const float* rope_table, const uint* head_layout, cudaStream_t stream);
void attention_launch(const AttentionArgs& a, uint n_splits, float* partials, CudaQueries q,
                      CudaSlots s, cudaStream_t stream);
// Whether slots have no log-weights and keys are stored as queries meet them: all others have only
// the general kernel.
bool logits_are_dot_products(const AttentionArgs& a, const CudaSlots& s);
// The same for a few queries of the usual heads.
bool attention_decode_can(const AttentionArgs& a, const CudaSlots& s);
AttentionShare attention_decode_share(const AttentionArgs& a, const CudaSlots& s);
void attention_decode_launch(const AttentionArgs& a, uint n_splits, float* partials, CudaQueries q,
                             CudaSlots s, cudaStream_t stream);
// Whether a layer's pools are all of halves.
bool are_halves(const CudaSlots& s);
// Scratch for rows of other pools as halves, of `each` slots of every split and head. Round n has
// those from n * each of a share on.
struct DequantScratch {
    uint* words; // (n_splits, n_kv_heads, each, dequantized_words()); null where all are halves
    uint slots_per_round, n_rounds, round;
};
void attention_dequantize_launch(const AttentionArgs& a, uint n_splits,
                                 const DequantScratch& scratch, const CudaSlots& s,
                                 cudaStream_t stream);
// The same as attention_launch for many queries, on the tensor cores.
bool attention_prefill_can(const AttentionArgs& a, const CudaSlots& s);
void attention_prefill_launch(const AttentionArgs& a, uint n_splits, float* partials, CudaQueries q,
                              CudaSlots s, DequantScratch scratch, cudaStream_t stream);
void attention_combine_launch(const AttentionArgs& a, uint n_splits, float* y, float* lse,
                              const float* partials, ActGroup* acts, cudaStream_t stream);
void kv_score_launch(const KvScoreArgs& s, const AttentionArgs& a, ScoreDecay decay, float* scores,
                     float* chunk_scores, CudaQueries q, CudaSlots all, const float* lse,
                     cudaStream_t stream);
void select_launch(const CudaSelect& c, cudaStream_t stream);
// Its logits of all candidates, of the usual heads.
bool select_keys_can(const CudaSelect& c);
void select_keys_launch(const CudaSelect& c, cudaStream_t stream);

} // namespace ks
