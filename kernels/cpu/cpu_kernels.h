// The kernels of the cpu backend: one table of functions per instruction set, all made from the same templates
// (matmul.h, attention.h, vector.h) over a small set of vector operations (simd_*.h). The caller splits the work and
// owns the threads; a kernel gives the same bits however it was split.
#pragma once

#include "kernels/common/args.h"
#include "kernels/common/codecs.h"
#include "kernels/common/formats.h"

#include <stddef.h>
#include <stdint.h>

// Vectors that are arrays (simd_generic.h) would make enormous functions if all was inlined, and so would a sanitizer's
// checks of every access: the compiler would take minutes.
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
#define KS_UNROLL(n) KS_PRAGMA(GCC unroll n) // before a loop over vectors, so that they stay in registers
#endif

namespace ks
{

#define KS_FORMAT_INDEX(name) cpu_format_##name,
enum CpuFormat { FORMATS(KS_FORMAT_INDEX) cpu_format_count }; // in the order of ks::Format
#undef KS_FORMAT_INDEX
#define KS_CODEC_INDEX(name) cpu_codec_##name,
// As codec_index of codec_rows.h has it.
enum CpuCodec { cpu_codec_f32, cpu_codec_f16, CODECS(KS_CODEC_INDEX) GROUP_CODECS(KS_CODEC_INDEX) cpu_codec_count };
#undef KS_CODEC_INDEX

// 32 activations rounded to int8: x = scale * q with |q| <= 127, the largest |x| at 127. Each half has its own scale where all
// that the activations are multiplied with takes that (MatmulKernels::by_halves), else both have the same.
struct alignas(16) ActBlock {
    int8_t q[32];
    float scale[2];
    float scaled_sum; // what the rounded values add up to
    int16_t sums[2];  // of q[0..15] and of q[16..31]
};

// Some tiles of one weight times the activations of some tokens.
struct MatmulTask {
    const uint32_t* tiles; // the first tile
    uint32_t n_tiles;
    uint32_t n_rows; // weight rows from the first tile on; the last tile may have fewer than eight
    uint32_t cols;
    uint32_t n_tokens;
    const ActBlock* acts; // (cols / 32, n_tokens), for quantised formats
    const float* x;       // (n_tokens, cols), for the others
    float* y;             // (n_tokens, y_stride), at the first tile's first row
    uint32_t y_stride;
    bool accumulate;
    float* sums; // scratch (n_tokens, 8)
};
using MatmulKernel = void (*)(const MatmulTask& task);

// Rows of a pool that soon are read: asked for one by one, while others are. Those that are not of it are asked for in vain.
struct Ahead {
    uintptr_t pool;
    const uint32_t* rows;
    uint32_t n, row_bytes, n_bytes; // n_bytes of each row
};

// The rows lie anywhere, or those of a ring soon go on in another page, and keys and values take turns: no processor guesses where.
// To the second-level cache: what waits for the first one is soon as many lines as it can wait for, and then the core stands still.
KS_INLINE static void ask(const Ahead& ahead, uint32_t i)
{
    if (i >= ahead.n) return;
    const uintptr_t at = ahead.pool + uintptr_t(ahead.rows[i]) * ahead.row_bytes;
    for (uint32_t k = 0; k < ahead.n_bytes; k += 64) __builtin_prefetch(reinterpret_cast<const void*>(at + k), 0, 2);
}

// Of n rows from `begin` on, which mostly lie side by side.
KS_INLINE static void ask(const Ahead& ahead, uint32_t begin, uint32_t n)
{
    if (begin >= ahead.n || n == 0) return;
    const uint32_t end = begin + n < ahead.n ? begin + n : ahead.n, rows = end - begin;
    if (ahead.rows[end - 1] - ahead.rows[begin] != rows - 1 || ahead.n_bytes != ahead.row_bytes) {
        for (uint32_t i = begin; i < end; i++) ask(ahead, i);
        return;
    }
    const uintptr_t at = ahead.pool + uintptr_t(ahead.rows[begin]) * ahead.row_bytes;
    for (uint32_t k = 0; k < rows * ahead.row_bytes; k += 64) __builtin_prefetch(reinterpret_cast<const void*>(at + k), 0, 2);
}

// What is left of it after i rows.
KS_INLINE static Ahead after(const Ahead& ahead, uint32_t i)
{
    return i < ahead.n ? Ahead{ahead.pool, ahead.rows + i, ahead.n - i, ahead.row_bytes, ahead.n_bytes} : Ahead{};
}

// Of each row what is to its bytes as dims [from, to) are to `dims`: rows that are passed more than once do not ask for all at first.
KS_INLINE static Ahead share(const Ahead& ahead, uint32_t from, uint32_t to, uint32_t dims)
{
    const uint32_t begin = ahead.row_bytes * from / dims, end = ahead.row_bytes * to / dims;
    return {ahead.pool + begin, ahead.rows, ahead.n, ahead.row_bytes, end - begin};
}

struct CodedRows;
// A row of a coded cache, or a group of rows; as encode_row, encode_group and decode_row of codec_rows.h.
using EncodeKernel = void (*)(const float* x, uint32_t d, uint32_t* words, uint8_t* tail);
using DecodeRowKernel = void (*)(const uint32_t* words, const uint8_t* tail, uint32_t d, float* x);
// Rows rows[i] - first of a pool, x (n, d). A row of `ahead` is asked for with each.
using DecodeKernel = void (*)(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d, float* x,
                              const Ahead& ahead);
// Queries q (n_heads, d), n_heads <= 4, become what rows of a codec meet; prepared (d, kPreparedFloats).
using PrepareKernel = void (*)(const float* q, uint32_t n_heads, uint32_t d, float* prepared);
constexpr uint32_t kPreparedFloats = 32;
// logits[h * kAttentionTile + i] of queries, prepared where the codec prepares them, and of the first rows: as many as it can take, all
// or none, which it returns. room (kAttentionTile, d). A row of `ahead` is asked for with each.
using LogitsKernel = uint32_t (*)(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d, const float* q,
                                  uint32_t n_heads, float* logits, float* room, const Ahead& ahead);
// sums[h], `stride` apart, += weights[h * kAttentionTile + i] * row i; again the first rows
using OutputsKernel = uint32_t (*)(const CodedRows& from, const uint32_t* rows, uint32_t first, uint32_t n, uint32_t d,
                                   const float* weights, uint32_t n_heads, float* sums, uint32_t stride, const Ahead& ahead);

// The two planes of a coded pool, or its groups, and how rows of them are read. f32 and f16 are codecs, too.
struct CodedRows {
    DecodeKernel decode;
    PrepareKernel prepare; // or null: queries are met as they are
    LogitsKernel logits;   // or null
    OutputsKernel outputs; // or null
    const uint32_t* words;
    const uint8_t* tails;
    uint32_t row_words, row_tail; // words and bytes; of a group's row, its share
};

// One op's tensors.
struct AttentionTask {
    AttentionArgs a;
    const float* q;            // (n_tokens, n_heads * head_dim)
    const float* q_far;        // (n_tokens, n_heads * head_dim), where a.n_far
    float* y;                  // (n_tokens, n_heads * head_dim)
    float* lse;                // (n_tokens, n_heads), or null
    const void* k;             // (n_kv_heads * n_rows, head_dim)
    const void* v;             // (n_kv_heads * n_rows, head_dim)
    const void* chunk_k;       // (n_kv_heads * chunk_rows, head_dim)
    const void* chunk_v;       // (n_kv_heads * chunk_rows, head_dim)
    bool k_half, v_half;       // of these four: f16, else f32
    CodedRows coded_k;         // (n_kv_heads * n_coded, head_dim)
    CodedRows coded_v;         // (n_kv_heads * n_coded, head_dim)
    const uint32_t* table;     // (slots), or null
    const uint32_t* view;      // (n_kv_heads, view_words)
    const float* weights;      // (slots, 2), or null
    const float* bias;         // (n_tokens, n_heads * head_dim), where a.n_wave
    const float* bias_far;     // (n_tokens, n_heads * head_dim), where a.n_wave and a.n_far
    const uint32_t* positions; // (slots)
    const float* waves;        // (wave_digits * wave_base, n_wave)
    const float* turns;        // (indexes, n_turn), where a.n_turn
    float* logits;             // (n_heads, logits_stride): a single token's, or null
    uint32_t logits_stride;    // at least the indexes there are
};

// What a kernel needs of a score.
struct ScoreTask {
    KvScoreArgs s;
    float* signal;       // (slots)
    float* chunk_signal; // (n_kv_heads * chunk_rows), or null
};

// Tokens [token, token + n_tokens) and the query heads of one KV head.
using AttentionChunkKernel = void (*)(const AttentionTask& task, uint32_t kv_head, uint32_t token, uint32_t n_tokens, float* scratch);
// Indexes [begin, end) of one token and one KV head, whole groups of kAttentionGroup: a partial per query head and group, side by side.
using AttentionSplitKernel = void (*)(const AttentionTask& task, uint32_t kv_head, uint32_t token, uint32_t begin, uint32_t end,
                                      float* partials, uint32_t head_stride, float* scratch);
// What queries say about indexes [begin, end) of one KV head, in one tile.
using ScoreKernel = void (*)(const AttentionTask& task, const ScoreTask& score, uint32_t kv_head, uint32_t begin, uint32_t end,
                             float* scratch);

constexpr uint32_t kAttentionTile = 64;   // indexes; tiles begin at multiples of it, so that no result depends on the chunks
constexpr uint32_t kAttentionGroup = 128; // indexes that share a running maximum, whole tiles; a split
constexpr uint32_t kMaxScoreTokens = 512; // of a chunk
constexpr uint32_t kAttentionRows = 96;   // queries of a chunk, at most; fewer than twelve cannot be: one token's heads stay together

// Floats of a partial before its sums: maximum of the numerator, norm, maximum of the denominator, five unused.
constexpr uint32_t kPartialHead = 8;

// Floats of scratch that one thread needs for a chunk or a split. grouped: keys of a tile are met in two ways.
constexpr size_t attention_scratch_floats(size_t head_dim, bool grouped)
{
    size_t width = (head_dim + 15) / 16 * 16;
    return (4 * kAttentionRows + (grouped ? 4 : 3) * kAttentionTile) * width + 10 * kAttentionTile + 6 * kAttentionRows;
}

struct MatmulKernels {
    // One token; with a scale for each half of a block, or one for both.
    void (*quantize)(const float* x, uint32_t cols, ActBlock* out, uint32_t out_stride, bool by_halves);
    bool by_halves[cpu_format_count]; // whether a format's kernel takes such blocks, too
    MatmulKernel matmul[cpu_format_count];
    // Nothing but dot products of bytes in registers and the first-level cache: the limit of what a matmul can reach. Returns
    // how many products were added up.
    uint64_t (*dot_peak)(uint32_t n_rounds);
};

struct AttentionKernels {
    AttentionChunkKernel chunk;
    AttentionSplitKernel split;
    // A query head's total over its splits: begin, fold the splits in order of their indexes, finish.
    void (*begin)(float* total, uint32_t head_dim);
    void (*fold)(float* total, const float* partials, uint32_t n_splits, uint32_t stride, uint32_t head_dim);
    void (*finish)(const float* total, uint32_t head_dim, float* y, float* lse);
    ScoreKernel score;
    ScoreKernel score_kept_logits; // of a single token, from task.logits
    // Selection (attention_select.h).
    void (*select_logits)(const AttentionTask& task, uint32_t kv_head, uint32_t begin, uint32_t end, float* logits, uint32_t stride,
                          float* scratch);
    void (*softmax)(float* logits, uint32_t n);
    void (*page_bounds)(const AttentionTask& task, uint32_t kv_head, uint32_t begin, uint32_t end, uint16_t* low, uint16_t* high,
                        float* scratch);
    void (*page_votes)(const float* q, uint32_t n_heads, uint32_t head_dim, const uint16_t* bounds, uint32_t n_pages, float* votes);
};

struct VectorKernels {
    void (*rmsnorm)(float* y, const float* x, const float* w, uint32_t dim, float eps); // one row
    void (*rope)(const RopeArgs& a, float* y, const float* x, const float* angles);     // one token; y may be x
    void (*rotate)(float* x, uint32_t n_heads, uint32_t head_dim, const float* signs, bool back);
    void (*glu)(float* y, const float* gate, const float* up, uint32_t n, uint32_t act);
    void (*add)(float* x, const float* b, uint32_t n);
    void (*softcap)(float* x, uint32_t n, float cap);
    uint32_t (*argmax)(const float* x, uint32_t n);
    EncodeKernel encode[cpu_codec_count];
    DecodeKernel decode[cpu_codec_count];
    PrepareKernel prepare[cpu_codec_count]; // null where queries are met as they are
    LogitsKernel logits[cpu_codec_count];   // null where rows are decoded first
    OutputsKernel outputs[cpu_codec_count]; // the same
};

// Rows of a codec in planes, and how they are read.
inline CodedRows rows_of(const VectorKernels& vector, int codec, const uint32_t* words, const uint8_t* tails, uint32_t row_bytes)
{
    return {vector.decode[codec], vector.prepare[codec], vector.logits[codec], vector.outputs[codec], words, tails,
            row_bytes / 4,        row_bytes % 4};
}

struct CpuKernels {
    const char* name;
    const MatmulKernels& matmul;
    const AttentionKernels& attention;
    const VectorKernels& vector;
};

// One per file; null where the file was compiled without its instruction set.
extern const MatmulKernels *const kMatmulGeneric,
    *const kMatmulAvx2, *const kMatmulAvxVnni, *const kMatmulAvx512Vnni, *const kMatmulAmx, *const kMatmulNeon, *const kMatmulI8mm;
extern const AttentionKernels *const kAttentionGeneric, *const kAttentionAvx2, *const kAttentionAvx512, *const kAttentionNeon;
extern const VectorKernels *const kVectorGeneric, *const kVectorAvx2, *const kVectorAvx512, *const kVectorNeon;

// The best that this processor runs, or those of the name in the environment's KNAPSACK_CPU if it runs them.
CpuKernels choose_cpu_kernels();
const char* built_cpu_kernels(int nth); // their names, the best first; null behind the last one

} // namespace ks
