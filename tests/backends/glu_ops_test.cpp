// glu: every activation, gated by value, gated by head, and without a gate.
#include "tests/backends/op_cases.h"

#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>

using namespace ks;

enum class Place { apart, gate, up }; // where y is

static double activation(const GluArgs& a, double g)
{
    const double inner = std::sqrt(2 / std::acos(-1.0)) * (g + 0.044715 * std::pow(g, 3));
    if (a.act == act_silu) return g * (1 / (1 + std::exp(-g)));
    if (a.act == act_gelu) return g / 2 * (1 + std::tanh(inner));
    if (a.act == act_relu2) return g > 0 ? g * g : 0;
    if (a.act == act_sigmoid) return 1 / (1 + std::exp(-g));
    if (a.act == act_swiglu_oai) {
        const double capped = std::min(g, 7.0);
        return capped / (1 + std::exp(-double(1.702f) * capped));
    }
    if (a.act == act_none) return g;
    return g > 0 ? double(a.alpha_p) * g * g + double(a.beta) * g
                 : (std::expm1(std::min(g, double(a.eps))) - g) * a.alpha_n + double(a.beta) * g;
}

static const char* name_of(uint32_t act)
{
    static const char* const kNames[] = {"silu",  "gelu",       "relu2", "sigmoid",
                                         "xielu", "swiglu_oai", "none"};
    return kNames[act];
}

static GluArgs args(uint32_t act, uint32_t n, uint32_t gate_group = 1, uint32_t gated = 1)
{
    return {n, act, gate_group, gated, 0.8f, 0.7f, 0.5f, -1e-6f};
}

static OpCase glu_case(const GluArgs& a, Place place, bool timed = false)
{
    const uint32_t n_gates = a.n / a.gate_group;
    Random random(a.n + a.gate_group);
    auto gate = share(random.normals(n_gates, 3)), up = share(random.normals(a.n));
    const float edges[] = {0.f,   -0.f,   20.f,   -20.f, 100.f,    -100.f, 1e4f,
                           -1e4f, 1e-20f, -1e-3f, -0.5f, -0.4999f, -2e-7f};
    for (uint32_t i = 0; i < n_gates && i < sizeof edges / sizeof *edges; i++) {
        // Without `up`, nothing keeps one result from dominating the error.
        if (!a.gated && std::fabs(edges[i]) > 20) continue;
        (*gate)[n_gates - 1 - i] = edges[i];
        const float size = std::max(1.f, float(std::fabs(activation(a, edges[i]))));
        for (uint32_t k = 0; k < a.gate_group; k++)
            (*up)[(n_gates - 1 - i) * a.gate_group + k] /= size;
    }
    OpCase c;
    c.name = text("%s, %u values, %u to a gate%s%s", name_of(a.act), a.n, a.gate_group,
                  a.gated ? "" : ", ungated",
                  place == Place::apart  ? ""
                  : place == Place::gate ? ", y is gate"
                                         : ", y is up");
    c.energy = a.act == act_relu2 ? 1 : 0; // few values may all be below zero
    c.timed = timed;
    c.bytes = 12.0 * a.n;
    c.flops = 10.0 * a.n;
    c.prepare = [=](Bench& bench) {
        Tensor g = bench.input(1, n_gates, *gate), u;
        if (a.gated) u = bench.input(1, a.n, *up);
        Tensor y = place == Place::gate ? g : place == Place::up ? u : bench.output(1, a.n);
        bench.will_change(y);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->glu(a, y, g, u); }, {y}};
    };
    c.formula = [=] {
        std::vector<double> out;
        for (uint32_t i = 0; i < a.n; i++) {
            const double g = activation(a, (*gate)[i / a.gate_group]);
            const double u = (*up)[i];
            out.push_back(!a.gated                  ? g
                          : a.act == act_swiglu_oai ? g * (std::clamp(u, -7.0, 7.0) + 1)
                                                    : g * u);
        }
        return out;
    };
    return c;
}

TEST_CASE("glu")
{
    std::vector<OpCase> cases;
    for (uint32_t act : {act_silu, act_gelu, act_relu2, act_sigmoid, act_xielu, act_none}) {
        for (uint32_t n : {1u, 7u, 8u, 1000u, 30011u}) {
            cases.push_back(glu_case(args(act, n), n % 2 ? Place::apart : Place::gate));
            cases.push_back(glu_case(args(act, n, 1, 0), n % 2 ? Place::gate : Place::apart));
        }
        cases.push_back(glu_case(args(act, 577), Place::up));
        cases.push_back(glu_case(args(act, 2048), Place::apart, true));
        cases.push_back(glu_case(args(act, 256 * 2048), Place::apart, true));
    }
    check_ops("glu", cases);
}

TEST_CASE("glu: clamped gates and factors")
{
    std::vector<OpCase> cases;
    for (uint32_t n : {1u, 7u, 8u, 1000u, 30011u})
        cases.push_back(glu_case(args(act_swiglu_oai, n), n % 2 ? Place::apart : Place::gate));
    cases.push_back(glu_case(args(act_swiglu_oai, 577), Place::up));
    cases.push_back(glu_case(args(act_swiglu_oai, 640, 64), Place::up));
    check_ops("glu", cases);
}

TEST_CASE("glu: gates per head")
{
    std::vector<OpCase> cases;
    for (uint32_t act : {act_silu, act_sigmoid, act_xielu})
        for (uint32_t gate_group : {2u, 64u, 80u, 2000u})
            for (uint32_t n_gates : {1u, 6u, 130u})
                cases.push_back(glu_case(args(act, n_gates * gate_group, gate_group),
                                         n_gates == 6 ? Place::up : Place::apart));
    check_ops("glu", cases);
}

TEST_CASE("glu: parameters of xIELU")
{
    std::vector<OpCase> cases;
    for (float eps : {-1e-6f, -0.25f, 0.f, 0.5f})
        for (float beta : {0.5f, -0.25f, 0.f}) {
            GluArgs a = args(act_xielu, 1003, 1, 0);
            a.eps = eps;
            a.beta = beta;
            a.alpha_p = 1.7f;
            a.alpha_n = 2.3f;
            cases.push_back(glu_case(a, Place::apart));
        }
    check_ops("glu", cases);
}
