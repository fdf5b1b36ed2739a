// Cases of attention and kv_score for the op harness: shapes, all there ever was as a cache would
// return it, and the formula in float64.
#pragma once

#include "tests/backends/coded_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace ks
{

// f32 arithmetic; a logit of 10 is off by a few 1e-6, its weight by as much in proportion.
constexpr double kAttention = 1e-10;
constexpr float kNone = -std::numeric_limits<float>::infinity();

struct AttentionShape {
    AttentionArgs a;
    uint32_t before; // indexes before the first token's; of a ring: its position
    Format k = Format::f16, v = Format::f16;
    float size = 1; // of q
    bool table = false, weighted = false;
    uint32_t n_coded = 0, coded_begin = 0,
             coded_end = 0; // rows per head of a coded pool, and the indexes that lie there
    Format coded_k = Format::f16, coded_v = Format::f16;
    uint32_t fewer = 0;    // head h has h * fewer indexes less
    bool in_turns = false; // backends that restore codes have room for few of them
    uint32_t n_before(uint32_t head) const { return before - head * fewer; }
    uint32_t n_slots() const { return a.n_rows + n_coded; }      // per head
    uint32_t group() const { return codec_info(coded_k).group; } // of coded rows
    bool is_coded(uint32_t index) const { return index >= coded_begin && index < coded_end; }
};

constexpr uint32_t kChunkPosition = 400000;

// Pair i's angle at a position.
inline double angle_of(uint32_t position, uint32_t i, uint32_t n_wave)
{
    return position * std::pow(10000.0, -2.0 * i / n_wave);
}

inline std::vector<float> make_waves(uint32_t n_wave)
{
    std::vector<float> waves;
    for (uint32_t r = 0; r < wave_digits * wave_base; r++)
        for (uint32_t i = 0; i < n_wave; i++) {
            const double angle =
                angle_of(1, i % (n_wave / 2), n_wave) * std::pow(256.0, r / 256) * (r % 256);
            waves.push_back(float(i < n_wave / 2 ? std::cos(angle) : std::sin(angle)));
        }
    return waves;
}

// All there ever was, by head and index, as a cache would return it.
struct AttentionData {
    std::vector<float> q, q_clamped;
    std::vector<float> k, v;    // (n_kv_heads, before + n_tokens, head_dim)
    std::vector<float> weights; // (n_kv_heads, before + n_tokens, 2), zero for the chunk's tokens
                                // where it is staged
    std::vector<uint32_t> rows; // (slots), the table
    std::vector<uint8_t> codes_k, codes_v; // the coded pools, where their formats are codecs
    std::vector<float> bias, bias_clamped; // (n_tokens, n_heads * head_dim)
    std::vector<uint32_t> positions;       // (n_kv_heads, before + n_tokens)
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

// A coded pool; what it holds of the history becomes what its codes say. Rows that were never
// written hold what would be noticed.
inline std::vector<uint8_t> coded_pool(const AttentionShape& s, const AttentionData& data,
                                       std::vector<float>& history, Format format)
{
    if (!is_coded(format)) return {};
    CodedPool pool(format, s.a.n_kv_heads * s.n_coded, s.a.head_dim, 40.f);
    for (uint32_t h = 0; h < s.a.n_kv_heads; h++)
        for (uint32_t i = s.coded_begin; i < std::min(s.coded_end, s.n_before(h));
             i += codec_info(format).group)
            pool.keep(row_of(s, data, h, i) - s.a.n_kv_heads * s.a.n_rows,
                      &history[(uint64_t(h) * (s.before + s.a.n_tokens) + i) * s.a.head_dim]);
    return pool.bytes;
}

inline std::shared_ptr<AttentionData> make_data(const AttentionShape& s)
{
    const AttentionArgs& a = s.a;
    Random random(s.before * 131 + a.n_tokens * 17 + a.head_dim + a.n_heads);
    const uint64_t n = uint64_t(a.n_kv_heads) * (s.before + a.n_tokens);
    auto data = std::make_shared<AttentionData>();
    data->q = random.normals(uint64_t(a.n_tokens) * a.n_heads * a.head_dim, s.size);
    data->q_clamped = random.normals(data->q.size(), s.size);
    data->k = stored(random.normals(n * a.head_dim), s.k);
    data->v = stored(random.normals(n * a.head_dim), s.v);
    data->weights.assign(2 * n, 0.f);
    for (uint64_t i = 0; s.weighted && i < n; i++) {
        const uint32_t index = uint32_t(i % (s.before + a.n_tokens));
        if (a.chunk_rows && index >= s.n_before(uint32_t(i / (s.before + a.n_tokens)))) continue;
        for (uint64_t which = 0; which < 2; which++)
            data->weights[2 * i + which] =
                random.below(4) == 0 ? kNone : float(random.uniform(-3, 5));
        if (index == 0)
            data->weights[2 * i] = data->weights[2 * i + 1] = 0; // someone is always seen
    }
    std::vector<uint32_t> plain(a.n_kv_heads * a.n_rows), coded(a.n_kv_heads * s.n_coded);
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
            data->rows.push_back(next_coded < (h + 1) * s.n_coded &&
                                         (s.is_coded(i) || next == (h + 1) * a.n_rows)
                                     ? coded[next_coded++]
                                     : plain[next++]);
    data->bias = random.normals(data->q.size(), s.size);
    data->bias_clamped = random.normals(data->q.size(), s.size);
    // With gaps, which leave no two within 256, or of every second head many; large enough for a
    // third digit. The chunk's are the same for all heads.
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t head = uint32_t(i / (s.before + a.n_tokens)),
                       index = uint32_t(i % (s.before + a.n_tokens)), before = s.n_before(head);
        const uint32_t gap = head % 2 || a.n_kv_heads == 1 ? 3 : 313;
        data->positions.push_back(index >= before
                                      ? kChunkPosition + index - before
                                      : (gap == 3 ? 70000 : 0) + gap * index + random.below(gap));
    }
    data->codes_k = coded_pool(s, *data, data->k, s.coded_k);
    data->codes_v = coded_pool(s, *data, data->v, s.coded_v);
    return data;
}

// All slots as they are when attention runs. Rows that were never written hold what would be
// noticed.
inline std::vector<float> pool(const AttentionShape& s, const AttentionData& data,
                               const std::vector<float>& history, uint32_t width)
{
    const AttentionArgs& a = s.a;
    std::vector<float> rows(uint64_t(a.n_kv_heads) * s.n_slots() * width, 40.f);
    for (uint32_t h = 0; h < a.n_kv_heads; h++)
        for (uint32_t i = 0; i < s.n_before(h) + (a.chunk_rows ? 0 : a.n_tokens); i++)
            std::copy_n(&history[(uint64_t(h) * (s.before + a.n_tokens) + i) * width], width,
                        &rows[uint64_t(row_of(s, data, h, i)) * width]);
    return rows;
}

inline std::vector<float> staged(const AttentionShape& s, const std::vector<float>& history)
{
    const AttentionArgs& a = s.a;
    std::vector<float> rows(uint64_t(a.n_kv_heads) * a.chunk_rows * a.head_dim, 40.f);
    for (uint32_t h = 0; h < a.n_kv_heads; h++)
        std::copy_n(&history[(uint64_t(h) * (s.before + a.n_tokens) + s.n_before(h)) * a.head_dim],
                    a.n_tokens * a.head_dim, &rows[uint64_t(h) * a.chunk_rows * a.head_dim]);
    return rows;
}

inline bool is_seen(const AttentionShape& s, uint32_t head, uint32_t t, uint32_t index)
{
    const AttentionArgs& a = s.a;
    const uint32_t own = s.n_before(head) + t,
                   written = s.n_before(head) + (a.chunk_rows ? 0 : a.n_tokens);
    if (index > own) return false;
    if (index < a.n_pinned) return true;
    if (!s.table && written > a.n_rows && index < written - (a.n_rows - a.n_pinned)) return false;
    return a.window == 0 || own - index < a.window;
}

// Probabilities of one query, numerators and denominators, by index; and log2 of the denominator.
struct Said {
    std::vector<double> over, under;
    double lse;
};

inline Said ask(const AttentionShape& s, const AttentionData& data, uint32_t t, uint32_t h)
{
    const AttentionArgs& a = s.a;
    const uint32_t head = h * a.n_kv_heads / a.n_heads, n = s.before + a.n_tokens;
    Said said{std::vector<double>(n, -INFINITY), std::vector<double>(n, -INFINITY), 0};
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!is_seen(s, head, t, i)) continue;
        double logit = 0;
        for (uint32_t d = 0; d < a.head_dim; d++)
            logit +=
                double((i < a.n_clamped ? data.q_clamped
                                        : data.q)[(uint64_t(t) * a.n_heads + h) * a.head_dim + d]) *
                data.k[(uint64_t(head) * n + i) * a.head_dim + d];
        for (uint32_t w = 0; w < a.n_wave; w++) {
            const double angle =
                angle_of(data.positions[uint64_t(head) * n + i], w % (a.n_wave / 2), a.n_wave);
            const uint32_t at =
                a.pairs == rope_neox ? w : w % (a.n_wave / 2) * 2 + w / (a.n_wave / 2);
            logit += double((i < a.n_clamped
                                 ? data.bias_clamped
                                 : data.bias)[(uint64_t(t) * a.n_heads + h) * a.head_dim + at]) *
                     (w < a.n_wave / 2 ? std::cos(angle) : std::sin(angle));
        }
        said.over[i] = logit * a.scale + data.weights[2 * (uint64_t(head) * n + i)];
        said.under[i] = logit * a.scale + data.weights[2 * (uint64_t(head) * n + i) + 1];
    }
    const double top = *std::max_element(said.under.begin(), said.under.end());
    for (double x : said.under) sum += std::exp(x - top);
    for (double& x : said.over) x = std::exp(x - top) / sum;
    for (double& x : said.under) x = std::exp(x - top) / sum;
    said.lse = (top + std::log(sum)) / std::log(2.0);
    return said;
}

