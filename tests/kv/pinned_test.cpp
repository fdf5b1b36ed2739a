// Pinned tokens, and template tokens between messages, which stay or leave as a whole.
#include "tests/kv/cache_bed.h"
#include "tools/cache_statistics.h"

using namespace ks;

static const char* const kTables[] = {"h2o",
                                      "scissorhands,observe=20",
                                      "tova",
                                      "snapkv",
                                      "keydiff",
                                      "kcenter",
                                      "mix",
                                      "ada",
                                      "h2o,victims=merge",
                                      "mix,victims=merge",
                                      "ada,victims=merge",
                                      "sink,victims=merge"};
constexpr uint32_t kSlots = 48;

// Reads n tokens in chunks of changing sizes. Returns the attention outputs.
static std::vector<float> read(Bed& bed, const Text& text, uint32_t n)
{
    static const uint32_t kSizes[] = {7, 1, 30, 1, 1, 32, 5, 1};
    std::vector<float> out;
    for (uint32_t end = bed.n_seen + n, nth = 0; bed.n_seen < end; nth++) {
        std::vector<float> y =
            text.read(bed, bed.n_seen, std::min(kSizes[nth % 8], end - bed.n_seen));
        out.insert(out.end(), y.begin(), y.end());
    }
    return out;
}

// For each position, the number of heads that hold it.
static std::vector<uint32_t> holders(const Bed& bed)
{
    std::vector<uint32_t> heads(bed.n_seen);
    CHECK(count_holders(bed.cache, bed.n_seen, 0, bed.n_seen, heads.data()) ==
          bed.shape.n_kv_heads);
    return heads;
}

TEST_CASE(
    "pinned: pinned tokens equal as many sinks, whenever they are pinned before the first eviction")
{
    std::vector<std::string> recipes(std::begin(kTables), std::end(kTables));
    for (const char* other : {"subgen", "window", "sink"}) recipes.push_back(other);
    for (const std::string& recipe : recipes) {
        for (uint32_t before : {0u, 40u}) {
            for (uint32_t n : {2u, 9u, 500u}) {
                const Text text{31};
                // At most a quarter of the slots.
                const uint32_t sinks =
                    std::min(std::max(recipe == "window" ? 0u : 4u, n), kSlots / 4);
                Bed bed(recipe + ",recent=10,delta=3", kSlots, 32),
                    same(recipe + ",recent=10,delta=3,sink=" + std::to_string(sinks), kSlots, 32);
                CAPTURE(recipe);
                CAPTURE(before);
                CAPTURE(n);
                read(bed, text, before);
                read(same, text, before);
                REQUIRE(bed.cache.pin(bed.n_seen, n));
                CHECK(bed.cache.n_pinned() == n);
                CHECK(read(bed, text, 150) == read(same, text, 150));
                CHECK(holders(bed) == holders(same));
                for (uint32_t p = 0; p < sinks; p++) CHECK(holders(bed)[p] == bed.shape.n_kv_heads);
                CHECK(bed.cache.evicted() == same.cache.evicted());
                const CacheTiers tiers = tiers_of(bed.cache, 0, bed.n_seen);
                CHECK(tiers.pinned == sinks * bed.shape.n_kv_heads);
                CHECK(tiers.pinned + tiers.kept + tiers.merged + tiers.recent + tiers.free ==
                      kSlots * bed.shape.n_kv_heads);
                const CacheLayer& l = bed.cache.layer(0);
                const uint32_t* counts = l.counts;
                if (recipe == "subgen") CHECK(tiers.merged > 40);
                if (recipe != "subgen")
                    CHECK(tiers.merged ==
                          (counts ? std::count_if(counts, counts + l.kv.k.rows,
                                                  [](uint32_t count) { return count > 1; })
                                  : 0));
                CHECK_FALSE(bed.cache.pin(bed.n_seen, n + 1)); // too late
                CHECK(bed.cache.pin(bed.n_seen, n));
                bed.cache.clear();
                same.cache.clear();
                bed.n_seen = same.n_seen = 0;
                // The tokens are pinned in the next text, too.
                CHECK(read(bed, text, 100) == read(same, text, 100));
            }
        }
    }
}

