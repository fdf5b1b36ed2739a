// The ops on coded caches: kv_write, kv_move, kv_read.
#include "tests/backends/coded_rows.h"
#include "tests/backends/op_harness.h"

#include <cmath>
#include <doctest/doctest.h>
#include <limits>

using namespace ks;

// Stores an encoded row in the layout of coded_row (codec_rows.h): the words of all rows, then the
// tails.
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

constexpr uint32_t kWriteHeads = 2;

// Keys are coded and values f32, or the other way round. Tokens go through a table or into a ring
// that wraps.
struct CodedWrite {
    Format format;
    uint32_t d, n_tokens;
    bool with_table, as_keys;
    uint32_t n_rows() const { return n_tokens + 9; } // per head
    uint32_t n() const { return kWriteHeads * n_rows(); }
    uint32_t before() const { return with_table ? 7 : n_rows() - 2; }
};

struct CodedWriteData {
    std::vector<float> to_coded, to_plain; // (n_tokens, heads, d)
    std::vector<float> plain;              // the plain pool before the op
    std::vector<uint8_t> coded;            // the coded pool before the op
    std::vector<uint32_t> table, head_layout;
};

static std::shared_ptr<CodedWriteData> make_data(const CodedWrite& w)
{
    Random random(w.d + w.n_tokens);
    auto data = std::make_shared<CodedWriteData>();
    data->to_coded = random.normals(uint64_t(w.n_tokens) * kWriteHeads * w.d, 3);
    data->to_plain = random.normals(data->to_coded.size());
    data->plain = random.normals(uint64_t(w.n()) * w.d);
    const float inf = std::numeric_limits<float>::infinity();
    const float edges[] = {NAN, inf, -inf, 1e-30f, -0.f, 65504.f, 1e20f, -1e-8f};
    for (int i = 0; i < 8 && w.n_tokens > 2; i++) data->to_coded[i * (w.d + 3)] = edges[i];
    data->coded = random_cache(w.format, w.n(), w.d, 1);
    for (uint32_t i = 0; i < w.n(); i++) data->table.push_back(w.n() - 1 - i);
    for (uint32_t h = 0; h < kWriteHeads; h++)
        data->head_layout.insert(data->head_layout.end(), {w.before(), h * w.n_rows(), 0, 0, 0});
    return data;
}

static Prepared prepare_write(const CodedWrite& w, const CodedWriteData& data, Bench& bench)
{
    Tensor coded = bench.coded(w.format, w.n(), w.d, data.coded),
           plain = bench.input(w.n(), w.d, data.plain);
    Tensor to_coded = bench.input(w.n_tokens, kWriteHeads * w.d, data.to_coded),
           to_plain = bench.input(w.n_tokens, kWriteHeads * w.d, data.to_plain);
    Tensor table = w.with_table ? bench.words(data.table) : Tensor(),
           head_layout = bench.words(data.head_layout);
    bench.will_change(coded);
    bench.will_change(plain);
    Backend* backend = &bench.backend();
    const KvPair to = w.as_keys ? KvPair{coded, plain} : KvPair{plain, coded},
                 x = w.as_keys ? KvPair{to_coded, to_plain} : KvPair{to_plain, to_coded};
    const KvWriteArgs a{w.n_tokens, kWriteHeads, w.d, w.n_rows(), 0, 0};
    return Prepared{[=] { backend->kv_write(a, to, x, table, head_layout); }, {coded, plain}};
}

static std::vector<double> written(const CodedWrite& w, const CodedWriteData& data)
{
    std::vector<uint8_t> coded = data.coded;
    std::vector<double> plain(data.plain.begin(), data.plain.end());
    for (uint32_t t = 0; t < w.n_tokens; t++)
        for (uint32_t h = 0; h < kWriteHeads; h++) {
            const uint32_t row = w.with_table ? data.table[h * w.n_rows() + w.before() + t]
                                              : h * w.n_rows() + (w.before() + t) % w.n_rows();
            const uint64_t at = (uint64_t(t) * kWriteHeads + h) * w.d;
            put_row(coded, w.n(), row, encode(w.format, &data.to_coded[at], w.d));
            std::copy_n(&data.to_plain[at], w.d, plain.begin() + long(uint64_t(row) * w.d));
        }
    std::vector<double> out = as_doubles(coded);
    out.insert(out.end(), plain.begin(), plain.end());
    return out;
}

static OpCase kv_write_case(const CodedWrite& w)
{
    const auto data = make_data(w);
    OpCase c;
    c.name = name_of(w.format, w.d) + ", " + std::to_string(w.n_tokens) + " tokens";
    c.bound = kExact;
    c.prepare = [=](Bench& bench) { return prepare_write(w, *data, bench); };
    c.formula = [=] { return written(w, *data); };
    return c;
}

TEST_CASE("codecs: kv_write")
{
    std::vector<OpCase> cases;
    for (Format format : all_codecs())
        for (uint32_t d : kHeadDims) {
            cases.push_back(kv_write_case({format, d, 1, true, d % 5 == 0}));
            cases.push_back(kv_write_case({format, d, 40, d % 3 == 0, d % 5 != 0}));
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
