// rope: RoPE, the Hadamard transform, and both on several tensors.
#include "backends/reference/reference_backend.h"
#include "tests/backends/attention_cases.h"
#include "tests/backends/op_cases.h"

#include <cmath>
#include <complex>
#include <doctest/doctest.h>

using namespace ks;

// n_groups 0: angles per token; otherwise per group of heads.
static OpCase rope_case(uint32_t n_tokens, uint32_t n_heads, uint32_t head_dim, uint32_t n_rot,
                        uint32_t pairs, bool timed = false, uint32_t n_groups = 0)
{
    Random random(n_heads * 100 + head_dim + n_rot);
    auto x = share(random.normals(uint64_t(n_tokens) * n_heads * head_dim));
    auto angles = share(std::vector<float>());
    const uint32_t n_angles = n_groups ? n_groups : n_tokens;
    for (uint32_t t = 0; t < n_angles; t++) {
        for (uint32_t i = 0; i < n_rot / 2; i++) {
            double angle = (1000.0 + t) * std::pow(10000.0, -2.0 * i / n_rot);
            angles->push_back(float(std::cos(angle)));
            angles->push_back(float(std::sin(angle)));
        }
    }
    RopeArgs a{n_tokens, n_heads, head_dim, n_rot, pairs, n_groups, 0};
    OpCase c;
    c.name = text("%u tokens, %u heads of %u, %u rotary, %s", n_tokens, n_heads, head_dim, n_rot,
                  pairs == rope_neox ? "neox" : "interleaved");
    c.timed = timed;
    c.bytes = 8.0 * n_tokens * n_heads * head_dim;
    c.flops = 3.0 * n_tokens * n_heads * n_rot;
    c.prepare = [=](Bench& bench) {
        Tensor y = bench.input(n_tokens, n_heads * head_dim, *x),
               by = bench.input(n_angles, n_rot, *angles);
        bench.will_change(y);
        Backend* backend = &bench.backend();
        const RopeTarget target{a, y, y, by};
        return Prepared{[=] { backend->rope(&target, 1); }, {y}};
    };
    c.formula = [=] {
        std::vector<double> out(x->begin(), x->end());
        for (uint32_t t = 0; t < n_tokens; t++) {
            for (uint32_t i = 0; i < n_rot / 2; i++) {
                uint32_t u = pairs == rope_neox ? i : 2 * i,
                         v = pairs == rope_neox ? i + n_rot / 2 : 2 * i + 1;
                for (uint32_t h = 0; h < n_heads; h++) {
                    const uint32_t at = (n_groups ? h / (n_heads / n_groups) : t) * n_rot + 2 * i;
                    std::complex<double> rotation((*angles)[at], (*angles)[at + 1]);
                    double* head = &out[(t * n_heads + h) * head_dim];
                    std::complex<double> z = std::complex<double>(head[u], head[v]) * rotation;
                    head[u] = z.real();
                    head[v] = z.imag();
                }
            }
        }
        return out;
    };
    return c;
}

TEST_CASE("rope")
{
    std::vector<OpCase> cases;
    for (uint32_t pairs : {rope_interleaved, rope_neox}) {
        for (uint32_t head_dim : {2u, 64u, 80u, 96u, 128u, 256u})
            cases.push_back(rope_case(head_dim == 80 ? 33 : 1, 3, head_dim, head_dim, pairs));
        cases.push_back(rope_case(5, 9, 96, 72, pairs)); // the other values are copied
        cases.push_back(rope_case(7, 1, 64, 6, pairs));
        cases.push_back(rope_case(100, 4, 256, 256, pairs));
        cases.push_back(rope_case(9, 14, 64, 64, pairs, false, 2));
        cases.push_back(rope_case(1, 3, 80, 48, pairs, false, 3));
        cases.push_back(rope_case(1, 32, 64, 64, pairs, true));
        cases.push_back(rope_case(256, 32, 64, 64, pairs, true));
    }
    check_ops("rope", cases);
}

