// The head of a text that stays, and the frames between messages that stay or go as a whole.
#include "tests/kv/cache_bed.h"

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

// Reads n tokens in chunks of changing sizes; what attention said about them.
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

// In how many of the heads each position has a slot.
static std::vector<uint32_t> holders(const Bed& bed)
{
    std::vector<uint32_t> heads(bed.n_seen);
    CHECK(bed.cache.count_holders(bed.n_seen, 0, bed.n_seen, heads.data()) == bed.shape.n_kv_heads);
    return heads;
}

TEST_CASE("pinned: a head that is pinned is as if so many sinks had been asked for, whenever it is "
          "said before a slot is given up")
{
    std::vector<std::string> recipes(std::begin(kTables), std::end(kTables));
    for (const char* other : {"subgen", "window", "sink"}) recipes.push_back(other);
    for (const std::string& recipe : recipes) {
        for (uint32_t before : {0u, 40u}) {
            for (uint32_t n : {2u, 9u, 500u}) {
                const Text text{31};
                const uint32_t sinks = std::min(std::max(recipe == "window" ? 0u : 4u, n),
                                                kSlots / 4); // never more than a quarter
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
                const CacheTiers tiers = bed.cache.tiers(0, bed.n_seen);
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
                CHECK(read(bed, text, 100) == read(same, text, 100)); // the next text's as well
            }
        }
    }
}

TEST_CASE("pinned: a ring that is full, or may have been, cannot pin more")
{
    const Text text{5};
    for (const char* recipe : {"sink", "window"}) {
        Bed bed(recipe, kSlots, 32);
        read(bed, text, kSlots - 1);
        CHECK(bed.cache.pin(bed.n_seen, 9));
        CHECK(bed.cache.pin(bed.n_seen, 2));
        read(bed, text, 2);
        CHECK_FALSE(bed.cache.pin(bed.n_seen, 9)); // the row of one that would stay is the newest's
        REQUIRE(bed.cache.rewind(bed.n_seen, kSlots));
        CHECK_FALSE(bed.cache.pin(kSlots, 9));
        CHECK(bed.cache.rewind(bed.n_seen, 1));
        CHECK(bed.cache.pin(1, 9));
    }
    // A window of the model's and an exact cache have nothing to pin.
    const Recipe exact = parse_recipe("exact").value();
    const std::vector<CacheLayerSpec> specs = {{1, 1, 64, 100},
                                               {1, 1, 64, 30, 0, 30, false, true, true}};
    std::unique_ptr<Backend> backend = std::move(open_backend({"reference", 1, nullptr}).value());
    std::vector<uint8_t> tables(Cache::bytes_needed(specs, exact, 16, 100).host);
    Cache cache;
    cache.place(specs, exact, 16, 100, *backend, {}, 0, tables.data());
    CHECK(cache.pin(70, 20));
    for (uint32_t il : {0u, 1u}) {
        CHECK(cache.layer(il).spec.n_pinned == 0);
        CHECK(cache.layer(il).spec.window == specs[il].window);
    }
    uint32_t heads = 0;
    CHECK(cache.count_holders(70, 0, 1, &heads) == 0);
    CHECK(cache.tiers(0, 70).kept == 70);
    CHECK(cache.tiers(0, 70).free == 30);
    CHECK(cache.tiers(1, 70).recent == 30);
}

// A text of messages: frames of 3 tokens, one every 20.
struct Turns {
    std::vector<uint32_t> ids;

    Turns(Bed& bed, uint32_t n, uint32_t period = 20) : ids(n)
    {
        for (uint32_t p = 0; p < n; p++)
            ids[p] = p * 7 % 50 | (p % period < 3 ? kTemplateToken : 0);
        bed.cache.set_text(ids.data(), n, 1u << 30);
    }
    static bool is_frame(uint32_t p) { return p % 20 < 3; }
};

