// The ops on coded caches: kv_write, kv_move, kv_read, and rotate.
#include "tests/backends/coded_rows.h"

#include <cmath>
#include <doctest/doctest.h>
#include <limits>

using namespace ks;

// By the description in codecs.h.
static void put_row(std::vector<uint8_t>& cache, uint64_t n_rows, uint64_t row, const std::vector<uint8_t>& bytes)
{
    const uint64_t words = bytes.size() / 4 * 4, tail = bytes.size() % 4;
    memcpy(&cache[row * words], bytes.data(), words);
    if (tail) memcpy(&cache[n_rows * words + row * tail], bytes.data() + words, tail);
}

// n_rows rows of random values, encoded.
static std::vector<uint8_t> random_cache(Format format, uint32_t n_rows, uint32_t d, uint64_t seed)
{
    Random random(seed);
    std::vector<uint8_t> cache(coded_bytes(format, n_rows, d));
    for (uint32_t r = 0; r < n_rows; r++) put_row(cache, n_rows, r, encode(format, random.normals(d).data(), d));
    return cache;
}

static std::vector<double> as_doubles(const std::vector<uint8_t>& bytes)
{
    return std::vector<double>(bytes.begin(), bytes.end());
}

// Tokens at 7, in a ring that wraps or through a table.
static OpCase kv_write_case(Format format, uint32_t d, uint32_t n_tokens, bool with_table)
{
    const uint32_t n_heads = 2, n_rows = n_tokens + 9, before = with_table ? 7 : n_rows - 2, n = n_heads * n_rows;
    Random random(d + n_tokens);
    auto x = std::make_shared<std::vector<float>>(random.normals(uint64_t(n_tokens) * n_heads * d, 3));
    const float inf = std::numeric_limits<float>::infinity();
    const float edges[] = {NAN, inf, -inf, 1e-30f, -0.f, 65504.f, 1e20f, -1e-8f};
    for (int i = 0; i < 8 && n_tokens > 2; i++) (*x)[i * (d + 3)] = edges[i];
    const std::vector<uint8_t> old = random_cache(format, n, d, 1);
    std::vector<uint32_t> table, view(n_heads * view_words);
    for (uint32_t h = 0; h < n_heads; h++) view[h * view_words + view_before] = before, view[h * view_words + view_begin] = h * n_rows;
    for (uint32_t i = 0; i < n; i++) table.push_back(n - 1 - i);
    OpCase c;
    c.name = name_of(format, d) + ", " + std::to_string(n_tokens) + " tokens";
    c.bound = kExact;
    c.prepare = [=](Bench& bench) {
        Tensor to = bench.coded(format, n, d, old), from = bench.input(n_tokens, n_heads * d, *x);
        Tensor lines = with_table ? bench.words(table) : Tensor(), views = bench.words(view);
        bench.will_change(to);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->kv_write({n_tokens, n_heads, d, n_rows, 0, 0}, to, from, lines, views); }, {to}};
    };
    c.formula = [=] {
        std::vector<uint8_t> out = old;
        for (uint32_t t = 0; t < n_tokens; t++)
            for (uint32_t h = 0; h < n_heads; h++) {
                const uint32_t row = with_table ? table[h * n_rows + before + t] : h * n_rows + (before + t) % n_rows;
                put_row(out, n, row, encode(format, &(*x)[(t * n_heads + h) * d], d));
            }
        return as_doubles(out);
    };
    return c;
}

TEST_CASE("codecs: kv_write")
{
    std::vector<OpCase> cases;
    for (Format format : all_codecs())
        for (uint32_t d : kHeadDims) {
            cases.push_back(kv_write_case(format, d, 1, true));
            cases.push_back(kv_write_case(format, d, 40, d % 3 == 0));
        }
    check_ops("kv_write", cases);
}

enum class From { same, f16, f32 };

static OpCase kv_move_case(Format format, uint32_t d, From kind)
{
    constexpr uint32_t n_from = 50, n_to = 37, n = 30;
    auto x = std::make_shared<std::vector<float>>(Random(d).normals(n_from * d));
    const std::vector<uint8_t> old = random_cache(format, n_to, d, 1), source = random_cache(format, n_from, d, 2);
    if (kind == From::f16)
        for (float& v : *x) v = HALF_TO_FLOAT(FLOAT_TO_HALF(v));
    std::vector<uint32_t> moves;
    for (uint32_t i = 0; i < n; i++) moves.insert(moves.end(), {(i * 7) % n_from, (i * 5 + 1) % n_to});
    OpCase c;
    c.name = name_of(format, d) + ", from " + std::to_string(int(kind));
    c.bound = kExact;
    c.prepare = [=](Bench& bench) {
        Tensor from = kind == From::same ? bench.coded(format, n_from, d, source)
                                         : bench.input(n_from, d, *x, kind == From::f16 ? Format::f16 : Format::f32);
        Tensor to = bench.coded(format, n_to, d, old), list = bench.words(moves);
        bench.will_change(to);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->kv_move({n, d}, to, from, list); }, {to}};
    };
    c.formula = [=] {
        std::vector<uint8_t> out = old;
        const uint64_t bytes = codec_info(format).row_bytes(d), words = bytes / 4 * 4, tail = bytes % 4;
        for (uint32_t i = 0; i < n; i++) {
            const uint64_t row = moves[2 * i];
            std::vector<uint8_t> code(&source[row * words], &source[row * words] + words);
            code.insert(code.end(), &source[n_from * words + row * tail], &source[n_from * words + row * tail] + tail);
            put_row(out, n_to, moves[2 * i + 1], kind == From::same ? code : encode(format, &(*x)[row * d], d));
        }
        return as_doubles(out);
    };
    return c;
}

