// Selection: a step reads the slots that an independent vote in float64 chooses, of equal votes the
// newer, and everything if the slots suffice. A choice that is used again misses no newer token.
#include "tests/kv/random_values.h"
#include "tests/kv/select_bed.h"

#include <chrono>
#include <numeric>

using namespace ks;

// The indexes that a token at `position` should read beside itself if all tokens are held. The
// query heads [first, end) vote.
static Set vote(const Recipe& r, const Text& text, const std::vector<float>& q, uint32_t position,
                uint32_t first, uint32_t end)
{
    const uint32_t n_first = r.read_first(), n_last = r.read_last(), d = text.shape.head_dim;
    const uint32_t n = position - n_first - n_last, wanted = r.read_slots() - n_first - n_last;
    std::vector<double> votes(n);
    for (uint32_t h = first; h < end; h++) {
        std::vector<double> logits(n), sorted;
        for (uint32_t i = 0; i < n; i++)
            logits[i] = dot_of(q, h, text.key(n_first + i), h / text.shape.group(), d);
        sorted = logits;
        std::sort(sorted.rbegin(), sorted.rend());
        double sum = 0;
        for (double l : logits) sum += std::exp(l - sorted[0]);
        for (uint32_t i = 0; i < n; i++)
            votes[i] += r.select->kind == select_soft   ? std::exp(logits[i] - sorted[0]) / sum
                        : r.select->kind == select_hard ? double(logits[i] >= sorted[wanted - 1])
                                                        : logits[i];
    }
    std::vector<uint32_t> order(n);
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        return votes[a] != votes[b] ? votes[a] > votes[b] : a > b;
    });
    Set set;
    for (uint32_t i = 0; i < position; i++)
        if (i < n_first || i >= position - n_last) set.insert(i);
    for (uint32_t i = 0; i < wanted; i++) set.insert(n_first + order[i]);
    return set;
}

TEST_CASE("select: with enough slots to read all, it is the exact cache, bit for bit")
{
    const Text text{3};
    for (const std::string& device : tested_names()) {
        for (const char* recipe : {"retain=all,select=tokenselect,read=256",
                                   "retain=all,select=quest,read=256", "infllm,read=256"}) {
            Bed exact("retain=all", 200, 32, device), bed(recipe, 200, 32, device);
            for (uint32_t at = 0; at < 96; at += 32)
                CHECK(text.read(exact, at, 32) == text.read(bed, at, 32));
            for (uint32_t at = 96; at < 200; at++)
                CHECK(text.read(exact, at, 1) == text.read(bed, at, 1));
        }
    }
}

TEST_CASE("select: a step reads the slots that an independent vote chooses")
{
    const Text text{4};
    for (const std::string& device : tested_names()) {
        for (const char* kind : {"tokenselect", "hardvote", "topk"}) {
            if (device != "reference" && std::string(kind) != "tokenselect")
                continue; // ablations, which only the reference has
            CAPTURE(device);
            CAPTURE(kind);
            Bed bed(std::string("retain=all,select=") + kind + ",read=64,reuse=1", 200, 32, device);
            for (uint32_t at = 0; at < 160; at += 32) text.read(bed, at, 32);
            for (uint32_t at = 160; at < 166; at++) {
                const std::vector<float> y = text.read(bed, at, 1);
                const Set expected =
                    vote(bed.recipe, text, text.query(at), at, 0, text.shape.n_heads);
                for (uint32_t head = 0; head < text.shape.n_kv_heads; head++)
                    CHECK(chosen(bed, head) == expected);
                check_read(bed, text, y, text.query(at), at);
            }
            CHECK(state(bed)[select_reuses] == 0);
        }
    }
}

