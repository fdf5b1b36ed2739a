// The ops on slots: rows of a cache, attention, and attention scores.
#include "backends/cuda/cuda_backend.h"
#include "backends/reference/visibility.h"

#include <algorithm>
#include <cmath>

namespace ks
{

// The number of splits of a query's slots. Splits are needed if the queries alone keep too few
// multiprocessors busy. All blocks then run at the same time.
uint32_t CudaBackend::splits_of(const AttentionShare& share, uint32_t n_tokens, uint32_t n_heads,
                                uint32_t n_kv_heads) const
{
    const uint64_t n = uint64_t(n_tokens) * (n_heads / n_kv_heads),
                   n_blocks = (n + share.rows - 1) / share.rows * n_kv_heads;
    const uint64_t at_a_time = uint64_t(m_device.n_processors) * share.blocks;
    return uint32_t(std::min<uint64_t>(std::max<uint64_t>(1, at_a_time / n_blocks), max_splits));
}

static AttentionShare general_share(uint32_t head_dim)
{
    return {attention_rows(head_dim), 4};
}

static AttentionShare prefill_share(uint32_t head_dim)
{
    return {prefill_rows, head_dim == 64 ? 3u : 2u};
}

// The size of the partial results for any number of tokens up to n_tokens. attention_decode never
// has more splits than the general kernel.
uint64_t CudaBackend::n_partials(const ScratchShape& shape) const
{
    uint64_t most = 0;
    for (const HeadShape& h : shape.head_shapes())
        for (uint32_t n = 1; n <= shape.n_tokens && h.n_heads && h.head_dim; n++)
            for (const AttentionShare& share :
                 {general_share(h.head_dim), prefill_share(h.head_dim)})
                most = std::max(most, uint64_t(n) * h.n_heads * (4 + h.head_dim) *
                                          splits_of(share, n, h.n_heads, h.n_kv_heads));
    return most;
}

// Words of the scratch for dequantized rows. A round should have enough slots to amortise its fixed
// cost: 512 per head where blocks have all slots of a head, 64 per block where blocks share them.
uint64_t CudaBackend::n_dequantized(const ScratchShape& shape) const
{
    uint64_t words = 0;
    for (const HeadShape& h : shape.head_shapes()) {
        if (!shape.coded_slots || !prefill_supports(h.head_dim)) continue;
        const uint64_t at_a_time =
            uint64_t(m_device.n_processors) * prefill_share(h.head_dim).blocks;
        const uint64_t shared = (64 * at_a_time + h.n_kv_heads - 1) / h.n_kv_heads,
                       most = uint64_t(shape.coded_slots) + shape.n_tokens,
                       slots =
                           std::max<uint64_t>(64, std::min(std::max<uint64_t>(512, shared), most));
        words = std::max(words, h.n_kv_heads * slots * 2 * h.head_dim);
    }
    return words;
}

// Without anything to dequantize: one round and no words. Otherwise n_splits shrinks until the
// scratch has a tile for every split.
DequantScratch CudaBackend::dequant_scratch(const AttentionArgs& a, const KvSlots& slots,
                                            bool all_f16, uint32_t* n_splits) const
{
    if (all_f16) return {nullptr, 0, 1, 0};
    const uint64_t fit = n_dequantized(m_shape) / (uint64_t(a.n_kv_heads) * 2 * a.head_dim) / 32;
    KS_CHECK(fit > 0, "attention: codes of %u heads of %u, no scratch for any", a.n_kv_heads,
             a.head_dim);
    *n_splits = uint32_t(std::min<uint64_t>(*n_splits, fit));
    const uint64_t slots_per_round = fit / *n_splits * 32,
                   held = slots.table ? slots.table.cols : a.n_rows;
    const uint64_t before = std::min<uint64_t>(
        slots.n_before, a.window ? std::min<uint64_t>(held, a.n_pinned + a.window) : held);
    const uint64_t share =
        std::max<uint64_t>((before + a.n_tokens + *n_splits - 1) / *n_splits, min_share);
    return {m_scratch.dequantized, uint32_t(slots_per_round),
            uint32_t((share + slots_per_round - 1) / slots_per_round), 0};
}

CudaCache cuda_cache(const Tensor& cache, uint32_t head_dim)
{
    if (!cache) return {};
    const uint64_t plain = uint64_t(cache.rows) * codec_info(cache.format).row_bytes(head_dim);
    const uint64_t bytes =
        is_coded(cache.format) ? coded_bytes(cache.format, cache.rows, head_dim) : plain;
    KS_CHECK(cache.cols == head_dim, "rows of %u in (%u, %u)", head_dim, cache.rows, cache.cols);
    KS_CHECK(!is_coded(cache.format) || (head_dim % 16 == 0 && head_dim <= codec_max_dim),
             "coded rows of %u values", head_dim);
    KS_CHECK(cache.offset <= cache.buffer.bytes && bytes <= cache.buffer.bytes - cache.offset,
             "%llu bytes at %llu of a buffer of %llu", (unsigned long long)bytes,
             (unsigned long long)cache.offset, (unsigned long long)cache.buffer.bytes);
    return {cache.ptr<uint32_t>(), cache.rows, codec_number(cache.format)};
}

void CudaBackend::kv_write(const KvWriteArgs& a, const KvPair& to, const KvPair& x,
                           const Tensor& table, const Tensor& head_layout)
{
    for (const Tensor* t : {&to.k, &to.v}) {
        if (!*t) continue;
        KS_CHECK(t->rows >= uint64_t(a.n_kv_heads) * a.n_rows,
                 "kv_write: %u heads of %u rows to %u", a.n_kv_heads, a.n_rows, t->rows);
        KS_CHECK(codec_info(t->format).group == 1, "kv_write: %s, whose rows are coded together",
                 codec_info(t->format).name);
    }
    const uint64_t n = uint64_t(a.n_tokens) * a.n_kv_heads * a.head_dim;
    m_stream.run({"kv_write", to.k ? to.k.format : to.v.format}, kv_write_launch, a,
                 cuda_cache(to.k, a.head_dim), cuda_cache(to.v, a.head_dim), cuda_values(x.k, n),
                 cuda_values(x.v, n), cuda_values<uint32_t>(table, table.cols),
                 cuda_values<uint32_t>(head_layout, uint64_t(a.n_kv_heads) * layout_words));
}

void CudaBackend::kv_read(const KvReadArgs& a, const Tensor& y, const Tensor& from,
                          const Tensor& rows)
{
    m_quantized_input = {};
    m_stream.run({"kv_read", from.format}, kv_read_launch, a,
                 cuda_values(y, uint64_t(a.n) * a.head_dim), cuda_cache(from, a.head_dim),
                 cuda_values<uint32_t>(rows, a.n));
}

void CudaBackend::kv_move(const KvMoveArgs& a, const Tensor& to, const Tensor& from,
                          const Tensor& moves)
{
    KS_CHECK(to.format == from.format || (is_coded(to.format) && !is_coded(from.format)),
             "kv_move: format %d to %d", int(from.format), int(to.format));
    KS_CHECK(a.n_moves % codec_info(to.format).group == 0, "kv_move: %u rows in groups of %u",
             a.n_moves, codec_info(to.format).group);
    m_stream.run({"kv_move", to.format, from.format}, kv_move_launch, a, cuda_cache(to, a.head_dim),
                 cuda_cache(from, a.head_dim), cuda_values<uint32_t>(moves, 2ull * a.n_moves));
}

CudaSlots CudaBackend::slots_of(const AttentionArgs& a, const KvSlots& slots) const
{
    CudaSlots s{};
    s.k = cuda_cache(slots.k, a.head_dim);
    s.v = cuda_cache(slots.v, a.head_dim);
    s.coded_k = cuda_cache(slots.coded_k, a.head_dim);
    s.coded_v = cuda_cache(slots.coded_v, a.head_dim);
    s.chunk_k = cuda_cache(slots.chunk_k, a.head_dim);
    s.chunk_v = cuda_cache(slots.chunk_v, a.head_dim);
    s.table = cuda_values<uint32_t>(slots.table, slots.table.cols);
    s.weights = cuda_values(slots.weights, 2ull * slots.weights.rows);
    s.head_layout = cuda_values<uint32_t>(slots.head_layout, uint64_t(a.n_kv_heads) * layout_words);
    if (a.n_bias_dims) s.positions = cuda_values<uint32_t>(slots.positions, slots.table.cols);
    if (a.n_bias_dims)
        s.bias_phasors =
            cuda_values(slots.bias_phasors, uint64_t(phasor_digits) * phasor_base * a.n_bias_dims);
    if (a.n_rope_on_read)
        s.rope_table =
            cuda_values(slots.rope_table, slots.rope_table.rows * uint64_t(slots.rope_table.cols));
    return s;
}

CudaQueries CudaBackend::queries_of(const AttentionArgs& a, const Queries& q, const KvSlots& slots)
{
    const uint64_t n = uint64_t(a.n_tokens) * a.n_heads * a.head_dim;
    check_slots(a, q, slots);
    KS_CHECK(!a.n_rope_on_read || a.n_tokens <= m_shape.n_tokens,
             "attention: RoPE of %u tokens, scratch for %u", a.n_tokens, m_shape.n_tokens);
    if (a.n_rope_on_read) {
        m_stream.run(
            "rope_queries", rope_queries_launch, a, m_scratch.roped, cuda_values(q.q, n),
            cuda_values(slots.rope_table, a.n_rope_on_read),
            cuda_values<uint32_t>(slots.head_layout, uint64_t(a.n_kv_heads) * layout_words));
        return {m_scratch.roped, nullptr, cuda_values(q.bias, n), nullptr};
    }
    return {cuda_values(q.q, n), a.n_clamped ? cuda_values(q.q_clamped, n) : nullptr,
            cuda_values(q.bias, n), a.n_clamped ? cuda_values(q.bias_clamped, n) : nullptr};
}

CudaAttention choose_attention(const AttentionArgs& a, const CudaSlots& slots)
{
    if (attention_decode_can(a, slots))
        return {CudaAttention::decode, "attention_decode",
                "at most 4 tokens and 16 queries a key head"};
    if (attention_prefill_can(a, slots))
        return {CudaAttention::prefill, "attention_prefill",
                a.n_tokens > 4 ? "more than 4 tokens, tensor cores"
                               : "the decode kernel cannot read these keys or queries"};
    return {CudaAttention::general, "attention",
            a.n_rope_on_read ? "attention itself applies RoPE to keys"
            : a.n_bias_dims  ? "attention itself adds the bias to keys"
            : slots.weights  ? "slots have log-weights"
            : a.softcap != 0 ? "logits have a softcap"
                             : "heads are not of 64 or 128 values"};
}

KernelChoice explain_attention(const CudaAttention& chosen, bool coded)
{
    return {chosen.kernel,
            chosen.path == CudaAttention::prefill && coded ? "with codes dequantized first" : "",
            chosen.reason};
}

KernelChoice CudaBackend::attention_choice(const AttentionArgs& a, const KvSlots& slots) const
{
    const CudaSlots all = slots_of(a, slots);
    const CudaAttention chosen = choose_attention(a, all);
    return explain_attention(chosen, !all_f16(all));
}

void CudaBackend::attention(const AttentionArgs& a, const Tensor& y, const Queries& q,
                            const KvSlots& slots, const Tensor& lse)
{
    const uint64_t n = uint64_t(a.n_tokens) * a.n_heads;
    KS_CHECK(a.n_tokens && a.n_tokens <= m_shape.n_tokens && a.head_dim <= m_shape.head_dim,
             "attention: %u tokens, heads of %u", a.n_tokens, a.head_dim);
    KS_CHECK(!a.hadamard || a.head_dim <= codec_max_dim,
             "attention: hadamard of heads of %u values", a.head_dim);
    const CudaQueries queries = queries_of(a, q, slots);
    const CudaSlots all = slots_of(a, slots);
    const CudaAttention chosen = choose_attention(a, all);
    const AttentionShare share =
        chosen.path == CudaAttention::decode    ? attention_decode_share(a, all)
        : chosen.path == CudaAttention::prefill ? prefill_share(a.head_dim)
                                                : general_share(a.head_dim);
    const bool coded = bool(slots.coded_k);
    const KernelLabel label(chosen.kernel, coded ? slots.coded_k.format : slots.k.format,
                            coded ? slots.coded_v.format : slots.v.format);
    uint32_t n_splits = splits_of(share, a.n_tokens, a.n_heads, a.n_kv_heads);
    if (chosen.path == CudaAttention::prefill) {
        const DequantScratch scratch = dequant_scratch(a, slots, all_f16(all), &n_splits);
        m_stream.run(label, attention_prefill_launch, a, n_splits, m_scratch.partials, queries, all,
                     scratch);
    } else
        m_stream.run(label,
                     chosen.path == CudaAttention::decode ? attention_decode_launch
                                                          : attention_launch,
                     a, n_splits, m_scratch.partials, queries, all);
    ActGroup* acts = int8_copy_of(y, a.n_tokens, a.n_heads * a.head_dim, a.head_dim);
    m_stream.run("attention_combine", attention_combine_launch, a, n_splits,
                 cuda_values(y, n * a.head_dim), cuda_values(lse, n), m_scratch.partials, acts);
}

void CudaBackend::kv_score(const KvScoreArgs& s, const AttentionArgs& a, const Tensor& scores,
                           const Tensor& chunk_scores, const Queries& q, const KvSlots& slots,
                           const Tensor& lse)
{
    const float keep = s.before == score_adds     ? 1.f
                       : s.before == score_clears ? 0.f
                                                  : float(std::pow(double(s.decay), a.n_tokens));
    const ScoreDecay decay{keep, float(std::log2(double(s.decay)))};
    const CudaQueries queries = queries_of(a, q, slots);
    m_stream.run({"kv_score", slots.coded_k ? slots.coded_k.format : slots.k.format},
                 kv_score_launch, s, a, decay, cuda_values(scores, scores.cols),
                 cuda_values(chunk_scores, chunk_scores.cols), queries, slots_of(a, slots),
                 cuda_values(lse, uint64_t(a.n_tokens) * a.n_heads));
}

} // namespace ks
