// Keys that are coded in groups: slots are written and given up 32 together, on every device the same.
#include "runtime/kv/retain/groups.h"
#include "tests/kv/coded_bed.h"
#include "tests/kv/random_recipe.h"
#include "tests/kv/retain_util.h"
#include "tests/sanitized.h"

using namespace ks;

constexpr uint32_t kGroup = kMostInGroup;

// What every head's part of a table must be after a decision: promises kept, and groups whole.
static void check_groups(const Bed& bed)
{
    const CacheLayer& l = bed.cache.layer(0);
    const uint32_t n_first = bed.recipe.sink_of(l.spec.n_rows);
    REQUIRE(l.spec.n_coded % kGroup == 0);
    std::vector<uint8_t> listed(bed.shape.n_kv_heads * l.spec.n_rows);
    for (uint32_t h = 0; h < bed.shape.n_kv_heads; h++) {
        const uint32_t *rows = l.rows + l.begin[h], held = l.held[h], coded = l.coded[h], n_listed = held + l.room(h);
        REQUIRE(held <= l.spec.n_rows);
        REQUIRE(l.capacity[h] == l.spec.n_rows);
        REQUIRE(coded % kGroup == 0);
        REQUIRE(coded <= l.spec.n_coded);
        REQUIRE(held - coded <= l.spec.n_plain());
        REQUIRE(l.room(h) == l.room(0));
        // Who stays of itself: the pinned, and the last ones where a group at either end leaves room for them.
        const uint32_t* positions = l.positions + l.begin[h];
        const uint32_t n_pinned = std::min(l.spec.n_pinned, held), recent = bed.recipe.recent_of(l.spec.n_rows);
        const bool roomy = n_pinned + recent + 3 * kGroup <= l.spec.n_rows - bed.recipe.delta_of(l.spec.n_rows);
        const uint32_t n_last = std::min(held, roomy ? recent : bed.recipe.plain_recent_of(l.spec.n_rows));
        REQUIRE((n_pinned == 0 || positions[n_pinned - 1] == n_pinned - 1));
        REQUIRE(positions[held - n_last] == bed.n_seen - n_last);
        REQUIRE(positions[held - 1] == bed.n_seen - 1);
        REQUIRE((l.spec.n_coded == 0 || held + bed.recipe.delta_of(l.spec.n_rows) + kGroup > std::min(l.spec.n_rows, bed.n_seen)));
        bool in_place = true, whole = true;
        for (uint32_t i = 0; i < l.capacity[h]; i++) {
            const bool in_pool = l.in_coded_pool(rows[i]), of_codes = i >= n_first && i < n_first + coded;
            listed[rows[i]]++;
            in_place &= in_pool == (of_codes || i >= n_listed);
            if (!in_pool) continue;
            const uint32_t nth = (of_codes ? i - n_first : i - n_listed) % kGroup;
            whole &= (rows[i - nth] - l.first_coded()) % kGroup == 0 && rows[i] == rows[i - nth] + nth;
        }
        REQUIRE(in_place);
        REQUIRE(whole);
    }
    REQUIRE(std::count(listed.begin(), listed.end(), 1) == long(listed.size()));
}

// A tensor of codes where the host sees it.
static Tensor on_host(const Bed& bed, const Tensor& t, std::vector<uint32_t>& room)
{
    room.resize((coded_bytes(t.format, t.rows, t.cols) + 3) / 4);
    if (room.empty()) return {}; // only keys are coded, or only values
    bed.backend->download(room.data(), t.buffer, t.offset, coded_bytes(t.format, t.rows, t.cols));
    return {{room.data(), 4 * room.size()}, 0, t.rows, t.cols, t.format};
}

// Codes are of the very tokens that the table lists, as f16 has them.
static uint32_t check_codes(const Bed& bed, const Text& text)
{
    const CacheLayer& l = bed.cache.layer(0);
    std::vector<uint32_t> k_room, v_room;
    const Tensor coded_k = on_host(bed, l.slots.coded_k, k_room), coded_v = on_host(bed, l.slots.coded_v, v_room);
    const uint32_t d = bed.shape.head_dim, n_first = bed.recipe.sink_of(l.spec.n_rows);
    uint32_t n_checked = 0;
    for (uint32_t h = 0; h < bed.shape.n_kv_heads; h++)
        for (uint32_t i = n_first; i < n_first + l.coded[h]; i += kGroup, n_checked++) {
            std::vector<float> x;
            for (uint32_t r = 0; r < kGroup; r++) {
                const std::vector<float> key = text.key(l.positions[l.begin[h] + i + r]);
                for (uint32_t k = 0; k < d; k++) x.push_back(HALF_TO_FLOAT(FLOAT_TO_HALF(key[h * d + k])));
            }
            const uint32_t row = l.rows[l.begin[h] + i] - l.first_coded();
            std::vector<uint32_t> words(kGroup * codec_info(l.spec.k).row_bytes(d) / 4);
            encode_group(l.spec.k, x.data(), d, words.data());
            REQUIRE(memcmp(words.data(), coded_group(coded_k, row), 4 * words.size()) == 0);
            for (uint32_t r = 0; r < kGroup; r++) {
                std::vector<float> value = text.value(l.positions[l.begin[h] + i + r]);
                std::vector<float> head(value.begin() + h * d, value.begin() + (h + 1) * d);
                for (float& v : head) v = HALF_TO_FLOAT(FLOAT_TO_HALF(v));
                REQUIRE(row_bytes(coded_v, row + r) == encode(l.spec.v, head.data(), d));
            }
        }
    return n_checked;
}

