// The cache without a model: rings, tables, protected tokens, merging, and the layout of its bytes.
#include "tests/kv/cache_bed.h"

using namespace ks;

constexpr BedShape kShape;
constexpr uint32_t kHeads = kShape.n_heads, kKvHeads = kShape.n_kv_heads, kDim = kShape.head_dim;

TEST_CASE("cache: sinks and a ring equal masked attention, in chunks of any size")
{
    const Text text{99};
    constexpr uint32_t kTokens = 200, kSlots = 40;
    for (const std::string& device : tested_names()) {
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
            if (sums_keep_order(device)) CHECK(found == expected);
            for (size_t i = 0; i < found.size(); i++)
                REQUIRE(std::fabs(found[i] - expected[i]) < 1e-5f);
        }
        // The last token sees tokens 0, 1, 2 and the last 37, itself included.
        const uint32_t t = kTokens - 1;
        std::vector<float> q = text.query(t);
        std::vector<double> weights, y(kDim, 0.0);
        double sum = 0;
        for (uint32_t i = 0; i <= t; i++) {
            if (i >= 3 && t - i >= kSlots - 3) continue;
            std::vector<float> k = text.key(i), v = text.value(i);
            double logit = 0;
            for (uint32_t d = 0; d < kDim; d++) logit += double(q[d]) * k[d];
            sum += std::exp(logit);
            for (uint32_t d = 0; d < kDim; d++) y[d] += std::exp(logit) * v[d];
        }
        for (uint32_t d = 0; d < kDim; d++)
            CHECK(expected[t * kHeads * kDim + d] == doctest::Approx(y[d] / sum).epsilon(1e-5));
    }
}

TEST_CASE("cache: with any policy protected tokens stay, order holds, and no slot is used twice")
{
    for (const char* text_of : {"h2o", "scissorhands,observe=20", "tova", "snapkv", "keydiff",
                                "kcenter", "mix", "ada", "h2o,victims=merge", "mix,victims=merge",
                                "ada,victims=merge", "subgen", "sink,victims=merge"}) {
        for (const std::string& device : tested_names()) {
            const Text text{7};
            Bed bed(std::string(text_of) + ",sink=4,recent=10,delta=3", 48, 32, device);
            const uint32_t sizes[] = {30, 32, 1, 1, 1, 1, 5,  32, 32, 1,
                                      1,  1,  1, 1, 1, 1, 17, 1,  1,  1};
            for (uint32_t n : sizes) {
                std::vector<float> y = text.read(bed, bed.n_seen, n);
                CAPTURE(text_of);
                CAPTURE(device);
                CAPTURE(bed.n_seen);
                for (float x : y) REQUIRE(std::isfinite(x));
                const CacheLayer& l = bed.cache.layer(0);
                uint32_t total = 0;
                std::vector<uint32_t> rows(l.slots, l.slots + kKvHeads * 48);
                for (uint32_t h = 0; h < kKvHeads; h++) {
                    std::vector<uint32_t> p = bed.positions(h);
                    total += l.capacity[h];
                    REQUIRE(p.size() <= l.capacity[h]);
                    for (uint32_t i = 0; i < std::min(4u, bed.n_seen); i++) REQUIRE(p[i] == i);
                    for (uint32_t i = 0; i < std::min(10u, bed.n_seen); i++)
                        REQUIRE(p[p.size() - 1 - i] == bed.n_seen - 1 - i);
                    p.erase(std::remove(p.begin(), p.end(), kNoPosition), p.end());
                    REQUIRE(std::adjacent_find(p.begin(), p.end(),
                                               std::greater_equal<uint32_t>()) == p.end());
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

TEST_CASE("cache: merging keeps the attention mass of the merged tokens")
{
    // All keys are equal, so every victim merges. The output is the mean of all values ever read,
    // while no weight is capped.
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

TEST_CASE("cache: layers are aligned, do not overlap, and fill the computed bytes")
{
    const Recipe recipe = parse_recipe("exact,k=f32").value();
    std::vector<CacheLayerSpec> specs = {{3, 3, 64, 100}, {4, 1, 256, 37, 0, 20}, {2, 2, 80, 1}};
    const uint64_t bytes = Cache::bytes_needed(specs, recipe, 16, 1).device;
    std::unique_ptr<Backend> backend = std::move(open_backend({"reference", 1, nullptr}).value());
    std::vector<uint8_t> tables(Cache::bytes_needed(specs, recipe, 16, 1).host);
    Cache cache;
    cache.place(specs, recipe, 16, 1, *backend, {Buffer{nullptr, bytes}, 0, tables.data()});
    cache.clear();
    uint64_t end = 0;
    for (uint32_t il = 0; il < specs.size(); il++) {
        const KvSlots& slots = cache.layer(il).kv;
        CHECK(slots.k.offset % 64 == 0);
        CHECK(slots.k.offset >= end);
        CHECK(slots.k.rows == specs[il].n_kv_heads * specs[il].n_slots);
        CHECK(slots.v.offset >= slots.k.offset + 4ull * slots.k.rows * slots.k.cols);
        end = slots.v.offset + 2ull * slots.v.rows * slots.v.cols;
    }
    for (uint32_t il = 0; il < specs.size();
         il++) { // adjacent, because they are uploaded in one copy
        const Tensor& head_layout = cache.layer(il).kv.head_layout;
        CHECK(head_layout.offset % 64 == 0);
        CHECK(head_layout.offset >= end);
        CHECK(head_layout.rows * head_layout.cols == specs[il].n_kv_heads * layout_words);
        end = head_layout.offset + 4ull * head_layout.rows * head_layout.cols;
    }
    CHECK(end <= bytes);
    CHECK(bytes - end < 64);
}

TEST_CASE("cache: a ring can be rewound while it holds every visible token")
{
    const Recipe recipe = parse_recipe("exact").value();
    std::vector<CacheLayerSpec> specs = {{1, 1, 64, 1000},
                                         {1, 1, 64, 30, 0, 20}}; // a window of 20 in 30 slots
    std::unique_ptr<Backend> backend = std::move(open_backend({"reference", 1, nullptr}).value());
    std::vector<uint8_t> tables(Cache::bytes_needed(specs, recipe, 16, 1000).host);
    Cache cache;
    cache.place(specs, recipe, 16, 1000, *backend, {{}, 0, tables.data()});
    cache.clear();
    CHECK(cache.rewind(25, 0)); // nothing was overwritten yet
    CHECK(cache.rewind(100, 100));
    // Positions 70..99 are held. The token at 89 sees 70..89, the token at 88 would see 69.
    CHECK(cache.rewind(100, 89));
    CHECK_FALSE(cache.rewind(100, 88));
    CHECK(cache.rewind(100, 0));
}
