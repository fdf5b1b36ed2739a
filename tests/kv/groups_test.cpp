// Keys that are coded in groups: 32 slots are written together, and a window forgets 32 tokens
// together, the same on every device.
#include "tests/kv/coded_bed.h"
#include "tests/kv/random_values.h"
#include "tests/sanitized.h"

using namespace ks;

constexpr uint32_t kGroup = kMostInGroup;

// Checks every head's part of a table after a decision: counts, positions and whole groups.
static void check_groups(const Bed& bed)
{
    const CacheLayer& l = bed.cache.layer(0);
    const uint32_t n_first = l.recipe.sink_of(l.spec.n_slots);
    REQUIRE(l.spec.n_coded % kGroup == 0);
    std::vector<uint8_t> listed(bed.shape.n_kv_heads * l.spec.n_slots);
    for (uint32_t h = 0; h < bed.shape.n_kv_heads; h++) {
        const uint32_t *rows = l.slots + l.begin[h], held = l.held[h], coded = l.coded[h],
                       n_listed = held + l.free_slots(h);
        REQUIRE(held <= l.spec.n_slots);
        REQUIRE(l.capacity[h] == l.spec.n_slots);
        REQUIRE(coded % kGroup == 0);
        REQUIRE(coded <= l.spec.n_coded);
        REQUIRE(held - coded <= l.spec.n_plain());
        REQUIRE(l.free_slots(h) == l.free_slots(0));
        // All tokens are held, or the last ones: the window without the rest of a group.
        const uint32_t* positions = l.positions + l.begin[h];
        REQUIRE((l.spec.local ? held + kGroup > std::min(bed.n_seen, l.spec.window)
                              : held == bed.n_seen));
        for (uint32_t i = 0; i < held; i++) REQUIRE(positions[i] == bed.n_seen - held + i);
        REQUIRE((l.spec.n_coded == 0 || held + l.recipe.delta_of(l.spec.n_slots) + kGroup >
                                            std::min(l.spec.n_slots, bed.n_seen)));
        bool in_place = true, whole = true;
        for (uint32_t i = 0; i < l.capacity[h]; i++) {
            const bool in_pool = l.in_coded_pool(rows[i]),
                       of_codes = i >= n_first && i < n_first + coded;
            listed[rows[i]]++;
            in_place &= in_pool == (of_codes || i >= n_listed);
            if (!in_pool) continue;
            const uint32_t nth = (of_codes ? i - n_first : i - n_listed) % kGroup;
            whole &=
                (rows[i - nth] - l.first_coded()) % kGroup == 0 && rows[i] == rows[i - nth] + nth;
        }
        REQUIRE(in_place);
        REQUIRE(whole);
    }
    REQUIRE(std::count(listed.begin(), listed.end(), 1) == long(listed.size()));
}

// A copy of a tensor of codes in host memory.
static Tensor on_host(const Bed& bed, const Tensor& t, std::vector<uint32_t>& words)
{
    words.resize((coded_bytes(t.format, t.rows, t.cols) + 3) / 4);
    if (words.empty()) return {}; // only keys are coded, or only values
    bed.backend->download(words.data(), t.buffer, t.offset, coded_bytes(t.format, t.rows, t.cols));
    return {{words.data(), 4 * words.size()}, 0, t.rows, t.cols, t.format};
}

