// attention and kv_score: the choice of a kernel and the division of its work among threads.
#include "backends/cpu/cpu_backend.h"

#include <algorithm>

namespace ks
{

// Why only the general kernel can run; null: any kernel can.
static const char* needs_general(const AttentionArgs& a, const KvSlots& slots)
{
    return a.n_bias_dims   ? "attention itself adds the bias to keys"
           : slots.weights ? "slots have log-weights"
                           : nullptr;
}

AttentionTask CpuBackend::attention_task(const AttentionArgs& a, const Tensor* y, const Queries& q,
                                         const KvSlots& slots, const Tensor& lse) const
{
    KS_CHECK(a.n_heads <= m_shape.n_heads && a.head_dim <= m_shape.head_dim,
             "attention: %u heads of %u, head_dim %u of %u", a.n_heads, m_shape.n_heads, a.head_dim,
             m_shape.head_dim);
    AttentionTask task{};
    task.a = a;
    task.q = q.q.ptr();
    task.q_clamped = a.n_clamped ? q.q_clamped.ptr() : nullptr;
    task.y = y ? y->ptr() : nullptr;
    task.lse = lse ? lse.ptr() : nullptr;
    task.k = slots.k.ptr<uint8_t>();
    task.v = slots.v.ptr<uint8_t>();
    task.chunk_k = slots.chunk_k.ptr<uint8_t>();
    task.chunk_v = slots.chunk_v.ptr<uint8_t>();
    task.k_half = slots.k.format == Format::f16;
    task.v_half = slots.v.format == Format::f16;
    if (slots.coded_k) task.coded_k = coded_rows(slots.coded_k);
    if (slots.coded_v) task.coded_v = coded_rows(slots.coded_v);
    task.table = slots.table ? slots.table.ptr<uint32_t>() : nullptr;
    task.head_layout = slots.head_layout.ptr<uint32_t>();
    task.weights = slots.weights ? slots.weights.ptr() : nullptr;
    if (a.n_rope_on_read) task.rope_table = slots.rope_table.ptr();
    if (a.n_bias_dims) {
        task.bias = q.bias.ptr();
        task.bias_clamped = a.n_clamped ? q.bias_clamped.ptr() : nullptr;
        task.positions = slots.positions.ptr<uint32_t>();
        task.bias_phasors = slots.bias_phasors.ptr();
    }
    task.logits_stride = m_scratch.logits_stride;
    if (lse && a.n_tokens == 1 && !needs_general(a, slots) && slots.table &&
        slots.table.cols / a.n_kv_heads <= m_shape.scored_slots)
        task.logits = m_scratch.logits;
    return task;
}

// The kernel that attention runs, and why.
struct CpuAttention {
    enum Path { reference, splits, chunks, general } path;
    const char* reason;
};

static CpuAttention choose_attention(const AttentionArgs& a, const KvSlots& slots)
{
    const uint32_t group = a.n_heads / a.n_kv_heads;
    if (a.head_dim % 8 != 0)
        return {CpuAttention::reference, "heads are not multiples of 8 values"};
    if (a.n_bias_dims % 16 != 0)
        return {CpuAttention::reference, "the keys' bias is not in multiples of 16 values"};
    if (group > kAttentionRows)
        return {CpuAttention::reference, "a key head has more queries than a tile"};
    if (const char* reason = needs_general(a, slots)) return {CpuAttention::general, reason};
    if (a.n_tokens * group > 8 && a.n_tokens > 1)
        return {CpuAttention::chunks, "prefill, more than 8 queries a key head"};
    return {CpuAttention::splits,
            a.n_tokens > 1 ? "at most 8 queries a key head" : "decode, threads share the slots"};
}

KernelChoice CpuBackend::attention_choice(const AttentionArgs& a, const KvSlots& slots) const
{
    static const char* const kNames[] = {"reference", "attention_split", "attention_chunk",
                                         "attention_general"};
    const CpuAttention chosen = choose_attention(a, slots);
    return {kNames[chosen.path],
            chosen.path == CpuAttention::reference ? "float64" : m_kernels.name, chosen.reason};
}

void CpuBackend::attention(const AttentionArgs& a, const Tensor& y, const Queries& q,
                           const KvSlots& slots, const Tensor& lse)
{
    const CpuAttention chosen = choose_attention(a, slots);
    if (chosen.path == CpuAttention::reference)
        return ReferenceBackend::attention(a, y, q, slots, lse);
    const AttentionTask task = attention_task(a, &y, q, slots, lse);
    if (chosen.path == CpuAttention::chunks) attention_chunks(task, m_kernels.attention.chunk);
    if (chosen.path == CpuAttention::general) attention_chunks(task, m_kernels.attention.general);
    for (uint32_t t = 0; t < a.n_tokens && chosen.path == CpuAttention::splits; t++)
        attention_split(task, t);
    if (a.hadamard)
        for_rows(a.n_tokens, a.n_heads * a.head_dim, [&](uint32_t begin, uint32_t end) {
            for (uint64_t t = begin; t < end; t++)
                m_kernels.vector.hadamard(task.y + t * a.n_heads * a.head_dim, a.n_heads,
                                          a.head_dim, m_signs, true);
        });
}

void CpuBackend::kv_score(const KvScoreArgs& s, const AttentionArgs& a, const Tensor& scores,
                          const Tensor& chunk_scores, const Queries& q, const KvSlots& slots,
                          const Tensor& lse)
{
    if (choose_attention(a, slots).path == CpuAttention::reference || a.n_tokens > kMaxScoreTokens)
        return ReferenceBackend::kv_score(s, a, scores, chunk_scores, q, slots, lse);
    AttentionTask task = attention_task(a, nullptr, q, slots, lse);
    task.v = nullptr; // values are not read
    const ScoreTask score{s, scores.ptr(), chunk_scores ? chunk_scores.ptr() : nullptr};
    const ScoreKernel kernel =
        task.logits ? m_kernels.attention.score_kept_logits : m_kernels.attention.score;
    uint32_t most = 0; // the largest number of indexes of a head
    for (uint32_t h = 0; h < a.n_kv_heads; h++)
        most = std::max(most, task.head_layout[h * layout_words + layout_n_held] + a.n_tokens);
    const uint32_t n_tiles = (most + kAttentionTile - 1) / kAttentionTile;
    const uint32_t step = task.logits ? 8 : 1; // tiles of one call
    m_pool.parallel_for((n_tiles + step - 1) / step * a.n_kv_heads, [&](uint32_t i, int thread) {
        const uint32_t kv_head = i % a.n_kv_heads,
                       end = task.head_layout[kv_head * layout_words + layout_n_held] + a.n_tokens;
        float* scratch = attention_scratch(thread);
        for (uint32_t tile = i / a.n_kv_heads * step; tile < (i / a.n_kv_heads + 1) * step;
             tile++) {
            const uint32_t from = tile * kAttentionTile;
            if (from < end)
                kernel(task, score, kv_head, from, std::min(end, from + kAttentionTile), scratch);
        }
    });
}

// The groups of indexes that a token sees in any head: groups with pinned indexes, then groups from
// `first` on.
struct VisibleGroups {
    uint32_t first = ~0u, n_pinned, n;