// The Hadamard transform alone: rope without RoPE; or its inverse by attention in which every token
// sees itself only.
static OpCase hadamard_case(uint32_t n_tokens, uint32_t n_heads, uint32_t d, bool inverse,
                            bool timed = false)
{
    auto x =
        std::make_shared<std::vector<float>>(Random(d).normals(uint64_t(n_tokens) * n_heads * d));
    OpCase c;
    c.name = std::to_string(n_tokens) + " tokens, " + std::to_string(n_heads) + " heads of " +
             std::to_string(d) + (inverse ? ", inverse" : "");
    c.bound = kExact;
    c.timed = timed;
    c.bytes = 8.0 * n_tokens * n_heads * d;
    c.prepare = [=](Bench& bench) {
        Tensor y = bench.input(n_tokens, n_heads * d, *x);
        bench.will_change(y);
        Backend* backend = &bench.backend();
        const RopeTarget target{{n_tokens, n_heads, d, 0, 0, 0, 1}, y, y, {}};
        if (!inverse) return Prepared{[=] { backend->rope(&target, 1); }, {y}};
        AttentionShape s = shape(n_tokens, 0, n_heads, n_heads, d, 0, 1);
        s.a.hadamard = 1;
        bench.scratch(scratch_of(s));
        std::vector<float> rows(x->size()); // (n_heads, n_tokens, d)
        for (uint32_t i = 0; i < n_tokens * n_heads; i++)
            std::copy_n(&(*x)[uint64_t(i) * d], d,
                        &rows[uint64_t(i % n_heads * n_tokens + i / n_heads) * d]);
        Tensor out = bench.output(n_tokens, n_heads * d),
               slots = bench.input(n_heads * n_tokens, d, rows);
        Tensor head_layout = bench.words(std::vector<uint32_t>(n_heads * layout_words));
        KvSlots all;
        all.k = all.v = slots;
        all.head_layout = head_layout;
        return Prepared{[=] { backend->attention(s.a, out, {y, {}}, all, Tensor()); }, {out}};
    };
    c.formula = [=] {
        std::vector<double> out;
        for (uint64_t i = 0; i < x->size(); i += d) {
            std::vector<double> y = hadamard(&(*x)[i], d, inverse);
            out.insert(out.end(), y.begin(), y.end());
        }
        return out;
    };
    return c;
}

TEST_CASE("hadamard")
{
    std::vector<OpCase> cases;
    for (uint32_t d : {2u, 7u, 8u, 16u, 32u, 40u, 64u, 72u, 80u, 96u, 100u, 128u, 192u, 256u, 512u})
        for (bool inverse : {false, true})
            cases.push_back(hadamard_case(d == 96 ? 50 : 3, 3, d, inverse));
    for (uint32_t n_tokens : {1u, 256u})
        cases.push_back(hadamard_case(n_tokens, 9, 64, false, true));
    check_ops("hadamard", cases);
}

// RoPE on queries and on keys, keys in place, both with the Hadamard transform if `keys`. The third
// target transforms values in place, or is absent without `values`.
struct RopeTargets {
    uint32_t n_tokens, d, n_rot, pairs;
    bool keys, values;
};

struct RopeTargetsData {
    std::vector<float> q, k, v, angles;
};

static RopeTargetsData make_data(const RopeTargets& r)
{
    Random random(r.d + r.n_rot);
    RopeTargetsData data;
    data.q = random.normals(uint64_t(r.n_tokens) * 6 * r.d);
    data.k = random.normals(uint64_t(r.n_tokens) * 2 * r.d);
    data.v = random.normals(data.k.size());
    for (uint32_t i = 0; i < r.n_tokens * r.n_rot / 2; i++) {
        const double x = random.uniform(-3, 3);
        data.angles.insert(data.angles.end(), {float(std::cos(x)), float(std::sin(x))});
    }
    return data;
}

