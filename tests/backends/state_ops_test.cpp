// conv, delta and ssm_scan: their formulas, and states that go on from chunk to chunk.
#include "tests/backends/op_cases.h"
#include "tests/devices.h"

#include <cmath>
#include <doctest/doctest.h>

using namespace ks;

static double sigmoid(double x)
{
    return 1 / (1 + std::exp(-x));
}

static double softplus(double x)
{
    return std::log1p(std::exp(-std::fabs(x))) + std::max(x, 0.0);
}

static OpCase conv_case(const ConvArgs& a)
{
    Random random(a.n_tokens * 100 + a.cols);
    auto x = share(random.normals(uint64_t(a.n_tokens) * a.cols)),
         w = share(random.normals(a.kernel * a.cols)), bias = share(random.normals(a.cols)),
         state = share(random.normals((a.kernel - 1) * a.cols));
    OpCase c;
    c.name = text("%u x %u, kernel %u%s%s", a.n_tokens, a.cols, a.kernel,
                  a.act == act_silu ? ", silu" : "", a.biased ? ", bias" : "");
    c.prepare = [=](Bench& bench) {
        const Tensor y = bench.output(a.n_tokens, a.cols),
                     from = bench.input(a.n_tokens, a.cols, *x),
                     weight = bench.input(a.kernel, a.cols, *w),
                     b = a.biased ? bench.input(1, a.cols, *bias) : Tensor(),
                     s = bench.input(a.kernel - 1, a.cols, *state);
        bench.will_change(s);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->conv(a, y, from, weight, b, s); }, {y, s}};
    };
    c.formula = [=] {
        std::vector<float> all = *state;
        all.insert(all.end(), x->begin(), x->end());
        std::vector<double> out;
        for (uint32_t t = 0; t < a.n_tokens; t++)
            for (uint32_t i = 0; i < a.cols; i++) {
                double sum = a.biased ? (*bias)[i] : 0;
                for (uint32_t j = 0; j < a.kernel; j++)
                    sum += double((*w)[j * a.cols + i]) * all[(t + j) * a.cols + i];
                out.push_back(a.act == act_silu ? sum * sigmoid(sum) : sum);
            }
        out.insert(out.end(), all.end() - (a.kernel - 1) * a.cols, all.end());
        return out;
    };
    return c;
}

TEST_CASE("state: conv")
{
    std::vector<OpCase> cases;
    for (uint32_t act : {act_none, act_silu})
        for (uint32_t kernel : {2u, 3u, 4u, 8u})
            for (uint32_t n_tokens : {1u, 2u, 3u, 7u, 64u, 65u, 200u})
                cases.push_back(
                    conv_case({n_tokens, n_tokens == 7 ? 33u : 160u, kernel, act, kernel % 2}));
    check_ops("conv", cases);
}

// Inputs of delta, or of ssm_scan.
struct ScanData {
    std::vector<float> x, dt, beta, a, d, dt_bias, state;

    explicit ScanData(const ScanArgs& s, bool slow)
    {
        Random random(s.n_tokens * 100 + s.n_heads + s.state_dim);
        x = random.normals(uint64_t(s.n_tokens) * scan_cols(s));
        dt = random.normals(s.n_tokens * s.n_heads, 2);
        beta = random.normals(s.n_tokens * s.n_heads, 2);
        d = random.normals(s.n_heads);
        dt_bias = random.normals(s.n_heads);
        state = random.normals(s.n_heads * s.head_dim * s.state_dim, 0.3f);
        for (uint32_t h = 0; h < s.n_heads; h++)
            a.push_back(slow ? -1e-4f : -std::exp(random.normal() * 2));
    }
};