inline std::vector<double> formula(const AttentionShape& s, const AttentionData& data)
{
    const AttentionArgs& a = s.a;
    std::vector<double> out, lse;
    for (uint32_t t = 0; t < a.n_tokens; t++) {
        for (uint32_t h = 0; h < a.n_heads; h++) {
            const Said said = ask(s, data, t, h);
            const uint64_t head = uint64_t(h * a.n_kv_heads / a.n_heads) * said.over.size();
            std::vector<double> y(a.head_dim);
            for (uint32_t d = 0; d < a.head_dim; d++)
                for (size_t i = 0; i < said.over.size(); i++)
                    if (said.over[i] > 0)
                        y[d] += said.over[i] * data.v[(head + i) * a.head_dim + d];
            if (a.hadamard) y = hadamard(y.data(), a.head_dim, true);
            out.insert(out.end(), y.begin(), y.end());
            lse.push_back(said.lse);
        }
    }
    out.insert(out.end(), lse.begin(), lse.end());
    return out;
}

inline KvSlots make_slots(Bench& bench, const AttentionShape& s, const AttentionData& data)
{
    const AttentionArgs& a = s.a;
    const uint32_t n = a.n_kv_heads * a.n_rows;
    KvSlots slots;
    const uint32_t n_coded = a.n_kv_heads * s.n_coded;
    std::vector<float> k = pool(s, data, data.k, a.head_dim), v = pool(s, data, data.v, a.head_dim);
    auto coded = [&](Format format, const std::vector<float>& all,
                     const std::vector<uint8_t>& codes) {
        if (is_coded(format)) return bench.coded(format, n_coded, a.head_dim, codes);
        return bench.input(n_coded, a.head_dim, {all.begin() + uint64_t(n) * a.head_dim, all.end()},
                           format);
    };
    if (s.n_coded) slots.coded_k = coded(s.coded_k, k, data.codes_k);
    if (s.n_coded) slots.coded_v = coded(s.coded_v, v, data.codes_v);
    k.resize(uint64_t(n) * a.head_dim);
    v.resize(k.size());
    slots.k = bench.input(n, a.head_dim, k, s.k);
    slots.v = bench.input(n, a.head_dim, v, s.v);
    if (s.weighted) slots.weights = bench.input(n + n_coded, 2, pool(s, data, data.weights, 2));
    std::vector<uint32_t> head_layout;
    for (uint32_t h = 0; h < a.n_kv_heads; h++)
        head_layout.insert(head_layout.end(),
                           {s.n_before(h), s.table ? h * s.n_slots() : 0, s.coded_begin,
                            std::min(s.coded_end, s.n_before(h)), kChunkPosition});
    slots.head_layout = bench.words(head_layout);
    if (s.table && !a.n_wave) slots.table = bench.words(data.rows);
    if (a.n_wave) {
        const uint32_t n_table = uint32_t(data.rows.size());
        std::vector<uint32_t> words = data.rows; // positions are right behind the table
        words.resize(2 * n_table, 77);
        for (uint32_t h = 0; h < a.n_kv_heads; h++)
            std::copy_n(&data.positions[h * (s.before + a.n_tokens)], s.n_before(h),
                        &words[n_table + h * s.n_slots()]);
        slots.table = slots.positions = bench.words(words);
        slots.table.cols = slots.positions.cols = n_table;
        slots.positions.offset += 4ull * n_table;
        slots.waves = bench.input(wave_digits * wave_base, a.n_wave, make_waves(a.n_wave));
    }
    if (a.chunk_rows) {
        slots.chunk_k =
            bench.input(a.n_kv_heads * a.chunk_rows, a.head_dim, staged(s, data.k), s.k);
        slots.chunk_v =
            bench.input(a.n_kv_heads * a.chunk_rows, a.head_dim, staged(s, data.v), s.v);
    }
    return slots;
}

