// The small ops: embed, rmsnorm, rope, glu, add, softcap, kv_write, argmax.
#include "kernels/common/lang.h"
#include "tests/backends/op_harness.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdarg>
#include <doctest/doctest.h>
#include <limits>

using namespace ks;

template <class T>
static std::shared_ptr<T> share(T value)
{
    return std::make_shared<T>(std::move(value));
}

[[gnu::format(printf, 1, 2)]] static std::string text(const char* format, ...)
{
    char line[160];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return line;
}

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

enum class Place { apart, in_place };

static OpCase rmsnorm_case(uint32_t rows, uint32_t dim, float eps, float size, Place place,
                           bool timed = false, uint32_t first = 0)
{
    Random random(rows * 1000 + dim);
    auto x = share(random.normals(uint64_t(first + rows) * dim, size));
    auto w = share(random.normals(dim));
    if (rows > 2) std::fill(x->begin() + dim, x->begin() + 2 * dim, 0.f); // a row of zeros
    RmsnormArgs a{rows, dim, eps, first};
    OpCase c;
    c.name = text("(%u, %u) from %u on, eps %g, values of %g%s", rows, dim, first, double(eps),
                  double(size), place == Place::in_place ? ", in place" : "");
    c.timed = timed;
    c.bytes = 8.0 * rows * dim;
    c.flops = 4.0 * rows * dim;
    c.prepare = [=](Bench& bench) {
        Tensor from = bench.input(first + rows, dim, *x), norm = bench.input(1, dim, *w);
        Tensor y = place == Place::in_place ? from : bench.output(rows, dim);
        bench.will_change(y);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->rmsnorm(a, y, from, norm); }, {y}};
    };
    c.formula = [=] {
        std::vector<double> out;
        for (uint32_t r = 0; r < rows; r++) {
            double mean = 0;
            for (uint32_t i = 0; i < dim; i++)
                mean += std::pow(double((*x)[(first + r) * dim + i]), 2) / dim;
            for (uint32_t i = 0; i < dim; i++)
                out.push_back((*x)[(first + r) * dim + i] / std::sqrt(mean + eps) * (*w)[i]);
        }
        return out;
    };
    return c;
}

TEST_CASE("rmsnorm")
{
    std::vector<OpCase> cases;
    for (uint32_t dim : {1u, 7u, 64u, 80u, 576u, 2055u})
        for (uint32_t rows : {1u, 3u, 70u})
            cases.push_back(
                rmsnorm_case(rows, dim, 1e-5f, 1, rows == 3 ? Place::in_place : Place::apart));
    cases.push_back(rmsnorm_case(5, 640, 1e-6f, 1e4f, Place::apart));
    cases.push_back(
        rmsnorm_case(5, 640, 1e-6f, 1e-3f, Place::apart)); // eps is as large as the mean square
    cases.push_back(rmsnorm_case(5, 640, 1e-6f, 1e-25f, Place::in_place));
    for (uint32_t first : {1u, 255u})
        cases.push_back(rmsnorm_case(4, 72, 1e-5f, 1, Place::apart, false, first));
    for (uint32_t rows : {1u, 256u})
        cases.push_back(rmsnorm_case(rows, 2048, 1e-6f, 1, Place::apart, true));
    check_ops("rmsnorm", cases);
}

// n_groups 0: angles per token, otherwise per group of heads.
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
    c.name = text("%u tokens, %u heads of %u, %u rotate, %s", n_tokens, n_heads, head_dim, n_rot,
                  pairs == rope_neox ? "halves" : "neighbours");
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
                    std::complex<double> turn((*angles)[at], (*angles)[at + 1]);
                    double* head = &out[(t * n_heads + h) * head_dim];
                    std::complex<double> z = std::complex<double>(head[u], head[v]) * turn;
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

