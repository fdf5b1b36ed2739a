// Plans: regions, budgets, the choices of auto, and refused recipes.
#include "runtime/kv/cache.h"
#include "tests/model/plan_bed.h"

using namespace ks;

TEST_CASE("plan: regions add up, stay inside the budget, and the smallest budget is the smallest")
{
    std::mt19937 rng(7);
    auto backend = open_backend({"reference", 1, nullptr});
    REQUIRE(backend.ok());
    int fitting = 0;
    for (int i = 0; i < 400; i++) {
        Shape s = random_shape(rng);
        Recipe recipe = parse_recipe("exact").value();
        if (rng() % 2) recipe.k = Format::f32;
        PlanRequest request;
        request.memory_bytes = (1ull << (22 + rng() % 10)) + rng() % 100000;
        if (rng() % 3 == 0) request.kv_memory_bytes = 1ull << (20 + rng() % 8);
        if (rng() % 3 == 0) request.context = rng() % 5000;
        Plan plan = plan_of(s, *backend.value(), recipe, request);
        uint64_t sum = 0;
        for (const PlanRegion& region : plan.regions) {
            sum += region.bytes;
            CHECK(region.bytes % kRegionAlign == 0);
        }
        CHECK(sum == plan.total_bytes);
        CHECK(plan.context > 0);
        CHECK(plan.chunk <= plan.context);
        if (plan.fits) {
            fitting++;
            CHECK(plan.total_bytes <= request.memory_bytes);
            CHECK(plan.smallest_bytes <= plan.total_bytes);
            if (request.kv_memory_bytes)
                CHECK(plan.region_bytes("cache") <= request.kv_memory_bytes);
            if (request.context > 0) CHECK(plan.context == uint32_t(request.context));
        } else {
            CHECK(no_fit(plan).code() == Code::no_fit);
        }
        if (request.kv_memory_bytes) continue;
        if (!plan.fits) CHECK(plan.smallest_bytes > request.memory_bytes);
        request.memory_bytes = plan.smallest_bytes;
        Plan smallest = plan_of(s, *backend.value(), recipe, request);
        CHECK(smallest.fits);
        CHECK(smallest.total_bytes <= plan.smallest_bytes);
        request.memory_bytes = plan.smallest_bytes - 1;
        CHECK_FALSE(plan_of(s, *backend.value(), recipe, request).fits);
    }
    CHECK(fitting > 100);
}

TEST_CASE("plan: less memory shortens the context or the chunk, and the longest context is taken")
{
    std::mt19937 rng(11);
    auto backend = open_backend({"reference", 1, nullptr});
    REQUIRE(backend.ok());
    for (int i = 0; i < 30; i++) {
        Shape s = random_shape(rng);
        PlanRequest request;
        request.memory_bytes = 1ull << 40;
        Plan all = plan_of(s, *backend.value(), {}, request);
        CHECK(all.context == s.config.n_context);
        request.memory_bytes = all.total_bytes - 1;
        Plan less = plan_of(s, *backend.value(), {}, request);
        CHECK(less.fits);
        CHECK((less.context < all.context || less.chunk < all.chunk));
    }
}

TEST_CASE(
    "plan: auto keeps all tokens of the model's context, and of a shorter one until it is full")
{
    std::mt19937 rng(5);
    auto backend = open_backend({"reference", 1, nullptr});
    REQUIRE(backend.ok());
    for (int i = 0; i < 10; i++) {
        const Shape s = random_shape(rng);
        PlanRequest request;
        request.memory_bytes = 1ull << 40;
        for (int64_t context : {int64_t(0), int64_t(s.config.n_context),
                                int64_t(s.config.n_context) * 2, int64_t(s.config.n_context) / 2}) {
            request.context = context;
            const bool shorter = context && context < int64_t(s.config.n_context);
            const Result<Plan> plan = make_plan(s.config, s.parts, 1, 1, *backend.value(),
                                                parse_recipe("auto").value(), request);
            REQUIRE(plan.ok());
            CHECK(plan.value().recipe.exact() == !shorter);
            CHECK(plan.value().recipe.k == Format::f16);
            CHECK(plan.value().slots == (context ? context : s.config.n_context));
        }
    }
}