inline Queries with_bias(Bench& bench, const AttentionShape& s, const AttentionData& data,
                         Queries q)
{
    if (s.a.n_wave) q.bias = bench.input(s.a.n_tokens, s.a.n_heads * s.a.head_dim, data.bias);
    if (s.a.n_wave)
        q.bias_clamped = bench.input(s.a.n_tokens, s.a.n_heads * s.a.head_dim, data.bias_clamped);
    return q;
}

inline ScratchShape scratch_of(const AttentionShape& s)
{
    return {s.a.n_tokens, 64,          s.a.n_heads, s.a.n_kv_heads,
            s.a.head_dim, s.n_slots(), 0,           s.in_turns ? 1 : s.n_slots()};
}

inline std::string name_of(const AttentionShape& s)
{
    const AttentionArgs& a = s.a;
    char name[280];
    snprintf(name, sizeof name,
             "%u tokens at %u, %u/%u heads of %u, %u + %u rows, %u pinned, %u far, window "
             "%u%s%s%s, %s %s, %s %s, q %g",
             a.n_tokens, s.before, a.n_heads, a.n_kv_heads, a.head_dim, a.n_rows, s.n_coded,
             a.n_pinned, a.n_clamped, a.window, s.table ? ", table" : "",
             a.chunk_rows ? ", staged" : "", s.weighted ? ", weighted" : "", format_info(s.k).name,
             format_info(s.v).name, codec_info(s.coded_k).name, codec_info(s.coded_v).name,
             double(s.size));
    return name;
}

