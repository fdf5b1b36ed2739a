// Layers of a model that share keys and values: the cache's layer has several readers.
#include "tests/kv/cache_bed.h"
#include "tests/kv/random_recipe.h"

using namespace ks;

// The queries of n tokens as those of one layer, in which each KV head has the heads of all
// readers.
static std::vector<float> joined(const std::vector<float>& queries, const BedShape& s, uint32_t n)
{
    const size_t row = s.group() * s.head_dim, of_reader = queries.size() / s.n_readers;
    std::vector<float> out;
    for (size_t at = 0; at < n * s.n_kv_heads * row; at += row)
        for (uint32_t reader = 0; reader < s.n_readers; reader++)
            out.insert(out.end(), queries.begin() + reader * of_reader + at,
                       queries.begin() + reader * of_reader + at + row);
    return out;
}

// The same text in a layer with readers, and in a layer with all of their heads.
static void check_readers(const std::string& recipe, const std::string& device, BedShape shape,
                          uint64_t seed)
{
    constexpr uint32_t kSlots = 48, kChunk = 20;
    BedShape all = shape;
    all.n_heads *= shape.n_readers;
    all.n_readers = 1;
    Bed shared(recipe, kSlots, kChunk, device, 2, shape),
        wide(recipe, kSlots, kChunk, device, 2, all);
    RandomValues random{seed};
    std::vector<uint32_t> reads(9, kChunk);
    reads.insert(reads.end(), {1, 1, 1, 7, 1, 1, 20, 1, 3});
    for (uint32_t n : reads) {
        const uint32_t kv_cols = shape.n_kv_heads * shape.head_dim;
        const std::vector<float> q = random.normals(n * all.n_heads * shape.head_dim),
                                 k = random.normals(n * kv_cols), v = random.normals(n * kv_cols),
                                 found = joined(shared.feed(q, k, v), shape, n),
                                 want = wide.feed(joined(q, shape, n), k, v);
        CAPTURE(shared.n_seen);
        for (size_t i = 0; i < want.size(); i++) REQUIRE(std::fabs(found[i] - want[i]) < 1e-5f);
        for (uint32_t h = 0; h < shape.n_kv_heads && shared.cache.layer(0).held; h++)
            REQUIRE(shared.positions(h) == wide.positions(h));
        REQUIRE(shared.cache.evicted() == wide.cache.evicted());
    }
}

TEST_CASE("shared: readers of a layer are like the heads of one reader")
{
    uint64_t seed = 5;
    for (const std::string& device : tested_names())
        for (const char* recipe :
             {"sink,sink=3", "window", "h2o", "h2o,decay=0.9", "tova", "scissorhands", "snapkv",
              "mix", "ada", "mix,victims=merge", "subgen"})
            for (uint32_t n_readers : {2u, 5u}) {
                CAPTURE(device);
                CAPTURE(recipe);
                BedShape shape;
                shape.n_readers = n_readers;
                check_readers(recipe, device, shape, seed++);
            }
}

TEST_CASE("shared: coded layers")
{
    for (const std::string& device : tested_names())
        for (const char* recipe : {"mix,k=q8,v=q8", "h2o,k=turbo4,v=turbo3", "mix,k=q4,v=turbo3"}) {
            CAPTURE(device);
            CAPTURE(recipe);
            BedShape shape;
            shape.head_dim = 32;
            shape.format = "";
            shape.n_readers = 3;
            check_readers(recipe, device, shape, 77);
        }
}

TEST_CASE("shared: each reader selects anew")
{
    for (const std::string& device : tested_names())
        for (const char* recipe : {"tokenselect,read=40,sink=4", "quest,read=40,sink=4"}) {
            CAPTURE(device);
            CAPTURE(recipe);
            BedShape shape;
            shape.n_readers = 2;
            Bed shared(recipe, 300, 20, device, 2, shape);
            RandomValues random{3};
            for (uint32_t i = 0; i < 40; i++) {
                const uint32_t n = i < 12 ? 20 : 1, kv_cols = shape.n_kv_heads * shape.head_dim;
                const std::vector<float> q = random.normals(n * shape.n_heads * shape.head_dim),
                                         k = random.normals(n * kv_cols),
                                         v = random.normals(n * kv_cols);
                std::vector<float> twice = q;
                twice.insert(twice.end(), q.begin(), q.end());
                const std::vector<float> y = shared.feed(twice, k, v);
                // Equal queries choose equal slots.
                REQUIRE(std::equal(y.begin(), y.begin() + y.size() / 2, y.begin() + y.size() / 2));
            }
        }
}
