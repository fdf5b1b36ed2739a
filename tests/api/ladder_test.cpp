// Sessions that climb: exact below the first rung, the plan at every rung and budget.
#include "tests/api/ladder_bed.h"
#include "tests/sanitized.h"

using namespace ks;

static void check_peak(const Session& s)
{
    CHECK(s.model().ledger().peak_bytes() == s.plan().total_bytes);
}

TEST_CASE("ladder: a text is exact until the first rung is full, and then it climbs")
{
    for (const char* device : {"reference", "cpu"})
        for (const char* arch : {"llama", "gemma3"}) {
            CAPTURE(arch);
            const Climber climber(arch, device);
            std::unique_ptr<Session> s = climber.open(), exact = climber.open("exact");
            REQUIRE(s->plan().rungs.size() > 2);
            const uint32_t n = first_rung(*s).slots;
            REQUIRE(first_rung(*s).recipe_text == "exact,k=f16,v=f16");
            REQUIRE(n >= 64);
            const std::vector<uint32_t> ids = some_ids(500);
            feed(*s, ids, 0, n - 9);
            feed(*exact, ids, 0, n - 9);
            for (uint32_t i = n - 9; i <= n; i++) {
                CHECK(s->n_climbs() == 0);
                CHECK(logits(*s) == logits(*exact));
                feed(*s, ids, i, i + 1);
                feed(*exact, ids, i, i + 1);
            }
            CHECK(s->n_climbs() == 1);
            CHECK(logits(*s) != logits(*exact));
            double dot = 0, a = 0, b = 0;
            for (uint32_t i = 0; i < s->model().config().n_vocab; i++) {
                dot += double(s->logits()[i]) * exact->logits()[i];
                a += double(s->logits()[i]) * s->logits()[i];
                b += double(exact->logits()[i]) * exact->logits()[i];
            }
            CHECK(dot / std::sqrt(a * b) > 0.99);
            feed(*s, ids, n + 1, 500);
            CHECK((&s->rung() == &s->plan().rungs.back() || s->rung().slots >= 500));
            CHECK(s->n_climbs() > 1);
            check_peak(*s);
            s->clear();
            CHECK(s->rung().recipe_text == "exact,k=f16,v=f16");
            exact->clear();
            feed(*s, ids, 5, 40);
            feed(*exact, ids, 5, 40);
            CHECK(logits(*s) == logits(*exact));
        }
}

TEST_CASE("ladder: a context shorter than the model's is exact with the memory for it")
{
    TempFile file("short_context.gguf", make_tiny_model(window_shape(1024, 200)).file);
    ModelOptions options = cpu_options(file, "auto");
    options.context = 512;
    auto s = open_session(options);
    options.recipe = "exact";
    auto exact = open_session(options);
    REQUIRE_MESSAGE((s.ok() && exact.ok()), s.status().message());
    const std::vector<uint32_t> ids = some_ids(512);
    feed(*s.value(), ids, 0, 500);
    feed(*exact.value(), ids, 0, 500);
    CHECK(s.value()->evicted() == 0);
    CHECK(logits(*s.value()) == logits(*exact.value()));
}

TEST_CASE("ladder: windows are whole where the last rung holds every token, and else cut")
{
    TinyShape shape = window_shape(512, 300);
    shape.head_dim = 64;
    TempFile file("windows.gguf", make_tiny_model(shape).file);
    ModelOptions options = cpu_options(file, "exact");
    const uint64_t exact = make_plan(options).value().region_bytes("cache");
    options.recipe = "auto";
    const std::vector<uint32_t> ids = some_ids(600);
    int whole = 0, between = 0, cut = 0;
    for (uint64_t percent = 75; percent > 15; percent -= 2) {
        CAPTURE(percent);
        options.kv_memory_bytes = exact * percent / 100;
        auto s = open_session(options);
        REQUIRE_MESSAGE(s.ok(), s.status().message());
        const Plan& plan = s.value()->plan();
        REQUIRE(plan.rungs.size() > 1);
        for (const PlanRung& rung : plan.rungs) {
            CAPTURE(rung.recipe_text);
            if (!rung.slots) continue;
            const bool holds = &rung != &plan.rungs.back() || rung.slots == 512;
            for (const CacheLayerSpec& spec :
                 cache_specs(s.value()->model().config().model_shape(), rung.recipe, rung.slots)) {
                if (!spec.local) continue;
                if (holds) CHECK(spec.n_slots >= std::min(300u, rung.slots));
                whole += holds && rung.slots == 512;
                between += !holds && rung.slots > 490 && spec.n_slots > 512 * 3 / 8 + 48;
                cut += rung.slots < 480 && spec.n_slots < 300;
            }
        }
        feed(*s.value(), ids, 0, 600);
        CHECK(s.value()->model().ledger().peak_bytes() == plan.total_bytes);
        CHECK(plan.region_bytes("cache") + plan.region_bytes("cache tables") <=
              options.kv_memory_bytes);
    }
    CHECK(whole > 0);
    CHECK(between > 0);
    CHECK(cut > 0);
}

