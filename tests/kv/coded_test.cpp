// The coded pool of a cache: the tokens that are encoded, their bytes, and attention over them.
#include "tests/kv/coded_bed.h"

using namespace ks;

static const char* const kCodecPairs[] = {
    "k=q8,v=q8",       "k=turbo4,v=turbo4", "k=turbo4,v=turbo3", "k=f16,v=turbo4",
    "k=polar,v=polar", "k=q4,v=polar",      "k=turbo2,v=turbo2", "k=turbo3,v=f32"};
static const uint32_t kSizes[] = {3, 20, 1, 1, 1, 32, 1, 1, 1, 1, 1, 1, 1, 1, 7, 1, 1, 1, 1, 1};

static BedShape shape_of(uint32_t head_dim)
{
    BedShape shape;
    shape.head_dim = head_dim;
    shape.format = "";
    return shape;
}

// Reads chunks of the sizes, again and again, and checks places, bytes and outputs. Both devices
// have the same bytes.
static void check_cache(const std::string& recipe, uint32_t head_dim, uint32_t n_rows,
                        uint32_t n_tokens)
{
    CAPTURE(recipe);
    CAPTURE(head_dim);
    const CodedText text{head_dim + 7, shape_of(head_dim)};
    CodedCache reference(recipe, n_rows, 32, "reference", text),
        cpu(recipe, n_rows, 32, "cpu", text);
    uint32_t n_coded = 0;
    for (uint32_t step = 0, n; reference.bed.n_seen < n_tokens; step++) {
        n = std::min(kSizes[step % std::size(kSizes)], n_tokens - reference.bed.n_seen);
        CAPTURE(reference.bed.n_seen);
        reference.read(n, reference.bed.n_seen);
        cpu.read(n, cpu.bed.n_seen, &reference);
        for (CodedCache* cache : {&reference, &cpu}) cache->check_places();
        REQUIRE(reference.all_bytes() == cpu.all_bytes());
        if (step % 9 == 0) n_coded += reference.check_bytes();
    }
    CHECK(reference.worst < 1e-6);
    CHECK(cpu.worst < 5e-6);
    CHECK(n_coded > 0);
    CHECK((reference.bed.cache.evicted() > 0) == !reference.bed.recipe.exact());
    CHECK((reference.bed.cache.merged() > 0) ==
          (recipe.find("merge") != recipe.npos || recipe.find("subgen") != recipe.npos));
}

TEST_CASE("coded cache: with slots for all tokens the first and the last ones stay plain, the rest "
          "is encoded once")
{
    for (const char* pair : kCodecPairs)
        for (uint32_t head_dim : {64u, 80u, 128u})
            check_cache(std::string("exact,") + pair, head_dim, 112, 112);
}

TEST_CASE("coded cache: every policy evicts coded tokens like plain ones")
{
    uint32_t nth = 0;
    for (const char* policy : {"mix", "h2o", "keydiff", "ada", "sink", "mix,victims=merge",
                               "subgen", "ada,victims=merge", "window,delta=1"})
        for (const char* pair : kCodecPairs) {
            const uint32_t dims[] = {64, 80, 128};
            check_cache(std::string(policy) + "," + pair, dims[nth++ % 3], 64, 150);
        }
}

TEST_CASE("coded cache: a text goes on after a rewind into its coded part")
{
    for (const char* pair : {"k=q8,v=q8", "k=turbo4,v=turbo3", "k=f16,v=polar"})
        for (const char* device : {"reference", "cpu"})
            for (uint32_t back : {0u, 2u, 4u, 5u, 30u, 60u, 85u, 99u}) {
                CAPTURE(pair);
                CAPTURE(device);
                CAPTURE(back);
                const CodedText text{back + 1, shape_of(64)};
                const std::string recipe = std::string("exact,") + pair;
                CodedCache cache(recipe, 112, 32, device, text),
                    fresh(recipe, 112, 32, device, text), plain("exact", 112, 32, device, text);
                for (uint32_t t = 0; t < 96; t += 32) cache.read(32, t);
                cache.read(4, 96);
                REQUIRE(cache.rewind(back));
                cache.check_places();
                for (uint32_t t = 0; t < back; t += 10)
                    for (CodedCache* other : {&fresh, &plain})
                        other->read(std::min(10u, back - t), t);
                const auto distance = [](const std::vector<float>& a, const std::vector<float>& b) {
                    double sum = 0;
                    for (size_t i = 0; i < a.size(); i++)
                        sum += double(a[i] - b[i]) * (a[i] - b[i]);
                    return std::sqrt(sum);
                };
                double found = 0, noise = 0;
                for (uint32_t n : {1u, 1u, 11u}) {
                    const uint32_t from = 1000 + cache.bed.n_seen;
                    for (CodedCache* one : {&cache, &fresh, &plain}) one->read(n, from);
                    cache.check_places();
                    cache.check_bytes();
                    found += distance(cache.y, fresh.y), noise += distance(fresh.y, plain.y);
                }
                CHECK(cache.worst < 5e-6);
                if (back <= 4) CHECK(found == 0);
                INFO(found << " " << noise);
                if (back >= 30)
                    CHECK(found <= 2 * noise); // the fresh cache has encoded some tokens, too
            }
}

TEST_CASE("coded cache: two f16 pools equal the exact cache, bit for bit")
{
    for (const char* device : {"reference", "cpu"})
        for (uint32_t head_dim : {64u, 80u, 128u}) {
            CAPTURE(device);
            CAPTURE(head_dim);
            CodedText text{head_dim, shape_of(head_dim)};
            CodedCache exact("exact,k=f16,v=f16", 112, 32, device, text);
            text.shape.lossless = true;
            CodedCache pools("exact,k=q8,v=q8", 112, 32, device, text);
            for (uint32_t step = 0, n; exact.bed.n_seen < 112; step++) {
                n = std::min(kSizes[step % std::size(kSizes)], 112 - exact.bed.n_seen);
                pools.read(n, pools.bed.n_seen);
                exact.read(n, exact.bed.n_seen);
                pools.check_places();
                REQUIRE(pools.y == exact.y);
            }
            CHECK(pools.check_bytes() > 0);
            CHECK(pools.bed.cache.evicted() == 0);
        }
}