TEST_CASE("plan: the slots of a ladder fit the scratch that is planned")
{
    std::mt19937 rng(5);
    auto backend = open_backend({"cpu", 1, nullptr});
    REQUIRE(backend.ok());
    int evicting = 0;
    for (int i = 0; i < 300; i++) {
        Shape s = random_shape(rng);
        s.config.n_context = 1u << 18;
        set_layers(s.config, 1 + rng() % 3, 0);
        PlanRequest request;
        const Recipe recipe = parse_recipe("auto").value();
        request.memory_bytes = plan_of(s, *backend.value(), recipe, request).smallest_bytes;
        request.memory_bytes += rng() % (64 << 20);
        const Plan plan = plan_of(s, *backend.value(), recipe, request);
        REQUIRE(plan.fits);
        evicting += !plan.recipe.exact();
        for (const PlanRung& rung : plan.rungs)
            CHECK(backend.value()->scratch_bytes(
                      scratch_shape(s.config, rung.recipe, rung.slots, plan.chunk)) <=
                  plan.region_bytes("scratch"));
    }
    CHECK(evicting > 100);
}

TEST_CASE("plan: auto encodes before it evicts, in ever fewer bits as the memory shrinks")
{
    using Pair = std::pair<Format, Format>;
    const Pair plain{Format::f16, Format::f16}, eight{Format::q8, Format::q8},
        twelve{Format::q8, Format::turbo4};
    Family normed;
    normed.qk_norm = QkNorm::head;
    const struct {
        const char* recipe;
        const Family* family;
        std::vector<Pair> order;
    } rows[] = {
        {"auto", &kFamily, {plain, eight, twelve, {Format::turbo4, Format::turbo3}}},
        {"auto",
         &normed,
         {plain, eight, twelve, {Format::q4, Format::turbo3}, {Format::turbo4, Format::turbo3}}}};
    auto backend = open_backend({"reference", 1, nullptr});
    REQUIRE(backend.ok());
    Shape s = wide_shape(4096, 12, 0);
    for (const auto& row : rows) {
        CAPTURE(std::string(row.recipe));
        s.config.family = row.family;
        PlanRequest request;
        request.memory_bytes = 1ull << 40;
        request.context = s.config.n_context;
        const uint64_t all_bytes = plan_of(s, *backend.value(), {}, request).region_bytes("cache");
        std::vector<Pair> met;
        for (uint64_t percent = 110; percent >= 5; percent--) {
            request.kv_memory_bytes = all_bytes / 100 * percent;
            const Plan plan =
                plan_of(s, *backend.value(), parse_recipe(row.recipe).value(), request);
            const Pair pair{plan.recipe.k, plan.recipe.v};
            if (met.empty() || met.back() != pair) met.push_back(pair);
            CHECK((plan.slots >= 0.95 * s.config.n_context || pair == row.order.back()));
        }
        CHECK(met == row.order);
    }
}

static CacheBytes rung_bytes(const Plan& plan, const ModelShape& model, size_t i, uint32_t n_slots,
                             uint64_t align)
{
    const Recipe& recipe = plan.rungs[i].recipe;
    return Cache::bytes_needed(cache_specs(model, recipe, n_slots), recipe, plan.chunk,
                               recipe.exact() ? n_slots : 0, {{}, 0, align});
}

static bool rung_fits(const Plan& plan, const ModelShape& model, size_t i, uint32_t n_slots,
                      uint64_t align)
{
    const CacheBytes bytes = rung_bytes(plan, model, i, n_slots, align);
    return bytes.device <= plan.region_bytes("cache") &&
           bytes.host <= plan.region_bytes("cache tables") &&
           (plan.rungs.size() < 2 || bytes.plane <= plan.region_bytes("staging"));
}

TEST_CASE("plan: rungs hold ever more tokens in the same bytes, and the last is what is planned")
{
    std::mt19937 rng(21);
    auto backend = open_backend({"reference", 1, nullptr});
    REQUIRE(backend.ok());
    int climbing = 0;
    for (int i = 0; i < 150; i++) {
        const Shape s = random_shape(rng);
        PlanRequest request;
        request.memory_bytes = (1ull << (23 + rng() % 9)) + rng() % 100000;
        if (rng() % 3 == 0) request.kv_memory_bytes = 1ull << (18 + rng() % 10);
        if (rng() % 3 == 0) request.context = 100 + rng() % 9000;
        const Recipe recipe = parse_recipe("auto").value();
        const Plan plan = plan_of(s, *backend.value(), recipe, request);
        if (!plan.fits) continue;
        REQUIRE(!plan.rungs.empty());
        const PlanRung& last = plan.rungs.back();
        CHECK(last.recipe_text == plan.recipe_text);
        CHECK(last.slots == plan.slots);
        uint64_t sum = 0;
        for (const PlanRegion& region : plan.regions) sum += region.bytes;
        CHECK(sum == plan.total_bytes);
        CHECK(plan.total_bytes <= request.memory_bytes);
        const auto fits = [&](uint32_t n_slots, size_t nth) {
            return rung_fits(plan, s.config.model_shape(), nth, n_slots, backend.value()->align());
        };
        uint32_t before = 0;
        for (const PlanRung& rung : plan.rungs) {
            if (!rung.slots) continue;
            CHECK((&rung == &last || rung.recipe.exact()));
            // Hardly more tokens are worth a rung only where it holds them all.
            CHECK((rung.slots >= before + before / 4 || before >= 0.95 * plan.context ||
                   (before == plan.rungs[0].slots && &rung == &last)));
            CHECK(rung.slots >= before);
            before = rung.slots;
            CHECK(fits(rung.slots, size_t(&rung - plan.rungs.data())));
        }
        if (plan.rungs.size() > 1 && plan.rungs[0].slots == 0) CHECK(!fits(kLeastOfRung, 0));
        climbing += plan.rungs.size() > 1 && plan.rungs[0].slots;
    }
    CHECK(climbing > 20);
}

