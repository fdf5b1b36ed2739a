// The small ops: embed, add, scale, copy_cols, softcap, argmax.
#include "tests/backends/op_cases.h"

#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <limits>

using namespace ks;

static OpCase embed_case(Format format, uint32_t vocab, uint32_t dim, std::vector<uint32_t> ids,
                         float scale)
{
    auto table = share(random_matrix(format, vocab, dim, vocab + dim));
    EmbedArgs a{uint32_t(ids.size()), dim, scale};
    OpCase c;
    c.name = text("%s (%u, %u), %u tokens, scale %g", format_info(format).name, vocab, dim,
                  a.n_tokens, scale);
    c.bound = 1e-13; // a product and a difference may be fused
    c.prepare = [=](Bench& bench) {
        Tensor y = bench.output(a.n_tokens, dim), t = bench.weight(*table), i = bench.words(ids);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->embed(a, y, t, i); }, {y}};
    };
    c.formula = [=] {
        std::vector<float> values = table->values();
        std::vector<double> out;
        for (uint32_t id : ids)
            for (uint32_t k = 0; k < dim; k++) out.push_back(double(values[id * dim + k]) * scale);
        return out;
    };
    return c;
}

TEST_CASE("embed")
{
    std::vector<OpCase> cases;
    for (Format format : all_formats()) {
        uint32_t block = format_info(format).block, dim = block == 1 ? 45 : block == 32 ? 96 : 512;
        cases.push_back(embed_case(format, 19, dim, {0, 18, 7, 7, 8, 15, 16}, 1.f));
        cases.push_back(embed_case(format, 1, dim, {0}, std::sqrt(float(dim))));
    }
    check_ops("embed", cases);
}

static OpCase add_case(uint32_t rows, uint32_t cols, uint32_t b_rows, bool timed = false)
{
    Random random(rows + cols);
    auto x = share(random.normals(uint64_t(rows) * cols)),
         b = share(random.normals(uint64_t(b_rows) * cols));
    AddArgs a{rows, cols, b_rows};
    OpCase c;
    c.name = text("(%u, %u) + (%u, %u)", rows, cols, b_rows, cols);
    c.timed = timed;
    c.bound = kExact;
    c.bytes = 12.0 * rows * cols;
    c.flops = double(rows) * cols;
    c.prepare = [=](Bench& bench) {
        Tensor y = bench.input(rows, cols, *x), t = bench.input(b_rows, cols, *b);
        bench.will_change(y);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->add(a, y, t); }, {y}};
    };
    c.formula = [=] {
        std::vector<double> out;
        for (size_t i = 0; i < x->size(); i++) out.push_back(double((*x)[i]) + (*b)[i % b->size()]);
        return out;
    };
    return c;
}

TEST_CASE("add")
{
    check_ops("add", {add_case(1, 1, 1), add_case(1, 577, 1), add_case(5, 33, 5),
                      add_case(5, 33, 1), add_case(3, 8, 1), add_case(130, 576, 130),
                      add_case(1, 2048, 1, true), add_case(256, 2048, 256, true)});
}

static OpCase scale_case(uint32_t rows, uint32_t cols)
{
    Random random(rows + cols);
    auto x = share(random.normals(uint64_t(rows) * cols)), factors = share(random.normals(rows));
    if (rows > 1) (*factors)[1] = 0;
    OpCase c;
    c.name = text("(%u, %u)", rows, cols);
    c.bound = kExact;
    c.prepare = [=](Bench& bench) {
        Tensor y = bench.input(rows, cols, *x), s = bench.input(1, rows, *factors);
        bench.will_change(y);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->scale({rows, cols}, y, s); }, {y}};
    };
    c.formula = [=] {
        std::vector<double> out;
        for (size_t i = 0; i < x->size(); i++)
            out.push_back(double((*x)[i]) * (*factors)[i / cols]);
        return out;
    };
    return c;
}

TEST_CASE("scale")
{
    check_ops("scale", {scale_case(1, 1), scale_case(1, 577), scale_case(5, 33), scale_case(3, 8),
                        scale_case(130, 576), scale_case(70, 1), scale_case(2, 5000)});
}

static OpCase copy_case(const CopyColsArgs& a)
{
    Random random(a.rows + a.cols);
    auto x = share(random.normals(uint64_t(a.rows) * a.x_cols)),
         y0 = share(random.normals(uint64_t(a.rows) * a.y_cols));
    OpCase c;
    c.name = text("%u rows, %u from %u of %u to %u of %u", a.rows, a.cols, a.x_first, a.x_cols,
                  a.y_first, a.y_cols);
    c.bound = kExact;
    c.prepare = [=](Bench& bench) {
        Tensor y = bench.input(a.rows, a.y_cols, *y0), from = bench.input(a.rows, a.x_cols, *x);
        bench.will_change(y);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->copy_cols(a, y, from); }, {y}};
    };
    c.formula = [=] {
        std::vector<double> out(y0->begin(), y0->end());
        for (uint32_t r = 0; r < a.rows; r++)
            for (uint32_t i = 0; i < a.cols; i++)
                out[r * a.y_cols + a.y_first + i] = (*x)[r * a.x_cols + a.x_first + i];
        return out;
    };
    return c;
}

