// matmul: every format, odd shapes, shared inputs, and the error bound of devices that round
// activations to int8.
#include "tests/backends/op_harness.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <doctest/doctest.h>

using namespace ks;

// For quantised weights a device may round x to int8, in blocks of 32 with a scale of max|x| / 127.
// The error of a value is then uniform within half a step. Its mean square is (max|x| / 127)^2
// / 12. So the expected energy of the errors is known. As errors are random, the bound is wider for
// few results. The divisor is the energy of the products and not of the results: where products
// cancel out, errors do not.
static double int8_bound(double expected_error, double energy, double n_results)
{
    return energy > 0 ? expected_error / energy * (2 + 8 / std::sqrt(n_results)) + kF32 : kF32;
}

static bool is_float(Format format)
{
    return format == Format::f32 || format == Format::f16 || format == Format::bf16;
}

struct MatmulShape {
    std::vector<Format> formats; // one per target, up to three
    std::vector<uint32_t> rows;
    uint32_t cols;
    uint32_t n_tokens;
    uint32_t accumulate = 0;
    std::vector<float> scales = {}; // one per target; empty: 1
    float scale(size_t target) const { return target < scales.size() ? scales[target] : 1.f; }
};

struct MatmulData {
    std::vector<FileMatrix> weights;
    std::vector<float> x;
    std::vector<std::vector<float>> y0; // y before the op
};

static std::shared_ptr<MatmulData> make_data(const MatmulShape& s, uint64_t seed)
{
    auto data = std::make_shared<MatmulData>();
    Random random(seed);
    data->x = random.normals(uint64_t(s.n_tokens) * s.cols);
    for (size_t i = 0; i < s.formats.size(); i++) {
        data->weights.push_back(random_matrix(s.formats[i], s.rows[i], s.cols, seed + i));
        data->y0.push_back(random.normals(uint64_t(s.n_tokens) * s.rows[i]));
    }
    return data;
}

static Prepared prepare(const MatmulShape& s, const MatmulData& data, Bench& bench)
{
    ScratchShape shape;
    shape.n_tokens = s.n_tokens;
    shape.max_cols = s.cols;
    bench.scratch(shape);
    Tensor x = bench.input(s.n_tokens, s.cols, data.x);
    Prepared p;
    std::vector<MatmulTarget> targets;
    for (size_t i = 0; i < s.formats.size(); i++) {
        Tensor y = s.accumulate ? bench.input(s.n_tokens, s.rows[i], data.y0[i])
                                : bench.output(s.n_tokens, s.rows[i]);
        bench.will_change(y);
        targets.push_back({y, bench.weight(data.weights[i]), s.scale(i)});
        p.results.push_back(y);
    }
    MatmulArgs a{s.n_tokens, s.rows[0], s.cols, s.accumulate};
    Backend* backend = &bench.backend();
    p.run = [=] { backend->matmul(a, targets.data(), int(targets.size()), x); };
    return p;
}

struct Expected {
    std::vector<double> results;
    double energy = 0; // sum of the squared products
    double error = 0;  // expected energy of the error of int8 activations
};

// The mean square of the rounding error of x[k], in blocks of 32.
static double rounding_error(const float* x, uint32_t cols, uint32_t k)
{
    float max = 0;
    for (uint32_t i = k / 32 * 32; i < std::min(cols, k / 32 * 32 + 32); i++)
        max = std::max(max, std::fabs(x[i]));
    return std::pow(max / 127.0, 2) / 12;
}

static Expected formula(const MatmulShape& s, const MatmulData& data)
{
    Expected out;
    for (size_t i = 0; i < s.formats.size(); i++) {
        std::vector<float> w = data.weights[i].values();
        for (uint32_t t = 0; t < s.n_tokens; t++) {
            const float* x = &data.x[t * s.cols];
            std::vector<double> error(s.cols, 0.0);
            for (uint32_t k = 0; k < s.cols && !is_float(s.formats[i]); k++)
                error[k] = rounding_error(x, s.cols, k);
            for (uint32_t r = 0; r < s.rows[i]; r++) {
                double sum = s.accumulate ? data.y0[i][t * s.rows[i] + r] : 0;
                for (uint32_t k = 0; k < s.cols; k++) {
                    double weight = double(s.scale(i)) * w[r * s.cols + k];
                    sum += weight * x[k];
                    out.energy += std::pow(weight * x[k], 2);
                    out.error += weight * weight * error[k];
                }
                out.results.push_back(sum);
            }
        }
    }
    return out;
}