TEST_CASE("pinned: a ring that is full, or was full before a rewind, cannot pin more")
{
    const Text text{5};
    for (const char* recipe : {"sink", "window"}) {
        Bed bed(recipe, kSlots, 32);
        read(bed, text, kSlots - 1);
        CHECK(bed.cache.pin(bed.n_seen, 9));
        CHECK(bed.cache.pin(bed.n_seen, 2));
        read(bed, text, 2);
        // The newest token has taken a pinned token's row.
        CHECK_FALSE(bed.cache.pin(bed.n_seen, 9));
        REQUIRE(bed.cache.rewind(bed.n_seen, kSlots));
        CHECK_FALSE(bed.cache.pin(kSlots, 9));
        CHECK(bed.cache.rewind(bed.n_seen, 1));
        CHECK(bed.cache.pin(1, 9));
    }
    // An exact cache and a window of the model pin nothing.
    const Recipe exact = parse_recipe("exact").value();
    const std::vector<CacheLayerSpec> specs = {{1, 1, 64, 100},
                                               {1, 1, 64, 30, 0, 30, false, true, true}};
    std::unique_ptr<Backend> backend = std::move(open_backend({"reference", 1, nullptr}).value());
    std::vector<uint8_t> tables(Cache::bytes_needed(specs, exact, 16, 100).host);
    Cache cache;
    cache.place(specs, exact, 16, 100, *backend, {{}, 0, tables.data()});
    cache.clear();
    CHECK(cache.pin(70, 20));
    for (uint32_t il : {0u, 1u}) {
        CHECK(cache.layer(il).spec.n_pinned == 0);
        CHECK(cache.layer(il).spec.window == specs[il].window);
    }
    uint32_t heads = 0;
    CHECK(count_holders(cache, 70, 0, 1, &heads) == 0);
    CHECK(tiers_of(cache, 0, 70).kept == 70);
    CHECK(tiers_of(cache, 0, 70).free == 30);
    CHECK(tiers_of(cache, 1, 70).recent == 30);
}

// A text of messages with 3 template tokens at the begin of each.
struct Messages {
    std::vector<uint32_t> ids;

    Messages(Bed& bed, uint32_t n, uint32_t period = 20) : ids(n)
    {
        for (uint32_t p = 0; p < n; p++)
            ids[p] = p * 7 % 50 | (p % period < 3 ? kTemplateToken : 0);
        bed.cache.set_text(ids.data(), n, 1u << 30);
    }
    static bool is_template(uint32_t p) { return p % 20 < 3; }
};

// 12 of 96 slots are for template tokens: four messages' tokens before the 6 recent tokens. At most
// one message loses its place at a time, and at least three tokens leave together, so the template
// tokens of a message are never separated.
static void check_templates(const Bed& bed)
{
    for (uint32_t h = 0; h < bed.shape.n_kv_heads; h++) {
        const std::vector<uint32_t> held = bed.positions(h);
        auto holds = [&](uint32_t p) { return std::binary_search(held.begin(), held.end(), p); };
        CAPTURE(h);
        uint32_t n_template = 0;
        for (uint32_t first = (bed.n_seen - 7) / 20 * 20; first >= 20; first -= 20) {
            const uint32_t n = std::min(3u, bed.n_seen - 6 - first); // the rest is recent
            const bool stays = (n_template += n) <= 12;
            CAPTURE(first);
            for (uint32_t i = 0; i < n; i++) REQUIRE(holds(first + i) >= stays);
            for (uint32_t i = 1; i < n; i++) REQUIRE(holds(first + i) == holds(first));
        }
        // The template tokens of the fifth message leave at the first decision after they lost
        // their place.
        CHECK_FALSE(holds((bed.n_seen - 7 - 24) / 20 * 20 - 80));
    }
}

