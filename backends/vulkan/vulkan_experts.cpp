// The ops of mixtures of experts, and attention_sinks.
#include "backends/vulkan/vulkan_ops.h"

#include <algorithm>

namespace ks
{

static uint64_t list_words(uint32_t n_choices, uint32_t max_blocks)
{
    return 3ull * max_blocks + n_choices;
}

uint64_t vulkan_experts_bytes(const ScratchShape& shape)
{
    return 4 *
           list_words(shape.expert_rows, experts_max_blocks(shape.expert_rows, shape.n_experts));
}

void VulkanBackend::route(const RouteArgs& a, const Tensor& ids, const Tensor& weights,
                          const Tensor& logits, const Tensor& bias)
{
    KS_CHECK(a.n_experts <= route_max_experts && a.n_used <= route_max_used, "route: %u of %u",
             a.n_used, a.n_experts);
    const uint64_t n = uint64_t(a.n_tokens) * a.n_used;
    const VulkanBinding bound[] = {values(ids, n), values(weights, n),
                                   values(logits, uint64_t(a.n_tokens) * a.n_experts),
                                   optional(bias, a.n_experts)};
    struct {
        RouteArgs a;
        uint32_t has_bias;
    } push{a, bool(bias)};
    run("route", "", {}, push, bound, {a.n_tokens});
}

// The choices by expert, in the scratch.
VulkanBinding VulkanBackend::list_choices(const ExpertsArgs& a, const Tensor& ids,
                                          uint32_t max_blocks)
{
    const uint32_t n = a.n_tokens * a.n_used;
    const uint64_t bytes = 4 * list_words(n, max_blocks);
    KS_CHECK(bytes <= m_scratch.bytes, "matmul_experts: %u choices, scratch of %llu", n,
             (unsigned long long)m_scratch.bytes);
    const VulkanBinding list{m_scratch.buffer, m_scratch.offset, bytes, m_scratch.buffer_bytes};
    const VulkanBinding bound[] = {list, values(ids, n)};
    struct {
        ExpertsArgs a;
        uint32_t max_blocks;
    } push{a, max_blocks};
    run("list_experts", "", {}, push, bound, {1});
    return list;
}

void VulkanBackend::multiply_experts(const ExpertsArgs& a, const ExpertsTarget& target,
                                     const Tensor& x, const VulkanBinding& list,
                                     uint32_t max_blocks)
{
    const Tensor& w = target.w;
    const uint32_t n = a.n_tokens * a.n_used, lanes = m_device.limits().lanes,
                   step = weight_rows(w);
    const MatvecShape s = matvec_shape(lanes, max_blocks ? experts_block : 1, a.rows, a.cols);
    for (uint32_t row = 0; row < w.rows; row += step) {
        const RowRange rows{row, std::min(step, w.rows - row)};
        const VulkanBinding bound[] = {values(target.y, uint64_t(n) * a.rows),
                                       weight_part(w, rows),
                                       values(x, uint64_t(a.per_choice ? n : a.n_tokens) * a.cols),
                                       list,
                                       optional(target.scales, a.n_experts),
                                       optional(target.bias, uint64_t(a.n_experts) * a.rows)};
        struct {
            ExpertsArgs a;
            ExpertsPart part;
        } push{a, {row, rows.n_rows, bool(target.scales), bool(target.bias), max_blocks}};
        run(lanes ? "matmul_experts_lanes" : "matmul_experts", format_info(w.format).name,
            {{s.n_vec_tokens, s.splits, s.n_tiles}}, push, bound,
            {matvec_groups(s, a.rows), max_blocks ? max_blocks : n},
            double(rows.n_rows) / w.rows * a.rows * a.cols * n);
    }
}

void VulkanBackend::matmul_experts(const ExpertsArgs& a, const ExpertsTarget* targets,
                                   int n_targets, const Tensor& x, const Tensor& ids)
{
    const uint32_t n = a.n_tokens * a.n_used,
                   max_blocks = a.n_tokens > 1 ? experts_max_blocks(n, a.n_experts) : 0;
    KS_CHECK(a.rows % tile_rows == 0 && a.n_experts <= route_max_experts,
             "matmul_experts: %u experts of %u rows", a.n_experts, a.rows);
    const VulkanBinding list = max_blocks ? list_choices(a, ids, max_blocks) : values(ids, n);
    for (int i = 0; i < n_targets; i++) multiply_experts(a, targets[i], x, list, max_blocks);
}

void VulkanBackend::combine_experts(const CombineExpertsArgs& a, const Tensor& y, const Tensor& z,
                                    const Tensor& weights)
{
    const uint64_t n = uint64_t(a.n_tokens) * a.dim;
    const VulkanBinding bound[] = {values(y, n), values(z, n * a.n_used),
                                   values(weights, uint64_t(a.n_tokens) * a.n_used)};
    run("combine_experts", "", {}, a, bound, threads_for(n));
}

void VulkanBackend::attention_sinks(const SinksArgs& a, const Tensor& y, const Tensor& lse,
                                    const Tensor& sinks)
{
    const uint64_t n = uint64_t(a.n_tokens) * a.n_heads;
    const VulkanBinding bound[] = {values(y, n * a.head_dim), values(lse, n),
                                   values(sinks, a.n_heads)};
    run("attention_sinks", "", {}, a, bound, {std::min<uint64_t>(n, m_device.limits().max_groups)});
}

} // namespace ks
