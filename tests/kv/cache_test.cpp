// The cache driven by hand: random queries, keys and values in, and who keeps a slot held against the papers' algorithms written
// down independently, token by token, on lists.
#include "runtime/base/rng.h"
#include "runtime/kv/cache.h"

#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <functional>

using namespace ks;

constexpr uint32_t kHeads = 4, kKvHeads = 2, kDim = 16, kGroup = kHeads / kKvHeads;

// One layer on one device.
struct Bed {
    Recipe recipe;
    std::unique_ptr<Backend> backend;
    Buffer buffer;
    std::vector<uint8_t> tables;
    Cache cache;
    Tensor q, k, v, y;
    uint32_t n_seen = 0;

    Bed(const std::string& text, uint32_t n_rows, uint32_t chunk, const char* device = "reference", uint32_t context = 0)
        : recipe(parse_recipe(text + ",k=f32,v=f32").value())
    {
        backend = std::move(open_backend({device, 2, nullptr}).value());
        CacheLayerSpec spec{kHeads, kKvHeads, kDim, n_rows, 0, 0, !recipe.exact() && !recipe.is_ring(), !recipe.exact()};
        if (recipe.is_ring()) spec.n_pinned = recipe.sink, spec.window = n_rows - recipe.sink;
        const ScratchShape shape{chunk, 64, kHeads, kKvHeads, kDim, n_rows * kKvHeads};
        const CacheBytes bytes = Cache::bytes_needed({spec}, recipe, chunk, context);
        const uint64_t scratch_at = bytes.device, inputs_at = scratch_at + backend->scratch_bytes(shape);
        Placer inputs{{}, inputs_at};
        for (int pass = 0; pass < 2; pass++) {
            inputs.offset = inputs_at;
            q = inputs.take(chunk, kHeads * kDim);
            k = inputs.take(chunk, kKvHeads * kDim);
            v = inputs.take(chunk, kKvHeads * kDim);
            y = inputs.take(chunk, kHeads * kDim);
            if (pass == 0) inputs.buffer = buffer = backend->alloc(inputs.offset).value();
        }
        backend->set_scratch(buffer, scratch_at, shape);
        tables.resize(bytes.host + 1);
        cache.place({spec}, recipe, chunk, context, *backend, buffer, 0, tables.data());
    }
    ~Bed() { backend->free(buffer); }
    Bed(const Bed&) = delete;

    std::vector<float> feed(const std::vector<float>& queries, const std::vector<float>& keys, const std::vector<float>& values)
    {
        const uint32_t n = uint32_t(keys.size() / (kKvHeads * kDim));
        cache.begin_layer(0, n, n_seen);
        backend->upload(buffer, q.offset, queries.data(), 4 * queries.size());
        backend->upload(buffer, k.offset, keys.data(), 4 * keys.size());
        backend->upload(buffer, v.offset, values.data(), 4 * values.size());
        cache.write(k, v);
        cache.attend(y, {q, {}}, 1);
        cache.end_layer();
        n_seen += n;
        std::vector<float> out(queries.size());
        backend->download(out.data(), buffer, y.offset, 4 * out.size());
        return out;
    }
    std::vector<uint32_t> positions(uint32_t head) const
    {
        const CacheLayer& l = cache.layer(0);
        return std::vector<uint32_t>(l.positions + l.begin[head], l.positions + l.begin[head] + l.held[head]);
    }
};

// Tokens of a text: queries, keys and values, the same for every cache that reads it.
struct Text {
    uint64_t seed;
    std::vector<float> row(uint32_t token, uint32_t what, uint32_t n) const
    {
        std::vector<float> out;
        for (uint32_t i = 0; i < n; i++) {
            double sum = -6; // nearly normal
            for (uint64_t k = 0; k < 12; k++) sum += random_uniform(seed, ((uint64_t(token) * 4 + what) * 4096 + i) * 12 + k);
            out.push_back(float(sum));
        }
        return out;
    }
    std::vector<float> rows(uint32_t from, uint32_t n, uint32_t what, uint32_t width) const
    {
        std::vector<float> out;
        for (uint32_t t = from; t < from + n; t++) {
            std::vector<float> one = row(t, what, width);
            out.insert(out.end(), one.begin(), one.end());
        }
        return out;
    }
    std::vector<float> read(Bed& bed, uint32_t from, uint32_t n) const
    {
        return bed.feed(rows(from, n, 0, kHeads * kDim), rows(from, n, 1, kKvHeads * kDim), rows(from, n, 2, kKvHeads * kDim));
    }
};

