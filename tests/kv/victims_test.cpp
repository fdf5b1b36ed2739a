// The tokens that keep a slot depend on the text and the recipe only, not on the device or the
// number of threads.
#include "tests/kv/cache_bed.h"
#include "tests/kv/random_recipe.h"

using namespace ks;

// A layer of random shape, a random recipe, and the sizes of the chunks of a text. The chunks of a
// prompt come first.
struct AnyCase {
    BedShape shape;
    std::string recipe;
    uint32_t slots, chunk;
    std::vector<uint32_t> reads;

    explicit AnyCase(RandomValues& random)
    {
        const uint32_t dims[] = {8, 16, 24, 64, 80};
        shape.n_kv_heads = 1 + random.below(4);
        shape.n_heads = shape.n_kv_heads * (1 + random.below(5));
        shape.head_dim = dims[random.below(5)];
        shape.format = random.below(2) ? "f16" : "f32";
        slots = 16 + random.below(60);
        chunk = 1 + random.below(slots);
        recipe = random_recipe(random, slots);
        for (uint32_t n = 0; n < 3 * slots; n += reads.back())
            reads.push_back(1 + random.below(chunk));
        for (uint32_t n = 0; n < slots; n++) reads.push_back(1);
        if (random.below(2)) reads.push_back(chunk); // a chunk after decoding
        for (uint32_t n = 0; n < slots / 2; n++) reads.push_back(1);
    }

    // The positions that every head holds, after every read.
    std::vector<std::vector<uint32_t>> held(const std::string& device, int n_threads,
                                            uint64_t seed) const
    {
        Bed bed(recipe, slots, chunk, device, n_threads, shape);
        RandomValues random{seed};
        std::vector<std::vector<uint32_t>> out;
        const float steep = 2 / std::sqrt(float(shape.head_dim));
        for (uint32_t n : reads) {
            const std::vector<float> q = random.normals(n * shape.n_heads * shape.head_dim, steep);
            const std::vector<float> k = random.normals(n * shape.n_kv_heads * shape.head_dim);
            bed.feed(q, k, random.normals(n * shape.n_kv_heads * shape.head_dim));
            for (uint32_t h = 0; h < shape.n_kv_heads && bed.cache.layer(0).held; h++)
                out.push_back(bed.positions(h));
            out.push_back({uint32_t(bed.cache.evicted()), uint32_t(bed.cache.merged())});
        }
        return out;
    }
};

TEST_CASE("victims: the same on every device, at any number of threads")
{
    RandomValues random{31};
    const char* rounds = getenv("KS_TEST_ROUNDS"); // for slow devices
    for (int round = 0; round < (rounds ? atoi(rounds) : 60); round++) {
        AnyCase any(random);
        // The first token's own query sees nothing else. A probability equal to the even share is
        // not below it.
        if (round % 5 == 0) any.recipe = "scissorhands,sink=0,recent=4";
        CAPTURE(round);
        CAPTURE(any.recipe);
        const auto expected = any.held("reference", 1, uint64_t(round));
        CHECK(expected.back()[0] > 0);
        for (const DeviceInfo& device : tested_devices())
            for (int n_threads = 1;
                 n_threads <= (device.id == "cpu" ? 3 : 1) && device.id != "reference"; n_threads++)
                REQUIRE((any.held(device.id, n_threads, uint64_t(round)) == expected));
    }
}
