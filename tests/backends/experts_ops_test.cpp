// The ops of mixtures of experts, and attention_sinks.
#include "tests/backends/op_cases.h"

#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <numeric>

using namespace ks;

namespace
{

std::vector<double> softmax(std::vector<double> x)
{
    const double top = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (double& v : x) sum += v = std::exp(v - top);
    for (double& v : x) v /= sum;
    return x;
}

// Indexes of the n largest, on ties the lower.
std::vector<uint32_t> best(const std::vector<double>& scores, uint32_t n)
{
    std::vector<uint32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
    order.resize(n);
    return order;
}

// The ids of a token, then its weights.
std::vector<double> routed(const RouteArgs& a, const std::vector<double>& logits,
                           const std::vector<float>& bias)
{
    std::vector<double> p = logits;
    if (a.kind == route_softmax) p = softmax(p);
    for (double& v : p)
        if (a.kind == route_sigmoid) v = 1 / (1 + std::exp(-v));
    std::vector<double> scores = p;
    for (uint32_t i = 0; i < bias.size(); i++) scores[i] += bias[i];
    if (a.n_groups > 1) {
        const uint32_t size = a.n_experts / a.n_groups;
        std::vector<double> groups;
        for (uint32_t g = 0; g < a.n_groups; g++) {
            std::vector<double> part(scores.begin() + g * size, scores.begin() + (g + 1) * size);
            std::sort(part.rbegin(), part.rend());
            groups.push_back(part[0] + (size > 1 ? part[1] : 0));
        }
        const std::vector<uint32_t> kept = best(groups, a.n_groups_used);
        for (uint32_t i = 0; i < a.n_experts; i++)
            if (std::find(kept.begin(), kept.end(), i / size) == kept.end()) scores[i] = -INFINITY;
    }
    const std::vector<uint32_t> ids = best(scores, a.n_used);
    std::vector<double> w, out(ids.begin(), ids.end());
    for (uint32_t id : ids) w.push_back(p[id]);
    if (a.kind == route_softmax_chosen) w = softmax(w);
    const double sum = std::accumulate(w.begin(), w.end(), 0.0);
    for (double v : w)
        out.push_back(v * a.scale / (a.normalise ? std::max(sum, 6.103515625e-5) : 1));
    return out;
}

// Logits lie on a grid, so that scores are equal or clearly different.
// The result are the ids, or the weights.
OpCase route_case(const RouteArgs& a, bool biased, bool of_ids, double step)
{
    Random random(a.n_experts + a.n_tokens);
    auto logits = share(random.normals(uint64_t(a.n_tokens) * a.n_experts, 2));
    for (float& v : *logits) v = float(std::round(v / step) * step);
    auto bias = share(biased ? random.normals(a.n_experts, 0.3f) : std::vector<float>());
    OpCase c;
    c.name =
        text("%s: %u tokens, %u of %u experts, kind %u, %u of %u groups%s%s",
             of_ids ? "ids" : "weights", a.n_tokens, a.n_used, a.n_experts, a.kind, a.n_groups_used,
             a.n_groups, biased ? ", bias" : "", a.normalise ? ", normalised" : "");
    if (of_ids) c.bound = kExact;
    c.prepare = [=](Bench& bench) {
        Tensor from = bench.input(a.n_tokens, a.n_experts, *logits), b;
        if (biased) b = bench.input(1, a.n_experts, *bias);
        Tensor ids = bench.output(a.n_tokens, a.n_used),
               weights = bench.output(a.n_tokens, a.n_used);
        Backend* backend = &bench.backend();
        Prepared p{[=] { backend->route(a, ids, weights, from, b); }, {weights}};
        if (of_ids) p.words = {ids};
        if (of_ids) p.results.clear();
        return p;
    };
    c.formula = [=] {
        std::vector<double> weights, ids;
        for (uint32_t t = 0; t < a.n_tokens; t++) {
            const float* row = &(*logits)[t * a.n_experts];
            const std::vector<double> out = routed(a, {row, row + a.n_experts}, *bias);
            ids.insert(ids.end(), out.begin(), out.begin() + a.n_used);
            weights.insert(weights.end(), out.begin() + a.n_used, out.end());
        }
        return of_ids ? ids : weights;
    };
    return c;
}

void add_routes(std::vector<OpCase>& cases, const RouteArgs& a, bool biased = false,
                double step = 1.0 / 64)
{
    for (bool of_ids : {true, false}) cases.push_back(route_case(a, biased, of_ids, step));
}

struct ExpertsShape {
    ExpertsArgs a;
    std::vector<Format> formats; // one per target
    bool scales = false, bias = false;
    bool one_expert = false; // all tokens choose the same ones
};

struct ExpertsData {
    std::vector<float> x, scales, bias;
    std::vector<uint32_t> ids;
    std::vector<FileMatrix> weights;
};

std::shared_ptr<ExpertsData> make_data(const ExpertsShape& s)
{
    const ExpertsArgs& a = s.a;
    const uint32_t n = a.n_tokens * a.n_used;
    Random random(n + a.rows + a.cols);
    auto data = std::make_shared<ExpertsData>();
    data->x = random.normals(uint64_t(a.per_choice ? n : a.n_tokens) * a.cols);
    data->scales = random.normals(a.n_experts);
    data->bias = random.normals(uint64_t(a.n_experts) * a.rows, 10);
    for (uint32_t t = 0; t < a.n_tokens; t++) {
        const uint32_t first = s.one_expert ? 1 : random.below(a.n_experts);
        for (uint32_t j = 0; j < a.n_used; j++) data->ids.push_back((first + 3 * j) % a.n_experts);
    }
    for (Format format : s.formats)
        data->weights.push_back(random_matrix(format, a.n_experts * a.rows, a.cols, a.rows));
    return data;
}

Prepared prepare(const ExpertsShape& s, const ExpertsData& data, Bench& bench)
{
    const ExpertsArgs a = s.a;
    ScratchShape shape;
    shape.n_tokens = a.n_tokens;
    shape.max_cols = shape.expert_cols = a.cols;
    shape.n_experts = a.n_experts;
    shape.expert_rows = a.n_tokens * a.n_used;
    bench.scratch(shape);
    Tensor x = bench.input(uint32_t(data.x.size() / a.cols), a.cols, data.x),
           ids = bench.words(data.ids), scales, bias;
    if (s.scales) scales = bench.input(1, a.n_experts, data.scales);
    if (s.bias) bias = bench.input(a.n_experts, a.rows, data.bias);
    Prepared p;
    std::vector<ExpertsTarget> targets;
    for (const FileMatrix& w : data.weights) {
        p.results.push_back(bench.output(shape.expert_rows, a.rows));
        targets.push_back({p.results.back(), bench.weight(w), scales, bias});
    }
    Backend* backend = &bench.backend();
    p.run = [=] { backend->matmul_experts(a, targets.data(), int(targets.size()), x, ids); };
    return p;
}

std::vector<double> products(const ExpertsShape& s, const ExpertsData& data)
{
    const ExpertsArgs& a = s.a;
    std::vector<double> out;
    for (const FileMatrix& matrix : data.weights) {
        const std::vector<float> w = matrix.values();
        for (uint32_t i = 0; i < data.ids.size(); i++) {
            const uint32_t e = data.ids[i];
            const float* x = &data.x[(a.per_choice ? i : i / a.n_used) * a.cols];
            for (uint32_t r = 0; r < a.rows; r++) {
                double sum = 0;
                for (uint32_t k = 0; k < a.cols; k++)
                    sum += double(w[(uint64_t(e) * a.rows + r) * a.cols + k]) * x[k];
                out.push_back(sum * (s.scales ? data.scales[e] : 1) +
                              (s.bias ? data.bias[e * a.rows + r] : 0));
            }
        }
    }
    return out;
}

OpCase experts_case(const ExpertsShape& s, double bound = kF32)
{
    const ExpertsArgs& a = s.a;
    const auto data = make_data(s);
    std::string formats;
    for (Format format : s.formats)
        formats += std::string(formats.empty() ? "" : " and ") + format_info(format).name;
    OpCase c;
    c.name = text("%s, %u tokens, %u of %u experts of %u x %u%s%s%s%s", formats.c_str(), a.n_tokens,
                  a.n_used, a.n_experts, a.rows, a.cols, a.per_choice ? ", x by choice" : "",
                  s.scales ? ", scales" : "", s.bias ? ", bias" : "",
                  s.one_expert ? ", the same experts" : "");
    c.bound = bound;
    c.prepare = [=](Bench& bench) { return prepare(s, *data, bench); };
    c.formula = [=] { return products(s, *data); };
    return c;
}

OpCase combine_case(const CombineExpertsArgs& a)
{
    Random random(a.n_tokens + a.dim);
    auto z = share(random.normals(uint64_t(a.n_tokens) * a.n_used * a.dim)),
         w = share(random.normals(a.n_tokens * a.n_used)),
         y0 = share(random.normals(uint64_t(a.n_tokens) * a.dim));
    OpCase c;
    c.name = text("%u tokens of %u, %u experts%s", a.n_tokens, a.dim, a.n_used,
                  a.accumulate ? ", accumulates" : "");
    c.prepare = [=](Bench& bench) {
        Tensor y = a.accumulate ? bench.input(a.n_tokens, a.dim, *y0)
                                : bench.output(a.n_tokens, a.dim),
               from = bench.input(a.n_tokens * a.n_used, a.dim, *z),
               weights = bench.input(a.n_tokens, a.n_used, *w);
        bench.will_change(y);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->combine_experts(a, y, from, weights); }, {y}};
    };
    c.formula = [=] {
        std::vector<double> out;
        for (uint32_t i = 0; i < a.n_tokens * a.dim; i++) {
            double sum = 0;
            for (uint32_t j = 0; j < a.n_used; j++)
                sum += double((*w)[i / a.dim * a.n_used + j]) *
                       (*z)[(i / a.dim * a.n_used + j) * a.dim + i % a.dim];
            out.push_back((a.accumulate ? (*y0)[i] : 0) + double(a.scale) * sum);
        }
        return out;
    };
    return c;
}

