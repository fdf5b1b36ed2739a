// The ops of mixtures of experts. A choice is an expert of a token. Choices are grouped by expert,
// so that each weight is read once for all of its tokens.
#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/cpu_matmul.h"

#include <algorithm>

namespace ks
{

// The rows of `cols` values from `row` on.
static Tensor rows_from(Tensor t, uint32_t row, uint32_t cols)
{
    t.offset += 4ull * row * cols;
    t.rows -= row;
    return t;
}

// Sets first_choice, choices and chosen; returns how many experts are chosen.
uint32_t CpuBackend::group_by_expert(const ExpertsArgs& a, const uint32_t* ids)
{
    const uint32_t n = a.n_tokens * a.n_used;
    uint32_t* first = m_scratch.first_choice;
    std::fill_n(first, a.n_experts + 1, 0);
    for (uint32_t i = 0; i < n; i++) first[ids[i]]++;
    uint32_t n_chosen = 0, end = 0;
    for (uint32_t e = 0; e <= a.n_experts; e++) {
        if (e < a.n_experts && first[e]) m_scratch.chosen[n_chosen++] = e;
        end += first[e];
        first[e] = end;
    }
    for (uint32_t i = n; i-- > 0;) m_scratch.choices[--first[ids[i]]] = i;
    return n_chosen;
}

// Quantises the rows of x in the order of `choices`; blocks of tokens as in matmul.
void CpuBackend::quantize_choices(const ExpertsArgs& a, const Tensor& x, uint32_t n_chosen,
                                  bool half_scales)
{
    const uint64_t n_groups = a.cols / 32;
    m_pool.parallel_for(n_chosen, [&](uint32_t i, int) {
        const uint32_t e = m_scratch.chosen[i], first = m_scratch.first_choice[e],
                       n = m_scratch.first_choice[e + 1] - first,
                       block = token_block(n, a.cols, kMaxTokenBlock);
        for (uint32_t t = 0; t < n; t++) {
            const uint32_t choice = m_scratch.choices[first + t], in_block = t % block;
            m_kernels.matmul.quantize(
                x.ptr() + uint64_t(a.per_choice ? choice : choice / a.n_used) * a.cols, a.cols,
                m_scratch.acts + n_groups * (first + t - in_block) + in_block,
                std::min(block, n - (t - in_block)), half_scales);
        }
    });
}

// Some tiles of one expert times all of its tokens. Formats of single values take one token at a
// time, since rows of x lie apart.
void CpuBackend::multiply_expert(const ExpertsArgs& a, const ExpertsTarget& target, const Tensor& x,
                                 uint32_t expert, uint32_t row, MatmulTask task)
{
    const uint32_t first = m_scratch.first_choice[expert],
                   n = m_scratch.first_choice[expert + 1] - first,
                   n_rows = task.n_tiles * tile_rows;
    const bool quantized = format_info(target.w.format).block > 1;
    const uint32_t block = quantized ? token_block(n, a.cols, kMaxTokenBlock) : 1;
    const uint32_t* choices = m_scratch.choices + first;
    if (target.scales) task.scale = target.scales.ptr()[expert];
    task.y = target.y.ptr() + row;
    for (uint32_t t = 0; t < n; t += block) {
        task.n_tokens = std::min(block, n - t);
        task.acts = m_scratch.acts + uint64_t(first + t) * (a.cols / 32);
        task.x = x.ptr() + uint64_t(a.per_choice ? choices[t] : choices[t] / a.n_used) * a.cols;
        task.y_rows = choices + t;
        m_kernels.matmul.matmul[int(target.w.format)](task);
    }
    if (!target.bias) return;
    const float* bias = target.bias.ptr() + uint64_t(expert) * a.rows + row;
    for (uint32_t t = 0; t < n; t++)
        m_kernels.vector.add(task.y + uint64_t(choices[t]) * a.rows, bias, n_rows);
}

void CpuBackend::matmul_experts(const ExpertsArgs& a, const ExpertsTarget* targets, int n_targets,
                                const Tensor& x, const Tensor& ids)
{
    check_experts(a, targets, n_targets, x, ids);
    KS_CHECK(a.n_experts <= m_shape.n_experts && a.cols <= m_shape.expert_cols &&
                 uint64_t(a.n_tokens) * a.n_used <= m_shape.expert_rows,
             "matmul_experts: %u tokens of %u of %u experts, %u cols", a.n_tokens, a.n_used,
             a.n_experts, a.cols);
    const uint32_t n_chosen = group_by_expert(a, ids.ptr<uint32_t>());
    bool quantized = false, half_scales = true;
    MatmulTarget of_expert[2];
    for (int i = 0; i < n_targets; i++) {
        const Tensor& w = targets[i].w;
        quantized |= format_info(w.format).block > 1;
        half_scales &= m_kernels.matmul.half_scales[int(w.format)];
        of_expert[i].w = w;
        of_expert[i].w.rows = a.rows;
    }
    if (quantized) quantize_choices(a, x, n_chosen, half_scales);

    const MatmulChunks chunks({a.n_tokens * a.n_used / n_chosen, a.rows, a.cols, 0}, of_expert,
                              n_targets);
    const uint32_t n_chunks = chunks.first[n_targets];
    m_pool.parallel_for(n_chosen * n_chunks, [&](uint32_t i, int thread) {
        const MatmulChunks::Place at = chunks.place(i % n_chunks);
        const ExpertsTarget& target = targets[at.target];
        const uint32_t e = m_scratch.chosen[i / n_chunks];
        MatmulTask task = chunks.task(at, of_expert[at.target].w, a.cols);
        task.tiles += uint64_t(e) * (a.rows / tile_rows) * chunks.tile_words[at.target];
        task.sums = m_scratch.sums + uint64_t(thread) * kMaxTokenBlock * max_lanes;
        task.prefetch_to_l2 = m_kernels.prefetch_to_l2;
        multiply_expert(a, target, x, e, at.tile * tile_rows, task);
    });
}

void CpuBackend::route(const RouteArgs& a, const Tensor& ids, const Tensor& weights,
                       const Tensor& logits, const Tensor& bias)
{
    for_rows(a.n_tokens, 8 * a.n_experts, [&](uint32_t begin, uint32_t end) {
        RouteArgs part = a;
        part.n_tokens = end - begin;
        ReferenceBackend::route(part, rows_from(ids, begin, a.n_used),
                                rows_from(weights, begin, a.n_used),
                                rows_from(logits, begin, a.n_experts), bias);
    });
}

// Sums of a block of values stay in registers or L1 while the rows of z pass.
static void combine_token(const CombineExpertsArgs& a, float* y, const float* z, const float* w)
{
    constexpr uint32_t kBlock = 256;
    for (uint32_t begin = 0, n; begin < a.dim; begin += n) {
        float sum[kBlock] = {};
        n = std::min(kBlock, a.dim - begin);
        for (uint32_t j = 0; j < a.n_used; j++) {
            const float* row = z + uint64_t(j) * a.dim + begin;
            for (uint32_t i = 0; i < n; i++) sum[i] += w[j] * row[i];
        }
        for (uint32_t i = 0; i < n; i++)
            y[begin + i] = (a.accumulate ? y[begin + i] : 0) + a.scale * sum[i];
    }
}

void CpuBackend::combine_experts(const CombineExpertsArgs& a, const Tensor& y, const Tensor& z,
                                 const Tensor& weights)
{
    for_rows(a.n_tokens, a.n_used * a.dim, [&](uint32_t begin, uint32_t end) {
        for (uint64_t t = begin; t < end; t++)
            combine_token(a, y.ptr() + t * a.dim, z.ptr() + t * a.n_used * a.dim,
                          weights.ptr() + t * a.n_used);
    });
}

void CpuBackend::attention_sinks(const SinksArgs& a, const Tensor& y, const Tensor& lse,
                                 const Tensor& sinks)
{
    for_rows(a.n_tokens, a.n_heads * a.head_dim, [&](uint32_t begin, uint32_t end) {
        const SinksArgs part{end - begin, a.n_heads, a.head_dim};
        ReferenceBackend::attention_sinks(part, rows_from(y, begin, a.n_heads * a.head_dim),
                                          rows_from(lse, begin, a.n_heads), sinks);
    });
}

} // namespace ks
