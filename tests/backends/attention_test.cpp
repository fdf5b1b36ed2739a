// attention: prefill and decode, groups of heads, both cache formats, rings that wrapped, windows.
#include "kernels/common/lang.h"
#include "tests/backends/op_harness.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <doctest/doctest.h>

using namespace ks;

// f32 arithmetic; a logit of 10 is off by a few 1e-6, its weight by as much in proportion.
constexpr double kAttention = 1e-10;

struct AttentionShape {
    AttentionArgs a;
    uint32_t first; // position of the first token
    Format k, v;
    float size = 1; // of q
};

struct AttentionData {
    std::vector<float> q;
    std::vector<float> k, v; // (n_positions, n_kv_heads, head_dim), all there ever were, as a cache would return them
};

static std::vector<float> stored(std::vector<float> values, Format format)
{
    if (format == Format::f16)
        for (float& value : values) value = HALF_TO_FLOAT(FLOAT_TO_HALF(value));
    return values;
}

static std::shared_ptr<AttentionData> make_data(const AttentionShape& s)
{
    Random random(s.first * 131 + s.a.n_tokens * 17 + s.a.head_dim + s.a.n_heads);
    uint64_t n = uint64_t(s.first + s.a.n_tokens) * s.a.n_kv_heads * s.a.head_dim;
    auto data = std::make_shared<AttentionData>();
    data->q = random.normals(uint64_t(s.a.n_tokens) * s.a.n_heads * s.a.head_dim, s.size);
    data->k = stored(random.normals(n), s.k);
    data->v = stored(random.normals(n), s.v);
    return data;
}

// The ring as it is after the last token was written. Slots that were never written hold what would be noticed.
static std::vector<float> ring(const AttentionShape& s, const std::vector<float>& history)
{
    const AttentionArgs& a = s.a;
    std::vector<float> cache(uint64_t(a.n_kv_heads) * a.n_slots * a.head_dim, 40.f);
    for (uint32_t p = 0; p < s.first + a.n_tokens; p++)
        for (uint32_t h = 0; h < a.n_kv_heads; h++)
            std::copy_n(&history[(uint64_t(p) * a.n_kv_heads + h) * a.head_dim], a.head_dim,
                        &cache[(uint64_t(h) * a.n_slots + p % a.n_slots) * a.head_dim]);
    return cache;
}

static std::vector<double> formula(const AttentionShape& s, const AttentionData& data)
{
    const AttentionArgs& a = s.a;
    std::vector<double> out;
    int64_t end = int64_t(s.first) + a.n_tokens;
    for (int64_t i = s.first; i < end; i++) {
        for (uint32_t h = 0; h < a.n_heads; h++) {
            const float* q = &data.q[((i - s.first) * a.n_heads + h) * a.head_dim];
            uint32_t kv_head = h * a.n_kv_heads / a.n_heads;
            std::vector<double> weight(size_t(end), -INFINITY);
            double top = -INFINITY, sum = 0;
            for (int64_t j = 0; j <= i; j++) {
                if (j < end - int64_t(a.n_slots) || (a.window && i - j >= a.window)) continue;
                double logit = 0;
                for (uint32_t d = 0; d < a.head_dim; d++) logit += double(q[d]) * data.k[(j * a.n_kv_heads + kv_head) * a.head_dim + d];
                weight[size_t(j)] = logit * a.scale;
                top = std::max(top, weight[size_t(j)]);
            }
            for (double& w : weight) sum += w = std::exp(w - top);
            for (uint32_t d = 0; d < a.head_dim; d++) {
                double value = 0;
                for (int64_t j = 0; j <= i; j++) value += weight[size_t(j)] / sum * data.v[(j * a.n_kv_heads + kv_head) * a.head_dim + d];
                out.push_back(value);
            }
        }
    }
    return out;
}

static OpCase make_case(const AttentionShape& s, bool timed = false)
{
    const AttentionArgs a = s.a;
    auto data = make_data(s);
    uint64_t visible = 0;
    for (uint32_t i = s.first; i < s.first + a.n_tokens; i++)
        visible += std::min({uint64_t(i) + 1, uint64_t(a.window ? a.window : ~0u), uint64_t(a.n_slots)});
    char name[160];
    snprintf(name, sizeof name, "%u tokens at %u, %u/%u heads of %u, %u slots, window %u, %s %s, q %g", a.n_tokens, s.first, a.n_heads,
             a.n_kv_heads, a.head_dim, a.n_slots, a.window, format_info(s.k).name, format_info(s.v).name, double(s.size));
    OpCase c;
    c.name = name;
    c.bound = kAttention * std::max(1.f, s.size * s.size); // errors of logits grow with them
    c.timed = timed;
    c.flops = 4.0 * double(visible) * a.n_heads * a.head_dim;
    c.bytes = double(std::min(s.first + a.n_tokens, a.n_slots)) * a.n_kv_heads * a.head_dim * (s.k == Format::f16 ? 4 : 8);
    c.prepare = [=](Bench& bench) {
        bench.scratch({a.n_tokens, 64, a.n_heads, a.n_kv_heads, a.head_dim});
        Tensor y = bench.output(a.n_tokens, a.n_heads * a.head_dim), q = bench.input(a.n_tokens, a.n_heads * a.head_dim, data->q);
        Tensor k = bench.input(a.n_kv_heads * a.n_slots, a.head_dim, ring(s, data->k), s.k);
        Tensor v = bench.input(a.n_kv_heads * a.n_slots, a.head_dim, ring(s, data->v), s.v);
        std::vector<uint32_t> positions;
        for (uint32_t t = 0; t < a.n_tokens; t++) positions.push_back(s.first + t);
        Tensor p = bench.words(positions);
        Backend* backend = &bench.backend();
        return Prepared{[=] { backend->attention(a, y, q, k, v, p); }, {y}};
    };
    if (!timed) c.formula = [=] { return formula(s, *data); };
    return c;
}