TEST_CASE("ladder: a squeeze counts the climbs that it makes, and only these")
{
    const Climber climber("gemma3");
    const std::vector<uint32_t> ids = some_ids(500);
    const Plan plan = climber.open()->plan();
    const uint64_t open_bytes = plan.total_bytes, cache = plan.region_bytes("cache");
    uint32_t between = 0; // the squeezes to a rung that is neither the first nor the last
    for (uint64_t freed = 0; freed < cache * 3 / 4; freed += cache / 20) {
        CAPTURE(freed);
        std::unique_ptr<Session> s = climber.open();
        if (!s->set_memory(open_bytes - freed).ok()) break;
        CHECK(s->n_climbs() == 0);
        REQUIRE(s->set_memory(open_bytes).ok());
        feed(*s, ids, 0, 160);
        const std::string before = s->rung().recipe_text;
        REQUIRE(s->n_climbs() == 0);
        REQUIRE(s->set_memory(open_bytes - freed).ok());
        const bool climbed = s->rung().recipe_text != before;
        CHECK(s->n_climbs() == (climbed ? 1 : 0));
        CHECK((s->climb_seconds() > 0 || !climbed));
        between += climbed && &s->rung() != &s->plan().rungs.back();
        const uint32_t n_climbs = s->n_climbs();
        const std::string after = s->rung().recipe_text;
        REQUIRE(s->set_memory(open_bytes).ok());
        CHECK(s->n_climbs() == n_climbs);
        CHECK(s->rung().recipe_text == after);
    }
    CHECK(between > 0);
}

TEST_CASE("ladder: budgets that differ by little squeeze a last rung that is full")
{
    for (const char* arch : {"llama", "deepseek2"}) {
        CAPTURE(arch);
        Climber climber("llama");
        const TempFile file("full.gguf", walker(arch));
        climber.options.model_path = file.path();
        ModelOptions exact = climber.options;
        exact.recipe = "exact";
        exact.kv_memory_bytes = 0;
        climber.options.kv_memory_bytes = make_plan(exact).value().region_bytes("cache") *
                                          (std::string(arch) == "llama" ? 40 : 60) / 100;
        std::unique_ptr<Session> s = climber.open();
        REQUIRE(s->plan().rungs.size() > 1);
        const uint64_t most = s->plan().total_bytes, cache = s->plan().region_bytes("cache");
        std::vector<uint32_t> ids = some_ids(1000);
        for (uint32_t& id : ids) id %= s->model().config().n_vocab;
        feed(*s, ids, 0, 300);
        uint32_t n = 300, squeezed = 0, grown = 0;
        for (uint64_t step = 0; n < 700; step = (step + 5) % 11) {
            feed(*s, ids, n, n + 1 + n % 3, true);
            n += 1 + n % 3;
            const uint32_t slots = s->rung().slots, held = s->cache().layer(0).held[0];
            const uint64_t evicted = s->evicted();
            REQUIRE(s->set_memory(most - cache * step / 200).ok());
            check_peak(*s);
            squeezed += s->rung().slots < slots && s->evicted() > evicted;
            grown += s->rung().slots > slots;
            if (held <= s->rung().slots) CHECK(s->evicted() == evicted);
        }
        CHECK(squeezed > 10);
        CHECK(grown > 10);
    }
}

// Resident memory of this process, in bytes.
static int64_t resident_bytes()
{
    int64_t pages = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident;
    return resident * 4096;
}

// Squeezes a full first rung to these shares of the exact cache, in percent.
static void squeeze_resident(const ModelOptions& options, uint64_t cache,
                             const std::vector<uint64_t>& squeezes)
{
    auto s = open_session(options);
    REQUIRE_MESSAGE(s.ok(), s.status().message());
    Session& session = *s.value();
    feed(session, some_ids(2048), 0, first_rung(session).slots);
    const uint64_t most = session.plan().total_bytes;
    for (uint64_t percent : squeezes) {
        CAPTURE(percent);
        const int64_t before = resident_bytes();
        const uint64_t used = session.model().ledger().used_bytes();
        REQUIRE(session.set_memory(most - cache * percent / 100).ok());
        const int64_t fallen = before - resident_bytes(),
                      given_back = int64_t(used - session.model().ledger().used_bytes());
        CHECK(given_back > int64_t(cache / 20));
        CHECK(std::abs(fallen - given_back) < 512 * 1024);
    }
    CHECK(session.evicted() > 0);
}