TEST_CASE("select: of equal votes the newer win")
{
    BedShape shape;
    for (const std::string& device : tested_names()) {
        Bed bed("retain=all,select=tokenselect,read=64,reuse=1", 200, 32, device);
        const uint32_t n_kv = shape.n_kv_heads * shape.head_dim;
        for (uint32_t at = 0; at < 160; at++)
            bed.feed(std::vector<float>(shape.n_heads * shape.head_dim, 0.5f),
                     std::vector<float>(n_kv, 0.25f), std::vector<float>(n_kv, 1.f));
        Set expected;
        for (uint32_t i = 0; i < 159; i++)
            if (i < bed.recipe.read_first() || i >= 159 - (64 - bed.recipe.read_first()))
                expected.insert(i);
        for (uint32_t head = 0; head < shape.n_kv_heads; head++)
            CHECK(chosen(bed, head) == expected);
    }
}

TEST_CASE("select: a choice is used again for similar queries, and later tokens are read, too")
{
    const Text text{6};
    for (const std::string& device : tested_names()) {
        Bed bed("retain=all,select=tokenselect,read=64,reuse=0.9", 220, 32, device);
        for (uint32_t at = 0; at < 160; at += 32) text.read(bed, at, 32);
        const std::vector<float> q = text.query(1000);
        uint32_t choices = state(bed)[select_choices];
        for (uint32_t at = 160; at < 200; at++) {
            const std::vector<float> y = bed.feed(q, text.key(at), text.value(at));
            const Set read = chosen(bed, 0);
            for (uint32_t i = at - bed.recipe.read_last(); i < at; i++)
                CHECK(read.count(i) == 1); // no token is missed
            CHECK(read.size() <= bed.recipe.read_slots() + bed.recipe.read_last() / 2);
            check_read(bed, text, y, q, at);
        }
        // One choice lasts for half of the last tokens.
        choices = state(bed)[select_choices] - choices;
        CHECK(choices == (40 + bed.recipe.read_last() / 2) / (bed.recipe.read_last() / 2 + 1));
        const uint32_t reuses = state(bed)[select_reuses];
        bed.feed(text.query(2000), text.key(200), text.value(200));
        CHECK(state(bed)[select_reuses] == reuses); // another query needs another choice
        const auto twice = [](std::vector<float> x) {
            const size_t n = x.size();
            x.resize(2 * n);
            std::copy_n(x.begin(), n, x.begin() + ptrdiff_t(n));
            return x;
        };
        for (uint32_t at : {201u, 203u})
            bed.feed(twice(text.query(2000)), twice(text.key(at)), twice(text.value(at)));
        CHECK(state(bed)[select_reuses] == reuses); // a chunk always chooses again
        bed.feed(text.query(2000), text.key(205), text.value(205));
        CHECK(state(bed)[select_reuses] == reuses + 1);
    }
}

static void check_same(const std::string& recipe, const BedShape& shape, const std::string& device,
                       const Text& text)
{
    CAPTURE(device);
    const bool exact = parse_recipe(recipe).value().exact();
    const uint32_t n_rows = exact ? 450 : 128;
    Bed one(recipe, n_rows, 32, "reference", 1, shape), other(recipe, n_rows, 32, device, 2, shape);
    for (uint32_t at = 0; at < 320; at += 32) {
        text.read(one, at, 32);
        text.read(other, at, 32);
    }
    for (uint32_t at = 320; at < 420; at++) {
        const std::vector<float> y = text.read(one, at, 1), z = text.read(other, at, 1);
        for (size_t i = 0; i < y.size(); i++) CHECK(y[i] == doctest::Approx(z[i]).epsilon(1e-4));
        for (uint32_t head = 0; head < shape.n_kv_heads; head++) {
            CHECK(one.positions(head) == other.positions(head));
            if (one.cache.layer(0).must_reselect) continue; // evicted since
            CHECK(chosen(one, head) == chosen(other, head));
            CHECK(chosen(one, head).size() <= one.recipe.read_slots() + one.recipe.read_last() / 2);
        }
    }
    CHECK((one.cache.evicted() > 0) == !exact);
}