static std::vector<double> delta_formula(const ScanArgs& s, const ScanData& in)
{
    const uint32_t n = s.state_dim;
    std::vector<double> out(s.n_tokens * s.n_heads * n), m(in.state.begin(), in.state.end());
    for (uint32_t t = 0; t < s.n_tokens; t++)
        for (uint32_t h = 0; h < s.n_heads; h++) {
            const float *x = &in.x[t * scan_cols(s)], *q = x + h % s.n_groups * n,
                        *k = q + s.n_groups * n, *v = x + (2 * s.n_groups + h) * n;
            double qq = s.eps, kk = s.eps;
            for (uint32_t j = 0; j < n; j++) qq += double(q[j]) * q[j], kk += double(k[j]) * k[j];
            const double decay =
                std::exp(in.a[h] * softplus(double(in.dt[t * s.n_heads + h]) + in.dt_bias[h]));
            for (uint32_t i = 0; i < n; i++) {
                double *row = &m[(h * n + i) * n], known = 0, found = 0;
                for (uint32_t j = 0; j < n; j++) known += (row[j] *= decay) * k[j] / std::sqrt(kk);
                const double change = sigmoid(in.beta[t * s.n_heads + h]) * (v[i] - known);
                for (uint32_t j = 0; j < n; j++) {
                    row[j] += change * k[j] / std::sqrt(kk);
                    found += row[j] * q[j] / std::sqrt(qq) / std::sqrt(n);
                }
                out[(t * s.n_heads + h) * n + i] = found;
            }
        }
    out.insert(out.end(), m.begin(), m.end());
    return out;
}

static std::vector<double> ssm_formula(const ScanArgs& s, const ScanData& in)
{
    const uint32_t n = s.state_dim, inner = s.n_heads * s.head_dim;
    std::vector<double> out(s.n_tokens * inner), m(in.state.begin(), in.state.end());
    for (uint32_t t = 0; t < s.n_tokens; t++)
        for (uint32_t h = 0; h < s.n_heads; h++) {
            const uint32_t group = h / (s.n_heads / s.n_groups);
            const float *x = &in.x[t * scan_cols(s)], *b = x + inner + group * n,
                        *c = b + s.n_groups * n;
            const double step = softplus(double(in.dt[t * s.n_heads + h]) + in.dt_bias[h]);
            for (uint32_t i = 0; i < s.head_dim; i++) {
                const uint32_t at = h * s.head_dim + i;
                double sum = double(in.d[h]) * x[at];
                for (uint32_t j = 0; j < n; j++) {
                    double& value = m[at * n + j];
                    value = std::exp(in.a[h] * step) * value + step * x[at] * b[j];
                    sum += value * c[j];
                }
                out[t * inner + at] = sum;
            }
        }
    out.insert(out.end(), m.begin(), m.end());
    return out;
}

static OpCase scan_case(bool delta, const ScanArgs& s, bool slow = false)
{
    auto in = share(ScanData(s, slow));
    const uint32_t n_rows = s.n_heads * s.head_dim;
    OpCase c;
    c.name = text("%u tokens, %u heads, %u groups, %u x %u%s", s.n_tokens, s.n_heads, s.n_groups,
                  s.head_dim, s.state_dim, slow ? ", slow decay" : "");
    c.prepare = [=](Bench& bench) {
        const Tensor y = bench.output(s.n_tokens, n_rows);
        const ScanInputs inputs{bench.input(s.n_tokens, scan_cols(s), in->x),
                                bench.input(s.n_tokens, s.n_heads, in->dt),
                                delta ? bench.input(s.n_tokens, s.n_heads, in->beta) : Tensor(),
                                bench.input(1, s.n_heads, in->a),
                                delta ? Tensor() : bench.input(1, s.n_heads, in->d),
                                bench.input(1, s.n_heads, in->dt_bias),
                                bench.input(n_rows, s.state_dim, in->state)};
        bench.will_change(inputs.state);
        Backend* backend = &bench.backend();
        return Prepared{[=] {
                            if (delta)
                                backend->delta(s, y, inputs);
                            else
                                backend->ssm_scan(s, y, inputs);
                        },
                        {y, inputs.state}};
    };
    // The state is rounded after each token, so that the formula holds for short texts only.
    if (s.n_tokens <= 7)
        c.formula = [=] { return delta ? delta_formula(s, *in) : ssm_formula(s, *in); };
    c.flops = (delta ? 8.0 : 5.0) * s.n_tokens * n_rows * s.state_dim;
    c.bytes = 8.0 * n_rows * s.state_dim;
    return c;
}

