// attention, kv_score and select with a softcap of the logits.
#include "tests/backends/attention_cases.h"
#include "tests/devices.h"

#include <doctest/doctest.h>

using namespace ks;

// A cap of 2 changes every logit, a cap of 50 hardly any.
static std::vector<AttentionShape> shapes(uint32_t n_tokens)
{
    const AttentionShape held =
        with_codes(with_table(shape(n_tokens, 150, 6, 2, 64, 170), 5), 4, 140, 150);
    const AttentionShape staged =
        with_codes(with_table(with_stage(shape(n_tokens, 260, 3, 1, 80, 60), 130)), 20, 244, 224);
    std::vector<AttentionShape> all = {
        shape(n_tokens, 77, 4, 2, 128),
        shape(n_tokens, 40, 4, 1, 256, 0, 13),
        shape(n_tokens, 9, 2, 1, 36),
        with_table(shape(n_tokens, 100, 6, 2, 64, 300)),
        with_clamped(with_stage(shape(n_tokens, 1000, 3, 1, 64, 150, 146, 4), 140), 4),
        with_stage(shape(n_tokens, 300, 4, 2, 256, 128, 128), 140),
        with_weights(with_table(with_stage(shape(n_tokens, 200, 4, 2, 80, 200), 130))),
        with_codecs(held, Format::q8, Format::q8),
        with_codecs(with_weights(held), Format::turbo4, Format::turbo3),
        with_codecs(with_clamped(staged, 20), Format::turbo4, Format::turbo4),
        with_codecs(staged, Format::kivi, Format::kiviv),
        without_key_bias(with_codecs(held, Format::q8, Format::q8), 64, rope_neox),
        without_key_bias(with_weights(with_table(shape(n_tokens, 90, 3, 1, 80, 300))), 20,
                         rope_interleaved)};
    std::vector<AttentionShape> capped;
    for (AttentionShape s : all)
        for (float cap : {2.f, 50.f}) {
            s.size = cap == 2 ? 3 : 1;
            capped.push_back(with_softcap(s, cap));
        }
    return capped;
}

TEST_CASE("attention: softcap")
{
    std::vector<OpCase> cases;
    for (uint32_t n_tokens : {1u, 3u, 40u, 130u})
        for (const AttentionShape& s : shapes(n_tokens)) cases.push_back(make_case(s));
    check_ops("attention", cases);
}

TEST_CASE("attention: a softcap needs the general kernel of GPUs")
{
    for (const DeviceInfo& device : tested_devices()) {
        if (device.backend == "reference") continue;
        CAPTURE(device.id);
        Bench bench(device.id, 1);
        for (uint32_t n_tokens : {1u, 4u, 40u}) {
            const AttentionArgs plain = shape(n_tokens, 100, 4, 2, 64).a,
                                capped = with_softcap(shape(n_tokens, 100, 4, 2, 64), 30).a;
            const KernelChoice fast = bench.backend().attention_choice(plain, {}),
                               general = bench.backend().attention_choice(capped, {});
            if (device.backend == "cpu") {
                CHECK(std::string(general.kernel) == fast.kernel);
                continue;
            }
            CHECK(std::string(general.kernel) == "attention");
            CHECK(std::string(general.reason) == "logits have a softcap");
            CHECK(std::string(fast.reason) != general.reason);
        }
    }
}

TEST_CASE("kv_score: softcap")
{
    std::vector<OpCase> cases;
    for (uint32_t n_tokens : {1u, 3u, 40u})
        for (const AttentionShape& s : shapes(n_tokens)) {
            cases.push_back(score_case(s, {n_tokens / 2, score_sum, 0, 0.9f}));
            if (s.a.softcap == 2) cases.push_back(score_case(s, {0, score_below, 1, 1}));
        }
    check_ops("kv_score", cases);
}

// One step that chooses n_taken units of the candidates of each head.
struct SelectShape {
    uint32_t kind, head_dim, unit, n_taken;
    float softcap;
    bool weighted;
    uint32_t before = 300, n_heads = 4, n_kv_heads = 2, n_first = 20, n_last = 20;