TEST_CASE("select: over the tokens a policy keeps, merged slots and codes, devices agree")
{
    const Text text{7};
    for (const std::string recipe :
         {"h2o,victims=merge,select=tokenselect,read=64,recent=16",
          "mix,select=quest,read=64,recent=16",
          "mix,k=q8,v=q8,select=tokenselect,read=64,recent=16",
          "snapkv,observe=8,select=tokenselect,read=64,recent=16",
          "h2o,victims=merge,select=infllm,read=64,recent=16",
          "keydiff,k=q8,v=q8,select=infllm,read=96,recent=16",
          "mix,k=turbo4,v=turbo3,select=quest,read=64,recent=16",
          "mix,victims=merge,k=polar,v=polar,select=tokenselect,read=64,recent=16",
          "tokenselect,k=kivi,v=kivi,read=96,recent=16", "quest,k=kivi2,v=q8,read=96,recent=16",
          "infllm,k=kivi,v=turbo4,read=96,recent=16"}) {
        CAPTURE(recipe);
        BedShape shape;
        if (recipe.find("k=") != recipe.npos) shape.format = "";
        for (const std::string& device : tested_names())
            if (device != "reference") check_same(recipe, shape, device, text);
    }
}

TEST_CASE("select: of codes whose rows are read in octets every device reads the same slots")
{
    for (const std::string recipe : {"mix,k=q8,v=q8,select=tokenselect,read=64,recent=16",
                                     "mix,k=turbo4,v=turbo3,select=tokenselect,read=64,recent=16",
                                     "tokenselect,k=kivi,v=kivi,read=96,recent=16",
                                     "mix,k=polar,v=polar,select=tokenselect,read=64,recent=16"}) {
        CAPTURE(recipe);
        const BedShape shape{3, 1, 64, ""};
        for (const std::string& device : tested_names())
            if (device != "reference") check_same(recipe, shape, device, Text{15, shape});
    }
}

// Fills n slots without any query. n_alike of every two keys are zeros.
static void fill(Bed& bed, uint32_t n, uint32_t n_alike)
{
    const uint32_t width = bed.shape.n_kv_heads * bed.shape.head_dim;
    RandomValues random{n};
    for (uint32_t rows; bed.n_seen < n; bed.n_seen += rows) {
        rows = std::min(bed.k.rows, n - bed.n_seen);
        std::vector<float> keys = random.normals(rows * width);
        for (uint32_t i = 0; i < keys.size(); i++) keys[i] *= i / width % 2 < n_alike ? 0.f : 1.f;
        bed.cache.begin_layer(0, rows, bed.n_seen);
        bed.backend->upload(bed.buffer, bed.k.offset, keys.data(), 4 * rows * width);
        bed.backend->upload(bed.buffer, bed.v.offset, random.normals(rows * width).data(),
                            4 * rows * width);
        bed.write(rows);
        bed.cache.end_layer();
    }
    const Tensor& scores = bed.cache.layer(0).selection.scores;
    if (scores)
        bed.backend->upload(scores.buffer, scores.offset, random.normals(scores.cols).data(),
                            4ull * scores.cols);
}

// Three steps over n slots: a device reads the same slots as the reference.
static void check_long(const std::string& device, const std::string& recipe, uint32_t n,
                       const BedShape& shape, uint32_t n_alike)
{
    CAPTURE(device);
    CAPTURE(recipe);
    CAPTURE(n);
    Bed one(recipe, n + 3, 512, "reference", 1, shape), other(recipe, n + 3, 512, device, 2, shape);
    fill(one, n, n_alike);
    fill(other, n, n_alike);
    RandomValues random{n + 1};
    for (uint32_t step = 0; step < 3; step++) {
        const std::vector<float> q = random.normals(shape.n_heads * shape.head_dim),
                                 k = random.normals(shape.n_kv_heads * shape.head_dim);
        const std::vector<float> y = one.feed(q, k, k), z = other.feed(q, k, k);
        for (size_t i = 0; i < y.size(); i++) CHECK(y[i] == doctest::Approx(z[i]).epsilon(1e-4));
        for (uint32_t head = 0; head < shape.n_kv_heads; head++)
            CHECK(chosen(one, head) == chosen(other, head));
    }
}

