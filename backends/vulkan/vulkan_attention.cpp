// attention and kv_score: passes over the pools of a layer's slots, then the fold of what they found.
#include "backends/vulkan/vulkan_ops.h"

#include <algorithm>
#include <cmath>

namespace ks
{

constexpr uint32_t kSplits = 16;      // workgroups that share a head's slots, where there are few queries
constexpr uint32_t kScoreGroups = 64; // workgroups per head that take its tiles in turn
constexpr uint32_t kHasTable = 1, kHasWeights = 2;

// Queries of a KV head that a workgroup has (shaders/attention.comp).
static uint32_t rows_of(uint32_t head_dim)
{
    return std::min(1024 / head_dim, 16u);
}

static uint32_t splits_of(uint32_t n_tokens, uint32_t group, uint32_t head_dim)
{
    const uint32_t n_blocks = (n_tokens * group + rows_of(head_dim) - 1) / rows_of(head_dim);
    return std::max(1u, kSplits / n_blocks);
}

static uint64_t partial_bytes(uint32_t n_tokens, uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim)
{
    return 4ull * n_tokens * n_heads * splits_of(n_tokens, n_heads / n_kv_heads, head_dim) * (4 + head_dim);
}

// Of any number of tokens up to that of a chunk.
uint64_t VulkanBackend::scratch_bytes(const ScratchShape& shape) const
{
    uint64_t most = 0;
    for (uint32_t n = 1; n <= shape.n_tokens && shape.n_heads && shape.head_dim; n++)
        most = std::max(most, partial_bytes(n, shape.n_heads, shape.n_kv_heads, shape.head_dim));
    return align_up(most, kRegionAlign);
}

void VulkanBackend::set_scratch(const Buffer& buffer, uint64_t offset, const ScratchShape& shape)
{
    m_scratch = bytes_of(buffer, offset, scratch_bytes(shape));
    m_shape = shape;
}

struct VulkanBackend::Pass {
    SlotPass pass;
    const Tensor *q, *k, *v;
    CachePart part;
};

// body(pass) for every pool with slots, every kind of query and every part of the pool that one binding may span.
template <class Body> void VulkanBackend::for_passes(const AttentionArgs& a, const Queries& q, const KvSlots& slots, const Body& body) const
{
    KS_CHECK(!a.n_turn && !a.n_wave, "attention: %u values turned, waves of %u", a.n_turn, a.n_wave);
    const Tensor* pools[][2] = {{&slots.k, &slots.v}, {&slots.coded_k, &slots.coded_v}, {&slots.chunk_k, &slots.chunk_v}};
    for (uint32_t source : {pass_plain, pass_coded, pass_chunk}) {
        const Tensor &k = *pools[source][0], &v = *pools[source][1];
        if (!k || (source == pass_chunk && !a.chunk_rows)) continue;
        KS_CHECK(k.cols == a.head_dim && v.cols == a.head_dim && k.rows == v.rows, "attention: heads of %u, k (%u, %u), v (%u, %u)",
                 a.head_dim, k.rows, k.cols, v.rows, v.cols);
        const uint32_t step = std::min(cache_rows(k), cache_rows(v));
        for (uint32_t far = a.n_far ? 1 : 0, last = 0; last <= far; last++) {
            const bool is_far = far && last == 0;
            for (uint32_t row = 0; row < k.rows; row += step) {
                const CachePart part{row, std::min(step, k.rows - row), k.rows};
                const SlotPass pass{source, is_far ? 0 : a.n_far, is_far ? a.n_far : ~0u, k.rows, part.first_row, part.n_rows, 1, 0};
                body(Pass{pass, is_far ? &q.far : &q.q, &k, &v, part});
            }
        }
    }
}

void VulkanBackend::attention(const AttentionArgs& a, const Tensor& y, const Queries& q, const KvSlots& slots, const Tensor& lse)
{
    const uint32_t group = a.n_heads / a.n_kv_heads;
    const uint64_t n_queries = uint64_t(a.n_tokens) * a.n_heads, n_values = n_queries * a.head_dim;
    const uint64_t scratch = partial_bytes(a.n_tokens, a.n_heads, a.n_kv_heads, a.head_dim);
    KS_CHECK(a.n_tokens && scratch <= m_scratch.bytes, "attention: %u tokens, scratch of %llu", a.n_tokens,
             (unsigned long long)m_scratch.bytes);
    const VulkanBinding partials{m_scratch.buffer, m_scratch.offset, scratch};
    const uint32_t n_splits = splits_of(a.n_tokens, group, a.head_dim),
                   flags = (slots.table ? kHasTable : 0) | (slots.weights ? kHasWeights : 0);
    struct {
        AttentionArgs a;
        SlotPass pass;
    } push{a, {}};
    uint32_t continues = 0;
    for_passes(a, q, slots, [&](const Pass& p) {
        push.pass = p.pass;
        push.pass.n_splits = n_splits;
        push.pass.continues = continues;
        continues = 1;
        const VulkanBinding bound[] = {partials,
                                       values(*p.q, n_values),
                                       cache_part(*p.k, p.part),
                                       cache_part(*p.v, p.part),
                                       optional(slots.table, slots.table.cols),
                                       optional(slots.weights, 2ull * slots.weights.rows),
                                       values(slots.view, uint64_t(a.n_kv_heads) * view_words)};
        const Groups groups{(a.n_tokens * group + rows_of(a.head_dim) - 1) / rows_of(a.head_dim), a.n_kv_heads, n_splits};
        run("attention", "", {{vulkan_format(p.k->format), vulkan_format(p.v->format), a.head_dim, flags}}, push, bound, groups);
    });
    push.pass.n_splits = n_splits;
    push.pass.continues = bool(lse);
    const VulkanBinding bound[] = {values(y, n_values), optional(lse, n_queries), partials};
    run("attention_fold", "", {}, push, bound, {n_queries});
}

void VulkanBackend::kv_score(const KvScoreArgs& s, const AttentionArgs& a, const Tensor& signal, const Tensor& chunk_signal,
                             const Queries& q, const KvSlots& slots, const Tensor& lse)
{
    const uint32_t flags = (slots.table ? kHasTable : 0) | (slots.weights ? kHasWeights : 0);
    struct {
        KvScoreArgs s;
        AttentionArgs a;
        SlotPass pass;
        ScoreDecay decay;
    } push{s, a, {}, {s.reset ? 0.f : float(std::pow(double(s.decay), a.n_tokens)), float(std::log2(double(s.decay)))}};
    for_passes(a, q, slots, [&](const Pass& p) {
        push.pass = p.pass;
        const Tensor& out = p.pass.source == pass_chunk ? chunk_signal : signal;
        const VulkanBinding bound[] = {values(out, out.cols),
                                       values(*p.q, uint64_t(a.n_tokens) * a.n_heads * a.head_dim),
                                       cache_part(*p.k, p.part),
                                       optional(slots.table, slots.table.cols),
                                       optional(slots.weights, 2ull * slots.weights.rows),
                                       values(slots.view, uint64_t(a.n_kv_heads) * view_words),
                                       values(lse, uint64_t(a.n_tokens) * a.n_heads)};
        run("kv_score", "", {{vulkan_format(p.k->format), s.kind, a.head_dim, flags}}, push, bound, {kScoreGroups, a.n_kv_heads});
    });
}

// DeviceInfo says that there is none.
void VulkanBackend::select(const SelectArgs& s, const AttentionArgs&, const Selection&, const Queries&, const KvSlots&)
{
    KS_CHECK(false, "select: kind %u", s.kind);
}

} // namespace ks