static OpCase timed(OpCase c)
{
    c.timed = true;
    return c;
}

TEST_CASE("state: delta")
{
    std::vector<OpCase> cases;
    for (uint32_t n_tokens : {1u, 2u, 7u, 64u, 65u, 150u})
        for (uint32_t n : {16u, 32u, 48u, 128u, 256u})
            cases.push_back(scan_case(true, {n_tokens, n > 64 ? 2u : 6u, n == 48 ? 3u : 2u, n, n,
                                             n == 32 ? 1e-2f : 1e-6f}));
    cases.push_back(scan_case(true, {300, 4, 2, 32, 32, 1e-6f}, true));
    for (uint32_t n_tokens : {1u, 512u})
        cases.push_back(timed(scan_case(true, {n_tokens, 32, 16, 128, 128, 1e-6f})));
    check_ops("delta", cases);
}

TEST_CASE("state: ssm_scan")
{
    std::vector<OpCase> cases;
    for (uint32_t n_tokens : {1u, 2u, 7u, 64u, 65u, 150u})
        for (uint32_t n : {16u, 32u, 48u, 128u, 256u})
            cases.push_back(scan_case(false, {n_tokens, 6, n == 48 ? 6u : 2u,
                                              n > 64    ? 5u
                                              : n == 16 ? 12u
                                                        : 9u,
                                              n, 0}));
    cases.push_back(scan_case(false, {300, 4, 1, 8, 32, 0}, true));
    for (uint32_t n_tokens : {1u, 512u})
        cases.push_back(timed(scan_case(false, {n_tokens, 48, 1, 64, 128, 0})));
    check_ops("ssm_scan", cases);
}

// The parts of a text in chunks, which differ in nothing from one chunk.
static std::vector<float> run_in_chunks(Bench& bench, const ScanArgs& s, bool delta,
                                        const std::vector<uint32_t>& chunks)
{
    const ScanData in(s, false);
    const uint32_t n_rows = s.n_heads * s.head_dim, cols = scan_cols(s);
    const Tensor state = bench.input(n_rows, s.state_dim, in.state),
                 a = bench.input(1, s.n_heads, in.a), d = bench.input(1, s.n_heads, in.d),
                 dt_bias = bench.input(1, s.n_heads, in.dt_bias);
    std::vector<float> out;
    uint32_t first = 0;
    for (uint32_t n : chunks) {
        auto part = [&](const std::vector<float>& values, uint32_t width) {
            return bench.input(
                n, width, {values.begin() + first * width, values.begin() + (first + n) * width});
        };
        ScanArgs chunk = s;
        chunk.n_tokens = n;
        const Tensor y = bench.output(n, n_rows);
        const ScanInputs inputs{part(in.x, cols),
                                part(in.dt, s.n_heads),
                                part(in.beta, s.n_heads),
                                a,
                                d,
                                dt_bias,
                                state};
        if (delta)
            bench.backend().delta(chunk, y, inputs);
        else
            bench.backend().ssm_scan(chunk, y, inputs);
        const std::vector<float> values = bench.read(y);
        out.insert(out.end(), values.begin(), values.end());
        first += n;
    }
    const std::vector<float> last = bench.read(state);
    out.insert(out.end(), last.begin(), last.end());
    bench.clear();
    return out;
}

TEST_CASE("state: chunks do not change a bit")
{
    const ScanArgs s{140, 4, 2, 32, 32, 1e-6f};
    for (const DeviceInfo& device : tested_devices()) {
        CAPTURE(device.id);
        Bench bench(device.id, 0);
        for (bool delta : {false, true}) {
            const std::vector<float> want = run_in_chunks(bench, s, delta, {140});
            Random random(delta);
            for (int i = 0; i < 8; i++) {
                std::vector<uint32_t> chunks;
                for (uint32_t left = s.n_tokens; left; left -= chunks.back())
                    chunks.push_back(1 + random.below(std::min(left, 70u)));
                CHECK(run_in_chunks(bench, s, delta, chunks) == want);
            }
        }
    }
}