static OpCase glu_case(uint32_t n, uint32_t act, Place place, bool timed = false)
{
    Random random(n);
    auto gate = share(random.normals(n, 3)), up = share(random.normals(n));
    const float edges[] = {0.f, -0.f, 20.f, -20.f, 100.f, -100.f, 1e4f, -1e4f, 1e-20f, -1e-3f};
    for (uint32_t i = 0; i < n && i < 10; i++) {
        (*gate)[n - 1 - i] = edges[i];
        if (std::fabs(edges[i]) > 1)
            (*up)[n - 1 - i] /= std::fabs(edges[i]); // keeps one result from dominating the error
    }
    GluArgs a{n, act};
    OpCase c;
    c.name = text("%s, %u values%s", act == act_silu ? "silu" : "gelu", n,
                  place == Place::in_place ? ", in place" : "");
    c.timed = timed;
    c.bytes = 12.0 * n;
    c.flops = 10.0 * n;
    c.prepare = [=](Bench& bench) {
        Tensor g = bench.input(1, n, *gate), u = bench.input(1, n, *up);
        Tensor y = place == Place::in_place ? g : bench.output(1, n);
        bench.will_change(y);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->glu(a, y, g, u); }, {y}};
    };
    c.formula = [=] {
        std::vector<double> out;
        for (uint32_t i = 0; i < n; i++) {
            double g = (*gate)[i],
                   inner = std::sqrt(2 / std::acos(-1.0)) * (g + 0.044715 * std::pow(g, 3));
            out.push_back(
                (act == act_silu ? g * (1 / (1 + std::exp(-g))) : g / 2 * (1 + std::tanh(inner))) *
                (*up)[i]);
        }
        return out;
    };
    return c;
}

