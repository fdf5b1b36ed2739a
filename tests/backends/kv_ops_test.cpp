// kv_write, kv_read and kv_move on caches of f16 and f32.
#include "kernels/common/lang.h"
#include "tests/backends/op_cases.h"

#include <doctest/doctest.h>

using namespace ks;

enum class KvPlace { ring, table, staged };

// Keys are stored in `format`, values in f32.
struct KvWrite {
    Format format;
    KvPlace place;
    uint32_t n_tokens, n_kv_heads, head_dim;
    uint32_t n_rows; // per head
    uint32_t before;
    uint32_t n_pinned = 0;
};

struct KvWriteData {
    std::vector<float> k, v; // (n_tokens, n_kv_heads, head_dim)
    std::vector<float> old;  // both pools before the op
    std::vector<uint32_t> table, head_layout;
    std::vector<uint32_t> rows; // (n_kv_heads, n_tokens): the row that each token goes to
};

static uint32_t row_of(const KvWrite& w, const KvWriteData& data, uint32_t head, uint32_t t)
{
    const uint32_t index = w.before + t, first = head * w.n_rows;
    if (w.place == KvPlace::table) return data.table[first + index];
    if (w.place == KvPlace::staged) return first + t;
    return first + (index < w.n_pinned
                        ? index
                        : w.n_pinned + (index - w.n_pinned) % (w.n_rows - w.n_pinned));
}

static KvWriteData make_data(const KvWrite& w)
{
    Random random(w.n_tokens + w.head_dim);
    KvWriteData data;
    data.k = random.normals(uint64_t(w.n_tokens) * w.n_kv_heads * w.head_dim);
    data.v = random.normals(data.k.size());
    data.old = random.normals(uint64_t(w.n_kv_heads) * w.n_rows * w.head_dim);
    // Near the limits of f16, and ties of its rounding.
    const float edges[] = {65504.f, 65519.9f, 65520.f, -1e6f,
                           1e-8f,   -3e-8f,   6.1e-5f, 1.00048828125f};
    for (size_t i = 0; i < data.k.size() && i < 8; i++) data.k[i] = edges[i];
    const uint32_t n = w.n_kv_heads * w.n_rows;
    for (uint32_t i = 0; i < n; i++) data.table.push_back(n - 1 - i);
    for (uint32_t h = 0; h < w.n_kv_heads; h++) {
        data.head_layout.insert(data.head_layout.end(), {w.before, h * w.n_rows, 0, 0, 0});
        for (uint32_t t = 0; t < w.n_tokens; t++) data.rows.push_back(row_of(w, data, h, t));
    }
    return data;
}

static Prepared prepare_write(const KvWrite& w, const KvWriteData& data, Bench& bench)
{
    const KvWriteArgs a{w.n_tokens, w.n_kv_heads, w.head_dim,
                        w.n_rows,   w.n_pinned,   w.place == KvPlace::staged};
    const uint32_t n = w.n_kv_heads * w.n_rows, width = w.n_kv_heads * w.head_dim;
    Tensor keys = bench.input(n, w.head_dim, data.old, w.format),
           values = bench.input(n, w.head_dim, data.old);
    Tensor k = bench.input(w.n_tokens, width, data.k), v = bench.input(w.n_tokens, width, data.v);
    Tensor table = w.place == KvPlace::table ? bench.words(data.table) : Tensor(),
           head_layout = bench.words(data.head_layout);
    bench.will_change(keys);
    bench.will_change(values);
    Backend* backend = &bench.backend();
    return Prepared{[=] {
                        backend->kv_write(a, {keys, values}, {k, v}, table, head_layout);
                    },
                    {keys, values}};
}

static std::vector<double> written(const KvWrite& w, const KvWriteData& data)
{
    std::vector<double> out(data.old.begin(), data.old.end()), values = out;
    for (uint32_t t = 0; t < w.n_tokens; t++)
        for (uint32_t h = 0; h < w.n_kv_heads; h++)
            for (uint32_t i = 0; i < w.head_dim; i++) {
                const uint64_t to = uint64_t(data.rows[h * w.n_tokens + t]) * w.head_dim + i,
                               from = (uint64_t(t) * w.n_kv_heads + h) * w.head_dim + i;
                out[to] = data.k[from];
                values[to] = data.v[from];
            }
    if (w.format == Format::f16)
        for (double& value : out) value = HALF_TO_FLOAT(FLOAT_TO_HALF(float(value)));
    out.insert(out.end(), values.begin(), values.end());
    return out;
}

static OpCase kv_write_case(const KvWrite& w)
{
    const auto data = share(make_data(w));
    OpCase c;
    c.name =
        text("%s, place %d, %u tokens at %u, %u heads of %u, %u rows", format_info(w.format).name,
             int(w.place), w.n_tokens, w.before, w.n_kv_heads, w.head_dim, w.n_rows);
    c.bound = kExact;
    c.prepare = [=](Bench& bench) { return prepare_write(w, *data, bench); };
    c.formula = [=] { return written(w, *data); };
    return c;
}

TEST_CASE("kv_write")
{
    std::vector<OpCase> cases;
    for (Format format : {Format::f16, Format::f32}) {
        cases.push_back(kv_write_case({format, KvPlace::ring, 1, 3, 64, 17, 5}));
        cases.push_back(kv_write_case({format, KvPlace::ring, 1, 1, 256, 8, 800007}));
        cases.push_back(kv_write_case({format, KvPlace::ring, 9, 2, 80, 20, 15})); // wraps
        // Wraps to the first row that is not pinned.
        cases.push_back(kv_write_case({format, KvPlace::ring, 9, 2, 80, 20, 15, 4}));
        cases.push_back(kv_write_case({format, KvPlace::ring, 6, 5, 7, 6, 3})); // every row
        cases.push_back(kv_write_case({format, KvPlace::ring, 100, 4, 96, 128, 0}));
        cases.push_back(kv_write_case({format, KvPlace::table, 1, 3, 64, 40, 39}));
        cases.push_back(kv_write_case({format, KvPlace::table, 30, 3, 64, 40, 7}));
        cases.push_back(kv_write_case({format, KvPlace::staged, 30, 3, 64, 32, 700}));
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