static OpCase kv_read_case(Format format, uint32_t d)
{
    constexpr uint32_t n_rows = 50, n = 43;
    const std::vector<uint8_t> source = random_cache(format, n_rows, d, 2);
    std::vector<uint32_t> rows;
    for (uint32_t i = 0; i < n; i++) rows.push_back(i * 7 % n_rows);
    OpCase c;
    c.name = name_of(format, d);
    c.bound = kExact;
    c.prepare = [=](Bench& bench) {
        Tensor from = bench.coded(format, n_rows, d, source), y = bench.output(n, d), list = bench.words(rows);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->kv_read({n, d}, y, from, list); }, {y}};
    };
    c.formula = [=] {
        Random random(2);
        std::vector<std::vector<float>> decoded;
        for (uint32_t r = 0; r < n_rows; r++) decoded.push_back(decode(format, encode(format, random.normals(d).data(), d), d));
        std::vector<double> out;
        for (uint32_t row : rows) out.insert(out.end(), decoded[row].begin(), decoded[row].end());
        return out;
    };
    return c;
}

TEST_CASE("codecs: kv_move and kv_read")
{
    std::vector<OpCase> moves, reads;
    for (Format format : all_codecs())
        for (uint32_t d : kHeadDims) {
            for (From kind : {From::same, From::f16, From::f32}) moves.push_back(kv_move_case(format, d, kind));
            reads.push_back(kv_read_case(format, d));
        }
    check_ops("kv_move", moves);
    check_ops("kv_read", reads);
}

// y = H D x in float64, H[i][j] = (-1)^(bits that i and j share) / sqrt(block).
static std::vector<double> rotated(const float* x, uint32_t d, bool inverse)
{
    std::vector<double> y(d);
    for (uint32_t base = 0, left = d, block; left; base += block, left -= block) {
        block = 1;
        while (block * 2 <= left) block *= 2;
        for (uint32_t i = 0; i < block; i++)
            for (uint32_t j = 0; j < block; j++) {
                const double sign = (__builtin_popcount(i & j) % 2 ? -1 : 1) * rotate_sign(base + (inverse ? i : j));
                y[base + i] += sign * x[base + j] / std::sqrt(double(block));
            }
    }
    return y;
}

static OpCase rotate_case(uint32_t n_tokens, uint32_t n_heads, uint32_t d, bool inverse, bool timed = false)
{
    auto x = std::make_shared<std::vector<float>>(Random(d).normals(uint64_t(n_tokens) * n_heads * d));
    OpCase c;
    c.name =
        std::to_string(n_tokens) + " tokens, " + std::to_string(n_heads) + " heads of " + std::to_string(d) + (inverse ? ", back" : "");
    c.bound = kExact;
    c.timed = timed;
    c.bytes = 8.0 * n_tokens * n_heads * d;
    c.prepare = [=](Bench& bench) {
        Tensor y = bench.input(n_tokens, n_heads * d, *x);
        bench.will_change(y);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->rotate({n_tokens, n_heads, d, inverse}, y); }, {y}};
    };
    c.formula = [=] {
        std::vector<double> out;
        for (uint64_t i = 0; i < x->size(); i += d) {
            std::vector<double> y = rotated(&(*x)[i], d, inverse);
            out.insert(out.end(), y.begin(), y.end());
        }
        return out;
    };
    return c;
}

TEST_CASE("rotate")
{
    std::vector<OpCase> cases;
    for (uint32_t d : {2u, 7u, 8u, 16u, 32u, 40u, 64u, 72u, 80u, 96u, 100u, 128u, 192u, 256u, 512u})
        for (bool inverse : {false, true}) cases.push_back(rotate_case(d == 96 ? 50 : 3, 3, d, inverse));
    for (uint32_t n_tokens : {1u, 256u}) cases.push_back(rotate_case(n_tokens, 9, 64, false, true));
    for (OpCase& c : cases) c.energy = 0;
    check_ops("rotate", cases);
}

TEST_CASE("rotate: back is back")
{
    Bench bench("cpu", 1);
    for (uint32_t d : kHeadDims) {
        const std::vector<float> x = Random(d).normals(5 * d);
        Tensor t = bench.input(5, d, x);
        bench.backend().rotate({5, 1, d, 0}, t);
        bench.backend().rotate({5, 1, d, 1}, t);
        const std::vector<float> y = bench.read(t);
        for (uint32_t i = 0; i < 5 * d; i++) CHECK(std::fabs(x[i] - y[i]) < 2e-6f);
    }
}
