// Random small models, recipes, budgets and texts. The used memory equals the plan, however long
// the text. The held tokens do not depend on the number of threads.
#include "tests/kv/random_recipe.h"
#include "tests/model/tiny_model.h"
#include "tests/open_session.h"
#include "tests/sanitized.h"

#include <doctest/doctest.h>

using namespace ks;

static TinyShape random_shape(RandomValues& random)
{
    TinyShape s;
    s.arch = random.below(2) ? "gemma3" : "llama";
    s.n_layers = 1 + random.below(7);
    s.n_kv_heads = 1 + random.below(3);
    s.n_heads = s.n_kv_heads * (1 + random.below(3));
    s.head_dim = 8 * (1 + random.below(4));
    s.dim = 32;
    s.ffn_dim = 64;
    s.context = 64 + random.below(200);
    s.window = 4 + random.below(40);
    s.seed = 1 + random.below(1000);
    return s;
}

// The slots of all layers that evict, and the last logits.
static std::vector<uint32_t> state_of(const Session& session)
{
    std::vector<uint32_t> state = {uint32_t(session.evicted()), uint32_t(session.merged())};
    for (uint32_t il = 0; il < session.cache().n_layers(); il++) {
        const CacheLayer& layer = session.cache().layer(il);
        for (uint32_t h = 0; layer.held && h < layer.spec.n_kv_heads; h++)
            state.insert(state.end(), layer.positions + layer.begin[h],
                         layer.positions + layer.begin[h] + layer.held[h]);
    }
    for (uint32_t i = 0; i < session.model().config().n_vocab; i++) {
        uint32_t bits = 0;
        memcpy(&bits, session.logits() + i, 4);
        state.push_back(bits);
    }
    return state;
}

// Reads n tokens of a text in parts, then some one by one. The plan must hold throughout.
static void read_text(Session& session, RandomValues random, uint32_t n)
{
    const auto feed = [&](uint32_t part) {
        std::vector<uint32_t> ids;
        for (uint32_t i = 0; i < part; i++) ids.push_back(random.below(256));
        REQUIRE(session.feed(ids.data(), ids.size()).ok());
        REQUIRE(session.model().ledger().peak_bytes() == session.plan().total_bytes);
    };
    for (uint32_t part = 0, left = n; left; left -= part)
        feed(part = std::min(left, 1 + random.below(n)));
    for (int i = 0; i < 40; i++) feed(1);
    for (uint32_t i = 0; i < session.model().config().n_vocab; i++)
        REQUIRE(std::isfinite(session.logits()[i]));
}

constexpr uint32_t kRounds = kSanitized ? 24 : 60;

// Limits the memory at random: from the smallest plan to a little more than the largest.
static void limit_memory(ModelOptions& options, RandomValues& random)
{
    options.memory_bytes = 1 << 30;
    const Result<Plan> roomy = make_plan(options);
    REQUIRE_MESSAGE(roomy.ok(), roomy.status().message());
    const uint64_t smallest = roomy.value().smallest_bytes;
    options.memory_bytes =
        smallest + random.below(1 + uint32_t(roomy.value().total_bytes - smallest) * 5 / 4 /
                                        (1 + random.below(20)));
    if (random.below(3) != 0) return;
    const Plan& p = roomy.value(); // a separate limit for the cache
    options.kv_memory_bytes =
        (p.region_bytes("cache") + p.region_bytes("cache tables")) * (1 + random.below(8)) / 8;
}

static void check_within_budget(const Session& s, const Plan& plan, const ModelOptions& options)
{
    CHECK(s.model().ledger().peak_bytes() == plan.total_bytes);
    CHECK(s.model().ledger().peak_bytes() <= options.memory_bytes);
    if (options.kv_memory_bytes)
        CHECK(s.plan().region_bytes("cache") + s.plan().region_bytes("cache tables") <=
              options.kv_memory_bytes);
}

// Reads a text with one thread and with three, in the chunks and slots of the session.
static void check_threads(const Session& s, ModelOptions options, const RandomValues& random)
{
    const std::vector<uint32_t> expected = state_of(s);
    options.recipe += ",chunk=" + std::to_string(s.plan().chunk);
    options.memory_bytes = 1 << 30;
    options.kv_memory_bytes = 0;
    for (int n_threads : {1, 3}) {
        options.n_threads = n_threads;
        Result<std::unique_ptr<Session>> other = open_session(options);
        REQUIRE(other.ok());
        read_text(*other.value(), random, 700);
        CHECK((state_of(*other.value()) == expected));
    }
}

TEST_CASE(
    "budget: the high-water mark is the plan and within the budget, for any model, recipe and text")
{
    RandomValues random{77};
    uint64_t n_evicted = 0, n_compared = 0;
    for (uint32_t round = 0; round < kRounds; round++) {
        const TinyShape shape = random_shape(random);
        const TempFile file("budget.gguf", make_tiny_model(shape).file);
        ModelOptions options;
        options.model_path = file.path();
        options.device = round % 4 ? "cpu" : "reference";
        options.context = 32 + random.below(shape.context - 31);
        const uint32_t slots = 16 + random.below(round % 2 ? 200 : 100);
        options.recipe = random_recipe(random, slots);
        if (shape.head_dim % 16 == 0) options.recipe += random_codecs(random, options.recipe);
        const bool given = random.below(2);
        if (given) options.recipe += ",slots=" + std::to_string(slots);
        CAPTURE(options.recipe);
        limit_memory(options, random);
        const Result<Plan> plan = make_plan(options);
        REQUIRE(plan.ok());
        Result<std::unique_ptr<Session>> session = open_session(options);
        REQUIRE(session.ok() == plan.value().fits);
        CHECK((plan.value().fits || options.kv_memory_bytes));
        if (!session.ok()) continue;
        Session& s = *session.value();
        check_within_budget(s, plan.value(), options);
        for (uint32_t n : {1u, 30u, 700u}) {
            s.clear();
            read_text(s, random, n);
        }
        n_evicted += s.evicted();
        // Another number of threads needs other scratch, which changes the slots that are not
        // given.
        if (round % 4 == 0 || !given) continue;
        check_threads(s, options, random);
        n_compared += 2;
    }
    CHECK(n_evicted > 10000 * kRounds / 60);
    CHECK(n_compared > kRounds / 3);
}
