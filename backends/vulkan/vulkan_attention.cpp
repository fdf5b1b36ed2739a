// attention and kv_score: passes over the pools of a layer's slots. attention then combines the
// partial results.
#include "backends/vulkan/vulkan_ops.h"
#include "backends/vulkan/vulkan_paths.h"
#include "backends/vulkan/vulkan_texels.h"

#include <algorithm>
#include <cmath>

namespace ks
{

constexpr uint32_t kGroups = 512; // workgroups that fill a large GPU, over all KV heads and blocks
constexpr uint32_t kSplits = 64;  // most workgroups that share a head's slots, at most kThreads
// The same on a CPU, which has few cores, for any number of heads.
constexpr uint32_t kCpuSplits = 4;
constexpr uint32_t kScoreGroups = 64; // workgroups of kv_score per head; a CPU has kCpuSplits
// Coded slots of a head that are dequantized at a time, if workgroups share them.
constexpr uint32_t kDequantizedSlots = 512;
// Bits of `flags` in shaders/slots.glsl.
constexpr uint32_t kHasTable = 1, kHasWeights = 2, kHasRopeOnRead = 4, kHasBias = 8,
                   kHasSoftcap = 16;

static uint32_t flags_of(const AttentionArgs& a, const KvSlots& slots)
{
    KS_CHECK(!a.n_bias_dims || !a.n_rope_on_read,
             "attention: RoPE on read of %u values, phasors of %u", a.n_rope_on_read,
             a.n_bias_dims);
    return (slots.table ? kHasTable : 0) | (slots.weights ? kHasWeights : 0) |
           (a.n_rope_on_read ? kHasRopeOnRead : 0) | (a.n_bias_dims ? kHasBias : 0) |
           (a.softcap != 0 ? kHasSoftcap : 0);
}

// Bytes of queries with their products with the bias and the head layouts behind them.
static uint64_t packed_bytes(uint64_t n_values, uint32_t n_kv_heads)
{
    return 4 * (2 * n_values + uint64_t(n_kv_heads) * layout_words);
}

static PassArgs pass_args(const AttentionArgs& a, const KvSlots& slots)
{
    return {a.n_tokens, a.n_heads,        a.n_kv_heads, a.n_rows,      a.n_pinned,
            a.window,   a.chunk_rows,     a.scale,      a.n_bias_dims, a.n_rope_on_read,
            a.pairs,    slots.table.cols, a.softcap};
}

uint32_t VulkanBackend::splits_of(uint32_t n_tokens, uint32_t n_heads, uint32_t n_kv_heads,
                                  uint32_t head_dim) const
{
    const uint32_t n_blocks = (n_tokens * (n_heads / n_kv_heads) + attention_rows(head_dim) - 1) /
                              attention_rows(head_dim);
    const uint32_t most =
        m_device.candidate().software ? kCpuSplits : std::min(kSplits, kGroups / n_kv_heads);
    return std::max(1u, most / n_blocks);
}

uint64_t VulkanBackend::partial_bytes(uint32_t n_tokens, uint32_t n_heads, uint32_t n_kv_heads,
                                      uint32_t head_dim) const
{
    return 4ull * n_tokens * n_heads * splits_of(n_tokens, n_heads, n_kv_heads, head_dim) *
           (4 + head_dim);
}

uint64_t VulkanBackend::packed_queries_bytes(const ScratchShape& shape) const
{
    return align_up(
        packed_bytes(uint64_t(shape.n_tokens) * shape.n_heads * shape.head_dim, shape.n_kv_heads),
        align());
}

// Slots of a head that are dequantized at a time, at least a tile.
static uint32_t dequantized_slots(const ScratchShape& shape)
{
    return shape.coded_slots ? std::max(32u, std::min(shape.coded_slots, kDequantizedSlots)) : 0;
}

// Bytes of the dequantized keys. Values need as many.
uint64_t VulkanBackend::dequantized_bytes(const ScratchShape& shape) const
{
    return align_up(4ull * shape.n_kv_heads * dequantized_slots(shape) * shape.head_dim, align());
}

// The scratch has three parts, in this order: partial results of attention, scratch of select or
// the converted input of matmul; dequantized keys and values; packed queries. Its size is enough
// for any number of tokens up to a chunk.
// The largest of the parts that take turns at the beginning of the scratch.
uint64_t VulkanBackend::shared_bytes(const ScratchShape& shape) const
{
    uint64_t most = 0;
    for (const HeadShape& h : shape.head_shapes())
        for (uint32_t n = 1; n <= shape.n_tokens && h.n_heads && h.head_dim; n++)
            most = std::max(most, partial_bytes(n, h.n_heads, h.n_kv_heads, h.head_dim));
    return std::max(
        {most, vulkan_select_bytes(shape), prepared_bytes(shape), vulkan_experts_bytes(shape)});
}

uint64_t VulkanBackend::scratch_bytes(const ScratchShape& shape) const
{
    return align_up(shared_bytes(shape), align()) + 2 * dequantized_bytes(shape) +
           packed_queries_bytes(shape);
}

uint64_t VulkanBackend::scratch_range(const ScratchShape& shape) const
{
    return std::max({shared_bytes(shape), dequantized_bytes(shape), packed_queries_bytes(shape)});
}

void VulkanBackend::set_scratch(const Buffer& buffer, uint64_t offset, const ScratchShape& shape)
{
    m_scratch = bytes_of(buffer, offset, scratch_bytes(shape));
    m_shape = shape;
}

struct VulkanBackend::Pass {
    SlotPass pass;
    uint32_t dequantized; // SplitPass::dequantized
    VulkanBinding q;
    const Tensor *k, *v;
    CachePart part;
};

// The queries of a pass. If keys are stored without their bias, or slots have log-weights, queries
// are packed with more data at the end of the scratch (shaders/slots.glsl).
VulkanBinding VulkanBackend::queries_of(const AttentionArgs& a, const Tensor& q, const Tensor& bias,
                                        const KvSlots& slots)
{
    const uint64_t n = uint64_t(a.n_tokens) * a.n_heads * a.head_dim,
                   n_layout = uint64_t(a.n_kv_heads) * layout_words;
    if (!a.n_bias_dims && !slots.weights) return values(q, n);
    const uint64_t bytes = packed_bytes(n, a.n_kv_heads), layout_at = a.n_bias_dims ? 8 * n : 4 * n;
    const VulkanBinding to{m_scratch.buffer,
                           m_scratch.offset + m_scratch.bytes - align_up(bytes, align()), bytes,
                           m_scratch.buffer_bytes};
    m_stream.copy({to.buffer, to.offset, 4 * n}, values(q, n));
    if (a.n_bias_dims) m_stream.copy({to.buffer, to.offset + 4 * n, 4 * n}, values(bias, n));
    if (slots.weights)
        m_stream.copy({to.buffer, to.offset + layout_at, 4 * n_layout},
                      values(slots.head_layout, n_layout));
    return to;
}

// The table of slots. If keys are stored without their bias, the slots' positions lie behind it.
VulkanBinding VulkanBackend::table_of(const AttentionArgs& a, const KvSlots& slots) const
{
    const Tensor &table = slots.table, &positions = slots.positions;
    if (!a.n_bias_dims) return optional(table, table.cols);
    KS_CHECK(positions.cols == table.cols && positions.offset == table.offset + 4ull * table.cols,
             "attention: positions %s", "are not right behind the table");
    return bytes_of(table.buffer, table.offset, 8ull * table.cols);
}

// The log-weights of slots, or the head layouts.
VulkanBinding VulkanBackend::layout_of(const AttentionArgs& a, const KvSlots& slots) const
{
    return slots.weights ? values(slots.weights, 2ull * slots.weights.rows)
                         : values(slots.head_layout, uint64_t(a.n_kv_heads) * layout_words);
}

// The phasors of the bias, or the RoPE table.
VulkanBinding VulkanBackend::angles_of(const AttentionArgs& a, const KvSlots& slots) const
{
    const Tensor& t = a.n_bias_dims      ? slots.bias_phasors
                      : a.n_rope_on_read ? slots.rope_table
                                         : Tensor();
    return optional(t, uint64_t(t.rows) * t.cols);
}

// Calls body(pass) for every pool with slots, for clamped and other queries, and for every part of
// the pool that fits into one binding. dequantized: slots of a head that a pass over a coded pool
// has; 0: the pass reads the codes.
template <class Body>
void VulkanBackend::for_passes(const AttentionArgs& a, const Queries& q, const KvSlots& slots,
                               uint32_t n_splits, uint32_t dequantized, const Body& body)
{
    const Tensor* pools[][2] = {
        {&slots.k, &slots.v}, {&slots.coded_k, &slots.coded_v}, {&slots.chunk_k, &slots.chunk_v}};
    for (uint32_t has_clamped = a.n_clamped ? 1 : 0, kind = 0; kind <= has_clamped; kind++) {
        const bool is_clamped = has_clamped && kind == 0;
        const VulkanBinding queries = is_clamped ? queries_of(a, q.q_clamped, q.bias_clamped, slots)
                                                 : queries_of(a, q.q, q.bias, slots);
        for (uint32_t source : {pass_plain, pass_coded, pass_chunk}) {
            const Tensor &k = *pools[source][0], &v = *pools[source][1];
            if (!k || (source == pass_chunk && !a.chunk_rows)) continue;
            KS_CHECK(k.cols == a.head_dim && v.cols == a.head_dim && k.rows == v.rows,
                     "attention: heads of %u, k (%u, %u), v (%u, %u)", a.head_dim, k.rows, k.cols,
                     v.rows, v.cols);
            const uint32_t step = std::min(cache_rows(k), cache_rows(v));
            for (uint32_t row = 0; row < k.rows; row += step) {
                const CachePart part{row, std::min(step, k.rows - row), k.rows};
                const uint32_t first_index = is_clamped ? 0 : a.n_clamped,
                               end_index = is_clamped ? a.n_clamped : ~0u;
                const uint32_t each = is_coded(k.format) || is_coded(v.format) ? dequantized : 0;
                SlotPass pass{source,         first_index, end_index, k.rows,
                              part.first_row, part.n_rows, 0};
                // No head sees more slots than the pool has rows.
                const uint32_t most = std::min(k.rows, each ? slots.n_before : ~0u),
                               at_once = each ? each : pass_slots * n_splits;
                for (; pass.first_slot < most; pass.first_slot += at_once)
                    body(Pass{pass, each, queries, &k, &v, part});
            }
        }
    }
}

// Dequantizes a pass's keys and values to the scratch. *k and *v become the bindings to read.
void VulkanBackend::dequantize(const AttentionArgs& a, const KvSlots& slots, const Pass& p,
                               VulkanBinding* k, VulkanBinding* v)
{
    const uint64_t bytes = dequantized_bytes(m_shape),
                   end = m_scratch.offset + m_scratch.bytes - packed_queries_bytes(m_shape);
    const uint64_t n = uint64_t(p.dequantized) * a.head_dim;
    struct {
        PassArgs a;
        SlotPass pass;
        SplitPass splits;
    } push{pass_args(a, slots), p.pass, {0, 0, p.dequantized}};
    for (const Tensor* cache : {p.k, p.v}) {
        const VulkanBinding to{m_scratch.buffer, end - (cache == p.k ? 2 : 1) * bytes,
                               4 * n * a.n_kv_heads, m_scratch.buffer_bytes};
        *(cache == p.k ? k : v) = to;
        const VulkanBinding bound[] = {
            to, cache_part(*cache, p.part), values(slots.table, slots.table.cols),
            values(slots.head_layout, uint64_t(a.n_kv_heads) * layout_words)};
        run("attention_dequantize", "", {{codec_number(cache->format), kHasTable, a.head_dim}},
            push, bound, {threads_for(n / 8).x, a.n_kv_heads});
    }
}

KernelChoice VulkanBackend::attention_choice(const AttentionArgs& a, const KvSlots& slots) const
{
    const bool coded = is_coded(slots.coded_k.format) || is_coded(slots.coded_v.format);
    return explain_attention(choose_attention(m_device.limits(), a, bool(slots.weights)), coded);
}

void VulkanBackend::attention(const AttentionArgs& a, const Tensor& y, const Queries& q,
                              const KvSlots& slots, const Tensor& lse)
{
    const uint32_t group = a.n_heads / a.n_kv_heads,
                   n_blocks = (a.n_tokens * group + attention_rows(a.head_dim) - 1) /
                              attention_rows(a.head_dim);
    const uint64_t n_queries = uint64_t(a.n_tokens) * a.n_heads, n_values = n_queries * a.head_dim;
    const uint64_t scratch = partial_bytes(a.n_tokens, a.n_heads, a.n_kv_heads, a.head_dim);
    KS_CHECK(a.n_tokens && scratch <= m_scratch.bytes, "attention: %u tokens, scratch of %llu",
             a.n_tokens, (unsigned long long)m_scratch.bytes);
    KS_CHECK(!a.hadamard || a.head_dim <= codec_max_dim, "attention: Hadamard heads of %u values",
             a.head_dim);
    const VulkanBinding partials{m_scratch.buffer, m_scratch.offset, scratch};
    const uint32_t n_splits = splits_of(a.n_tokens, a.n_heads, a.n_kv_heads, a.head_dim),
                   flags = flags_of(a, slots);
    const VulkanAttention chosen = choose_attention(m_device.limits(), a, bool(slots.weights));
    struct {
        PassArgs a;
        SlotPass pass;
        SplitPass splits;
    } push{pass_args(a, slots), {}, {n_splits, 0, 0}};
    for_passes(a, q, slots, n_splits, chosen.dequantizes ? dequantized_slots(m_shape) : 0,
               [&](const Pass& p) {
                   push.pass = p.pass;
                   push.splits.dequantized = p.dequantized;
                   VulkanBinding k = cache_part(*p.k, p.part), v = cache_part(*p.v, p.part);
                   if (p.dequantized) dequantize(a, slots, p, &k, &v);
                   const Format k_format = p.dequantized ? Format::f32 : p.k->format,
                                v_format = p.dequantized ? Format::f32 : p.v->format;
                   const VulkanBinding bound[] = {
                       partials,           p.q, k, v, table_of(a, slots), layout_of(a, slots),
                       angles_of(a, slots)};
                   const uint32_t n_decode_rows = chosen.decode_rows;
                   const Groups groups{n_decode_rows ? divide_up(a.n_tokens * group, n_decode_rows)
                                                     : n_blocks,
                                       a.n_kv_heads, n_splits};
                   run(chosen.shader, "",
                       {{codec_number(k_format), codec_number(v_format), a.head_dim,
                         flags | n_decode_rows << 8}},
                       push, bound, groups);
                   push.splits.continues = 1;
               });
    const CombineArgs combine{a.head_dim, a.hadamard, n_splits, bool(lse)};
    const VulkanBinding bound[] = {values(y, n_values), optional(lse, n_queries), partials};
    run("attention_combine", "", {}, combine, bound, {n_queries});
}

void VulkanBackend::kv_score(const KvScoreArgs& s, const AttentionArgs& a, const Tensor& scores,
                             const Tensor& chunk_scores, const Queries& q, const KvSlots& slots,
                             const Tensor& lse)
{
    const uint32_t flags = flags_of(a, slots);
    const float keep = s.before == score_adds     ? 1.f
                       : s.before == score_clears ? 0.f
                                                  : float(std::pow(double(s.decay), a.n_tokens));
    struct {
        PassArgs a;
        SlotPass pass;
        ScoreDecay decay;
        uint32_t first_query;
    } push{pass_args(a, slots), {}, {keep, float(std::log2(double(s.decay)))}, s.first_query};
    for_passes(a, q, slots, 1, 0, [&](const Pass& p) {
        push.pass = p.pass;
        const bool in_chunk = p.pass.source == pass_chunk;
        const Tensor& out = in_chunk ? chunk_scores : scores;
        push.decay.keep = in_chunk && s.before != score_adds ? 0.f : keep;
        const VulkanBinding bound[] = {
            values(out, out.cols),    p.q,
            cache_part(*p.k, p.part), table_of(a, slots),
            layout_of(a, slots),      values(lse, uint64_t(a.n_tokens) * a.n_heads),
            angles_of(a, slots)};
        const bool plain = is_plain(a, bool(slots.weights));
        run(plain ? lanes_shader(m_device.limits(), "kv_score", "kv_score_lanes", a.head_dim)
                  : "kv_score",
            "", {{codec_number(p.k->format), s.kind, a.head_dim, flags}}, push, bound,
            {m_device.candidate().software ? kCpuSplits : kScoreGroups, a.n_kv_heads});
    });
}

} // namespace ks
