// The ops on coded caches: kv_write, kv_move, kv_read; and what is rotated.
#include "backends/reference/reference_backend.h"
#include "tests/backends/attention_cases.h"

#include <cmath>
#include <doctest/doctest.h>
#include <limits>

using namespace ks;

// By the description in codecs.h.
static void put_row(std::vector<uint8_t>& cache, uint64_t n_rows, uint64_t row,
                    const std::vector<uint8_t>& bytes)
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
    for (uint32_t r = 0; r < n_rows; r++)
        put_row(cache, n_rows, r, encode(format, random.normals(d).data(), d));
    return cache;
}

static std::vector<double> as_doubles(const std::vector<uint8_t>& bytes)
{
    return std::vector<double>(bytes.begin(), bytes.end());
}

// Tokens at 7, in a ring that wraps or through a table: keys in codes and values of f32, or the
// other way about.
static OpCase kv_write_case(Format format, uint32_t d, uint32_t n_tokens, bool with_table,
                            bool as_keys)
{
    const uint32_t n_heads = 2, n_rows = n_tokens + 9, before = with_table ? 7 : n_rows - 2,
                   n = n_heads * n_rows;
    Random random(d + n_tokens);
    auto x =
        std::make_shared<std::vector<float>>(random.normals(uint64_t(n_tokens) * n_heads * d, 3));
    auto y = std::make_shared<std::vector<float>>(random.normals(x->size())),
         rest = std::make_shared<std::vector<float>>(random.normals(uint64_t(n) * d));
    const float inf = std::numeric_limits<float>::infinity();
    const float edges[] = {NAN, inf, -inf, 1e-30f, -0.f, 65504.f, 1e20f, -1e-8f};
    for (int i = 0; i < 8 && n_tokens > 2; i++) (*x)[i * (d + 3)] = edges[i];
    const std::vector<uint8_t> old = random_cache(format, n, d, 1);
    std::vector<uint32_t> table, head_layout(n_heads * layout_words);
    for (uint32_t h = 0; h < n_heads; h++)
        head_layout[h * layout_words + layout_n_held] = before,
                                       head_layout[h * layout_words + layout_table_begin] =
                                           h * n_rows;
    for (uint32_t i = 0; i < n; i++) table.push_back(n - 1 - i);
    OpCase c;
    c.name = name_of(format, d) + ", " + std::to_string(n_tokens) + " tokens";
    c.bound = kExact;
    c.prepare = [=](Bench& bench) {
        Tensor to = bench.coded(format, n, d, old), plain = bench.input(n, d, *rest);
        Tensor x_coded = bench.input(n_tokens, n_heads * d, *x),
               x_plain = bench.input(n_tokens, n_heads * d, *y);
        Tensor lines = with_table ? bench.words(table) : Tensor(), views = bench.words(head_layout);
        bench.will_change(to);
        bench.will_change(plain);
        Backend* backend = &bench.backend();
        const KvPair rows = as_keys ? KvPair{to, plain} : KvPair{plain, to},
                     from = as_keys ? KvPair{x_coded, x_plain} : KvPair{x_plain, x_coded};
        return Prepared{
            [=] {
                backend->kv_write({n_tokens, n_heads, d, n_rows, 0, 0}, rows, from, lines, views);
            },
            {to, plain}};
    };
    c.formula = [=] {
        std::vector<uint8_t> coded = old;
        std::vector<double> out, plain(rest->begin(), rest->end());
        for (uint32_t t = 0; t < n_tokens; t++)
            for (uint32_t h = 0; h < n_heads; h++) {
                const uint32_t row = with_table ? table[h * n_rows + before + t]
                                                : h * n_rows + (before + t) % n_rows;
                const uint64_t at = (uint64_t(t) * n_heads + h) * d;
                put_row(coded, n, row, encode(format, &(*x)[at], d));
                std::copy_n(&(*y)[at], d, plain.begin() + long(uint64_t(row) * d));
            }
        out = as_doubles(coded);
        out.insert(out.end(), plain.begin(), plain.end());
        return out;
    };
    return c;
}

