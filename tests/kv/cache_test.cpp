#include "runtime/kv/cache.h"

#include <doctest/doctest.h>

using namespace ks;

TEST_CASE("cache: the layers fill exactly the bytes that were asked for, apart and aligned")
{
    Recipe recipe;
    recipe.k = Format::f32;
    std::vector<CacheLayerSpec> specs = {{3, 64, 100, 0}, {1, 256, 37, 20}, {2, 80, 1, 0}};
    uint64_t bytes = Cache::bytes_needed(specs, recipe);
    Cache cache;
    cache.place(specs, recipe, Buffer{nullptr, bytes}, 0);
    uint64_t end = 0;
    for (uint32_t il = 0; il < specs.size(); il++) {
        const CacheLayer& layer = cache.layer(il);
        CHECK(layer.k.offset % 64 == 0);
        CHECK(layer.k.offset >= end);
        CHECK(layer.k.rows == specs[il].n_kv_heads * specs[il].n_slots);
        CHECK(layer.v.offset >= layer.k.offset + 4ull * layer.k.rows * layer.k.cols);
        end = layer.v.offset + 2ull * layer.v.rows * layer.v.cols;
    }
    CHECK(end <= bytes);
    CHECK(bytes - end < 64);
}

TEST_CASE("cache: a ring can be rewound while it still holds the window")
{
    Recipe recipe;
    std::vector<CacheLayerSpec> specs = {{1, 64, 1000, 0}, {1, 64, 30, 20}}; // a window of 20 in 30 slots
    Cache cache;
    cache.place(specs, recipe, Buffer{nullptr, Cache::bytes_needed(specs, recipe)}, 0);
    CHECK(cache.can_rewind(25, 0)); // nothing was overwritten yet
    CHECK(cache.can_rewind(100, 100));
    // Positions 70..99 are held. The token at 89 sees 70..89, the one at 88 would see 69.
    CHECK(cache.can_rewind(100, 89));
    CHECK_FALSE(cache.can_rewind(100, 88));
    CHECK_FALSE(cache.can_rewind(100, 0));
}