TEST_CASE("groups: any recipe, any text: groups stay whole, codes are the tokens', devices agree")
{
    RandomValues random{5};
    const int n_rounds = kSanitized ? 12 : 40;
    uint32_t n_evicted = 0, n_coded = 0;
    for (int round = 0; round < n_rounds; round++) {
        const uint32_t slots = 90 + random.below(200), chunk = 1 + random.below(100);
        std::string recipe;
        do recipe = random_recipe(random, slots);
        while (!parse_recipe(recipe + ",k=kivi").ok());
        recipe += random.below(2) ? ",k=kivi,v=kivi" : ",k=kivi2,v=q8"; // neither is rotated
        if (round % 8 == 0) recipe = "exact,k=kivi,v=kivi";
        CAPTURE(round);
        CAPTURE(recipe);
        CAPTURE(slots);
        CAPTURE(chunk);
        BedShape shape;
        shape.n_kv_heads = 1 + random.below(3);
        shape.n_heads = shape.n_kv_heads * 2;
        const uint32_t dims[] = {16, 64, 80};
        shape.head_dim = dims[random.below(3)];
        shape.format = "";
        const Text text{uint64_t(round) + 100, shape};
        Bed reference(recipe, slots, chunk, "reference", 1, shape), cpu(recipe, slots, chunk, "cpu", 2, shape);
        std::vector<uint32_t> ids(10000);
        for (uint32_t& id : ids) id = random.below(1000) | (random.below(40) == 0 ? kFrameToken : 0);
        const uint32_t trained = random.below(4) ? 1u << 30 : slots + 3 * chunk + 64;
        for (Bed* bed : {&reference, &cpu}) bed->cache.set_text(ids.data(), uint32_t(ids.size()), trained);
        if (random.below(3) == 0) {
            const uint32_t n_pinned = random.below(slots / 2);
            for (Bed* bed : {&reference, &cpu}) bed->cache.pin(0, n_pinned);
        }
        const uint32_t end = reference.recipe.exact() ? slots : 4 * slots;
        for (uint32_t step = 0; reference.n_seen < end; step++) {
            const uint32_t wanted = step % 7 < 4 ? 1 + random.below(chunk) : 1, n = std::min(wanted, end - reference.n_seen);
            CAPTURE(reference.n_seen);
            const uint32_t from = reference.n_seen;
            const std::vector<float> a = text.read(reference, from, n), b = text.read(cpu, from, n);
            float worst = 0;
            for (size_t i = 0; i < a.size(); i++) worst = std::max(worst, std::fabs(a[i] - b[i]));
            REQUIRE(worst < 0.001f);
            check_groups(reference);
            for (uint32_t h = 0; h < shape.n_kv_heads; h++) REQUIRE(reference.positions(h) == cpu.positions(h));
            if (step % 5) continue;
            n_coded += check_codes(reference, text);
            check_codes(cpu, text);
        }
        REQUIRE(reference.cache.evicted() == cpu.cache.evicted());
        n_evicted += uint32_t(reference.cache.evicted());
        CHECK((reference.cache.evicted() > 0) == !reference.recipe.exact());
    }
    CHECK(n_evicted > 250u * n_rounds);
    CHECK(n_coded > 25u * n_rounds); // groups whose codes were compared
}

TEST_CASE("groups: many of the last tokens are coded already, and stay")
{
    for (const char* policy : {"h2o", "keydiff", "sink"})
        for (uint32_t recent : {150u, 190u, 200u}) {
            const Text text{recent, {2, 2, 16, ""}};
            Bed bed(std::string(policy) + ",k=kivi,v=kivi,delta=1,recent=" + std::to_string(recent), 400, 13, "cpu", 1, text.shape);
            while (bed.n_seen < 800) {
                text.read(bed, bed.n_seen, bed.n_seen < 500 ? 13 : 1);
                check_groups(bed);
            }
            CAPTURE(policy);
            CHECK(bed.cache.layer(0).coded[0] >= 224);
        }
}