TEST_CASE("glu")
{
    std::vector<OpCase> cases;
    for (uint32_t act : {act_silu, act_gelu}) {
        for (uint32_t n : {1u, 7u, 8u, 1000u, 30011u})
            cases.push_back(glu_case(n, act, n % 2 ? Place::apart : Place::in_place));
        cases.push_back(glu_case(2048, act, Place::apart, true));
        cases.push_back(glu_case(256 * 2048, act, Place::apart, true));
    }
    check_ops("glu", cases);
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

enum class KvPlace { ring, table, staged };

static OpCase kv_write_case(Format format, KvPlace place, uint32_t n_tokens, uint32_t n_kv_heads,
                            uint32_t head_dim, uint32_t n_rows, uint32_t before,
                            uint32_t n_pinned = 0)
{
    Random random(n_tokens + head_dim);
    auto x = share(random.normals(uint64_t(n_tokens) * n_kv_heads * head_dim));
    auto y = share(random.normals(x->size())),
         old = share(random.normals(uint64_t(n_kv_heads) * n_rows * head_dim));
    const float edges[] = {65504.f, 65519.9f, 65520.f,       -1e6f, 1e-8f,
                           -3e-8f,  6.1e-5f,  1.00048828125f}; // near the ends and the ties of f16
    for (size_t i = 0; i < x->size() && i < 8; i++) (*x)[i] = edges[i];
    std::vector<uint32_t> table, head_layout,
        rows; // rows (n_kv_heads, n_tokens): the tokens' target rows
    for (uint32_t i = 0; i < n_kv_heads * n_rows; i++) table.push_back(n_kv_heads * n_rows - 1 - i);
    for (uint32_t h = 0; h < n_kv_heads; h++) {
        head_layout.insert(head_layout.end(), {before, h * n_rows, 0, 0, 0});
        for (uint32_t t = 0; t < n_tokens; t++) {
            const uint32_t index = before + t;
            const uint32_t ring =
                index < n_pinned ? index : n_pinned + (index - n_pinned) % (n_rows - n_pinned);
            rows.push_back(place == KvPlace::table
                               ? table[h * n_rows + index]
                               : h * n_rows + (place == KvPlace::staged ? t : ring));
        }
    }
    KvWriteArgs a{n_tokens, n_kv_heads, head_dim, n_rows, n_pinned, place == KvPlace::staged};
    OpCase c;
    c.name =
        text("%s, place %d, %u tokens at %u, %u heads of %u, %u rows", format_info(format).name,
             int(place), n_tokens, before, n_kv_heads, head_dim, n_rows);
    c.bound = kExact;
    c.prepare = [=](Bench& bench) {
        Tensor keys = bench.input(n_kv_heads * n_rows, head_dim, *old, format),
               values = bench.input(n_kv_heads * n_rows, head_dim, *old);
        Tensor from = bench.input(n_tokens, n_kv_heads * head_dim, *x),
               other = bench.input(n_tokens, n_kv_heads * head_dim, *y);
        Tensor lines = place == KvPlace::table ? bench.words(table) : Tensor(),
               views = bench.words(head_layout);
        bench.will_change(keys);
        bench.will_change(values);
        Backend* backend = &bench.backend();
        return Prepared{[=] {
                            backend->kv_write(a, {keys, values}, {from, other}, lines, views);
                        },
                        {keys, values}};
    };
    c.formula = [=] {
        std::vector<double> out(old->begin(), old->end()), values = out;
        for (uint32_t t = 0; t < n_tokens; t++)
            for (uint32_t h = 0; h < n_kv_heads; h++)
                for (uint32_t i = 0; i < head_dim; i++) {
                    const uint64_t to = uint64_t(rows[h * n_tokens + t]) * head_dim + i,
                                   from = (uint64_t(t) * n_kv_heads + h) * head_dim + i;
                    out[to] = (*x)[from];
                    values[to] = (*y)[from];
                }
        if (format == Format::f16)
            for (double& value : out) value = HALF_TO_FLOAT(FLOAT_TO_HALF(float(value)));
        out.insert(out.end(), values.begin(), values.end());
        return out;
    };
    return c;
}

TEST_CASE("kv_write")
{
    std::vector<OpCase> cases;
    for (Format format : {Format::f16, Format::f32}) {
        cases.push_back(kv_write_case(format, KvPlace::ring, 1, 3, 64, 17, 5));
        cases.push_back(kv_write_case(format, KvPlace::ring, 1, 1, 256, 8, 800007));
        cases.push_back(kv_write_case(format, KvPlace::ring, 9, 2, 80, 20, 15)); // wraps
        cases.push_back(kv_write_case(format, KvPlace::ring, 9, 2, 80, 20, 15,
                                      4)); // wraps to the first row that is not pinned
        cases.push_back(kv_write_case(format, KvPlace::ring, 6, 5, 7, 6, 3)); // every row
        cases.push_back(kv_write_case(format, KvPlace::ring, 100, 4, 96, 128, 0));
        cases.push_back(kv_write_case(format, KvPlace::table, 1, 3, 64, 40, 39));
        cases.push_back(kv_write_case(format, KvPlace::table, 30, 3, 64, 40, 7));
        cases.push_back(kv_write_case(format, KvPlace::staged, 30, 3, 64, 32, 700));
    }
    check_ops("kv_write", cases);
}

static OpCase kv_rows_case(Format format, bool move)
{
    constexpr uint32_t head_dim = 72, n_rows = 50, n = 20;
    Random random(5);
    auto from = share(random.normals(n_rows * head_dim)),
         old = share(random.normals(n_rows * head_dim));
    if (format == Format::f16)
        for (auto values : {from, old})
            for (float& value : *values) value = HALF_TO_FLOAT(FLOAT_TO_HALF(value));
    std::vector<uint32_t> rows, moves;
    for (uint32_t i = 0; i < n; i++) {
        rows.push_back((i * 7) % n_rows);
        moves.insert(moves.end(), {rows.back(), (i * 3 + 1) % n_rows});
    }
    OpCase c;
    c.name = text("%s %s", format_info(format).name, move ? "move" : "read");
    c.bound = kExact;
    c.prepare = [=](Bench& bench) {
        Tensor source = bench.input(n_rows, head_dim, *from, format);
        Tensor to = move ? bench.input(n_rows, head_dim, *old, format) : bench.output(n, head_dim);
        Tensor list = bench.words(move ? moves : rows);
        if (move) bench.will_change(to);
        Backend* backend = &bench.backend();
        return Prepared{[=] {
                            if (move) return backend->kv_move({n, head_dim}, to, source, list);
                            backend->kv_read({n, head_dim}, to, source, list);
                        },
                        {to}};
    };
    c.formula = [=] {
        std::vector<double> out(move ? old->begin() : from->begin(),
                                move ? old->end() : from->begin() + n * head_dim);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < head_dim; k++)
                out[(move ? moves[2 * i + 1] : i) * head_dim + k] = (*from)[rows[i] * head_dim + k];
        return out;
    };
    return c;
}

TEST_CASE("kv_read and kv_move")
{
    for (bool move : {false, true})
        check_ops(move ? "kv_move" : "kv_read",
                  {kv_rows_case(Format::f16, move), kv_rows_case(Format::f32, move)});
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
        cases.push_back(argmax_case("-inf but one", 1, cols, [](float* row, uint32_t n) {
            std::fill(row, row + n, -std::numeric_limits<float>::infinity());
            row[n / 2] = -1e30f;
        }));
        cases.push_back(argmax_case("nothing but -inf", 1, cols, [](float* row, uint32_t n) {
            std::fill(row, row + n, -std::numeric_limits<float>::infinity());
        }));
        cases.push_back(argmax_case("zeros of both signs", 1, cols, [](float* row, uint32_t n) {
            for (uint32_t i = 0; i < n; i++) row[i] = i % 2 ? 0.f : -0.f;
        }));
    }
    check_ops("argmax", cases);
}
