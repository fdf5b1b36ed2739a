// The ops of mixtures of experts, and attention_sinks.
#include "backends/reference/reference_backend.h"

#include <algorithm>
#include <cmath>

namespace ks
{

// The probabilities of a token, in place of its logits.
static void probabilities(uint32_t kind, double* p, uint32_t n)
{
    if (kind == route_sigmoid) {
        for (uint32_t i = 0; i < n; i++) p[i] = 1 / (1 + std::exp(-p[i]));
        return;
    }
    const double top = *std::max_element(p, p + n);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += p[i] = std::exp(p[i] - top);
    for (uint32_t i = 0; i < n; i++) p[i] /= sum;
}

// The lowest index of the largest score, which loses it.
static uint32_t take_best(double* score, uint32_t n)
{
    double* best = std::max_element(score, score + n);
    *best = -INFINITY;
    return uint32_t(best - score);
}

// Experts outside of the best groups get a score of -infinity.
static void keep_groups(const RouteArgs& a, double* score)
{
    const uint32_t size = a.n_experts / a.n_groups;
    double sums[route_max_experts];
    bool kept[route_max_experts] = {};
    for (uint32_t g = 0; g < a.n_groups; g++) {
        double best[2] = {-INFINITY, -INFINITY};
        for (uint32_t i = g * size; i < (g + 1) * size; i++) {
            const double lower = std::min(best[0], score[i]);
            best[0] = std::max(best[0], score[i]);
            best[1] = std::max(best[1], lower);
        }
        sums[g] = size > 1 ? best[0] + best[1] : best[0];
    }
    for (uint32_t i = 0; i < a.n_groups_used; i++) kept[take_best(sums, a.n_groups)] = true;
    for (uint32_t i = 0; i < a.n_experts; i++)
        if (!kept[i / size]) score[i] = -INFINITY;
}

static void route_token(const RouteArgs& a, const float* logits, const float* bias, uint32_t* ids,
                        float* weights)
{
    double p[route_max_experts], score[route_max_experts], chosen[route_max_used], sum = 0;
    const bool by_logits = a.kind == route_softmax_chosen || (!bias && a.n_groups == 1);
    std::copy_n(logits, a.n_experts, p);
    std::copy_n(logits, a.n_experts, score);
    if (a.kind != route_softmax_chosen) probabilities(a.kind, p, a.n_experts);
    if (!by_logits) std::copy_n(p, a.n_experts, score);
    for (uint32_t i = 0; bias && i < a.n_experts; i++) score[i] += bias[i];
    if (a.n_groups > 1) keep_groups(a, score);
    for (uint32_t j = 0; j < a.n_used; j++) {
        ids[j] = take_best(score, a.n_experts);
        chosen[j] = p[ids[j]];
    }
    if (a.kind == route_softmax_chosen) probabilities(a.kind, chosen, a.n_used);
    for (uint32_t j = 0; j < a.n_used; j++) sum += chosen[j];
    const double scale = a.normalise ? a.scale / std::max(sum, double(route_least_sum)) : a.scale;
    for (uint32_t j = 0; j < a.n_used; j++) weights[j] = float(chosen[j] * scale);
}

void ReferenceBackend::route(const RouteArgs& a, const Tensor& ids, const Tensor& weights,
                             const Tensor& logits, const Tensor& bias)
{
    KS_CHECK(a.n_experts <= route_max_experts && a.n_used > 0 && a.n_used <= route_max_used &&
                 a.n_groups > 0 && a.n_experts % a.n_groups == 0 && a.n_groups_used <= a.n_groups &&
                 a.n_used <= a.n_experts / a.n_groups * a.n_groups_used,
             "route: %u of %u experts, %u of %u groups", a.n_used, a.n_experts, a.n_groups_used,
             a.n_groups);
    check_values("route", logits, uint64_t(a.n_tokens) * a.n_experts);
    check_values("route", ids, uint64_t(a.n_tokens) * a.n_used);
    check_values("route", weights, uint64_t(a.n_tokens) * a.n_used);
    if (bias) check_values("route", bias, a.n_experts);
    for (uint64_t t = 0; t < a.n_tokens; t++)
        route_token(a, logits.ptr() + t * a.n_experts, bias ? bias.ptr() : nullptr,
                    ids.ptr<uint32_t>() + t * a.n_used, weights.ptr() + t * a.n_used);
}

void check_experts(const ExpertsArgs& a, const ExpertsTarget* targets, int n_targets,
                   const Tensor& x, const Tensor& ids)
{
    const uint64_t n = uint64_t(a.n_tokens) * a.n_used;
    KS_CHECK(a.rows % tile_rows == 0 && n_targets >= 1 && n_targets <= 2,
             "matmul_experts: %u rows, %d targets", a.rows, n_targets);
    check_values("matmul_experts", x, (a.per_choice ? n : a.n_tokens) * a.cols);
    check_values("matmul_experts", ids, n);
    for (int i = 0; i < n_targets; i++) {
        const ExpertsTarget& t = targets[i];
        KS_CHECK(t.w.cols == a.cols && t.w.rows == a.n_experts * a.rows,
                 "matmul_experts: %u x (%u, %u), w (%u, %u)", a.n_experts, a.rows, a.cols, t.w.rows,
                 t.w.cols);
        check_weight("matmul_experts", t.w);
        check_values("matmul_experts", t.y, n * a.rows);
        if (t.scales) check_values("matmul_experts", t.scales, a.n_experts);
        if (t.bias) check_values("matmul_experts", t.bias, uint64_t(a.n_experts) * a.rows);
    }
    for (uint64_t i = 0; i < n; i++)
        KS_CHECK(ids.ptr<uint32_t>()[i] < a.n_experts, "matmul_experts: expert %u of %u",
                 ids.ptr<uint32_t>()[i], a.n_experts);
}

void ReferenceBackend::matmul_experts(const ExpertsArgs& a, const ExpertsTarget* targets,
                                      int n_targets, const Tensor& x, const Tensor& ids)
{
    check_experts(a, targets, n_targets, x, ids);
    KS_CHECK(a.cols <= m_shape.max_cols, "matmul_experts: %u cols, scratch for %u", a.cols,
             m_shape.max_cols);
    const uint32_t *id = ids.ptr<uint32_t>(), n = a.n_tokens * a.n_used;
    for (const ExpertsTarget* target = targets; target < targets + n_targets; target++) {
        for (uint32_t row = 0; row < target->w.rows; row++) {
            const uint32_t e = row / a.rows, r = row % a.rows;
            if (std::find(id, id + n, e) == id + n) continue;
            decode_row(target->w, row, m_row);
            const double scale = target->scales ? target->scales.ptr()[e] : 1,
                         bias = target->bias ? target->bias.ptr()[row] : 0;
            for (uint32_t i = 0; i < n; i++) {
                if (id[i] != e) continue;
                const float* from = x.ptr() + uint64_t(a.per_choice ? i : i / a.n_used) * a.cols;
                target->y.ptr()[uint64_t(i) * a.rows + r] =
                    float(scale * reference_dot(m_row, from, a.cols) + bias);
            }
        }
    }
}

void ReferenceBackend::combine_experts(const CombineExpertsArgs& a, const Tensor& y,
                                       const Tensor& z, const Tensor& weights)
{
    check_values("combine_experts", y, uint64_t(a.n_tokens) * a.dim);
    check_values("combine_experts", z, uint64_t(a.n_tokens) * a.n_used * a.dim);
    check_values("combine_experts", weights, uint64_t(a.n_tokens) * a.n_used);
    for (uint64_t t = 0; t < a.n_tokens; t++) {
        const float* w = weights.ptr() + t * a.n_used;
        const float* rows = z.ptr() + t * a.n_used * a.dim;
        float* out = y.ptr() + t * a.dim;
        for (uint32_t i = 0; i < a.dim; i++) {
            double sum = 0;
            for (uint32_t j = 0; j < a.n_used; j++)
                sum += double(w[j]) * rows[uint64_t(j) * a.dim + i];
            out[i] = float((a.accumulate ? out[i] : 0.0) + a.scale * sum);
        }
    }
}

void ReferenceBackend::attention_sinks(const SinksArgs& a, const Tensor& y, const Tensor& lse,
                                       const Tensor& sinks)
{
    check_values("attention_sinks", y, uint64_t(a.n_tokens) * a.n_heads * a.head_dim);
    check_values("attention_sinks", lse, uint64_t(a.n_tokens) * a.n_heads);
    check_values("attention_sinks", sinks, a.n_heads);
    for (uint64_t i = 0; i < uint64_t(a.n_tokens) * a.n_heads; i++) {
        const double before = lse.ptr()[i], sink = sinks.ptr()[i % a.n_heads] / std::log(2.0),
                     top = std::max(before, sink),
                     after = top + std::log2(1 + std::exp2(std::min(before, sink) - top)),
                     factor = std::exp2(before - after);
        for (uint32_t d = 0; d < a.head_dim; d++) {
            float& value = y.ptr()[i * a.head_dim + d];
            value = float(value * factor);
        }
        lse.ptr()[i] = float(after);
    }
}

} // namespace ks