OpCase sinks_case(const SinksArgs& a)
{
    Random random(a.n_heads);
    auto y0 = share(random.normals(uint64_t(a.n_tokens) * a.n_heads * a.head_dim)),
         lse0 = share(random.normals(a.n_tokens * a.n_heads, 20)),
         sinks = share(random.normals(a.n_heads, 10));
    OpCase c;
    c.name = text("%u tokens, %u heads of %u", a.n_tokens, a.n_heads, a.head_dim);
    c.prepare = [=](Bench& bench) {
        Tensor y = bench.input(a.n_tokens, a.n_heads * a.head_dim, *y0),
               lse = bench.input(a.n_tokens, a.n_heads, *lse0),
               of_heads = bench.input(1, a.n_heads, *sinks);
        bench.will_change(y);
        bench.will_change(lse);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->attention_sinks(a, y, lse, of_heads); }, {y, lse}};
    };
    c.formula = [=] {
        std::vector<double> out, after;
        for (uint32_t i = 0; i < a.n_tokens * a.n_heads; i++) {
            const double before = (*lse0)[i], sink = (*sinks)[i % a.n_heads] * 1.4426950408889634;
            after.push_back(std::log2(std::exp2(before) + std::exp2(sink)));
            for (uint32_t d = 0; d < a.head_dim; d++)
                out.push_back((*y0)[i * a.head_dim + d] * std::exp2(before - after.back()));
        }
        out.insert(out.end(), after.begin(), after.end());
        return out;
    };
    return c;
}

} // namespace