    SelectArgs args() const
    {
        const uint32_t n_read = n_first + n_last + n_taken * unit;
        return {kind, n_read, n_first, n_last, n_read + n_last / 2 + 1, 0, 1, 1, unit};
    }
    AttentionArgs attention() const
    {
        return with_softcap(shape(1, before, n_heads, n_kv_heads, head_dim), softcap).a;
    }
    uint32_t n_units() const { return (before - n_first - n_last) / unit; }
};

// The queries of a KV head differ in size: without a cap the large one decides alone.
struct SelectData {
    std::vector<float> q, k, scores, weights;
    std::vector<uint32_t> table; // (n_kv_heads, n_rows)

    explicit SelectData(const SelectShape& s)
    {
        const AttentionArgs a = s.attention();
        const uint32_t n_slots = a.n_kv_heads * a.n_rows;
        Random random(s.kind + s.head_dim);
        q = random.normals(a.n_heads * a.head_dim, 1.5f);
        for (uint32_t i = 0; i < q.size(); i++) q[i] *= i / a.head_dim % 2 ? 6.f : 1.f;
        k = random.normals(n_slots * a.head_dim);
        scores = random.normals(n_slots);
        for (uint32_t i = 0; i < 2 * n_slots; i++)
            weights.push_back(s.weighted ? float(random.uniform(-1, 1)) : 0.f);
        for (uint32_t i = 0; i < n_slots; i++) table.push_back(n_slots - 1 - i);
    }
};

// The logit of an index, which includes its log-weight b.
static double logit_of(const SelectShape& s, const SelectData& data, uint32_t h, uint32_t index)
{
    const AttentionArgs a = s.attention();
    const uint32_t slot = data.table[h / (a.n_heads / a.n_kv_heads) * a.n_rows + index];
    double logit = 0;
    for (uint32_t d = 0; d < a.head_dim; d++)
        logit += double(data.q[h * a.head_dim + d]) * data.k[slot * a.head_dim + d];
    logit = a.softcap * std::tanh(logit * a.scale / a.softcap);
    return logit + data.weights[2 * slot + 1];
}

static double mean_logit(const SelectShape& s, const SelectData& data, uint32_t h, uint32_t begin)
{
    const AttentionArgs a = s.attention();
    const uint32_t* table = &data.table[h / (a.n_heads / a.n_kv_heads) * a.n_rows];
    std::vector<uint32_t> indexes(s.unit);
    std::iota(indexes.begin(), indexes.end(), begin);
    std::sort(indexes.begin(), indexes.end(), [&](uint32_t i, uint32_t j) {
        return data.scores[table[i]] > data.scores[table[j]];
    });
    double sum = 0;
    for (uint32_t i = 0; i < select_n_representatives; i++)
        sum += logit_of(s, data, h, indexes[i]) / select_n_representatives;
    return sum;
}

// The votes on the units of a KV head.
static std::vector<double> votes(const SelectShape& s, const SelectData& data, uint32_t head)
{
    const uint32_t group = s.n_heads / s.n_kv_heads;
    std::vector<double> sums(s.n_units());
    for (uint32_t h = head * group; h < (head + 1) * group; h++) {
        std::vector<double> of(s.n_units());
        double norm = 0;
        for (uint32_t i = 0; i < of.size(); i++) {
            of[i] = s.kind == select_soft ? std::exp(logit_of(s, data, h, s.n_first + i))
                                          : mean_logit(s, data, h, s.n_first + i * s.unit);
            norm += of[i];
        }
        for (uint32_t i = 0; i < of.size(); i++)
            sums[i] += s.kind == select_soft ? of[i] / norm : of[i];
    }
    return sums;
}