TEST_CASE("plan: the exact text fills the cache also where the last rung holds fewer tokens")
{
    std::mt19937 rng(22);
    auto backend = open_backend({"reference", 1, nullptr});
    REQUIRE(backend.ok());
    Shape s = random_shape(rng);
    s.config.n_heads = 9;
    s.config.n_kv_heads = 3;
    s.config.n_context = 8192;
    set_layers(s.config, 30, 0);
    set_head_dim(s.config, 64);
    const Recipe recipe = parse_recipe("auto").value();
    PlanRequest request;
    const uint64_t least = plan_of(s, *backend.value(), recipe, request).smallest_bytes;
    int n = 0;
    for (uint64_t mib = 20; mib < 140; mib++) {
        request.memory_bytes = least + (mib << 20);
        const Plan plan = plan_of(s, *backend.value(), recipe, request);
        if (plan.rungs.size() < 2 || plan.slots == plan.context) continue;
        CAPTURE(mib);
        n++;
        const uint32_t more = plan.rungs[0].slots + plan.rungs[0].slots / 100 + 8;
        CHECK(rung_bytes(plan, s.config.model_shape(), 0, more, backend.value()->align()).device >
              plan.region_bytes("cache"));
    }
    CHECK(n > 20);
}

TEST_CASE("plan: a layer whose slots can all be read has no selection")
{
    std::mt19937 rng(6);
    Shape s = random_shape(rng);
    set_layers(s.config, s.config.n_layers(), 0);
    for (const char* select : {"tokenselect", "quest", "infllm"})
        for (const char* split : {"uniform", "ada"}) {
            const Recipe recipe =
                parse_recipe(std::string("h2o,read=256,select=") + select + ",split=" + split)
                    .value();
            const uint32_t whole = recipe.split == Split::ada
                                       ? 256 / s.config.n_kv_heads
                                       : 256; // one head may take the slots of all heads
            for (uint32_t n_slots : {whole, whole + 1})
                CHECK((cache_specs(s.config.model_shape(), recipe, n_slots).back().n_read > 0) ==
                      (n_slots > whole && s.config.n_layers() > recipe.select->dense));
        }
}

TEST_CASE("plan: a context of more than 32 bits is a usage error")
{
    std::mt19937 rng(3);
    auto backend = open_backend({"reference", 1, nullptr});
    REQUIRE(backend.ok());
    Shape s = random_shape(rng);
    PlanRequest request;
    request.context = int64_t(1) << 40;
    Result<Plan> plan = make_plan(s.config, s.parts, 1, 1, *backend.value(), {}, request);
    REQUIRE_FALSE(plan.ok());
    CHECK(plan.status().code() == Code::usage);
}

TEST_CASE("plan: head sizes that no codec supports are refused, unless nothing is coded")
{
    std::mt19937 rng(3);
    auto backend = open_backend({"reference", 1, nullptr});
    REQUIRE(backend.ok());
    Shape s = random_shape(rng);
    for (uint32_t head_dim : {8u, 16u, 24u, 72u, 80u, 512u, 592u, 1024u}) {
        CAPTURE(head_dim);
        set_head_dim(s.config, head_dim);
        for (const char* recipe : {"exact", "mix", "auto", "q8", "mix,k=turbo4", "auto,v=polar"}) {
            CAPTURE(std::string(recipe));
            PlanRequest request;
            request.memory_bytes = 1ull << 40;
            request.context = 300;
            Result<Plan> plan = make_plan(s.config, s.parts, 1, 1, *backend.value(),
                                          parse_recipe(recipe).value(), request);
            const bool possible = head_dim % 16 == 0 && head_dim <= codec_max_dim;
            CHECK(plan.ok() == (possible || !parse_recipe(recipe).value().codes()));
            if (plan.ok()) continue;
            CHECK(plan.status().code() == Code::unsupported);
            CHECK(plan.status().message().find(std::to_string(head_dim)) != std::string::npos);
        }
    }
}