// A policy of one KV head, as its paper has it: lists of tokens, softmax over those that are held, one eviction a token.
struct Paper {
    struct Held {
        uint32_t position;
        std::vector<float> key;
        double score = 0;
    };
    const Text& text;
    uint32_t head, slots, sinks, recent;
    // From the probabilities of the group's query heads, (group, held), to new scores.
    std::function<void(std::vector<Held>&, const std::vector<std::vector<double>>&)> learn;
    std::vector<Held> held;

    void step(uint32_t t)
    {
        std::vector<float> keys = text.row(t, 1, kKvHeads * kDim), queries = text.row(t, 0, kHeads * kDim);
        held.push_back({t, {keys.begin() + head * kDim, keys.begin() + (head + 1) * kDim}});
        std::vector<std::vector<double>> p;
        for (uint32_t g = 0; g < kGroup; g++) {
            std::vector<double> row;
            double top = -1e300, sum = 0;
            for (const Held& h : held) {
                double logit = 0;
                for (uint32_t d = 0; d < kDim; d++) logit += double(queries[(head * kGroup + g) * kDim + d]) * h.key[d];
                row.push_back(logit);
                top = std::max(top, logit);
            }
            for (double& x : row) sum += x = std::exp(x - top);
            for (double& x : row) x /= sum;
            p.push_back(row);
        }
        learn(held, p);
        if (held.size() <= slots) return;
        size_t worst = sinks; // ties: the older leaves
        for (size_t i = sinks; i + recent < held.size(); i++)
            if (held[i].score < held[worst].score) worst = i;
        held.erase(held.begin() + long(worst));
    }
    std::vector<uint32_t> positions() const
    {
        std::vector<uint32_t> out;
        for (const Held& h : held) out.push_back(h.position);
        return out;
    }
};

static void compare(const std::string& recipe, uint32_t slots, uint32_t sinks, uint32_t recent, decltype(Paper::learn) learn)
{
    const Text text{slots * 7ull + recent};
    for (const char* device : {"reference", "cpu"}) {
        Bed bed(recipe, slots, 8, device);
        std::vector<Paper> papers;
        for (uint32_t h = 0; h < kKvHeads; h++) papers.push_back({text, h, slots, sinks, recent, learn, {}});
        for (uint32_t t = 0; t < 4 * slots; t++) {
            text.read(bed, t, 1);
            for (uint32_t h = 0; h < kKvHeads; h++) {
                papers[h].step(t);
                CAPTURE(recipe);
                CAPTURE(device);
                CAPTURE(t);
                CAPTURE(h);
                REQUIRE(bed.positions(h) == papers[h].positions());
            }
        }
        CHECK(bed.cache.evicted() == uint64_t(kKvHeads) * 3 * slots);
    }
}

static void add_sums(std::vector<Paper::Held>& held, const std::vector<std::vector<double>>& p)
{
    for (size_t i = 0; i < held.size(); i++)
        for (const auto& row : p) held[i].score += row[i];
}

TEST_CASE("cache: delta = 1 is H2O as its paper has it, with its recent half and without (where it freezes)")
{
    compare("h2o,sink=0,recent=20,delta=1,lifetime=0", 40, 0, 20, add_sums);
    compare("h2o,sink=4,recent=8,delta=1,lifetime=0", 32, 4, 8, add_sums);
    compare("h2o,sink=0,recent=1,delta=1,lifetime=0", 32, 0, 1, add_sums);
}

TEST_CASE("cache: delta = 1 is decayed H2O, and H2O by lifetime")
{
    compare("h2o,sink=2,recent=9,delta=1,lifetime=0,decay=0.9", 40, 2, 9, [](auto& held, const auto& p) {
        for (auto& h : held) h.score *= 0.9f;
        add_sums(held, p);
    });
    // The mean over the queries that could see the token.
    compare("h2o,sink=2,recent=9,delta=1", 40, 2, 9, [](auto& held, const auto& p) {
        const uint32_t now = held.back().position;
        for (size_t i = 0; i < held.size(); i++) {
            const double lived = now - held[i].position; // queries before this one
            double sum = held[i].score * lived;
            for (const auto& row : p) sum += row[i];
            held[i].score = sum / (lived + 1);
        }
    });
}

