// Layers whose rows are both key and value, as latent attention has them.
#include "runtime/kv/rules.h"
#include "tests/kv/cache_bed.h"
#include "tests/kv/random_values.h"

using namespace ks;

static uint64_t rows_bytes(const Bed& bed)
{
    const KvSlots& kv = bed.cache.layer(0).kv;
    uint64_t bytes = 0;
    for (const Tensor* t : {&kv.k, &kv.v, &kv.coded_k, &kv.coded_v})
        bytes += codec_info(t->format).row_bytes(t->cols) * uint64_t(t->rows);
    return bytes;
}

// The same text in a layer of one pool, and in a layer whose values are copies of its keys.
static void check_rows(const std::string& recipe, const std::string& device, BedShape shape,
                       uint64_t seed)
{
    constexpr uint32_t kSlots = 48, kChunk = 20;
    Bed two(recipe, kSlots, kChunk, device, 2, shape);
    shape.values_in_keys = true;
    Bed one(recipe, kSlots, kChunk, device, 2, shape);
    RandomValues random{seed};
    std::vector<uint32_t> reads(9, kChunk);
    reads.insert(reads.end(), {1, 1, 1, 7, 1, 1, 20, 1, 3});
    for (uint32_t n : reads) {
        const std::vector<float> q = random.normals(n * shape.n_heads * shape.head_dim),
                                 k = random.normals(n * shape.head_dim);
        const std::vector<float> unused(k.size(), NAN);
        REQUIRE(one.feed(q, k, unused) == two.feed(q, k, k));
        if (one.cache.layer(0).held) REQUIRE(one.positions(0) == two.positions(0));
    }
    CHECK(one.cache.evicted() == two.cache.evicted());
    CHECK(one.cache.layer(0).kv.k.offset == one.cache.layer(0).kv.v.offset);
    CHECK(two.cache.layer(0).kv.k.offset != two.cache.layer(0).kv.v.offset);
    CHECK(rows_bytes(one) == rows_bytes(two)); // as each sees it
}

TEST_CASE("latent: a pool of rows that are both key and value")
{
    uint64_t seed = 11;
    for (const std::string& device : tested_names())
        for (const char* recipe : {"sink,sink=3", "window", "h2o", "tova", "snapkv", "keydiff",
                                   "kcenter", "mix", "mix,positions=compact", "mix,chunk=8"})
            for (const char* format : {"f16", "f32", "q8"}) {
                CAPTURE(device);
                CAPTURE(recipe);
                CAPTURE(format);
                check_rows(recipe, device, {5, 1, 48, format}, seed++);
            }
}

TEST_CASE("latent: the bytes of one pool")
{
    const Recipe recipe = parse_recipe("mix,k=q8,v=q8").value();
    ModelShape model;
    model.layers.assign(3, {4, 1, 576});
    CacheBytes bytes[2];
    for (bool in_keys : {false, true}) {
        model.values_in_keys = in_keys;
        bytes[in_keys] = Cache::bytes_needed(cache_specs(model, recipe, 4000), recipe, 16, 0);
    }
    const uint64_t coded = 3ull * codec_info(Format::q8).row_bytes(576);
    CHECK(bytes[0].device - bytes[1].device > 3900 * coded);
}

TEST_CASE("latent: recipes that need values of their own are refused")
{
    ModelShape model;
    model.layers.assign(3, {4, 1, 576});
    model.values_in_keys = true;
    const DeviceInfo device{};
    for (const char* text :
         {"turbo4", "q4", "kivi", "exact,k=q8,v=f16", "exact,k=f16,v=q8", "mix,k=f32,v=f16",
          "mix,victims=merge", "subgen", "mix,k=turbo4,v=turbo3,slots=100"}) {
        CAPTURE(text);
        const Status refused = check_recipe(parse_recipe(text).value(), model, device);
        CHECK(refused.code() == Code::unsupported);
        CHECK(refused.message().find("latent attention") != std::string::npos);
    }
    for (const char* text : {"exact", "q8", "exact,k=f32,v=f32", "sink,slots=64", "mix,k=q8,v=q8"})
        CHECK(check_recipe(parse_recipe(text).value(), model, device).ok());
}