static OpCase make_case(const MatmulShape& s, std::shared_ptr<MatmulData> data,
                        const std::string& note = "")
{
    OpCase c;
    double weight_bytes_read = 0, values = 0;
    for (size_t i = 0; i < s.formats.size(); i++) {
        c.name += std::string(format_info(s.formats[i]).name) + " " + std::to_string(s.rows[i]) +
                  (i + 1 < s.formats.size() ? " + " : "");
        weight_bytes_read += double(weight_bytes(s.formats[i], s.rows[i], s.cols));
        values += s.rows[i];
    }
    c.name += " x " + std::to_string(s.cols) + ", " + std::to_string(s.n_tokens) + " tokens" +
              (s.accumulate ? ", accumulate" : "") + (s.scales.empty() ? "" : ", scaled") + note;
    c.prepare = [=](Bench& bench) { return prepare(s, *data, bench); };
    c.bytes = weight_bytes_read + 4.0 * s.n_tokens * (s.cols + values);
    c.flops = 2.0 * values * s.cols * s.n_tokens;
    return c;
}

static OpCase checked(const MatmulShape& s, std::shared_ptr<MatmulData> data,
                      const std::string& note = "")
{
    OpCase c = make_case(s, data, note);
    auto expected = std::make_shared<Expected>(formula(s, *data));
    c.formula = [=] { return expected->results; };
    c.energy = expected->energy;
    c.bound = int8_bound(expected->error, expected->energy, double(expected->results.size()));
    return c;
}

static OpCase checked(const MatmulShape& s)
{
    return checked(s, make_data(s, s.rows[0] * 7919 + s.cols * 31 + s.n_tokens));
}

static OpCase timed(const MatmulShape& s)
{
    OpCase c = make_case(s, make_data(s, 1));
    c.timed = true;
    return c;
}

TEST_CASE("matmul: every format")
{
    std::vector<OpCase> cases;
    for (Format format : all_formats()) {
        uint32_t block = format_info(format).block;
        // Several blocks, whose number is odd if they are small.
        uint32_t one = block == 1 ? 37 : block, several = block == 256   ? 768
                                                          : block == 128 ? 640
                                                          : block == 64  ? 448
                                                          : block == 32  ? 224
                                                                         : 203;
        cases.push_back(checked({{format}, {8}, one, 1}));
        cases.push_back(checked({{format}, {1}, several, 1}));
        cases.push_back(checked({{format}, {19}, several, 1}));
        cases.push_back(checked({{format}, {7}, several, 2}));
        cases.push_back(checked({{format}, {33}, one, 5}));
        cases.push_back(checked({{format}, {24}, several, 3, 1}));
        cases.push_back(checked({{format}, {50}, several, 67}));
        cases.push_back(checked({{format}, {16}, several, 16, 1}));
        cases.push_back(checked(
            {{format}, {9}, 2304, 1})); // enough for kernels that are chosen for wide rows only
    }
    check_ops("matmul", cases);
}

TEST_CASE("matmul: enough rows and tokens for every thread")
{
    std::vector<OpCase> cases;
    for (Format format : {Format::q4_1, Format::q8_0, Format::f16, Format::q6_k}) {
        cases.push_back(checked({{format}, {1001}, 512, 1}));
        cases.push_back(checked({{format}, {200}, 512, 130}));
    }
    check_ops("matmul", cases);
}

TEST_CASE("matmul: targets that share their input")
{
    using F = Format;
    check_ops("matmul", {
                            checked({{F::q4_1, F::q4_1, F::q4_1}, {72, 24, 24}, 288, 1}),
                            checked({{F::q4_1, F::q4_1, F::q4_1}, {72, 24, 24}, 288, 9}),
                            checked({{F::q4_k, F::q8_0, F::q6_k},
                                     {64, 16, 9},
                                     256,
                                     1}), // a mix of formats as in model files
                            checked({{F::q5_0, F::f32, F::q4_k}, {64, 17, 40}, 512, 4}),
                            checked({{F::q5_0, F::q8_0}, {3, 120}, 96, 7, 1}),
                            checked({{F::f16, F::bf16}, {65, 1}, 96, 1}),
                        });
}