TEST_CASE("cache: delta = 1 is Scissorhands' count of the last queries, where its window is all there was")
{
    // observe is larger than delta, so older queries fade instead of falling out: with a long window hardly.
    const float fade = 1 - 1 / 4096.f;
    compare("scissorhands,sink=2,recent=9,delta=1,observe=4096", 40, 2, 9, [=](auto& held, const auto& p) {
        for (auto& h : held) h.score *= fade;
        for (size_t i = 0; i < held.size(); i++)
            for (const auto& row : p) held[i].score -= row[i] < 1.0 / double(held.size());
    });
}

TEST_CASE("cache: sinks and a ring, in chunks of any size, are the same and equal a masked attention")
{
    const Text text{99};
    constexpr uint32_t kTokens = 200, kSlots = 40;
    for (const char* device : {"reference", "cpu"}) {
        Bed single("sink,sink=3", kSlots, 64, device);
        std::vector<float> expected;
        for (uint32_t t = 0; t < kTokens; t++) {
            std::vector<float> y = text.read(single, t, 1);
            expected.insert(expected.end(), y.begin(), y.end());
        }
        for (uint32_t chunk : {7u, 40u, 64u}) {
            Bed bed("sink,sink=3", kSlots, 64, device);
            std::vector<float> found;
            for (uint32_t t = 0; t < kTokens; t += chunk) {
                std::vector<float> y = text.read(bed, t, std::min(chunk, kTokens - t));
                found.insert(found.end(), y.begin(), y.end());
            }
            CAPTURE(device);
            CAPTURE(chunk);
            CHECK(found == expected);
        }
        // The last token sees 0, 1, 2 and the 37 up to itself.
        const uint32_t t = kTokens - 1;
        std::vector<float> q = text.row(t, 0, kHeads * kDim);
        std::vector<double> weights, y(kDim, 0.0);
        double sum = 0;
        for (uint32_t i = 0; i <= t; i++) {
            if (i >= 3 && t - i >= kSlots - 3) continue;
            std::vector<float> k = text.row(i, 1, kKvHeads * kDim), v = text.row(i, 2, kKvHeads * kDim);
            double logit = 0;
            for (uint32_t d = 0; d < kDim; d++) logit += double(q[d]) * k[d];
            sum += std::exp(logit);
            for (uint32_t d = 0; d < kDim; d++) y[d] += std::exp(logit) * v[d];
        }
        for (uint32_t d = 0; d < kDim; d++) CHECK(expected[t * kHeads * kDim + d] == doctest::Approx(y[d] / sum).epsilon(1e-5));
    }
}

TEST_CASE("cache: whatever the policy, what is protected stays, order holds, and nothing is held twice")
{
    for (const char* text_of : {"h2o", "scissorhands,observe=20", "tova", "snapkv", "keydiff", "kcenter", "mix", "ada", "h2o,victims=merge",
                                "mix,victims=merge", "ada,victims=merge", "subgen", "sink,victims=merge"}) {
        for (const char* device : {"reference", "cpu"}) {
            const Text text{7};
            Bed bed(std::string(text_of) + ",sink=4,recent=10,delta=3", 48, 32, device);
            const uint32_t sizes[] = {30, 32, 1, 1, 1, 1, 5, 32, 32, 1, 1, 1, 1, 1, 1, 1, 17, 1, 1, 1};
            for (uint32_t n : sizes) {
                std::vector<float> y = text.read(bed, bed.n_seen, n);
                CAPTURE(text_of);
                CAPTURE(device);
                CAPTURE(bed.n_seen);
                for (float x : y) REQUIRE(std::isfinite(x));
                const CacheLayer& l = bed.cache.layer(0);
                uint32_t total = 0;
                std::vector<uint32_t> rows(l.rows, l.rows + kKvHeads * 48);
                for (uint32_t h = 0; h < kKvHeads; h++) {
                    std::vector<uint32_t> p = bed.positions(h);
                    total += l.capacity[h];
                    REQUIRE(p.size() <= l.capacity[h]);
                    for (uint32_t i = 0; i < std::min(4u, bed.n_seen); i++) REQUIRE(p[i] == i);
                    for (uint32_t i = 0; i < std::min(10u, bed.n_seen); i++) REQUIRE(p[p.size() - 1 - i] == bed.n_seen - 1 - i);
                    p.erase(std::remove(p.begin(), p.end(), kNoPosition), p.end());
                    REQUIRE(std::adjacent_find(p.begin(), p.end(), std::greater_equal<uint32_t>()) == p.end());
                }
                REQUIRE(total == kKvHeads * 48);
                std::sort(rows.begin(), rows.end());
                REQUIRE(std::adjacent_find(rows.begin(), rows.end()) == rows.end());
                REQUIRE(rows.back() == kKvHeads * 48 - 1);
            }
            CHECK(bed.cache.evicted() > 0);
            const std::string name = text_of;
            if (name.find("merge") == name.npos && name != "subgen") CHECK(bed.cache.merged() == 0);
        }
    }
}

