// The kernels of the cpu backend: one table of functions per instruction set. All are instances of
// the same templates (matmul.h, attention.h, vector.h) over a small set of vector operations
// (simd_*.h). The caller splits the work and owns the threads. How the work is split does not
// change a bit.
#pragma once

#include "kernels/common/args.h"
#include "kernels/common/codecs.h"
#include "kernels/common/formats.h"

#include <stddef.h>
#include <stdint.h>

// Inlining is off for vectors that are arrays (simd_generic.h) and under sanitizers: the functions
// would become enormous, and compiling them would take minutes.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KS_KEEP_CALLS
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KS_KEEP_CALLS
#endif
#ifdef KS_KEEP_CALLS
#define KS_INLINED
#define KS_INLINE inline
#define KS_UNROLL(n)
#else
#define KS_INLINED __attribute__((always_inline)) // after the parameters of a lambda
#define KS_INLINE inline KS_INLINED
#define KS_PRAGMA(text) _Pragma(#text)
// Before a loop over vectors, so that they stay in registers.
#define KS_UNROLL(n) KS_PRAGMA(GCC unroll n)
#endif

namespace ks
{

#define KS_FORMAT_INDEX(name) cpu_format_##name,
enum CpuFormat { FORMATS(KS_FORMAT_INDEX) cpu_format_count }; // in the order of ks::Format
#undef KS_FORMAT_INDEX
#define KS_CODEC_INDEX(name, number) cpu_codec_##name = number,
#define KS_COUNT(name, number) +1
// Equal to codec_index (codec_rows.h).
enum CpuCodecIndex {
    cpu_codec_f32,
    cpu_codec_f16,
    CODECS(KS_CODEC_INDEX) GROUP_CODECS(KS_CODEC_INDEX) cpu_codec_count =
        2 CODECS(KS_COUNT) GROUP_CODECS(KS_COUNT)
};
#undef KS_CODEC_INDEX
#undef KS_COUNT

// 32 activations rounded to int8: x = scale * q with |q| <= 127, and the largest |x| maps to 127.
// Each half has its own scale if every weight that uses the activations supports that
// (MatmulKernels::half_scales). Otherwise both scales are equal.
struct alignas(16) ActBlock {
    int8_t q[32];
    float scale[2];
    float scaled_sum; // sum of the rounded values
    int16_t sums[2];  // sums of q[0..15] and of q[16..31]
};

// Some tiles of one weight times the activations of some tokens.
struct MatmulTask {
    const uint32_t* tiles; // the first tile
    uint32_t n_tiles;
    uint32_t n_rows; // weight rows from the first tile on; the last tile may have fewer than eight
    uint32_t cols;
    uint32_t n_tokens;
    const ActBlock* acts; // (cols / 32, n_tokens), for quantised formats; then act_padding more
    const float* x;       // (n_tokens, cols), for other formats
    float* y;             // (n_tokens, y_stride), at the first row of the first tile
    uint32_t y_stride;
    bool accumulate;
    float scale;                      // of the products
    float* sums;                      // scratch (n_tokens, max_lanes)
    bool prefetch_to_l2 = false;      // weights; else to L1
    const uint32_t* y_rows = nullptr; // (n_tokens) rows of y, where they are not consecutive
};
constexpr uint32_t max_lanes = 16;  // rows that a kernel multiplies at once
constexpr uint32_t act_padding = 8; // kernels for eight tokens multiply fewer with what follows
using MatmulKernel = void (*)(const MatmulTask& task);

// Rows of a pool that are read soon. A kernel prefetches one of them for each row that it reads. If
// a row lies in another pool, its prefetch is wasted, which is harmless.
struct PrefetchRows {
    uintptr_t pool;
    const uint32_t* rows;
    uint32_t n, row_bytes, n_bytes; // n_bytes: bytes to prefetch of each row
};

// The hardware prefetcher cannot follow a table, a ring that wraps, or alternating keys and values.
// The prefetch goes to L2: the L1 fill buffers would run out and stall the core.
KS_INLINE static void prefetch(const PrefetchRows& ahead, uint32_t i)
{
    if (i >= ahead.n) return;
    const uintptr_t at = ahead.pool + uintptr_t(ahead.rows[i]) * ahead.row_bytes;
    for (uint32_t k = 0; k < ahead.n_bytes; k += 64)
        __builtin_prefetch(reinterpret_cast<const void*>(at + k), 0, 2);
}

// Prefetches n rows from `begin` on, which mostly are contiguous.
KS_INLINE static void prefetch(const PrefetchRows& ahead, uint32_t begin, uint32_t n)
{
    if (begin >= ahead.n || n == 0) return;
    const uint32_t end = begin + n < ahead.n ? begin + n : ahead.n, rows = end - begin;
    if (ahead.rows[end - 1] - ahead.rows[begin] != rows - 1 || ahead.n_bytes != ahead.row_bytes) {
        for (uint32_t i = begin; i < end; i++) prefetch(ahead, i);
        return;
    }
    const uintptr_t at = ahead.pool + uintptr_t(ahead.rows[begin]) * ahead.row_bytes;
    for (uint32_t k = 0; k < rows * ahead.row_bytes; k += 64)
        __builtin_prefetch(reinterpret_cast<const void*>(at + k), 0, 2);
}

// The rows that remain after i rows.
KS_INLINE static PrefetchRows after(const PrefetchRows& ahead, uint32_t i)
{
    return i < ahead.n ? PrefetchRows{ahead.pool, ahead.rows + i, ahead.n - i, ahead.row_bytes,
                                      ahead.n_bytes}
                       : PrefetchRows{};
}

// The part of each row that corresponds to dims [from, to) of `dims`. Kernels that pass over rows
// several times prefetch one part in each pass.
KS_INLINE static PrefetchRows share(const PrefetchRows& ahead, uint32_t from, uint32_t to,
                                    uint32_t dims)
{
    const uint32_t begin = ahead.row_bytes * from / dims, end = ahead.row_bytes * to / dims;
    return {ahead.pool + begin, ahead.rows, ahead.n, ahead.row_bytes, end - begin};
}

struct CodedRows;
// Encode or decode a row of a coded cache, or a group of rows, like encode_row, encode_group and
// decode_row of codec_rows.h.
using EncodeKernel = void (*)(const float* x, uint32_t d, uint32_t* words, uint8_t* tail);
using DecodeRowKernel = void (*)(const uint32_t* words, const uint8_t* tail, uint32_t d, float* x);
// Decodes rows rows[i] - first of a pool into x (n, d), and prefetches one row of `ahead` for each.
using DecodeKernel = void (*)(const CodedRows& from, const uint32_t* rows, uint32_t first,
                              uint32_t n, uint32_t d, float* x, const PrefetchRows& ahead);
// Converts queries q (n_heads, d), n_heads <= 4, to the form that the codec multiplies with its
// codes. prepared (d, kPreparedFloats).
using PrepareKernel = void (*)(const float* q, uint32_t n_heads, uint32_t d, float* prepared);
constexpr uint32_t kPreparedFloats = 32;
// logits[h * kAttentionTile + i]: dot products of queries with rows. The queries are prepared if
// the codec has `prepare`. The kernel handles as many of the first rows as it supports, possibly
// none, and returns their number. scratch (kAttentionTile, d). One row of `ahead` is prefetched for
// each.
using LogitsKernel = uint32_t (*)(const CodedRows& from, const uint32_t* rows, uint32_t first,
                                  uint32_t n, uint32_t d, const float* q, uint32_t n_heads,
                                  float* logits, float* scratch, const PrefetchRows& ahead);
// sums[h], `stride` apart, += weights[h * kAttentionTile + i] * row i. Like LogitsKernel, it may
// handle only the first rows and returns their number.
using OutputsKernel = uint32_t (*)(const CodedRows& from, const uint32_t* rows, uint32_t first,
                                   uint32_t n, uint32_t d, const float* weights, uint32_t n_heads,
                                   float* sums, uint32_t stride, const PrefetchRows& ahead);

// How a cache's rows are read and written. f32 and f16 are codecs, too.
struct CodecKernels {
    EncodeKernel encode;
    DecodeKernel decode;
    PrepareKernel prepare; // null: `logits` takes queries as they are
    LogitsKernel logits;   // null: rows are decoded first
    OutputsKernel outputs; // null: rows are decoded first
};
struct CodecTable {
    CodecKernels of[cpu_codec_count];
    const CodecKernels& operator[](int codec) const { return of[codec]; }
};

// The two planes of a coded pool, or its groups, and how rows of them are read.
struct CodedRows : CodecKernels {
    const uint32_t* words;
    const uint8_t* tails;
    uint32_t row_words, row_tail; // words and bytes per row; for group codecs, the share of one row
};

// The tensors of one attention op.
struct AttentionTask {
    AttentionArgs a;
    const float* q;              // (n_tokens, n_heads * head_dim)
    const float* q_clamped;      // (n_tokens, n_heads * head_dim), only if a.n_clamped
    float* y;                    // (n_tokens, n_heads * head_dim)
    float* lse;                  // (n_tokens, n_heads), or null
    const void* k;               // (n_kv_heads * n_rows, head_dim)
    const void* v;               // (n_kv_heads * n_rows, head_dim)
    const void* chunk_k;         // (n_kv_heads * chunk_rows, head_dim)
    const void* chunk_v;         // (n_kv_heads * chunk_rows, head_dim)
    bool k_half, v_half;         // format of k, v, chunk_k and chunk_v: f16, else f32
    CodedRows coded_k;           // (n_kv_heads * n_coded, head_dim)
    CodedRows coded_v;           // (n_kv_heads * n_coded, head_dim)
    const uint32_t* table;       // (slots), or null
    const uint32_t* head_layout; // (n_kv_heads, layout_words)
    const float* weights;        // (slots, 2), or null
    const float* bias;           // (n_tokens, n_heads * head_dim), only if a.n_bias_dims
    const float*
        bias_clamped; // (n_tokens, n_heads * head_dim), only if a.n_bias_dims and a.n_clamped
    const uint32_t* positions; // (slots)
    const float* bias_phasors; // (phasor_digits * phasor_base, n_bias_dims)
    const float* rope_table;   // (indexes, n_rope_on_read), only if a.n_rope_on_read
    float* logits;             // (n_heads, logits_stride), of a single token; or null
    uint32_t logits_stride;    // at least the number of indexes
};

// The arguments and outputs of kv_score.
struct ScoreTask {
    KvScoreArgs s;
    float* scores;       // (slots)
    float* chunk_scores; // (n_kv_heads * chunk_rows), or null
};

// Tokens [token, token + n_tokens) and the query heads of one KV head.
using AttentionChunkKernel = void (*)(const AttentionTask& task, uint32_t kv_head, uint32_t token,
                                      uint32_t n_tokens, float* scratch);
// Indexes [begin, end) of one token and one KV head, in whole groups of kAttentionGroup. Writes one
// partial per query head and group, side by side.
using AttentionSplitKernel = void (*)(const AttentionTask& task, uint32_t kv_head, uint32_t token,
                                      uint32_t begin, uint32_t end, float* partials,
                                      uint32_t head_stride, float* scratch);
// Attention scores of indexes [begin, end) of one KV head, all in one tile.
using ScoreKernel = void (*)(const AttentionTask& task, const ScoreTask& score, uint32_t kv_head,
                             uint32_t begin, uint32_t end, float* scratch);

// Indexes of a tile. Tiles begin at multiples of it, so results do not depend on the chunks.
constexpr uint32_t kAttentionTile = 64;
// Indexes that share a running maximum, in whole tiles. Splits consist of whole groups.
constexpr uint32_t kAttentionGroup = 128;
constexpr uint32_t kMaxScoreTokens = 512; // tokens of a chunk
// Maximum number of queries in a chunk. The heads of a token stay together, so it limits the query
// heads of a KV head, too.
constexpr uint32_t kAttentionRows = 96;

// Floats of a partial before its sums: maximum, norm, six unused.
constexpr uint32_t kPartialHead = 8;

// Floats of scratch that one thread needs for a chunk or a split.
constexpr size_t attention_scratch_floats(size_t head_dim)
{
    size_t width = (head_dim + 15) / 16 * 16;
    return (4 * kAttentionRows + 3 * kAttentionTile) * width + 10 * kAttentionTile +
           6 * kAttentionRows;
}

struct MatmulKernels {
    // One token. half_scales: one scale per half block, else one for both.
    void (*quantize)(const float* x, uint32_t cols, ActBlock* out, uint32_t out_stride,
                     bool half_scales);
    // Whether the format's kernel supports one scale per half block.
    bool half_scales[cpu_format_count];
    MatmulKernel matmul[cpu_format_count];
    // Runs only int8 dot products in registers and L1, the upper bound of a matmul. Returns the
    // number of products.
    uint64_t (*dot_peak)(uint32_t n_rounds);
};

struct AttentionKernels {
    AttentionChunkKernel chunk;
    // Also handles log-weights, keys that are stored without their bias and a softcap, unlike chunk
    // and split.
    AttentionChunkKernel general;
    AttentionSplitKernel split;
    // The total of a query head: `begin` resets it, `combine` adds partials to it in order of
    // their indexes, `finish` writes the output.
    void (*begin)(float* total, uint32_t head_dim);
    void (*combine)(float* total, const float* partials, uint32_t n_splits, uint32_t stride,
                    uint32_t head_dim);
    void (*finish)(const float* total, uint32_t head_dim, float* y, float* lse);
    ScoreKernel score;
    ScoreKernel score_kept_logits; // for a single token, from task.logits
    // Selection (attention_select.h).
    void (*select_logits)(const AttentionTask& task, uint32_t kv_head, uint32_t begin, uint32_t end,
                          float* logits, uint32_t stride, float* scratch);
    void (*softmax)(float* logits, uint32_t n);
    void (*page_bounds)(const AttentionTask& task, uint32_t kv_head, uint32_t begin, uint32_t end,
                        uint16_t* low, uint16_t* high, float* scratch);
    void (*page_votes)(const float* q, uint32_t n_heads, uint32_t head_dim, const uint16_t* bounds,
                       uint32_t n_pages, float* votes);
};

// The tensors of a scan, as ScanInputs in runtime/base/backend.h.
struct ScanTask {
    ScanArgs s;
    float* y; // (n_tokens, n_heads * head_dim)
    const float *x, *dt, *beta, *a, *d, *dt_bias;
    float* state;
};

struct VectorKernels {
    void (*norm)(const NormArgs& a, float* y, const float* x, const float* w); // one row
    void (*rope)(const RopeArgs& a, float* y, const float* x,
                 const float* angles); // one token; y may be x
    void (*hadamard)(float* x, uint32_t n_heads, uint32_t head_dim, const float* signs,
                     bool inverse);
    // up: null if not a.gated
    void (*glu)(const GluArgs& a, float* y, const float* gate, const float* up);
    void (*add)(float* x, const float* b, uint32_t n);
    void (*scale)(float* x, uint32_t n, float factor);
    void (*softcap)(float* x, uint32_t n, float cap);
    uint32_t (*argmax)(const float* x, uint32_t n);
    // One token. rows[j] (cols): the input kernel - 1 - j tokens before it. bias: null if it has
    // none
    void (*conv)(const ConvArgs& a, float* y, const float* const* rows, const float* w,
                 const float* bias);
    // All tokens in one head
    void (*delta)(const ScanTask& task, uint32_t head);
    void (*ssm_scan)(const ScanTask& task, uint32_t head);
    CodecTable codecs;
};

// Rows of a codec in planes, with the kernels that read them.
inline CodedRows rows_of(const VectorKernels& vector, int codec, const uint32_t* words,
                         const uint8_t* tails, uint32_t row_bytes)
{
    return {vector.codecs[codec], words, tails, row_bytes / 4, row_bytes % 4};
}

struct CpuKernels {
    const char* name;
    bool prefetch_to_l2; // a core has few L1 misses in flight
    const MatmulKernels& matmul;
    const AttentionKernels& attention;
    const VectorKernels& vector;
};

// One per file; null where the file was compiled without its instruction set.
extern const MatmulKernels* const kMatmulGeneric;
extern const MatmulKernels* const kMatmulAvx2;
extern const MatmulKernels* const kMatmulAvxVnni;
extern const MatmulKernels* const kMatmulAvx512Vnni;
extern const MatmulKernels* const kMatmulNeon;
extern const MatmulKernels* const kMatmulI8mm;
extern const AttentionKernels* const kAttentionGeneric;
extern const AttentionKernels* const kAttentionAvx2;
extern const AttentionKernels* const kAttentionAvx512;
extern const AttentionKernels* const kAttentionNeon;
extern const VectorKernels* const kVectorGeneric;
extern const VectorKernels* const kVectorAvx2;
extern const VectorKernels* const kVectorAvx512;
extern const VectorKernels* const kVectorNeon;

// The best kernels for this processor, or the ones named by the environment variable KNAPSACK_CPU
// if the processor supports them.
CpuKernels choose_cpu_kernels();
// The names of the kernels that are built in, the best first; null after the last one.
const char* built_cpu_kernels(int nth);

} // namespace ks