// The chosen slots of all heads.
static std::vector<double> chosen(const SelectShape& s, const SelectData& data)
{
    std::vector<double> out;
    for (uint32_t head = 0; head < s.n_kv_heads; head++) {
        const std::vector<double> of = votes(s, data, head);
        std::vector<double> sorted = of;
        std::sort(sorted.rbegin(), sorted.rend());
        for (uint32_t i = 0; i < s.before; i++) {
            const bool candidate = i >= s.n_first && i < s.before - s.n_last;
            if (!candidate || of[(i - s.n_first) / s.unit] >= sorted[s.n_taken - 1])
                out.push_back(data.table[head * (s.before + 1) + i]);
        }
    }
    return out;
}

static Selection make_selection(Bench& bench, const SelectShape& s, const SelectData& data)
{
    Selection to;
    to.table = bench.words(std::vector<uint32_t>(s.n_kv_heads * s.args().stride));
    to.head_layout = bench.words(std::vector<uint32_t>(s.n_kv_heads * layout_words));
    to.query =
        bench.input(1, s.n_heads * s.head_dim, std::vector<float>(s.n_heads * s.head_dim, 0.f));
    to.state = bench.words(std::vector<uint32_t>(select_words));
    to.scores = bench.input(1, uint32_t(data.scores.size()), data.scores);
    to.representatives = bench.words(
        std::vector<uint32_t>(s.n_kv_heads * (s.n_units() + 2) * select_n_representatives, ~0u));
    for (const Tensor& t : {to.table, to.head_layout, to.query, to.state, to.representatives})
        bench.will_change(t);
    return to;
}

static OpCase select_case(const SelectShape& s)
{
    const AttentionArgs a = s.attention();
    const auto data = std::make_shared<SelectData>(s);
    OpCase c;
    c.name = std::string(s.kind == select_soft ? "keys" : "blocks") + " of " +
             std::to_string(s.head_dim) + (s.weighted ? ", weighted" : "");
    c.bound = kExact;
    c.prepare = [=](Bench& bench) {
        ScratchShape shape;
        shape.n_tokens = 1;
        shape.n_heads = s.n_heads;
        shape.n_kv_heads = s.n_kv_heads;
        shape.head_dim = s.head_dim;
        shape.selected_slots = a.n_rows;
        bench.scratch(shape);
        const Tensor q = bench.input(1, a.n_heads * a.head_dim, data->q);
        KvSlots slots;
        slots.k = slots.v = bench.input(a.n_kv_heads * a.n_rows, a.head_dim, data->k);
        slots.table = bench.words(data->table);
        if (s.weighted) slots.weights = bench.input(a.n_kv_heads * a.n_rows, 2, data->weights);
        std::vector<uint32_t> layout(a.n_kv_heads * layout_words);
        for (uint32_t head = 0; head < a.n_kv_heads; head++) {
            layout[head * layout_words + layout_n_held] = s.before;
            layout[head * layout_words + layout_table_begin] = head * a.n_rows;
        }
        slots.head_layout = bench.words(layout);
        const Selection to = make_selection(bench, s, *data);
        const uint32_t n_read = s.args().n_read, stride = s.args().stride;
        const Tensor out = bench.output(1, a.n_kv_heads * n_read);
        Bench* own = &bench;
        auto run = [=] {
            own->backend().select(s.args(), a, to, {q, {}}, slots);
            const std::vector<uint32_t> table = own->read_words(to.table);
            std::vector<float> found;
            for (uint32_t head = 0; head < s.n_kv_heads; head++)
                found.insert(found.end(), &table[head * stride], &table[head * stride] + n_read);
            own->backend().upload(out.buffer, out.offset, found.data(), 4 * found.size());
        };
        return Prepared{run, {out}};
    };
    c.formula = [=] { return chosen(s, *data); };
    return c;
}

TEST_CASE("select: softcap")
{
    std::vector<OpCase> cases;
    for (uint32_t head_dim : {36u, 64u, 80u, 128u})
        for (bool weighted : {false, true}) {
            cases.push_back(select_case({select_soft, head_dim, 1, 40, 3, weighted}));
            cases.push_back(select_case({select_blocks, head_dim, 20, 4, 3, weighted}));
        }
    check_ops("select", cases);
}
