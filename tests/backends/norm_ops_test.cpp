// norm: RMSNorm and LayerNorm of rows, of heads, and of rows of all heads.
#include "tests/backends/op_cases.h"

#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>

using namespace ks;

struct NormShape {
    NormArgs a;
    float size = 1, mean = 0; // of x
    bool in_place = false, timed = false;
};

static NormShape shape(uint32_t kind, uint32_t rows, uint32_t dim, uint32_t w_rows = 1)
{
    return {{rows, dim, 1e-5f, 0, kind, w_rows}};
}

static std::vector<double> formula(const NormArgs& a, const std::vector<float>& x,
                                   const std::vector<float>& w)
{
    std::vector<double> out;
    for (uint32_t r = 0; r < a.rows; r++) {
        const float *row = &x[uint64_t(a.first_row + r) * a.dim],
                    *weight = &w[r % a.w_rows * a.dim];
        double mean = 0, square = 0;
        for (uint32_t i = 0; i < a.dim && a.kind == norm_layer; i++) mean += double(row[i]) / a.dim;
        for (uint32_t i = 0; i < a.dim; i++) square += std::pow(row[i] - mean, 2) / a.dim;
        for (uint32_t i = 0; i < a.dim; i++)
            out.push_back((row[i] - mean) / std::sqrt(square + a.eps) * weight[i]);
    }
    return out;
}

static OpCase norm_case(const NormShape& s)
{
    const NormArgs a = s.a;
    Random random(a.rows * 1000 + a.dim);
    auto x = share(random.normals(uint64_t(a.first_row + a.rows) * a.dim, s.size));
    auto w = share(random.normals(uint64_t(a.w_rows) * a.dim));
    for (float& value : *x) value += s.mean;
    if (a.rows > 2) std::fill(x->begin() + a.dim, x->begin() + 2 * a.dim, 0.f); // a row of zeros
    OpCase c;
    c.name = text("%s (%u, %u) from %u on, %u weights, eps %g, values of %g + %g%s",
                  a.kind == norm_layer ? "layer" : "rms", a.rows, a.dim, a.first_row, a.w_rows,
                  double(a.eps), double(s.mean), double(s.size), s.in_place ? ", in place" : "");
    // LayerNorm of one value is zero, whatever the value.
    c.energy = a.kind == norm_layer ? double(a.rows) * a.dim : 0;
    c.timed = s.timed;
    c.bytes = 8.0 * a.rows * a.dim;
    c.flops = 4.0 * a.rows * a.dim;
    c.prepare = [=](Bench& bench) {
        Tensor from = bench.input(a.first_row + a.rows, a.dim, *x),
               weight = bench.input(a.w_rows, a.dim, *w);
        Tensor y = s.in_place ? from : bench.output(a.rows, a.dim);
        bench.will_change(y);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->norm(a, y, from, weight); }, {y}};
    };
    c.formula = [=] { return formula(a, *x, *w); };
    return c;
}

TEST_CASE("norm")
{
    std::vector<OpCase> cases;
    for (uint32_t kind : {norm_rms, norm_layer}) {
        for (uint32_t dim : {1u, 7u, 64u, 80u, 576u, 2055u, 16384u})
            for (uint32_t rows : {1u, 3u, 70u}) {
                NormShape s = shape(kind, rows, dim);
                s.in_place = rows == 3;
                cases.push_back(norm_case(s));
            }
        NormShape s = shape(kind, 5, 640);
        s.a.eps = 1e-6f;
        for (float size : {1e4f, 1e-3f, 1e-25f}) { // 1e-3: eps is as large as the mean square
            s.size = size;
            s.in_place = size < 1e-20f;
            cases.push_back(norm_case(s));
        }
        for (uint32_t first : {1u, 255u}) {
            s = shape(kind, 4, 72);
            s.a.first_row = first;
            cases.push_back(norm_case(s));
        }
        for (uint32_t rows : {1u, 256u}) {
            s = shape(kind, rows, 2048);
            s.timed = true;
            cases.push_back(norm_case(s));
        }
    }
    check_ops("norm", cases);
}

TEST_CASE("norm: heads with weights of their own")
{
    std::vector<OpCase> cases;
    for (uint32_t kind : {norm_rms, norm_layer})
        for (uint32_t n_heads : {2u, 3u, 32u})
            for (uint32_t n_tokens : {1u, 5u, 90u}) {
                NormShape s = shape(kind, n_tokens * n_heads, n_heads == 3 ? 81 : 64, n_heads);
                s.in_place = n_tokens > 1;
                cases.push_back(norm_case(s));
            }
    check_ops("norm", cases);
}

TEST_CASE("norm: the mean of a LayerNorm is larger than its deviation")
{
    std::vector<OpCase> cases;
    for (float mean : {-3.f, 30.f})
        for (uint32_t dim : {33u, 2048u, 16384u}) {
            NormShape s = shape(norm_layer, 3, dim);
            s.mean = mean;
            cases.push_back(norm_case(s));
        }
    check_ops("norm", cases);
}
