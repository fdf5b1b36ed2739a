// The ops of mixtures of experts, and attention_sinks.
#include "backends/cuda/cuda_backend.h"

namespace ks
{

void CudaBackend::route(const RouteArgs& a, const Tensor& ids, const Tensor& weights,
                        const Tensor& logits, const Tensor& bias)
{
    KS_CHECK(a.n_experts <= route_max_experts && a.n_used <= route_max_used, "route: %u of %u",
             a.n_used, a.n_experts);
    const uint64_t n = uint64_t(a.n_tokens) * a.n_used;
    m_stream.run("route", route_launch, a, cuda_values<uint32_t>(ids, n), cuda_values(weights, n),
                 cuda_values(logits, uint64_t(a.n_tokens) * a.n_experts),
                 cuda_values(bias, a.n_experts));
}

void CudaBackend::matmul_experts(const ExpertsArgs& a, const ExpertsTarget* targets, int n_targets,
                                 const Tensor& x, const Tensor& ids)
{
    const uint32_t n = a.n_tokens * a.n_used, n_rows = a.per_choice ? n : a.n_tokens,
                   max_blocks = a.n_tokens > 1 ? experts_max_blocks(n, a.n_experts) : 0;
    KS_CHECK(a.rows % tile_rows == 0 && a.n_experts <= m_shape.n_experts &&
                 n <= m_shape.expert_rows && a.cols <= m_shape.expert_cols,
             "matmul_experts: %u choices of %u experts of (%u, %u)", n, a.n_experts, a.rows,
             a.cols);
    float* values = cuda_values(x, uint64_t(n_rows) * a.cols);
    uint32_t* list = cuda_values<uint32_t>(ids, n);
    bool quantized = is_quantized(values, n_rows, a.cols);
    m_quantized_input = {};
    if (max_blocks) {
        m_stream.run("list_experts", list_experts_launch, a, max_blocks, m_scratch.list, list);
        list = m_scratch.list;
    }
    for (int i = 0; i < n_targets;) {
        const Format format = targets[i].w.format;
        ExpertsTargets same{};
        for (; i < n_targets && targets[i].w.format == format; i++) {
            const ExpertsTarget& t = targets[i];
            KS_CHECK(t.w.cols == a.cols && t.w.rows == a.n_experts * a.rows,
                     "matmul_experts: %u x (%u, %u), w (%u, %u)", a.n_experts, a.rows, a.cols,
                     t.w.rows, t.w.cols);
            same.y[same.n] = cuda_values(t.y, uint64_t(n) * a.rows);
            same.w[same.n] = cuda_weight(t.w);
            same.scales[same.n] = cuda_values(t.scales, a.n_experts);
            same.bias[same.n++] = cuda_values(t.bias, uint64_t(a.n_experts) * a.rows);
        }
        const MatmulArgs of_x{n_rows, 0, a.cols, 0};
        if (matmul_uses_int8(uint32_t(format)) && !quantized)
            m_stream.run("quantize", quantize_launch, of_x, m_scratch.acts, values);
        quantized |= matmul_uses_int8(uint32_t(format));
        m_stream.run({"matmul_experts", format}, matmul_experts_launch, a, uint32_t(format), same,
                     max_blocks, values, m_scratch.acts, list);
    }
}

void CudaBackend::combine_experts(const CombineExpertsArgs& a, const Tensor& y, const Tensor& z,
                                  const Tensor& weights)
{
    m_quantized_input = {};
    const uint64_t n = uint64_t(a.n_tokens) * a.dim;
    m_stream.run("combine_experts", combine_experts_launch, a, cuda_values(y, n),
                 cuda_values(z, n * a.n_used),
                 cuda_values(weights, uint64_t(a.n_tokens) * a.n_used));
}

void CudaBackend::attention_sinks(const SinksArgs& a, const Tensor& y, const Tensor& lse,
                                  const Tensor& sinks)
{
    m_quantized_input = {};
    const uint64_t n = uint64_t(a.n_tokens) * a.n_heads;
    m_stream.run("attention_sinks", attention_sinks_launch, a, cuda_values(y, n * a.head_dim),
                 cuda_values(lse, n), cuda_values(sinks, a.n_heads));
}

} // namespace ks