// Checks that the codes encode the tokens in the table, rounded to f16. Returns the number of
// groups.
static uint32_t check_codes(const Bed& bed, const Text& text)
{
    const CacheLayer& l = bed.cache.layer(0);
    std::vector<uint32_t> k_words, v_words;
    const Tensor coded_k = on_host(bed, l.kv.coded_k, k_words),
                 coded_v = on_host(bed, l.kv.coded_v, v_words);
    const uint32_t d = bed.shape.head_dim, n_first = l.recipe.sink_of(l.spec.n_slots);
    uint32_t n_checked = 0;
    for (uint32_t h = 0; h < bed.shape.n_kv_heads; h++)
        for (uint32_t i = n_first; i < n_first + l.coded[h]; i += kGroup, n_checked++) {
            std::vector<float> x;
            for (uint32_t r = 0; r < kGroup; r++) {
                const std::vector<float> key = text.key(l.positions[l.begin[h] + i + r]);
                for (uint32_t k = 0; k < d; k++)
                    x.push_back(HALF_TO_FLOAT(FLOAT_TO_HALF(key[h * d + k])));
            }
            const uint32_t row = l.slots[l.begin[h] + i] - l.first_coded();
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

static float max_difference(const std::vector<float>& a, const std::vector<float>& b)
{
    float max = 0;
    for (size_t i = 0; i < a.size(); i++) max = std::max(max, std::fabs(a[i] - b[i]));
    return max;
}

TEST_CASE("groups: in any cache or window groups stay whole, codes are the tokens', devices agree")
{
    RandomValues random{5};
    const int n_rounds = kSanitized ? 12 : 40;
    uint32_t n_forgotten = 0, n_coded = 0;
    for (int round = 0; round < n_rounds; round++) {
        const uint32_t slots = 90 + random.below(200), chunk = 1 + random.below(100);
        const std::string recipe =
            random.below(2) ? "kivi" : "kivi2,v=q8"; // both without the Hadamard transform
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
        shape.local = round % 2;
        const Text text{uint64_t(round) + 100, shape};
        Bed reference(recipe, slots, chunk, "reference", 1, shape),
            cpu(recipe, slots, chunk, "cpu", 2, shape);
        std::vector<uint32_t> ids(10000);
        for (uint32_t& id : ids)
            id = random.below(1000) | (random.below(40) == 0 ? kTemplateToken : 0);
        const uint32_t trained = random.below(4) ? 1u << 30 : slots + 3 * chunk + 64;
        for (Bed* bed : {&reference, &cpu})
            bed->cache.set_text(ids.data(), uint32_t(ids.size()), trained);
        const uint32_t end = shape.local ? 4 * slots : slots;
        for (uint32_t step = 0; reference.n_seen < end; step++) {
            const uint32_t wanted = step % 7 < 4 ? 1 + random.below(chunk) : 1,
                           n = std::min(wanted, end - reference.n_seen);
            CAPTURE(reference.n_seen);
            const uint32_t from = reference.n_seen;
            const std::vector<float> a = text.read(reference, from, n), b = text.read(cpu, from, n);
            REQUIRE(max_difference(a, b) < 0.001f);
            check_groups(reference);
            for (uint32_t h = 0; h < shape.n_kv_heads; h++)
                REQUIRE(reference.positions(h) == cpu.positions(h));
            if (step % 5) continue;
            n_coded += check_codes(reference, text);
            if (step % 10 == 0) check_codes(cpu, text);
        }
        n_forgotten += reference.n_seen - reference.cache.layer(0).held[0];
    }
    CHECK(n_forgotten > 100u * n_rounds);
    CHECK(n_coded > 25u * n_rounds); // groups whose codes were compared
}

TEST_CASE("groups: with slots for all tokens the output is nearly exact")
{
    const Text text{8, {4, 2, 64, ""}};
    Bed exact("exact", 768, 64, "cpu", 2, text.shape),
        all("exact,k=kivi,v=kivi", 768, 64, "cpu", 2, text.shape);
    double error = 0, energy = 0;
    for (uint32_t t = 0; t < 768; t += t < 704 ? 32 : 1) {
        const uint32_t n = t < 704 ? 32 : 1;
        const std::vector<float> wanted = text.read(exact, t, n), found = text.read(all, t, n);
        for (size_t i = 0; i < wanted.size(); i++) {
            error += std::pow(double(found[i]) - wanted[i], 2);
            energy += double(wanted[i]) * wanted[i];
        }
    }
    MESSAGE("relative error " << std::sqrt(error / energy));
    CHECK(std::sqrt(error / energy) < 0.25);
    CHECK(all.cache.layer(0).coded[0] >= 576);
}

TEST_CASE("groups: a rewind into a group is refused")
{
    for (const std::string& device : tested_names()) {
        const Text text{3, {4, 2, 64, ""}};
        Bed bed("exact,k=kivi,v=kivi", 300, 64, device, 2, text.shape),
            fresh("exact,k=kivi,v=kivi", 300, 64, device, 2, text.shape);
        for (uint32_t t = 0; t < 256; t += 64) text.read(bed, t, 64);
        const CacheLayer& l = bed.cache.layer(0);
        const uint32_t coded_end = 4 + l.coded[0];
        REQUIRE(l.coded[0] >= 64);
        for (uint32_t into : {coded_end - 1, coded_end - 31, coded_end - 33, 5u})
            CHECK_FALSE(bed.cache.rewind(bed.n_seen, into));
        check_groups(bed);
        for (uint32_t to : {coded_end + 7, coded_end, coded_end - 32, 4u, 2u}) {
            CAPTURE(to);
            REQUIRE(bed.cache.rewind(bed.n_seen, to));
            bed.n_seen = to;
            check_groups(bed);
            text.read(bed, to, 3);
            check_groups(bed);
            CHECK(check_codes(bed, text) == 2 * (to < 4 ? 0 : (to - 4) / kGroup));
            REQUIRE(bed.cache.rewind(bed.n_seen, to));
            bed.n_seen = to;
        }
        for (uint32_t t = 0; t < 256; t += 64) { // the same as a fresh cache
            const uint32_t n = t == 0 ? 62 : 64, from = t == 0 ? 2 : t;
            if (t == 0) text.read(fresh, 0, 2);
            CHECK(text.read(bed, from, n) == text.read(fresh, from, n));
        }
        check_groups(bed);
    }
}