TEST_CASE("copy_cols")
{
    check_ops("copy_cols", {copy_case({1, 1, 1, 0, 1, 0}), copy_case({1, 512, 576, 64, 512, 0}),
                            copy_case({130, 64, 576, 0, 64, 0}), copy_case({37, 32, 32, 0, 40, 8}),
                            copy_case({5, 7, 20, 3, 11, 2}), copy_case({700, 33, 40, 7, 35, 1})});
}

static OpCase softcap_case(uint32_t n, float cap, float size)
{
    Random random(n);
    auto x = share(random.normals(n, size));
    (*x)[0] = 0;
    OpCase c;
    c.name = text("%u values of %g, cap %g", n, double(size), double(cap));
    c.energy =
        n * double(cap) * cap / 100; // an error of 1e-7 of the cap is rounding, even for small x
    c.prepare = [=](Bench& bench) {
        Tensor y = bench.input(1, n, *x);
        bench.will_change(y);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->softcap({n, cap}, y); }, {y}};
    };
    c.formula = [=] {
        std::vector<double> out;
        for (float value : *x) out.push_back(double(cap) * std::tanh(value / double(cap)));
        return out;
    };
    return c;
}

TEST_CASE("softcap")
{
    check_ops("softcap", {softcap_case(1, 30, 1), softcap_case(17, 30, 20),
                          softcap_case(5003, 50, 1), softcap_case(999, 30, 1e4f)});
}

// Indexes are returned as floats, which are exact below 2^24.
static OpCase argmax_case(const char* note, uint32_t rows, uint32_t cols,
                          void (*change)(float* row, uint32_t cols))
{
    Random random(cols);
    auto x = share(random.normals(uint64_t(rows) * cols));
    for (uint32_t r = 0; r < rows; r++) change(&(*x)[r * cols], cols);
    OpCase c;
    c.name = text("(%u, %u), %s", rows, cols, note);
    c.bound = kExact;
    c.prepare = [=](Bench& bench) {
        Tensor out = bench.output(1, rows), from = bench.input(rows, cols, *x),
               as_float = bench.output(1, rows);
        Backend* backend = &bench.backend();
        Bench* own = &bench;
        auto run = [=] {
            backend->argmax({rows, cols}, out, from);
            std::vector<uint32_t> found = own->read_words(out);
            std::vector<float> values(found.begin(), found.end());
            backend->upload(as_float.buffer, as_float.offset, values.data(), 4 * rows);
        };
        return Prepared{run, {as_float}};
    };
    c.formula = [=] {
        std::vector<double> out;
        for (uint32_t r = 0; r < rows; r++) {
            uint32_t best = cols - 1;
            for (uint32_t i = cols; i-- > 0;)
                if ((*x)[r * cols + i] >= (*x)[r * cols + best]) best = i;
            out.push_back(best);
        }
        return out;
    };
    return c;
}

TEST_CASE("argmax")
{
    std::vector<OpCase> cases;
    for (uint32_t cols : {1u, 2u, 7u, 8u, 9u, 31u, 100u, 1003u, 50257u}) {
        cases.push_back(argmax_case("any", 3, cols, [](float*, uint32_t) {}));
        cases.push_back(
            argmax_case("the last", 1, cols, [](float* row, uint32_t n) { row[n - 1] = 99; }));
        cases.push_back(argmax_case("all equal", 2, cols,
                                    [](float* row, uint32_t n) { std::fill(row, row + n, -3.f); }));
        cases.push_back(argmax_case("ties far apart", 1, cols, [](float* row, uint32_t n) {
            for (uint32_t i = n / 3; i < n; i += n / 5 + 1) row[i] = 50;
        }));
        cases.push_back(argmax_case("all -inf but one", 1, cols, [](float* row, uint32_t n) {
            std::fill(row, row + n, -std::numeric_limits<float>::infinity());
            row[n / 2] = -1e30f;
        }));
        cases.push_back(argmax_case("all -inf", 1, cols, [](float* row, uint32_t n) {
            std::fill(row, row + n, -std::numeric_limits<float>::infinity());
        }));
        cases.push_back(argmax_case("zeros of both signs", 1, cols, [](float* row, uint32_t n) {
            for (uint32_t i = 0; i < n; i++) row[i] = i % 2 ? 0.f : -0.f;
        }));
    }
    check_ops("argmax", cases);
}