TEST_CASE("codecs: kv_write")
{
    std::vector<OpCase> cases;
    for (Format format : all_codecs())
        for (uint32_t d : kHeadDims) {
            cases.push_back(kv_write_case(format, d, 1, true, d % 5 == 0));
            cases.push_back(kv_write_case(format, d, 40, d % 3 == 0, d % 5 != 0));
        }
    check_ops("kv_write", cases);
}

enum class From { same, f16, f32 };

static OpCase kv_move_case(Format format, uint32_t d, From kind)
{
    constexpr uint32_t n_from = 50, n_to = 37, n = 30;
    auto x = std::make_shared<std::vector<float>>(Random(d).normals(n_from * d));
    const std::vector<uint8_t> old = random_cache(format, n_to, d, 1),
                               source = random_cache(format, n_from, d, 2);
    if (kind == From::f16)
        for (float& v : *x) v = HALF_TO_FLOAT(FLOAT_TO_HALF(v));
    std::vector<uint32_t> moves;
    for (uint32_t i = 0; i < n; i++)
        moves.insert(moves.end(), {(i * 7) % n_from, (i * 5 + 1) % n_to});
    OpCase c;
    c.name = name_of(format, d) + ", from " + std::to_string(int(kind));
    c.bound = kExact;
    c.prepare = [=](Bench& bench) {
        Tensor from =
            kind == From::same
                ? bench.coded(format, n_from, d, source)
                : bench.input(n_from, d, *x, kind == From::f16 ? Format::f16 : Format::f32);
        Tensor to = bench.coded(format, n_to, d, old), list = bench.words(moves);
        bench.will_change(to);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->kv_move({n, d}, to, from, list); }, {to}};
    };
    c.formula = [=] {
        std::vector<uint8_t> out = old;
        const uint64_t bytes = codec_info(format).row_bytes(d), words = bytes / 4 * 4,
                       tail = bytes % 4;
        for (uint32_t i = 0; i < n; i++) {
            const uint64_t row = moves[2 * i];
            std::vector<uint8_t> code(&source[row * words], &source[row * words] + words);
            code.insert(code.end(), &source[n_from * words + row * tail],
                        &source[n_from * words + row * tail] + tail);
            put_row(out, n_to, moves[2 * i + 1],
                    kind == From::same ? code : encode(format, &(*x)[row * d], d));
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
        Tensor from = bench.coded(format, n_rows, d, source), y = bench.output(n, d),
               list = bench.words(rows);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->kv_read({n, d}, y, from, list); }, {y}};
    };
    c.formula = [=] {
        Random random(2);
        std::vector<std::vector<float>> decoded;
        for (uint32_t r = 0; r < n_rows; r++)
            decoded.push_back(decode(format, encode(format, random.normals(d).data(), d), d));
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
            for (From kind : {From::same, From::f16, From::f32})
                moves.push_back(kv_move_case(format, d, kind));
            reads.push_back(kv_read_case(format, d));
        }
    check_ops("kv_move", moves);
    check_ops("kv_read", reads);
}