TEST_CASE("route")
{
    std::vector<OpCase> cases;
    for (uint32_t kind : {route_softmax, route_sigmoid, route_softmax_chosen}) {
        add_routes(cases, {1, 8, 2, kind, 0, 1, 1, 1});
        add_routes(cases, {37, 128, 8, kind, 1, 1, 1, 2.5f});
        add_routes(cases, {30, 32, 6, kind, 1, 4, 2, 1}, false, 2); // many ties
    }
    add_routes(cases, {5, 1, 1, route_softmax, 1, 1, 1, 1});
    add_routes(cases, {3, 1024, 32, route_softmax, 1, 1, 1, 1});
    add_routes(cases, {9, 60, 4, route_sigmoid, 1, 1, 1, 1}, true);
    add_routes(cases, {9, 64, 8, route_sigmoid, 1, 8, 4, 2.5f}, true);
    add_routes(cases, {9, 32, 32, route_softmax, 0, 32, 32, 1});
    add_routes(cases, {30, 32, 6, route_softmax, 1, 1, 1, 1}, false, 2);
    check_ops("route", cases);
}

TEST_CASE("matmul_experts: formats of single values")
{
    std::vector<OpCase> cases;
    for (Format format : {Format::f32, Format::f16, Format::bf16}) {
        cases.push_back(experts_case({{1, 2, 6, 32, 64, 0}, {format}}));
        cases.push_back(experts_case({{29, 3, 5, 40, 33, 0}, {format, format}}));
        cases.push_back(experts_case({{70, 2, 4, 16, 96, 1}, {format}, true, true}));
    }
    cases.push_back(
        experts_case({{40, 1, 9, 64, 64, 0}, {Format::f32, Format::f16}, false, true, true}));
    check_ops("matmul_experts", cases);
}