// Of 96 slots 12 are for frames: four of them before the 6 recent tokens. At most one loses its
// place at a time, and three tokens or more leave together, so none is ever torn.
static void check_frames(const Bed& bed)
{
    for (uint32_t h = 0; h < bed.shape.n_kv_heads; h++) {
        const std::vector<uint32_t> held = bed.positions(h);
        auto holds = [&](uint32_t p) { return std::binary_search(held.begin(), held.end(), p); };
        CAPTURE(h);
        uint32_t n_frames = 0;
        for (uint32_t first = (bed.n_seen - 7) / 20 * 20; first >= 20; first -= 20) {
            const uint32_t n = std::min(3u, bed.n_seen - 6 - first); // the others are recent
            const bool stays = (n_frames += n) <= 12;
            CAPTURE(first);
            for (uint32_t i = 0; i < n; i++) REQUIRE(holds(first + i) >= stays);
            for (uint32_t i = 1; i < n; i++) REQUIRE(holds(first + i) == holds(first));
        }
        // The fifth is gone at the first decision after it lost its place.
        CHECK_FALSE(holds((bed.n_seen - 7 - 24) / 20 * 20 - 80));
    }
}

TEST_CASE(
    "frames: whatever the policy, the newest stay while they are few, the others leave as a whole")
{
    for (const char* recipe : kTables) {
        for (const char* device : {"reference", "cpu"}) {
            const Text text{12};
            Bed bed(std::string(recipe) + ",recent=6,delta=4", 96, 32, device);
            const Turns rope_table(bed, 400);
            CAPTURE(recipe);
            CAPTURE(device);
            while (bed.n_seen + 20 <= 400) {
                text.read(bed, bed.n_seen, bed.n_seen % 60 < 40 || bed.n_seen < 120 ? 20 : 1);
                CAPTURE(bed.n_seen);
                if (bed.n_seen > 140) check_frames(bed);
            }
            const std::vector<uint32_t> heads = holders(bed);
            uint32_t n_content = 0;
            for (uint32_t p = 4; p < bed.n_seen; p++)
                n_content += Turns::is_frame(p) ? 0 : heads[p];
            CHECK(n_content > 60 * bed.shape.n_kv_heads);
        }
    }
}

TEST_CASE("frames: they go where all goes that the model was not trained to look back on, and "
          "where their ids are no longer known")
{
    const Text text{12};
    for (uint32_t trained : {120u, 1u << 30}) { // 105 tokens back
        for (uint32_t n_known : {60u, 400u}) {
            Bed bed("keydiff,recent=6,delta=4", 96, 32);
            const Turns rope_table(bed, 400, 60);
            bed.cache.set_text(rope_table.ids.data(), n_known, trained);
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

TEST_CASE("frames: nothing merges with them")
{
    Bed bed("sink,victims=merge,recent=6,delta=4", 96, 32);
    const Turns rope_table(bed, 300);
    const Text text{4};
    const std::vector<float> q(20 * 64, 0.1f), v(20 * 32, 1.f);
    while (
        bed.n_seen <
        300) { // all keys are near enough, and a frame's in the midst of them would be the nearest
        std::vector<float> k;
        for (uint32_t p = bed.n_seen; p < bed.n_seen + 20; p++)
            for (float x : text.key(p)) k.push_back(1 + (Turns::is_frame(p) ? 0 : x / 10));
        bed.feed(q, k, v);
    }
    const CacheLayer& l = bed.cache.layer(0);
    uint64_t frames_gone = 0, n_merged = 0;
    for (uint32_t p = 0; p < 300; p++)
        if (Turns::is_frame(p)) frames_gone += bed.shape.n_kv_heads - holders(bed)[p];
    CHECK(bed.cache.evicted() - bed.cache.merged() == frames_gone);
    for (uint32_t h = 0; h < bed.shape.n_kv_heads; h++) {
        for (uint32_t i = 0; i < l.held[h]; i++) {
            const uint32_t position = l.positions[l.begin[h] + i],
                           count = l.counts[l.slots[l.begin[h] + i]];
            if (Turns::is_frame(position)) CHECK(count == 1);
            n_merged += count > 1;
        }
    }
    CHECK(frames_gone > 0);
    CHECK(bed.cache.tiers(0, 300).merged == n_merged);
    CHECK(n_merged > 0);
}
