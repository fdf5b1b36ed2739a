// kv_move and kv_read on pools of keys that are coded in groups.
#include "tests/backends/coded_rows.h"

#include <doctest/doctest.h>

using namespace ks;

static const Format kCodecs[] = {Format::kivi, Format::kivi2};

// The bytes of the words.
static std::vector<double> as_doubles(const std::vector<uint32_t>& words)
{
    std::vector<double> out;
    for (uint32_t word : words)
        for (int i = 0; i < 4; i++) out.push_back(word >> (8 * i) & 255);
    return out;
}

constexpr uint32_t kGroups = 4, kMoved = 3, kRows = 32 * kGroups; // a group has 32 rows
static const uint32_t kFromGroup[kMoved] = {1, 3, 0}, kToGroup[kMoved] = {2, 0, 3};

// Moves three groups, from groups of codes or from rows of f16 or f32 in any order.
struct GroupMove {
    Format format;
    uint32_t d;
    Format from;
    uint32_t source_row(uint32_t i) const
    {
        return from == format ? 32 * kFromGroup[i / 32] + i % 32 : i * 53 % kRows;
    }
};

struct GroupMoveData {
    std::vector<uint32_t> old, codes; // the pool before the op, and the source if it is coded
    std::vector<float> x;             // the source if it is not coded
};

static std::shared_ptr<GroupMoveData> make_data(const GroupMove& m)
{
    auto data = std::make_shared<GroupMoveData>();
    for (uint32_t g = 0; g < kGroups; g++)
        for (std::vector<uint32_t>* pool : {&data->old, &data->codes}) {
            const uint32_t seed = g + (pool == &data->old ? 9 : 90);
            const std::vector<uint32_t> one =
                encode_group(m.format, Random(seed).normals(32 * m.d).data(), m.d);
            pool->insert(pool->end(), one.begin(), one.end());
        }
    data->x = Random(m.d).normals(kRows * m.d);
    for (float& v : data->x) v = m.from == Format::f16 ? HALF_TO_FLOAT(FLOAT_TO_HALF(v)) : v;
    return data;
}

static std::vector<uint8_t> as_bytes(const std::vector<uint32_t>& words)
{
    std::vector<uint8_t> out(4 * words.size());
    memcpy(out.data(), words.data(), out.size());
    return out;
}

static Prepared prepare_move(const GroupMove& m, const GroupMoveData& data, Bench& bench)
{
    std::vector<uint32_t> moves;
    for (uint32_t i = 0; i < 32 * kMoved; i++)
        moves.insert(moves.end(), {m.source_row(i), 32 * kToGroup[i / 32] + i % 32});
    Tensor pool = bench.coded(m.format, kRows, m.d, as_bytes(data.old)), list = bench.words(moves);
    Tensor rows = m.from == m.format ? bench.coded(m.format, kRows, m.d, as_bytes(data.codes))
                                     : bench.input(kRows, m.d, data.x, m.from);
    bench.will_change(pool);
    Backend* backend = &bench.backend();
    const KvMoveArgs a{32 * kMoved, m.d};
    return Prepared{[=] { backend->kv_move(a, pool, rows, list); }, {pool}};
}

static std::vector<double> moved(const GroupMove& m, const GroupMoveData& data)
{
    std::vector<uint32_t> out = data.old;
    const uint32_t size = uint32_t(out.size() / kGroups);
    for (uint32_t g = 0; g < kMoved; g++) {
        std::vector<float> rows;
        for (uint32_t r = 0; r < 32; r++) {
            const float* row = &data.x[uint64_t((32 * g + r) * 53 % kRows) * m.d];
            rows.insert(rows.end(), row, row + m.d);
        }
        std::vector<uint32_t> one = encode_group(m.format, rows.data(), m.d);
        const auto source = data.codes.begin() + kFromGroup[g] * size;
        if (m.from == m.format) one.assign(source, source + size);
        std::copy(one.begin(), one.end(), out.begin() + kToGroup[g] * size);
    }
    return as_doubles(out);
}

static OpCase move_case(const GroupMove& m)
{
    const auto data = make_data(m);
    OpCase c;
    c.name = name_of(m.format, m.d) + ", from " + codec_info(m.from).name;
    c.bound = kExact;
    c.prepare = [=](Bench& bench) { return prepare_move(m, *data, bench); };
    c.formula = [=] { return moved(m, *data); };
    return c;
}

static OpCase read_case(Format format, uint32_t d)
{
    std::vector<uint8_t> pool(4 * 32 * codec_info(format).row_bytes(d));
    auto y = std::make_shared<std::vector<float>>();
    for (uint32_t g = 0; g < 4; g++) {
        const std::vector<uint32_t> one = encode_group(format, Random(g).normals(32 * d).data(), d);
        const std::vector<float> decoded = decode_group(format, one, d);
        memcpy(&pool[g * 4 * one.size()], one.data(), 4 * one.size());
        y->insert(y->end(), decoded.begin(), decoded.end());
    }
    std::vector<uint32_t> rows;
    for (uint32_t i = 0; i < 77; i++) rows.push_back(i * 29 % 128);
    OpCase c;
    c.name = name_of(format, d);
    c.bound = kExact;
    c.prepare = [=](Bench& bench) {
        Tensor from = bench.coded(format, 128, d, pool), out = bench.output(77, d),
               list = bench.words(rows);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->kv_read({77, d}, out, from, list); }, {out}};
    };
    c.formula = [=] {
        std::vector<double> out;
        for (uint32_t row : rows)
            out.insert(out.end(), y->begin() + row * d, y->begin() + (row + 1) * d);
        return out;
    };
    return c;
}

TEST_CASE("kivi: kv_move and kv_read")
{
    std::vector<OpCase> moves, reads;
    for (Format format : kCodecs)
        for (uint32_t d : kHeadDims) {
            for (Format kind : {format, Format::f16, Format::f32})
                moves.push_back(move_case({format, d, kind}));
            reads.push_back(read_case(format, d));
        }
    check_ops("kv_move", moves);
    check_ops("kv_read", reads);
}