// A device shares the candidates among blocks, in rounds of 256. The lengths cover borders of
// rounds, less than a round, one round for each block and more.
TEST_CASE("select: of a long text every device reads the same slots")
{
    for (const std::string& device : tested_names()) {
        if (device == "reference") continue;
        const std::string some = ",read=128,reuse=1", most = ",read=2048,reuse=1";
        const Recipe recipe = parse_recipe("retain=all,select=tokenselect" + some).value();
        const uint32_t others = recipe.read_first() + recipe.read_last();
        for (const char* kind : {"tokenselect", "quest", "infllm"}) {
            check_long(device, std::string("retain=all,select=") + kind + some, 1337, {}, 0);
            for (uint32_t n_alike : {1, 2})
                check_long(device, std::string("retain=all,select=") + kind + most, 2900, {},
                           n_alike);
        }
        check_long(device, "retain=all,select=tokenselect" + some, others + 1022, {}, 0);
        for (const BedShape shape : {BedShape{6, 2, 64, "f16"}, BedShape{5, 1, 128, "f16"},
                                     BedShape{2, 1, 256, "f16"}, BedShape{2, 2, 64, "f32"}})
            for (const char* kind : {"tokenselect", "quest"})
                for (uint32_t n_alike : {0, 1})
                    check_long(device, std::string("retain=all,select=") + kind + some, 700, shape,
                               n_alike);
    }
}

TEST_CASE("select: of 70,000 slots every device reads the same ones")
{
    for (const std::string& device : tested_names())
        for (const char* kind : {"tokenselect", "quest"})
            if (device != "reference")
                check_long(device, std::string("retain=all,read=2048,reuse=1,select=") + kind,
                           70000, {2, 1, 16}, 0);
}

// The median microseconds of a step of one layer with SmolLM2's shape over n slots. Keys and
// queries are random.
static double step_time(const std::string& device, const std::string& recipe, uint32_t n)
{
    constexpr uint32_t kChunk = 512, kSteps = 31;
    Bed bed(recipe, n + kSteps, kChunk, device, 0, {9, 3, 64, "f16"});
    fill(bed, n, 0);
    RandomValues random{n};
    std::vector<double> times;
    for (uint32_t i = 0; i < kSteps; i++) {
        const std::vector<float> q = random.normals(576), k = random.normals(192),
                                 v = random.normals(192);
        const auto start = std::chrono::steady_clock::now();
        bed.feed(q, k, v);
        times.push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() * 1e6);
    }
    std::nth_element(times.begin(), times.begin() + kSteps / 2, times.end());
    return times[kSteps / 2];
}

// tools/gpu_check.sh reads these lines. With KS_TEST_BACKEND it goes up to a million slots.
TEST_CASE("perf: select" * doctest::skip(!getenv("KS_PERF")))
{
    const char* only = getenv("KS_TEST_BACKEND");
    const std::string device = only ? only : "cpu";
    printf("microseconds of a layer's step; reading 1,024 slots and nothing else: %.0f\n",
           step_time(device, "retain=all", 1024));
    for (uint32_t n = 4096; n <= (only ? 1u << 20 : 1u << 17); n *= 2) {
        printf("%7u slots: all %6.0f", n, step_time(device, "retain=all", n));
        for (const char* kind : {"tokenselect,reuse=1", "tokenselect,reuse=0.9", "quest", "infllm"})
            printf(", %s %5.0f", kind,
                   step_time(device, std::string("retain=all,read=1024,select=") + kind, n));
        printf("\n");
    }
}