// Rotated by rope, which turns nothing; or back by attention, whose tokens see nothing but
// themselves.
static OpCase hadamard_case(uint32_t n_tokens, uint32_t n_heads, uint32_t d, bool back,
                            bool timed = false)
{
    auto x =
        std::make_shared<std::vector<float>>(Random(d).normals(uint64_t(n_tokens) * n_heads * d));
    OpCase c;
    c.name = std::to_string(n_tokens) + " tokens, " + std::to_string(n_heads) + " heads of " +
             std::to_string(d) + (back ? ", back" : "");
    c.bound = kExact;
    c.timed = timed;
    c.bytes = 8.0 * n_tokens * n_heads * d;
    c.prepare = [=](Bench& bench) {
        Tensor y = bench.input(n_tokens, n_heads * d, *x);
        bench.will_change(y);
        Backend* backend = &bench.backend();
        const RopeTarget target{{n_tokens, n_heads, d, 0, 0, 0, 1}, y, y, {}};
        if (!back) return Prepared{[=] { backend->rope(&target, 1); }, {y}};
        AttentionShape s = shape(n_tokens, 0, n_heads, n_heads, d, 0, 1);
        s.a.hadamard = 1;
        bench.scratch(scratch_of(s));
        std::vector<float> rows(x->size()); // of heads, then of tokens
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
            std::vector<double> y = hadamard(&(*x)[i], d, back);
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
        for (bool back : {false, true})
            cases.push_back(hadamard_case(d == 96 ? 50 : 3, 3, d, back));
    for (uint32_t n_tokens : {1u, 256u})
        cases.push_back(hadamard_case(n_tokens, 9, 64, false, true));
    check_ops("rotate", cases);
}

// Queries turned and, like keys, which are turned in place, rotated if `keys`; values rotated in
// place, or for want of `values` not there.
static OpCase rope_targets_case(uint32_t n_tokens, uint32_t d, uint32_t n_rot, uint32_t pairs,
                                bool keys, bool values)
{
    Random random(d + n_rot);
    auto q = std::make_shared<std::vector<float>>(random.normals(uint64_t(n_tokens) * 6 * d)),
         angles = std::make_shared<std::vector<float>>();
    auto k = std::make_shared<std::vector<float>>(random.normals(uint64_t(n_tokens) * 2 * d));
    auto v = std::make_shared<std::vector<float>>(random.normals(k->size()));
    for (uint32_t i = 0; i < n_tokens * n_rot / 2; i++) {
        const double x = random.uniform(-3, 3);
        angles->insert(angles->end(), {float(std::cos(x)), float(std::sin(x))});
    }
    OpCase c;
    c.name = std::to_string(n_tokens) + " tokens, heads of " + std::to_string(d) + ", " +
             std::to_string(n_rot) + " turn" + (keys ? ", keys rotated" : "") +
             (values ? ", values rotated" : "");
    c.prepare = [=](Bench& bench) {
        Tensor from = bench.input(n_tokens, 6 * d, *q), to = bench.output(n_tokens, 6 * d),
               by = bench.input(n_tokens, n_rot, *angles);
        Tensor same = bench.input(n_tokens, 2 * d, *k), still = bench.input(n_tokens, 2 * d, *v);
        bench.will_change(same);
        bench.will_change(still);
        Backend* backend = &bench.backend();
        auto run = [=] {
            const RopeTarget targets[] = {{{n_tokens, 6, d, n_rot, pairs, 0, keys}, to, from, by},
                                          {{n_tokens, 2, d, n_rot, pairs, 0, keys}, same, same, by},
                                          {{n_tokens, 2, d, 0, pairs, 0, 1}, still, still, {}}};
            backend->rope(targets, values ? 3 : 2);
        };
        return Prepared{run, {to, same, still}};
    };
    c.formula = [=] {
        std::vector<double> out;
        for (const auto& x : {q, k, v})
            for (uint64_t i = 0; i < x->size(); i += d) {
                std::vector<float> head(x->begin() + long(i), x->begin() + long(i + d));
                const float* by = &(*angles)[i / (x->size() / n_tokens) * n_rot];
                for (uint32_t p = 0; p < n_rot / 2 && x != v; p++) {
                    float &first = head[pairs == rope_neox ? p : 2 * p],
                          &second = head[pairs == rope_neox ? p + n_rot / 2 : 2 * p + 1];
                    const double a = first, b = second;
                    first = float(a * by[2 * p] - b * by[2 * p + 1]);
                    second = float(a * by[2 * p + 1] + b * by[2 * p]);
                }
                std::vector<double> y(head.begin(), head.end());
                if (x == v ? values : keys) y = hadamard(head.data(), d, false);
                out.insert(out.end(), y.begin(), y.end());
            }
        return out;
    };
    return c;
}

TEST_CASE("rope: several tensors, rotated")
{
    std::vector<OpCase> cases;
    for (uint32_t d : {16u, 64u, 80u, 96u, 128u, 192u, 256u, 512u})
        for (uint32_t pairs : {rope_interleaved, rope_neox})
            for (uint32_t n_tokens : {1u, 21u})
                for (uint32_t hadamard : {0u, 1u, 2u, 3u})
                    cases.push_back(rope_targets_case(n_tokens, d, d % 3 ? d : d / 2, pairs,
                                                      hadamard % 2, hadamard / 2));
    check_ops("rope", cases);
}

TEST_CASE("rotate: back is back")
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