TEST_CASE("plan: wide normed 2-bit keys have q8 in the first and last layer, unless the recipe has "
          "a boundary")
{
    std::mt19937 rng(4);
    Shape s = random_shape(rng);
    set_layers(s.config, 4, 0);
    Family normed = kFamily;
    normed.qk_norm = QkNorm::head;
    const auto n_q8 = [&](const char* recipe) {
        uint32_t n = 0;
        for (const CacheLayerSpec& spec :
             cache_specs(s.config.model_shape(), parse_recipe(recipe).value(), 256))
            n += spec.k == Format::q8;
        return n;
    };
    struct {
        const Family* family;
        uint32_t head_dim;
        const char* recipe;
        uint32_t n_q8;
    } cases[] = {{&normed, 256, "turbo2", 2},
                 {&normed, 256, "kivi2", 2},
                 {&normed, 256, "turbo2,boundary=0", 0},
                 {&normed, 256, "turbo3,v=turbo2", 0},
                 {&normed, 128, "turbo2", 0},
                 {&kFamily, 256, "turbo2", 0},
                 {&kFamily, 256, "turbo2,boundary=1", 2}};
    for (const auto& c : cases) {
        CAPTURE(std::string(c.recipe));
        s.config.family = c.family;
        set_head_dim(s.config, c.head_dim);
        CHECK(n_q8(c.recipe) == c.n_q8);
    }
    CHECK(recipe_text(parse_recipe("turbo2,boundary=0").value()).find("boundary=0") !=
          std::string::npos);
}

// A device that lacks some features of attention.
struct LesserBackend : ReferenceBackend {
    DeviceInfo lesser;
    LesserBackend() : ReferenceBackend({"reference", 1, nullptr}), lesser(ReferenceBackend::info())
    {
    }
    DeviceInfo info() const override { return lesser; }
};

TEST_CASE("plan: attention features that a device lacks are refused, and auto avoids them")
{
    std::mt19937 rng(3);
    Shape s = random_shape(rng);
    set_head_dim(s.config, s.config.rope.n_rot = 64);
    s.config.key_bias = true;
    PlanRequest request;
    request.memory_bytes = 1ull << 40;
    request.context = 300;
    auto try_plan = [&](const Backend& backend, const char* recipe) {
        return make_plan(s.config, s.parts, 1, 1, backend, parse_recipe(recipe).value(), request);
    };
    LesserBackend whole;
    struct {
        bool DeviceInfo::*part;
        const char *recipe, *said;
    } refused[] = {
        {&DeviceInfo::selects, "tokenselect", "select=tokenselect on reference"},
        {&DeviceInfo::selects, "mix,select=quest", "select=quest on reference"},
        {&DeviceInfo::ablations, "mix,select=hardvote", "select=hardvote on reference"},
        {&DeviceInfo::ropes_on_read, "h2o,positions=compact", "positions=compact on reference"},
        {&DeviceInfo::adds_bias, "q8", "k=q8 on reference"},
        {&DeviceInfo::adds_bias, "auto,k=turbo4", "k=turbo4 on reference"}};
    for (const auto& r : refused) {
        CAPTURE(std::string(r.recipe));
        CHECK(try_plan(whole, r.recipe).ok());
        LesserBackend lesser;
        lesser.lesser.*r.part = false;
        Result<Plan> plan = try_plan(lesser, r.recipe);
        REQUIRE_FALSE(plan.ok());
        CHECK(plan.status().code() == Code::unsupported);
        CHECK(plan.status().message().find(r.said) != std::string::npos);
        CHECK(plan.status().message().find("possible: ") != std::string::npos);
        for (const char* other : {"exact", "h2o", "mix,v=q8", "sink"})
            CHECK(try_plan(lesser, other).ok());
    }
    LesserBackend lesser;
    lesser.lesser.adds_bias = false;
    request.memory_bytes = try_plan(whole, "exact,k=f32,v=f32").value().smallest_bytes / 2;
    for (const Backend* backend :
         {static_cast<const Backend*>(&whole), static_cast<const Backend*>(&lesser)}) {
        Result<Plan> plan = try_plan(*backend, "auto");
        REQUIRE(plan.ok());
        CHECK((backend == &whole || !is_coded(plan.value().recipe.k)));
    }
}