// Devices may round x to int8, in blocks of 32: an error of at most 1/254 of the block's largest.
// Normally distributed values have a mean square of it of 1 / (12 * 127^2) times about 5.
constexpr double kInt8 = 3 * 5.0 / (12 * 127 * 127);

TEST_CASE("matmul_experts: quantised formats")
{
    std::vector<OpCase> cases;
    for (Format format : all_formats()) {
        if (format_info(format).block == 1) continue;
        cases.push_back(experts_case({{1, 2, 6, 24, 256, 0}, {format, format}}, kInt8));
        cases.push_back(experts_case({{23, 2, 5, 16, 512, 1}, {format}, true, true}, kInt8));
    }
    cases.push_back(
        experts_case({{300, 1, 6, 8, 256, 0}, {Format::q4_k}, false, true, true}, kInt8));
    check_ops("matmul_experts", cases);
}

// Some pretended devices bind 64 KiB at a time: parts of the first weights, which begin within an
// expert.
TEST_CASE("matmul_experts: targets")
{
    const Format k4 = Format::q4_k, k6 = Format::q6_k;
    std::vector<OpCase> cases;
    for (uint32_t n : {1u, 20u})
        cases.push_back(
            experts_case({{n, 8, 16, 96, 128, 0}, {Format::q4_0, Format::q4_0}}, kInt8));
    cases.push_back(experts_case({{60, 2, 4, 72, 256, 0}, {k4, k6}, true}, kInt8));
    for (uint32_t n : {1u, 7u}) // as heads: all of them, more than a token has experts
        cases.push_back(experts_case({{n, 40, 40, 16, 96, 1}, {Format::q8_0}}, kInt8));
    check_ops("matmul_experts", cases);
}

TEST_CASE("combine_experts")
{
    check_ops("combine_experts",
              {combine_case({1, 8, 2048, 1, 1}), combine_case({1, 1, 1, 0, 1}),
               combine_case({37, 4, 72, 0, 0.4f}), combine_case({130, 10, 33, 1, 2}),
               combine_case({3, 32, 64, 1, 1})});
}

TEST_CASE("attention_sinks")
{
    check_ops("attention_sinks",
              {sinks_case({1, 64, 64}), sinks_case({37, 5, 128}), sinks_case({3, 1, 1})});
}