inline OpCase make_case(const AttentionShape& s, bool timed = false)
{
    const AttentionArgs a = s.a;
    auto data = make_data(s);
    uint64_t visible = 0;
    for (uint32_t t = 0; t < a.n_tokens; t++)
        visible += std::min(
            {uint64_t(s.before) + t + 1, uint64_t(a.window ? a.window : ~0u), uint64_t(a.n_rows)});
    OpCase c;
    c.name = name_of(s);
    c.bound = kAttention * std::max(1.f, s.size * s.size); // errors of logits grow with them
    c.timed = timed;
    c.adds_bias = a.n_wave != 0;
    c.flops = 4.0 * double(visible) * a.n_heads * a.head_dim;
    c.bytes = double(std::min(s.before + a.n_tokens, a.n_rows)) * a.n_kv_heads * a.head_dim *
              (s.k == Format::f16 ? 4 : 8);
    c.prepare = [=](Bench& bench) {
        bench.scratch(scratch_of(s));
        Tensor y = bench.output(a.n_tokens, a.n_heads * a.head_dim),
               q = bench.input(a.n_tokens, a.n_heads * a.head_dim, data->q);
        Tensor q_clamped = bench.input(a.n_tokens, a.n_heads * a.head_dim, data->q_clamped),
               lse = bench.output(a.n_tokens, a.n_heads);
        KvSlots slots = make_slots(bench, s, *data);
        Backend* backend = &bench.backend();
        const Queries queries = with_bias(bench, s, *data, {q, q_clamped});
        return Prepared{[=] { backend->attention(a, y, queries, slots, lse); }, {y, lse}};
    };
    if (!timed) c.formula = [=] { return formula(s, *data); };
    return c;
}

