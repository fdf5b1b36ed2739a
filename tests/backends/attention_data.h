// Shapes and random inputs of attention cases: queries, and the whole history of keys and values by
// head and index. Part of it lies in a table or ring of plain rows, part in coded pools, part in
// the staged chunk.
#pragma once

#include "tests/backends/coded_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace ks
{

struct AttentionShape {
    AttentionArgs a;
    uint32_t before; // indexes before the chunk; in a ring: the position of the first token
    Format k = Format::f16, v = Format::f16;
    float size = 1; // standard deviation of the queries
    bool table = false, weighted = false;
    uint32_t n_coded = 0;                    // rows per head of the coded pool
    uint32_t coded_begin = 0, coded_end = 0; // the indexes in the coded pool
    Format coded_k = Format::f16, coded_v = Format::f16;
    uint32_t fewer = 0;          // head h holds h * fewer indexes less than head 0
    bool values_in_keys = false; // a row is both key and value
    bool small_scratch =
        false; // the dequantisation scratch holds few slots, so backends need rounds
    uint32_t n_before(uint32_t head) const { return before - head * fewer; }
    uint32_t n_history() const { return before + a.n_tokens; }   // indexes per head in the data
    uint32_t n_slots() const { return a.n_rows + n_coded; }      // per head
    uint32_t group() const { return codec_info(coded_k).group; } // rows of a code group
    bool is_coded(uint32_t index) const { return index >= coded_begin && index < coded_end; }
};

// n_rows 0: as many rows as indexes.
inline AttentionShape shape(uint32_t n_tokens, uint32_t before, uint32_t n_heads,
                            uint32_t n_kv_heads, uint32_t head_dim, uint32_t n_rows = 0,
                            uint32_t window = 0, uint32_t n_pinned = 0)
{
    AttentionShape s;
    s.a = {n_tokens, n_heads, n_kv_heads, head_dim, n_rows ? n_rows : before + n_tokens,
           n_pinned, window,  0,          0,        1 / std::sqrt(float(head_dim)),
           0,        0,       0,          0,        0};
    s.before = before;
    return s;
}

inline AttentionShape with_table(AttentionShape s, uint32_t fewer = 0)
{
    s.table = true;
    s.fewer = fewer;
    return s;
}

inline AttentionShape with_stage(AttentionShape s, uint32_t chunk_rows)
{
    s.a.chunk_rows = chunk_rows;
    return s;
}

inline AttentionShape with_weights(AttentionShape s)
{
    s.weighted = true;
    return s;
}

inline AttentionShape with_values_in_keys(AttentionShape s)
{
    s.values_in_keys = true;
    return s;
}

inline AttentionShape with_softcap(AttentionShape s, float cap)
{
    s.a.softcap = cap;
    return s;
}

inline AttentionShape with_clamped(AttentionShape s, uint32_t n_clamped)
{
    s.a.n_clamped = n_clamped;
    return s;
}

// Keys are stored without the model's bias.
inline AttentionShape without_key_bias(AttentionShape s, uint32_t n_bias_dims, uint32_t pairs)
{
    s.a.n_bias_dims = n_bias_dims;
    s.a.pairs = pairs;
    return s;
}

// The formats of the coded pool. Codecs with a Hadamard transform get transformed values.
inline AttentionShape with_codecs(AttentionShape s, Format k, Format v)
{
    s.coded_k = k;
    s.coded_v = v;
    s.a.hadamard = codec_info(v).hadamard;
    return s;
}

// Indexes [begin, end) lie in a coded pool of n_coded rows per head.
inline AttentionShape with_codes(AttentionShape s, uint32_t begin, uint32_t end, uint32_t n_coded)
{
    s.coded_begin = begin;
    s.coded_end = end;
    s.n_coded = n_coded;
    return s;
}

inline std::string name_of(const AttentionShape& s)
{
    const AttentionArgs& a = s.a;
    char name[280];
    snprintf(name, sizeof name,
             "%u tokens at %u, %u/%u heads of %u, %u + %u rows, %u pinned, %u clamped, window "
             "%u%s%s%s%s, %s %s, %s %s, q %g, cap %g",
             a.n_tokens, s.before, a.n_heads, a.n_kv_heads, a.head_dim, a.n_rows, s.n_coded,
             a.n_pinned, a.n_clamped, a.window, s.table ? ", table" : "",
             a.chunk_rows ? ", staged" : "", s.weighted ? ", weighted" : "",
             s.values_in_keys ? ", values in keys" : "", format_info(s.k).name,
             format_info(s.v).name, codec_info(s.coded_k).name, codec_info(s.coded_v).name,
             double(s.size), double(a.softcap));
    return name;
}

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();
constexpr uint32_t kChunkPosition = 400000; // position of the chunk's first token in the text
constexpr float kUnwritten = 40.f;          // the values of rows that hold no token

struct AttentionData {
    std::vector<float> q, q_clamped;
    std::vector<float> k, v; // (n_kv_heads, n_history, head_dim), as read from the pools
    std::vector<float>
        weights; // (n_kv_heads, n_history, 2); zeros for the tokens of a staged chunk
    std::vector<uint32_t> rows;            // (slots), the table
    std::vector<uint8_t> codes_k, codes_v; // the coded pools, if their formats are codecs
    std::vector<float> bias, bias_clamped; // (n_tokens, n_heads * head_dim)
    std::vector<uint32_t> positions;       // (n_kv_heads, n_history)
};

inline std::vector<float> stored(std::vector<float> values, Format format)
{
    if (format == Format::f16)
        for (float& value : values) value = HALF_TO_FLOAT(FLOAT_TO_HALF(value));
    return values;
}

inline uint32_t row_of(const AttentionShape& s, const AttentionData& data, uint32_t head,
                       uint32_t index)
{
    if (s.table) return data.rows[head * s.n_slots() + index];
    const uint32_t ring = s.a.n_rows - s.a.n_pinned;
    return head * s.a.n_rows +
           (index < s.a.n_pinned ? index : s.a.n_pinned + (index - s.a.n_pinned) % ring);
}

// Encodes the indexes of the coded range into a pool, and replaces their rows of `history` by the
// decoded values.
inline std::vector<uint8_t> coded_pool(const AttentionShape& s, const AttentionData& data,
                                       std::vector<float>& history, Format format)
{
    if (!is_coded(format)) return {};
    CodedPool pool(format, s.a.n_kv_heads * s.n_coded, s.a.head_dim, kUnwritten);
    for (uint32_t h = 0; h < s.a.n_kv_heads; h++)
        for (uint32_t i = s.coded_begin; i < std::min(s.coded_end, s.n_before(h));
             i += codec_info(format).group)
            pool.keep(row_of(s, data, h, i) - s.a.n_kv_heads * s.a.n_rows,
                      &history[(uint64_t(h) * s.n_history() + i) * s.a.head_dim]);
    return pool.bytes;
}

// A quarter of the log-weights is minus infinity. Index 0 has weight 1, so no query has every slot
// masked.
inline std::vector<float> random_weights(const AttentionShape& s, Random& random)
{
    const uint64_t n = uint64_t(s.a.n_kv_heads) * s.n_history();
    std::vector<float> weights(2 * n, 0.f);
    for (uint64_t i = 0; s.weighted && i < n; i++) {
        const uint32_t index = uint32_t(i % s.n_history());
        if (s.a.chunk_rows && index >= s.n_before(uint32_t(i / s.n_history()))) continue;
        for (uint64_t which = 0; which < 2; which++)
            weights[2 * i + which] =
                random.below(4) == 0 ? kNegativeInfinity : float(random.uniform(-3, 5));
        if (index == 0) weights[2 * i] = weights[2 * i + 1] = 0;
    }
    return weights;
}

// Slots in random order, by head and index. The rows of a code group stay together and in order.
inline std::vector<uint32_t> random_table(const AttentionShape& s, Random& random)
{
    const AttentionArgs& a = s.a;
    std::vector<uint32_t> plain(a.n_kv_heads * a.n_rows), coded(a.n_kv_heads * s.n_coded), rows;
    std::iota(plain.begin(), plain.end(), 0u);
    std::iota(coded.begin(), coded.end(), uint32_t(plain.size()));
    for (auto* slots : {&plain, &coded})
        for (size_t step = slots == &coded ? s.group() : 1, i = slots->size(); s.table && i > step;
             i -= step) {
            const auto one = slots->begin() + long(i - step),
                       other = slots->begin() + long(step * random.below(uint32_t(i / step)));
            if (one != other) std::swap_ranges(one, one + long(step), other);
        }
    for (uint32_t h = 0; h < a.n_kv_heads; h++)
        for (uint32_t i = 0, next = h * a.n_rows, next_coded = h * s.n_coded; i < s.n_slots(); i++)
            rows.push_back(next_coded < (h + 1) * s.n_coded &&
                                   (s.is_coded(i) || next == (h + 1) * a.n_rows)
                               ? coded[next_coded++]
                               : plain[next++]);
    return rows;
}

// Positions with gaps. In even heads, two neighbours rarely share the digits above the lowest one;
// in odd heads many do. Positions are large enough for a third digit. The chunk's positions are the
// same in all heads.
inline std::vector<uint32_t> random_positions(const AttentionShape& s, Random& random)
{
    std::vector<uint32_t> positions;
    for (uint64_t i = 0; i < uint64_t(s.a.n_kv_heads) * s.n_history(); i++) {
        const uint32_t head = uint32_t(i / s.n_history()), index = uint32_t(i % s.n_history()),
                       before = s.n_before(head);
        const uint32_t gap = head % 2 || s.a.n_kv_heads == 1 ? 3 : 313;
        positions.push_back(index >= before
                                ? kChunkPosition + index - before
                                : (gap == 3 ? 70000 : 0) + gap * index + random.below(gap));
    }
    return positions;
}

inline std::shared_ptr<AttentionData> make_data(const AttentionShape& s)
{
    const AttentionArgs& a = s.a;
    Random random(s.before * 131 + a.n_tokens * 17 + a.head_dim + a.n_heads);
    const uint64_t n = uint64_t(a.n_kv_heads) * s.n_history();
    auto data = std::make_shared<AttentionData>();
    data->q = random.normals(uint64_t(a.n_tokens) * a.n_heads * a.head_dim, s.size);
    data->q_clamped = random.normals(data->q.size(), s.size);
    data->k = stored(random.normals(n * a.head_dim), s.k);
    data->v = s.values_in_keys ? data->k : stored(random.normals(n * a.head_dim), s.v);
    data->weights = random_weights(s, random);
    data->rows = random_table(s, random);
    data->bias = random.normals(data->q.size(), s.size);
    data->bias_clamped = random.normals(data->q.size(), s.size);
    data->positions = random_positions(s, random);
    data->codes_k = coded_pool(s, *data, data->k, s.coded_k);
    data->codes_v = coded_pool(s, *data, data->v, s.coded_v);
    return data;
}

// The data of a shape, made at the first use: under emulation only a part of the cases runs.
class LazyAttentionData
{
public:
    explicit LazyAttentionData(const AttentionShape& s) : m_state(new State{s, nullptr}) {}
    const AttentionData& operator*() const
    {
        if (!m_state->data) m_state->data = make_data(m_state->shape);
        return *m_state->data;
    }
    const AttentionData* operator->() const { return &**this; }

private:
    struct State {
        AttentionShape shape;
        std::shared_ptr<AttentionData> data;
    };
    std::shared_ptr<State> m_state;
};

// All slots as attention finds them.
inline std::vector<float> pool(const AttentionShape& s, const AttentionData& data,
                               const std::vector<float>& history, uint32_t width)
{
    const AttentionArgs& a = s.a;
    std::vector<float> rows(uint64_t(a.n_kv_heads) * s.n_slots() * width, kUnwritten);
    for (uint32_t h = 0; h < a.n_kv_heads; h++)
        for (uint32_t i = 0; i < s.n_before(h) + (a.chunk_rows ? 0 : a.n_tokens); i++)
            std::copy_n(&history[(uint64_t(h) * s.n_history() + i) * width], width,
                        &rows[uint64_t(row_of(s, data, h, i)) * width]);
    return rows;
}

// The rows of the staged chunk.
inline std::vector<float> staged(const AttentionShape& s, const std::vector<float>& history)
{
    const AttentionArgs& a = s.a;
    std::vector<float> rows(uint64_t(a.n_kv_heads) * a.chunk_rows * a.head_dim, kUnwritten);
    for (uint32_t h = 0; h < a.n_kv_heads; h++)
        std::copy_n(&history[(uint64_t(h) * s.n_history() + s.n_before(h)) * a.head_dim],
                    a.n_tokens * a.head_dim, &rows[uint64_t(h) * a.chunk_rows * a.head_dim]);
    return rows;
}

} // namespace ks