TEST_CASE("cache: merging keeps the mass of what it merged")
{
    // All keys alike: every victim merges, and the output is the mean of all values ever read, up to the cap of a weight.
    Bed bed("sink,victims=merge,sink=0,recent=1,delta=1", 40, 8);
    std::vector<float> q(kHeads * kDim, 0.1f), k(kKvHeads * kDim, 0.3f), v(kKvHeads * kDim), y;
    double sum = 0;
    for (uint32_t t = 0; t < 100; t++) {
        std::fill(v.begin(), v.end(), float(t));
        sum += t;
        y = bed.feed(q, k, v);
        CHECK(y[0] == doctest::Approx(sum / (t + 1)).epsilon(1e-5));
    }
    CHECK(bed.cache.merged() == 60 * kKvHeads);
}

TEST_CASE("cache: the layers fill exactly the bytes that were asked for, apart and aligned")
{
    const Recipe recipe = parse_recipe("exact,k=f32").value();
    std::vector<CacheLayerSpec> specs = {{3, 3, 64, 100}, {4, 1, 256, 37, 0, 20}, {2, 2, 80, 1}};
    const uint64_t bytes = Cache::bytes_needed(specs, recipe, 16, 1).device;
    std::unique_ptr<Backend> backend = std::move(open_backend({"reference", 1, nullptr}).value());
    std::vector<uint8_t> tables(Cache::bytes_needed(specs, recipe, 16, 1).host);
    Cache cache;
    cache.place(specs, recipe, 16, 1, *backend, Buffer{nullptr, bytes}, 0, tables.data());
    uint64_t end = 0;
    for (uint32_t il = 0; il < specs.size(); il++) {
        const KvSlots& slots = cache.layer(il).slots;
        CHECK(slots.k.offset % 64 == 0);
        CHECK(slots.k.offset >= end);
        CHECK(slots.k.rows == specs[il].n_kv_heads * specs[il].n_rows);
        CHECK(slots.v.offset >= slots.k.offset + 4ull * slots.k.rows * slots.k.cols);
        CHECK(slots.view.offset >= slots.v.offset + 2ull * slots.v.rows * slots.v.cols);
        end = slots.view.offset + 4ull * slots.view.rows * slots.view.cols;
    }
    CHECK(end <= bytes);
    CHECK(bytes - end < 64);
}

TEST_CASE("cache: a ring can be rewound while it still holds what would be seen")
{
    const Recipe recipe = parse_recipe("exact").value();
    std::vector<CacheLayerSpec> specs = {{1, 1, 64, 1000}, {1, 1, 64, 30, 0, 20}}; // a window of 20 in 30 slots
    std::unique_ptr<Backend> backend = std::move(open_backend({"reference", 1, nullptr}).value());
    std::vector<uint8_t> tables(Cache::bytes_needed(specs, recipe, 16, 1000).host);
    Cache cache;
    cache.place(specs, recipe, 16, 1000, *backend, {}, 0, tables.data());
    CHECK(cache.rewind(25, 0)); // nothing was overwritten yet
    CHECK(cache.rewind(100, 100));
    // Positions 70..99 are held. The token at 89 sees 70..89, the one at 88 would see 69.
    CHECK(cache.rewind(100, 89));
    CHECK_FALSE(cache.rewind(100, 88));
    CHECK(cache.rewind(100, 0));
}