static Prepared prepare_targets(const RopeTargets& r, const RopeTargetsData& data, Bench& bench)
{
    Tensor from = bench.input(r.n_tokens, 6 * r.d, data.q), to = bench.output(r.n_tokens, 6 * r.d),
           angles = bench.input(r.n_tokens, r.n_rot, data.angles);
    Tensor k = bench.input(r.n_tokens, 2 * r.d, data.k),
           v = bench.input(r.n_tokens, 2 * r.d, data.v);
    bench.will_change(k);
    bench.will_change(v);
    Backend* backend = &bench.backend();
    auto run = [=] {
        const RopeTarget targets[] = {
            {{r.n_tokens, 6, r.d, r.n_rot, r.pairs, 0, r.keys}, to, from, angles},
            {{r.n_tokens, 2, r.d, r.n_rot, r.pairs, 0, r.keys}, k, k, angles},
            {{r.n_tokens, 2, r.d, 0, r.pairs, 0, 1}, v, v, {}}};
        backend->rope(targets, r.values ? 3 : 2);
    };
    return Prepared{run, {to, k, v}};
}

// Rotates the pairs of a head in f32. angles: the cosine and the sine of each pair.
static void apply_rope(const RopeTargets& r, const float* angles, std::vector<float>& head)
{
    for (uint32_t p = 0; p < r.n_rot / 2; p++) {
        float &first = head[r.pairs == rope_neox ? p : 2 * p],
              &second = head[r.pairs == rope_neox ? p + r.n_rot / 2 : 2 * p + 1];
        const double a = first, b = second;
        first = float(a * angles[2 * p] - b * angles[2 * p + 1]);
        second = float(a * angles[2 * p + 1] + b * angles[2 * p]);
    }
}

static std::vector<double> targets_formula(const RopeTargets& r, const RopeTargetsData& data)
{
    std::vector<double> out;
    for (const std::vector<float>* x : {&data.q, &data.k, &data.v})
        for (uint64_t i = 0; i < x->size(); i += r.d) {
            std::vector<float> head(x->begin() + long(i), x->begin() + long(i + r.d));
            const uint64_t token = i / (x->size() / r.n_tokens);
            if (x != &data.v) apply_rope(r, &data.angles[token * r.n_rot], head);
            std::vector<double> y(head.begin(), head.end());
            if (x == &data.v ? r.values : r.keys) y = hadamard(head.data(), r.d, false);
            out.insert(out.end(), y.begin(), y.end());
        }
    return out;
}

static OpCase rope_targets_case(const RopeTargets& r)
{
    const auto data = share(make_data(r));
    OpCase c;
    c.name = text("%u tokens, heads of %u, %u rotary%s%s", r.n_tokens, r.d, r.n_rot,
                  r.keys ? ", keys transformed" : "", r.values ? ", values transformed" : "");
    c.prepare = [=](Bench& bench) { return prepare_targets(r, *data, bench); };
    c.formula = [=] { return targets_formula(r, *data); };
    return c;
}

TEST_CASE("rope: several tensors, with the Hadamard transform")
{
    std::vector<OpCase> cases;
    for (uint32_t d : {16u, 64u, 80u, 96u, 128u, 192u, 256u, 512u})
        for (uint32_t pairs : {rope_interleaved, rope_neox})
            for (uint32_t n_tokens : {1u, 21u})
                for (uint32_t hadamard : {0u, 1u, 2u, 3u})
                    cases.push_back(rope_targets_case({n_tokens, d, d % 3 ? d : d / 2, pairs,
                                                       hadamard % 2 != 0, hadamard / 2 != 0}));
    check_ops("rope", cases);
}

TEST_CASE("hadamard: the inverse restores the input")
{
    for (uint32_t d : kHeadDims) {
        const std::vector<float> x = Random(d).normals(5 * d);
        std::vector<float> y = x;
        for (uint32_t i = 0; i < 5 * d; i += d) {
            hadamard_head(&y[i], d, false);
            hadamard_head(&y[i], d, true);
        }
        for (uint32_t i = 0; i < 5 * d; i++) CHECK(std::fabs(x[i] - y[i]) < 2e-6f);
    }
}