TEST_CASE("groups: with room for everything nearly exact, with a quarter of it finite")
{
    const Text text{8, {4, 2, 64, ""}};
    Bed exact("exact", 768, 64, "cpu", 2, text.shape), all("exact,k=kivi,v=kivi", 768, 64, "cpu", 2, text.shape);
    Bed few("mix,k=kivi,v=kivi", 192, 32, "cpu", 2, text.shape);
    double error = 0, energy = 0;
    for (uint32_t t = 0; t < 768; t += t < 704 ? 32 : 1) {
        const uint32_t n = t < 704 ? 32 : 1;
        const std::vector<float> wanted = text.read(exact, t, n), found = text.read(all, t, n), less = text.read(few, t, n);
        for (size_t i = 0; i < wanted.size(); i++) {
            error += std::pow(double(found[i]) - wanted[i], 2);
            energy += double(wanted[i]) * wanted[i];
            REQUIRE(std::isfinite(less[i]));
        }
    }
    MESSAGE("relative error " << std::sqrt(error / energy));
    CHECK(std::sqrt(error / energy) < 0.25);
    CHECK(all.cache.layer(0).coded[0] >= 576);
    CHECK(few.cache.layer(0).coded[0] >= 64);
}

TEST_CASE("groups: a text does not go back into one")
{
    for (const std::string& device : tested_names()) {
        const Text text{3, {4, 2, 64, ""}};
        Bed bed("exact,k=kivi,v=kivi", 300, 64, device, 2, text.shape), fresh("exact,k=kivi,v=kivi", 300, 64, device, 2, text.shape);
        for (uint32_t t = 0; t < 256; t += 64) text.read(bed, t, 64);
        const CacheLayer& l = bed.cache.layer(0);
        const uint32_t coded_end = 4 + l.coded[0];
        REQUIRE(l.coded[0] >= 64);
        for (uint32_t into : {coded_end - 1, coded_end - 31, coded_end - 33, 5u}) CHECK_FALSE(bed.cache.rewind(bed.n_seen, into));
        check_groups(bed);
        for (uint32_t to : {coded_end + 7, coded_end, coded_end - 32, 4u, 2u}) {
            CAPTURE(to);
            REQUIRE(bed.cache.rewind(bed.n_seen, to));
            bed.n_seen = to;
            check_groups(bed);
            text.read(bed, to, 3); // and on from there
            check_groups(bed);
            CHECK(check_codes(bed, text) == 2 * (to < 4 ? 0 : (to - 4) / kGroup));
            REQUIRE(bed.cache.rewind(bed.n_seen, to));
            bed.n_seen = to;
        }
        for (uint32_t t = 0; t < 256; t += 64) { // as if nothing had been there
            const uint32_t n = t == 0 ? 62 : 64, from = t == 0 ? 2 : t;
            if (t == 0) text.read(fresh, 0, 2);
            CHECK(text.read(bed, from, n) == text.read(fresh, from, n));
        }
        check_groups(bed);
    }
}

static std::vector<uint32_t> chosen(const std::vector<float>& score, uint32_t n_grouped, uint32_t group, uint32_t n_keep)
{
    std::vector<uint32_t> order(score.size());
    std::vector<uint8_t> keep(score.size(), 77);
    keep_highest_groups(score.data(), uint32_t(score.size()), n_grouped, group, n_keep, order.data(), keep.data());
    return kept_of(keep);
}

TEST_CASE("groups: the highest stay, a group for its mean, whole or not at all")
{
    std::vector<float> score = {1, 5, 0, 2, 9, 1, 4, 8, 0.5f};
    score_groups(score.data(), 6, 2);
    CHECK(score == std::vector<float>{3, 3, 1, 1, 5, 5, 4, 8, 0.5f});
    CHECK(chosen(score, 6, 2, 5) == Indices{4, 5, 6, 7, 8}); // no room for half a group
    CHECK(chosen(score, 6, 2, 6) == Indices{0, 1, 4, 5, 6, 7});
    CHECK(chosen(score, 6, 2, 1) == Indices{7});
    CHECK(chosen(score, 6, 2, 0).empty());
    CHECK(chosen(score, 6, 2, 9).size() == 9);
    score = {1, -INFINITY, 2, 2, NAN, 7, 2};
    score_groups(score.data(), 6, 2);
    CHECK(chosen(score, 6, 2, 1) == Indices{6});
    CHECK(chosen(score, 6, 2, 3) == Indices{2, 3, 6}); // of equal ones the newer first
    CHECK(chosen(score, 6, 2, 5) == Indices{0, 1, 2, 3, 6});
    CHECK(chosen({0, 0, 0, 0, 0, 0, 0}, 4, 2, 5) == Indices{2, 3, 4, 5, 6});
    RandomValues random{9};
    for (int round = 0; round < 500; round++) { // where whole groups' numbers leave, exactly as many stay as were asked for
        const uint32_t group = 1 + random.below(9), n_grouped = group * random.below(8), n = n_grouped + random.below(30);
        const uint32_t n_leave = group * random.below(n / group + 1);
        std::vector<float> some = random.normals(n);
        score_groups(some.data(), n_grouped, group);
        CHECK(chosen(some, n_grouped, group, n - n_leave).size() == n - n_leave);
    }
}