// n_slots 0: room for everything.
static AttentionShape shape(uint32_t n_tokens, uint32_t first, uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim,
                            uint32_t n_slots = 0, uint32_t window = 0)
{
    AttentionArgs a{n_tokens, n_heads, n_kv_heads, head_dim, n_slots ? n_slots : first + n_tokens, window, 1 / std::sqrt(float(head_dim))};
    return {a, first, Format::f16, Format::f16};
}

TEST_CASE("attention: head sizes and groups")
{
    std::vector<OpCase> cases;
    for (uint32_t head_dim : {64u, 80u, 96u, 128u, 256u}) {
        cases.push_back(make_case(shape(1, 0, 2, 1, head_dim)));
        cases.push_back(make_case(shape(1, 100, 4, 2, head_dim)));
        cases.push_back(make_case(shape(37, 0, 4, 1, head_dim)));
    }
    for (uint32_t group = 1; group <= 8; group++) {
        cases.push_back(make_case(shape(1, 70, 2 * group, 2, 64)));
        cases.push_back(make_case(shape(9, 21, 3 * group, 3, 64)));
    }
    check_ops("attention", cases);
}

TEST_CASE("attention: contexts, windows and rings")
{
    std::vector<OpCase> cases;
    for (uint32_t first : {0u, 1u, 6u, 7u, 8u, 15u, 31u, 63u, 64u, 255u, 1000u}) cases.push_back(make_case(shape(1, first, 4, 2, 64)));
    cases.push_back(make_case(shape(3, 50, 4, 2, 64, 200)));  // more slots than positions
    cases.push_back(make_case(shape(130, 0, 3, 1, 64)));      // a long chunk
    cases.push_back(make_case(shape(64, 300, 3, 1, 64)));     // a later chunk
    cases.push_back(make_case(shape(1, 64, 2, 1, 64, 64)));   // a ring that wrapped by one
    cases.push_back(make_case(shape(1, 1037, 2, 1, 64, 48))); // and many times
    cases.push_back(make_case(shape(10, 500, 4, 2, 64, 48))); // each query loses what the chunk wrote over
    cases.push_back(make_case(shape(48, 96, 2, 1, 64, 48)));  // a chunk as long as the ring
    cases.push_back(make_case(shape(1, 90, 4, 1, 64, 0, 1))); // windows
    cases.push_back(make_case(shape(1, 90, 4, 1, 64, 0, 32)));
    cases.push_back(make_case(shape(1, 10, 4, 1, 64, 0, 32))); // not full yet
    cases.push_back(make_case(shape(50, 0, 4, 1, 64, 0, 13)));
    cases.push_back(make_case(shape(16, 700, 4, 1, 64, 80, 64))); // as window layers are: ring of window + chunk
    cases.push_back(make_case(shape(16, 704, 4, 1, 64, 79, 64))); // the least that such a ring may have
    cases.push_back(make_case(shape(1, 705, 4, 1, 256, 80, 64)));
    cases.push_back(make_case(shape(16, 700, 4, 1, 64, 40, 64))); // a ring smaller than its window
    check_ops("attention", cases);
}

TEST_CASE("attention: cache formats and steep logits")
{
    std::vector<OpCase> cases;
    for (Format k : {Format::f16, Format::f32}) {
        for (Format v : {Format::f16, Format::f32}) {
            for (AttentionShape s : {shape(1, 77, 6, 2, 64), shape(11, 30, 4, 4, 80, 0, 9)}) {
                s.k = k;
                s.v = v;
                for (float size : {0.f, 1.f, 30.f}) { // 0: all keys alike, 30: nearly all weight on one
                    s.size = size;
                    cases.push_back(make_case(s));
                }
            }
        }
    }
    check_ops("attention", cases);
}

TEST_CASE("attention: times")
{
    if (!getenv("KS_PERF")) return;
    std::vector<OpCase> cases;
    for (uint32_t first : {511u, 4095u, 32767u}) {
        cases.push_back(make_case(shape(1, first, 9, 3, 64), true));
        cases.push_back(make_case(shape(1, first, 4, 1, 256), true));
        cases.push_back(make_case(shape(1, first, 32, 8, 128), true));
    }
    for (uint32_t first : {0u, 1792u}) {
        cases.push_back(make_case(shape(256, first, 9, 3, 64), true));
        cases.push_back(make_case(shape(256, first, 4, 1, 256), true));
        cases.push_back(make_case(shape(256, first, 32, 8, 128), true));
    }
    cases.push_back(make_case(shape(256, 4096, 4, 1, 256, 768, 512), true));
    check_ops("attention", cases);
}