TEST_CASE("matmul: scales")
{
    std::vector<OpCase> cases;
    using F = Format;
    for (F format : {F::f32, F::f16, F::bf16, F::q8_0, F::q4_k, F::q6_k, F::iq4_nl, F::iq3_s})
        for (uint32_t n_tokens : {1u, 2u, 4u, 7u, 16u, 67u})
            for (uint32_t accumulate : {0u, 1u})
                cases.push_back(checked(
                    {{format}, {50}, 512, n_tokens, accumulate, {accumulate ? -0.22f : 3.5f}}));
    for (uint32_t n_tokens : {1u, 5u, 40u})
        for (uint32_t accumulate : {0u, 1u}) {
            cases.push_back(checked({{F::q4_k, F::q4_k, F::q4_k},
                                     {72, 24, 31},
                                     512,
                                     n_tokens,
                                     accumulate,
                                     {0.25f, 1, -7}}));
            cases.push_back(
                checked({{F::q8_0, F::f16}, {72, 24}, 512, n_tokens, accumulate, {1, 0.015625f}}));
        }
    check_ops("matmul", cases);
}

TEST_CASE("matmul: inputs that are hard to round")
{
    struct Hard {
        const char* note;
        void (*change)(float& value, uint32_t k);
    };
    const Hard kinds[] = {
        {", zeros", [](float& value, uint32_t) { value = 0; }},
        {", blocks of zeros", [](float& value, uint32_t k) { value *= k < 256 ? 0.f : 1.f; }},
        {", small", [](float& value, uint32_t) { value *= 1e-6f; }},
        {", large", [](float& value, uint32_t) { value *= 1e4f; }},
        {", one large value", [](float& value, uint32_t k) { value = k == 261 ? -1000.f : value; }},
    };
    std::vector<OpCase> cases;
    for (Format format : all_formats()) {
        for (const Hard& kind : kinds) {
            MatmulShape s{{format}, {64}, 512, 2};
            auto data = make_data(s, 99);
            for (uint32_t i = 0; i < 2 * s.cols; i++) kind.change(data->x[i], i % s.cols);
            cases.push_back(checked(s, data, kind.note));
        }
    }
    check_ops("matmul", cases);
}

// All levels are at an end of their range, and all products have one sign. Sums in too few bits
// overflow.
TEST_CASE("matmul: the largest levels")
{
    std::vector<OpCase> cases;
    for (Format format : all_formats()) {
        const FormatInfo& info = format_info(format);
        if (is_float(format)) continue;
        for (int byte : {0x00, 0x7f, 0x80, 0xff}) {
            MatmulShape s{{format}, {16}, 512, 2};
            auto data = make_data(s, 5);
            std::vector<uint8_t>& bytes = data->weights[0].bytes;
            std::fill(bytes.begin(), bytes.end(), uint8_t(byte));
            for (size_t at = 0; at < bytes.size(); at += info.block_bytes)
                set_scales(format, &bytes[at], 1);
            for (size_t i = 0; i < data->x.size(); i++) data->x[i] = i < s.cols ? 1.f : -1.f;
            cases.push_back(checked(s, data, ", levels " + std::to_string(byte)));
        }
    }
    check_ops("matmul", cases);
}

TEST_CASE("matmul: times")
{
    std::vector<OpCase> cases;
    using F = Format;
    if (!getenv("KS_PERF")) return;
    cases.push_back(
        timed({{F::q4_1, F::q4_1, F::q4_1}, {576, 192, 192}, 576, 1})); // a layer of a small model
    cases.push_back(timed({{F::q4_1, F::q4_1}, {1536, 1536}, 576, 1}));
    cases.push_back(timed({{F::q4_1}, {576}, 1536, 1, 1}));
    cases.push_back(timed({{F::q8_0}, {49152}, 576, 1}));
    for (Format format : all_formats())
        cases.push_back(timed({{format}, {32768}, 2048, 1})); // larger than caches
    for (Format format : all_formats()) cases.push_back(timed({{format}, {2048}, 2048, 256}));
    check_ops("matmul", cases);
}