// What each slot was worth to the queries, on top of what it was worth before.
inline std::vector<double> score_formula(const AttentionShape& s, const AttentionData& data,
                                         const KvScoreArgs& score, float before)
{
    const AttentionArgs& a = s.a;
    const uint32_t group = a.n_heads / a.n_kv_heads;
    std::vector<double> out(uint64_t(a.n_kv_heads) * (s.n_slots() + a.chunk_rows), before);
    double* chunk = out.data() + uint64_t(a.n_kv_heads) * s.n_slots();
    for (uint32_t head = 0; head < a.n_kv_heads; head++) {
        const uint32_t end = s.n_before(head) + a.n_tokens;
        std::vector<double> sums(end, 0.0);
        for (uint32_t t = score.first_query; t < a.n_tokens; t++) {
            uint32_t visible = 0;
            for (uint32_t i = 0; i < end; i++) visible += is_seen(s, head, t, i);
            for (uint32_t h = head * group; h < (head + 1) * group; h++) {
                const Said said = ask(s, data, t, h);
                for (uint32_t i = 0; i < end; i++) {
                    if (!is_seen(s, head, t, i)) continue;
                    const double said_so = score.kind == score_below
                                               ? double(said.under[i] < 1.0 / visible)
                                               : said.under[i];
                    sums[i] += said_so * std::pow(double(score.decay), a.n_tokens - 1 - t);
                }
            }
        }
        for (uint32_t i = 0; i < end; i++) {
            const bool in_chunk = a.chunk_rows && i >= s.n_before(head);
            const uint32_t written = s.n_before(head) + (a.chunk_rows ? 0 : a.n_tokens);
            if (!s.table && i >= a.n_pinned && written > a.n_rows &&
                i < written - (a.n_rows - a.n_pinned))
                continue;
            double& cell = in_chunk ? chunk[head * a.chunk_rows + i - s.n_before(head)]
                                    : out[row_of(s, data, head, i)];
            cell =
                (in_chunk || score.reset ? 0.0 : cell * std::pow(double(score.decay), a.n_tokens)) +
                sums[i];
        }
    }
    return out;
}

inline OpCase score_case(const AttentionShape& s, const KvScoreArgs& score)
{
    const AttentionArgs a = s.a;
    auto data = make_data(s);
    OpCase c;
    c.name = name_of(s) + (score.kind == score_below ? ", below" : ", sum") +
             (score.reset ? ", reset" : "");
    c.adds_bias = a.n_wave != 0;
    c.bound = score.kind == score_below
                  ? 1e-4
                  : kAttention * 10; // a probability at the border falls on either side
    c.prepare = [=](Bench& bench) {
        bench.scratch(scratch_of(s));
        Tensor y = bench.output(a.n_tokens, a.n_heads * a.head_dim),
               q = bench.input(a.n_tokens, a.n_heads * a.head_dim, data->q);
        Tensor q_clamped = bench.input(a.n_tokens, a.n_heads * a.head_dim, data->q_clamped),
               lse = bench.output(a.n_tokens, a.n_heads);
        KvSlots slots = make_slots(bench, s, *data);
        const uint32_t n_slots = a.n_kv_heads * s.n_slots();
        Tensor scores = bench.input(1, n_slots, std::vector<float>(n_slots, 0.75f));
        bench.will_change(scores);
        Tensor chunk;
        std::vector<Tensor> results = {scores};
        if (a.chunk_rows) {
            chunk = bench.input(1, a.n_kv_heads * a.chunk_rows,
                                std::vector<float>(uint64_t(a.n_kv_heads) * a.chunk_rows, 0.75f));
            bench.will_change(chunk);
            results.push_back(chunk);
        }
        Backend* backend = &bench.backend();
        const Queries queries = with_bias(bench, s, *data, {q, q_clamped});
        auto run = [=] {
            backend->attention(a, y, queries, slots, lse);
            backend->kv_score(score, a, scores, chunk, queries, slots, lse);
        };
        return Prepared{run, results};
    };
    c.formula = [=] { return score_formula(s, *data, score, 0.75f); };
    return c;
}

// n_rows 0: room for everything.
inline AttentionShape shape(uint32_t n_tokens, uint32_t before, uint32_t n_heads,
                            uint32_t n_kv_heads, uint32_t head_dim, uint32_t n_rows = 0,
                            uint32_t window = 0, uint32_t n_pinned = 0)
{
    AttentionShape s;
    s.a = {n_tokens, n_heads, n_kv_heads, head_dim, n_rows ? n_rows : before + n_tokens,
           n_pinned, window,  0,          0,        1 / std::sqrt(float(head_dim)),
           0,        0,       0,          0};
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

inline AttentionShape with_clamped(AttentionShape s, uint32_t n_clamped)
{
    s.a.n_clamped = n_clamped;
    return s;
}

// Keys are stored without their bias.
inline AttentionShape with_waves(AttentionShape s, uint32_t n_wave, uint32_t pairs)
{
    s.a.n_wave = n_wave;
    s.a.pairs = pairs;
    return s;
}

// The coded pool's formats. Values that a codec wants rotated are.
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

} // namespace ks