    VisibleGroups(const AttentionTask& task, uint32_t token)
    {
        const AttentionArgs& a = task.a;
        uint32_t end = 0;
        for (uint32_t h = 0; h < a.n_kv_heads; h++) {
            const uint32_t before = task.head_layout[h * layout_words + layout_n_held];
            const uint32_t own = before + token;
            const uint32_t oldest = oldest_index(task.table != nullptr, before, a.n_tokens,
                                                 a.chunk_rows, a.n_rows, a.n_pinned);
            first =
                std::min(first, std::max(oldest, window_begin(own, a.window)) / kAttentionGroup);
            end = std::max(end, own / kAttentionGroup + 1);
        }
        n_pinned = std::min(first, (a.n_pinned + kAttentionGroup - 1) / kAttentionGroup);
        n = n_pinned + end - first;
    }
    // The first index of the nth group.
    uint32_t begin(uint32_t nth) const
    {
        return (nth < n_pinned ? nth : first + nth - n_pinned) * kAttentionGroup;
    }
};

// Computes the partials of groups [base, base + n_splits) of one token. Each group is one split.
void CpuBackend::attention_partials(const AttentionTask& task, uint32_t token,
                                    const VisibleGroups& groups, uint32_t base, uint32_t n_splits)
{
    const AttentionArgs& a = task.a;
    const uint32_t stride = kPartialHead + a.head_dim, group = a.n_heads / a.n_kv_heads;
    // One call computes up to four splits, as long as every thread has work. It prepares queries
    // once for all of them.
    const uint32_t n_together =
        std::max(1u, std::min(4u, n_splits * a.n_kv_heads / (8 * uint32_t(m_pool.size()))));
    const uint32_t n_parts = (n_splits + n_together - 1) / n_together;
    m_pool.parallel_for(n_parts * a.n_kv_heads, [&](uint32_t i, int thread) {
        const uint32_t kv_head = i / n_parts;
        const uint32_t part_end = std::min(n_splits, (i % n_parts + 1) * n_together);
        for (uint32_t split = i % n_parts * n_together, next; split < part_end; split = next) {
            const bool pinned = base + split < groups.n_pinned;
            next = pinned ? std::min(part_end, groups.n_pinned - base) : part_end;
            const uint32_t from = groups.begin(base + split);
            float* partials =
                m_scratch.partials + (uint64_t(kv_head) * group * kMaxSplits + split) * stride;
            m_kernels.attention.split(task, kv_head, token, from,
                                      from + (next - split) * kAttentionGroup, partials,
                                      kMaxSplits * stride, attention_scratch(thread));
        }
    });
}

void CpuBackend::attention_split(const AttentionTask& task, uint32_t token)
{
    const AttentionArgs& a = task.a;
    const uint32_t stride = kPartialHead + a.head_dim;
    float* totals = m_scratch.partials + uint64_t(kMaxSplits) * a.n_heads * stride;
    for (uint32_t h = 0; h < a.n_heads; h++)
        m_kernels.attention.begin(totals + h * stride, a.head_dim);
    const VisibleGroups groups(task, token);
    for (uint32_t base = 0; base < groups.n; base += kMaxSplits) {
        const uint32_t n_splits = std::min(kMaxSplits, groups.n - base);
        attention_partials(task, token, groups, base, n_splits);
        for (uint32_t h = 0; h < a.n_heads; h++)
            m_kernels.attention.combine(totals + h * stride,
                                        m_scratch.partials + uint64_t(h) * kMaxSplits * stride,
                                        n_splits, stride, a.head_dim);
    }
    for (uint32_t h = 0; h < a.n_heads; h++) {
        const uint64_t row = uint64_t(token) * a.n_heads + h;
        m_kernels.attention.finish(totals + h * stride, a.head_dim, task.y + row * a.head_dim,
                                   task.lse ? task.lse + row : nullptr);
    }
}

void CpuBackend::attention_chunks(const AttentionTask& task, AttentionChunkKernel kernel)
{
    const AttentionArgs& a = task.a;
    const uint32_t group = a.n_heads / a.n_kv_heads;
    // A chunk has as many tokens as possible, unless threads would be idle. Results do not depend
    // on its size.
    const uint32_t wanted = (4 * uint32_t(m_pool.size()) + a.n_kv_heads - 1) / a.n_kv_heads;
    const uint32_t most = kAttentionRows / group, least = std::max(1u, 12 / group);
    const uint32_t size = std::max(least, std::min(most, (a.n_tokens + wanted - 1) / wanted));
    const uint32_t n_chunks = (a.n_tokens + size - 1) / size;
    m_pool.parallel_for(n_chunks * a.n_kv_heads, [&](uint32_t i, int thread) {
        // The last tokens see the most, so they come first.
        const uint32_t token = (n_chunks - 1 - i / a.n_kv_heads) * size;
        float* scratch = attention_scratch(thread);
        kernel(task, i % a.n_kv_heads, token, std::min(size, a.n_tokens - token), scratch);
    });
}

} // namespace ks