TEST_CASE("template tokens: the newest stay, older ones leave with their message")
{
    for (const char* recipe : kTables) {
        for (const char* device : {"reference", "cpu"}) {
            const Text text{12};
            Bed bed(std::string(recipe) + ",recent=6,delta=4", 96, 32, device);
            const Messages messages(bed, 400);
            CAPTURE(recipe);
            CAPTURE(device);
            while (bed.n_seen + 20 <= 400) {
                text.read(bed, bed.n_seen, bed.n_seen % 60 < 40 || bed.n_seen < 120 ? 20 : 1);
                CAPTURE(bed.n_seen);
                if (bed.n_seen > 140) check_templates(bed);
            }
            const std::vector<uint32_t> heads = holders(bed);
            uint32_t n_content = 0;
            for (uint32_t p = 4; p < bed.n_seen; p++)
                n_content += Messages::is_template(p) ? 0 : heads[p];
            CHECK(n_content > 60 * bed.shape.n_kv_heads);
        }
    }
}

TEST_CASE("template tokens: they leave beyond the trained distance, and if their ids are unknown")
{
    const Text text{12};
    for (uint32_t trained : {120u, 1u << 30}) { // tokens up to 105 back stay
        for (uint32_t n_known : {60u, 400u}) {
            Bed bed("keydiff,recent=6,delta=4", 96, 32);
            const Messages messages(bed, 400, 60);
            bed.cache.set_text(messages.ids.data(), n_known, trained);
            while (bed.n_seen < 380) text.read(bed, bed.n_seen, 20);
            const std::vector<uint32_t> heads = holders(bed);
            CAPTURE(trained);
            CAPTURE(n_known);
            for (uint32_t p : {300u, 240u, 180u}) {
                const uint32_t n = heads[p] + heads[p + 1] + heads[p + 2],
                               all = 3 * bed.shape.n_kv_heads;
                if (p < 275 && trained == 120) CHECK(n == 0);
                if (n_known == 400 && (p >= 275 || trained != 120)) CHECK(n == all);
                if (n_known == 60 && p == 180) CHECK(n < all);
            }
        }
    }
}

TEST_CASE("template tokens: nothing merges with them")
{
    Bed bed("sink,victims=merge,recent=6,delta=4", 96, 32);
    const Messages messages(bed, 300);
    const Text text{4};
    const std::vector<float> q(20 * 64, 0.1f), v(20 * 32, 1.f);
    // All keys are near enough to merge. The template tokens' keys are the nearest to all others.
    while (bed.n_seen < 300) {
        std::vector<float> k;
        for (uint32_t p = bed.n_seen; p < bed.n_seen + 20; p++)
            for (float x : text.key(p)) k.push_back(1 + (Messages::is_template(p) ? 0 : x / 10));
        bed.feed(q, k, v);
    }
    const CacheLayer& l = bed.cache.layer(0);
    uint64_t templates_gone = 0, n_merged = 0;
    for (uint32_t p = 0; p < 300; p++)
        if (Messages::is_template(p)) templates_gone += bed.shape.n_kv_heads - holders(bed)[p];
    CHECK(bed.cache.evicted() - bed.cache.merged() == templates_gone);
    for (uint32_t h = 0; h < bed.shape.n_kv_heads; h++) {
        for (uint32_t i = 0; i < l.held[h]; i++) {
            const uint32_t position = l.positions[l.begin[h] + i],
                           count = l.counts[l.slots[l.begin[h] + i]];
            if (Messages::is_template(position)) CHECK(count == 1);
            n_merged += count > 1;
        }
    }
    CHECK(templates_gone > 0);
    CHECK(tiers_of(bed.cache, 0, 300).merged == n_merged);
    CHECK(n_merged > 0);
}