TEST_CASE("ladder: resident memory falls by what a squeeze gives back" * doctest::skip(kSanitized))
{
    TinyShape shape;
    shape.context = 2048;
    shape.n_heads = shape.n_kv_heads = 8;
    // The climb of few wide layers moves more bytes at once than loading has touched.
    for (bool wide : {false, true}) {
        CAPTURE(wide);
        shape.n_layers = wide ? 6 : 24;
        shape.head_dim = wide ? 128 : 32;
        const TempFile file("resident.gguf", make_tiny_model(shape).file);
        ModelOptions options = cpu_options(file, "exact");
        const uint64_t cache = make_plan(options).value().region_bytes("cache");
        options.recipe = "auto";
        options.kv_memory_bytes = cache * 6 / 10;
        for (const std::vector<uint64_t>& squeezes :
             {std::vector<uint64_t>{10, 20, 30, 40}, {25, 45}, {48}})
            squeeze_resident(options, cache, squeezes);
    }
}

TEST_CASE("ladder: a squeeze goes to rungs that the budget at open does not need")
{
    const struct {
        uint64_t percent, after; // of the exact cache
    } cases[] = {{95, 50}, {88, 47}};
    for (const auto& c : cases) {
        CAPTURE(c.percent);
        Climber climber("llama");
        ModelOptions exact = climber.options;
        exact.recipe = "exact";
        exact.kv_memory_bytes = 0;
        const uint64_t whole = make_plan(exact).value().region_bytes("cache");
        climber.options.kv_memory_bytes = whole * c.percent / 100;
        std::unique_ptr<Session> s = climber.open();
        const Plan open = s->plan();
        const auto squeeze = [&](uint64_t percent) {
            REQUIRE(s->set_memory(open.total_bytes - whole * (c.percent - percent) / 100).ok());
            check_peak(*s);
        };
        REQUIRE(open.rungs.size() == 2);
        CHECK(open.rungs[0].recipe_text == "exact,k=f16,v=f16");
        CHECK(open.rungs[0].slots > 200);
        CHECK(open.slots >= 0.95 * 512);
        const std::vector<uint32_t> ids = some_ids(900);
        feed(*s, ids, 0, 350);
        squeeze(c.after);
        CHECK(s->plan().rungs.size() > open.rungs.size());
        CHECK(s->rung().slots >= 350);
        CHECK(s->rung().recipe.v != Format::q8);
        CHECK(s->evicted() == 0);
        feed(*s, ids, 350, 360);
        // The text keeps its codes, and the next one has the first rungs again.
        const Format v = s->rung().recipe.v;
        squeeze(c.percent);
        CHECK(s->rung().recipe.v == v);
        CHECK(s->rung().slots >= 0.95 * 512);
        feed(*s, ids, 360, 800);
        s->clear();
        feed(*s, ids, 0, 470);
        CHECK(s->rung().recipe.v == Format::q8);
        s->clear();
        squeeze(c.percent);
        CHECK(s->plan().rungs.size() == open.rungs.size());
        // From the first rung to one that evicts, which the plan at open does not have.
        feed(*s, ids, 0, 200);
        CHECK(s->n_climbs() == 0);
        squeeze(26);
        CHECK(s->plan().rungs.size() > open.rungs.size());
        CHECK(&s->rung() == &s->plan().rungs.back());
        CHECK(s->n_climbs() == 1);
        CHECK(s->evicted() > 0);
        feed(*s, ids, 200, 800);
    }
}

TEST_CASE(
    "ladder: a smaller budget keeps the text, a larger one the codes, and a fixed recipe stays")
{
    const Climber climber("llama");
    std::unique_ptr<Session> s = climber.open();
    const std::vector<uint32_t> ids = some_ids(500);
    const uint64_t open_bytes = s->plan().total_bytes;
    feed(*s, ids, 0, 100);
    const uint64_t cache = s->plan().region_bytes("cache") + s->plan().region_bytes("cache tables"),
                   half = open_bytes - cache / 3;
    REQUIRE(s->set_memory(half).ok());
    CHECK(s->plan().total_bytes <= half);
    CHECK(s->n_climbs() > 0);
    CHECK(s->evicted() == 0);
    const std::string rung = s->rung().recipe_text;
    REQUIRE(s->set_memory(open_bytes).ok());
    CHECK(s->plan().total_bytes == open_bytes);
    CHECK(s->rung().recipe_text == rung);
    CHECK(s->set_memory(climber.options.memory_bytes + 1).code() == Code::no_fit);
    CHECK(s->set_memory(1000).code() == Code::no_fit);
    CHECK(s->plan().total_bytes == open_bytes);
    feed(*s, ids, 100, 500);
    REQUIRE(s->set_memory(half).ok());
    CHECK(s->evicted() > 0);
    feed(*s, ids, 100, 130);
    CHECK(climber.open("q8", 1 << 26)->set_memory(1 << 25).code() == Code::unsupported);
}
