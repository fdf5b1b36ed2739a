// Cases of attention and kv_score for the op harness.
#pragma once

#include "tests/backends/attention_formula.h"

namespace ks
{

// The bound for f32 arithmetic: a logit of 10 has an error of a few 1e-6, and its probability the
// same relative error.
constexpr double kAttention = 1e-10;

// The products of bias phasors: one row per digit of a position and value of the digit.
inline std::vector<float> bias_phasors(uint32_t n_bias_dims)
{
    std::vector<float> rows;
    for (uint32_t r = 0; r < phasor_digits * phasor_base; r++)
        for (uint32_t i = 0; i < n_bias_dims; i++) {
            const double angle = angle_of(1, i % (n_bias_dims / 2), n_bias_dims) *
                                 std::pow(256.0, r / 256) * (r % 256);
            rows.push_back(float(i < n_bias_dims / 2 ? std::cos(angle) : std::sin(angle)));
        }
    return rows;
}

// The plain pool and the coded pool.
inline void make_pools(Bench& bench, const AttentionShape& s, const AttentionData& data,
                       KvSlots& slots)
{
    const AttentionArgs& a = s.a;
    const uint32_t n = a.n_kv_heads * a.n_rows, n_coded = a.n_kv_heads * s.n_coded;
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
    if (s.values_in_keys) {
        slots.v = slots.k;
        slots.coded_v = slots.coded_k;
    }
    if (s.weighted) slots.weights = bench.input(n + n_coded, 2, pool(s, data, data.weights, 2));
}

// The table with the positions right behind it.
inline void make_positions(Bench& bench, const AttentionShape& s, const AttentionData& data,
                           KvSlots& slots)
{
    const uint32_t n_table = uint32_t(data.rows.size());
    std::vector<uint32_t> words = data.rows;
    words.resize(2 * n_table, 77);
    for (uint32_t h = 0; h < s.a.n_kv_heads; h++)
        std::copy_n(&data.positions[h * s.n_history()], s.n_before(h),
                    &words[n_table + h * s.n_slots()]);
    slots.table = slots.positions = bench.words(words);
    slots.table.cols = slots.positions.cols = n_table;
    slots.positions.offset += 4ull * n_table;
    slots.bias_phasors =
        bench.input(phasor_digits * phasor_base, s.a.n_bias_dims, bias_phasors(s.a.n_bias_dims));
}

inline KvSlots make_slots(Bench& bench, const AttentionShape& s, const AttentionData& data)
{
    const AttentionArgs& a = s.a;
    KvSlots slots;
    make_pools(bench, s, data, slots);
    std::vector<uint32_t> head_layout;
    for (uint32_t h = 0; h < a.n_kv_heads; h++)
        head_layout.insert(head_layout.end(),
                           {s.n_before(h), s.table ? h * s.n_slots() : 0, s.coded_begin,
                            std::min(s.coded_end, s.n_before(h)), kChunkPosition});
    slots.head_layout = bench.words(head_layout);
    if (s.table && !a.n_bias_dims) slots.table = bench.words(data.rows);
    if (a.n_bias_dims) make_positions(bench, s, data, slots);
    if (a.chunk_rows) {
        slots.chunk_k =
            bench.input(a.n_kv_heads * a.chunk_rows, a.head_dim, staged(s, data.k), s.k);
        slots.chunk_v = s.values_in_keys ? slots.chunk_k
                                         : bench.input(a.n_kv_heads * a.chunk_rows, a.head_dim,
                                                       staged(s, data.v), s.v);
    }
    return slots;
}

inline Queries with_bias(Bench& bench, const AttentionShape& s, const AttentionData& data,
                         Queries q)
{
    if (s.a.n_bias_dims) q.bias = bench.input(s.a.n_tokens, s.a.n_heads * s.a.head_dim, data.bias);
    if (s.a.n_bias_dims)
        q.bias_clamped = bench.input(s.a.n_tokens, s.a.n_heads * s.a.head_dim, data.bias_clamped);
    return q;
}

inline ScratchShape scratch_of(const AttentionShape& s)
{
    return {s.a.n_tokens, 64,          s.a.n_heads, s.a.n_kv_heads,
            s.a.head_dim, s.n_slots(), 0,           s.small_scratch ? 1 : s.n_slots()};
}

inline OpCase make_case(const AttentionShape& s, bool timed = false)
{
    const AttentionArgs a = s.a;
    const LazyAttentionData data(s);
    uint64_t visible = 0;
    for (uint32_t t = 0; t < a.n_tokens; t++)
        visible += std::min(
            {uint64_t(s.before) + t + 1, uint64_t(a.window ? a.window : ~0u), uint64_t(a.n_rows)});
    OpCase c;
    c.name = name_of(s);
    c.bound = kAttention * std::max(1.f, s.size * s.size); // errors of logits grow with them
    c.timed = timed;
    c.adds_bias = a.n_bias_dims != 0;
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
    if (!timed) c.formula = [=] { return attention_formula(s, *data); };
    return c;
}

inline OpCase score_case(const AttentionShape& s, const KvScoreArgs& score)
{
    const AttentionArgs a = s.a;
    const LazyAttentionData data(s);
    OpCase c;
    c.name = name_of(s) + (score.kind == score_below ? ", below" : ", sum") +
             (score.before == score_clears ? ", clears"
              : score.before == score_adds ? ", adds"
                                           : "");
    c.adds_bias = a.n_bias_dims != 0;
    // With score_below, a probability at the threshold may count or not.
    c.bound = score.kind == score_below ? 1e-4 : kAttention * 10;
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

} // namespace ks
