// Sessions of one model whose shares of the caches move. KS_TEST_WALKS=N: so many steps.
#include "tests/api/ladder_bed.h"
#include "tests/sanitized.h"

#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

using namespace ks;

namespace
{

constexpr uint32_t kSessions = 4;

ModelOptions shared_options(const Climber& climber, int n_threads, uint64_t percent = 40)
{
    ModelOptions options = climber.options, exact = options;
    exact.recipe = "exact";
    exact.kv_memory_bytes = 0;
    options.n_threads = n_threads;
    options.n_sessions = kSessions;
    options.kv_memory_bytes =
        make_plan(exact).value().region_bytes("cache") * kSessions * percent / 100;
    return options;
}

// Whether no two sessions have rows in the same bytes.
bool disjoint(const std::vector<std::unique_ptr<Session>>& sessions)
{
    const auto begin = [](const Session& s) { return s.cache().layer(0).kv.k.offset; };
    const auto end = [](const Session& s) {
        const CacheLayer& last = s.cache().layer(s.cache().n_layers() - 1);
        const Tensor& t = last.kv.coded_v;
        return t.offset + coded_bytes(t.format, t.rows, t.cols);
    };
    for (const auto& a : sessions)
        for (const auto& b : sessions)
            if (a && b && a != b && begin(*a) < end(*b) && begin(*b) < end(*a)) return false;
    return true;
}

// Two models with other numbers of threads, whose sessions do the same.
struct Pair {
    std::shared_ptr<Model> models[2];
    std::vector<std::unique_ptr<Session>> sessions[2];
    std::mt19937& rng;
    uint32_t n_opened = 0, n_climbs = 0;

    Pair(const Climber& climber, std::mt19937& random) : rng(random)
    {
        const uint64_t percent = 25 + rng() % 40;
        for (int m = 0; m < 2; m++) {
            models[m] = open_model(shared_options(climber, 2 - m, percent));
            sessions[m].resize(kSessions);
        }
    }
    Status act(int m, uint32_t i, uint32_t what, const std::vector<uint32_t>& ids)
    {
        std::unique_ptr<Session>& s = sessions[m][i];
        const uint32_t n = uint32_t(ids.size());
        if (!s) {
            s = open_in(*models[m]);
            n_opened += m == 0;
        } else if (what == 0) {
            s.reset();
        } else if (what == 1) {
            s->clear();
        } else if (what < 4) {
            return s->rewind(s->n_tokens() - std::min(s->n_tokens(), n % 25));
        } else if (what < 5) {
            const uint64_t all = models[m]->plan().total_bytes;
            return s->set_memory(all - (n % 3) * s->plan().region_bytes("cache") / 8);
        } else {
            return s->feed(ids.data(), what < 8 ? 1 : n);
        }
        return {};
    }
    void step()
    {
        const uint32_t i = rng() % kSessions, what = rng() % 12, n = 1 + rng() % 70;
        std::vector<uint32_t> ids(n);
        for (uint32_t& id : ids) id = uint32_t(rng() % models[0]->config().n_vocab);
        Code codes[2];
        for (int m = 0; m < 2; m++) {
            codes[m] = act(m, i, what, ids).code();
            const Ledger& ledger = models[m]->ledger();
            CHECK(ledger.used_bytes() == ledger.peak_bytes());
            CHECK(ledger.used_bytes() <= models[m]->plan().total_bytes);
            REQUIRE(disjoint(sessions[m]));
        }
        CHECK(codes[0] == codes[1]);
    }
    void compare()
    {
        for (uint32_t i = 0; i < kSessions; i++) {
            const Session *a = sessions[0][i].get(), *b = sessions[1][i].get();
            if (!a) continue;
            n_climbs = std::max(n_climbs, a->n_climbs());
            REQUIRE(a->n_tokens() == b->n_tokens());
            REQUIRE(a->rung().recipe_text == b->rung().recipe_text);
            REQUIRE(a->rung().slots == b->rung().slots);
            REQUIRE(a->has_logits() == b->has_logits());
            if (a->has_logits()) REQUIRE(logits(*a) == logits(*b));
        }
    }
};

} // namespace

TEST_CASE("shares: a session alone has all bytes, gives of them, and takes them again")
{
    const Climber climber("llama");
    const ModelOptions options = shared_options(climber, 2);
    std::shared_ptr<Model> model = open_model(options);
    REQUIRE(model->plan().moves_shares);
    const uint64_t total = model->plan().total_bytes;
    std::unique_ptr<Session> a = open_in(*model);
    const uint32_t alone = first_rung(*a).slots;
    CHECK(alone > 2 * model->plan().rungs[0].slots);
    const std::vector<uint32_t> ids = some_ids(512);
    feed(*a, ids, 0, 300);
    CHECK(a->rung().recipe.exact());
    CHECK(a->n_climbs() == 0);

    std::unique_ptr<Session> b = open_in(*model); // a gives up half
    CHECK(first_rung(*a).slots < alone);
    CHECK(!a->rung().recipe.exact());
    CHECK(a->n_tokens() == 300);
    feed(*b, ids, 0, 100);
    std::unique_ptr<Session> c = open_in(*model); // a is the idle one
    const uint32_t of_b = first_rung(*b).slots;
    CHECK(first_rung(*c).slots < of_b);
    feed(*c, ids, 0, 20);
    feed(*a, ids, 300, 310);
    std::unique_ptr<Session> d = open_in(*model); // only b has more than one part
    CHECK(first_rung(*b).slots < of_b);
    CHECK(!model->open_session().ok());
    CHECK(model->ledger().used_bytes() == total);
    CHECK(model->ledger().peak_bytes() == total);

    // b, of the last two parts, takes that of d when it needs it.
    d.reset();
    CHECK(first_rung(*b).slots < of_b);
    feed(*b, ids, 100, 200);
    CHECK(b->plan().slots > 0);
    CHECK(first_rung(*b).slots == of_b);
    // c moves to lower bytes.
    a.reset();
    b.reset();
    feed(*c, ids, 20, 250);
    CHECK(first_rung(*c).slots == alone);
    CHECK(c->rung().recipe.exact());
    ModelOptions one = options;
    one.n_sessions = 1;
    one.recipe = "exact";
    one.kv_memory_bytes = 0;
    std::unique_ptr<Session> like = std::move(open_session(one).value());
    feed(*like, ids, 0, 250);
    CHECK(logits(*c) == logits(*like));
    c.reset();
    CHECK(model->ledger().used_bytes() == total);
}

TEST_CASE("shares: fixed ones are equal, whoever is open")
{
    const Climber climber("llama");
    ModelOptions fixed = shared_options(climber, 2);
    fixed.fixed_shares = true;
    std::shared_ptr<Model> equal = open_model(fixed);
    std::unique_ptr<Session> first = open_in(*equal), second = open_in(*equal);
    CHECK(!equal->plan().moves_shares);
    CHECK(first_rung(*first).slots == first_rung(*second).slots);
    CHECK(first->plan().session_bytes() == second->plan().session_bytes());
}

TEST_CASE("shares: a copy goes on as its original, which is unchanged")
{
    const std::vector<uint32_t> ids = some_ids(600);
    for (const char* arch : {"llama", "gemma3", "lfm2", "qwen35"}) {
        for (const char* recipe : {"auto", "h2o,slots=64,chunk=32", "mix,slots=64,k=q8,v=q4",
                                   "quest,read=32", "exact"}) {
            const Climber climber(arch);
            ModelOptions options = climber.options;
            options.recipe = recipe;
            options.n_sessions = 3;
            options.kv_memory_bytes *= recipe == std::string("auto") ? 2 : 0;
            CAPTURE(arch);
            CAPTURE(recipe);
            if (!make_plan(options).ok()) continue; // a recipe that the family cannot have
            std::shared_ptr<Model> model = open_model(options);
            for (size_t n : {size_t(1), size_t(45), size_t(200), size_t(330)}) {
                CAPTURE(n);
                std::unique_ptr<Session> a = open_in(*model), b = open_in(*model),
                                         c = open_in(*model);
                feed(*c, ids, 100, 120); // forgotten
                if (n == 1 && c->copy(*a).ok()) CHECK((c->n_tokens() == 0 && !c->has_logits()));
                feed(*a, ids, 0, n);
                const Status copied = c->copy(*a);
                if (!copied.ok()) CHECK(copied.code() == Code::no_fit);
                if (!copied.ok()) continue;
                CHECK(c->n_tokens() == n);
                CHECK(logits(*c) == logits(*a));
                CHECK(c->evicted() == a->evicted());
                const bool same = c->rung().slots == a->rung().slots;
                feed(*c, ids, n, n + 150);
                feed(*b, ids, 7, 90);
                feed(*a, ids, n, n + 150);
                if (same) CHECK(logits(*c) == logits(*a));
                CHECK(c->token(uint32_t(n - 1)) == ids[n - 1]);
            }
        }
    }
}

TEST_CASE("shares: random walks of several sessions are the same with two threads and one")
{
    const char* wanted = getenv("KS_TEST_WALKS");
    const int n_steps = wanted ? atoi(wanted) : kSanitized ? 90 : 400, n_at_once = 60;
    const char* const archs[] = {"llama", "gemma3", "lfm2"};
    uint32_t n_opened = 0, n_climbs = 0;
    for (int walk = 0; walk * n_at_once < n_steps; walk++) {
        const char* arch = archs[walk % 3];
        CAPTURE(walk);
        CAPTURE(arch);
        std::mt19937 rng(uint32_t(77 + walk));
        const Climber climber(arch);
        Pair pair(climber, rng);
        if (!pair.models[0]->plan().moves_shares) continue; // every token has room in f16
        for (int step = 0; step < n_at_once; step++) {
            CAPTURE(step);
            pair.step();
            pair.compare();
        }
        n_opened += pair.n_opened;
        n_climbs += pair.n_climbs;
    }
    MESSAGE(n_opened, " sessions opened, ", n_climbs, " climbs");
    CHECK(n_opened > 10);
}

TEST_CASE("shares: threads open, read and close sessions of one model")
{
    const Climber climber("llama");
    std::shared_ptr<Model> model = open_model(shared_options(climber, 2));
    std::atomic<uint32_t> n_failed{0};
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < kSessions; t++)
        threads.emplace_back([&, t] {
            const std::vector<uint32_t> ids = some_ids(512, 40 + t);
            for (uint32_t round = 0; round < 5; round++) {
                Result<std::unique_ptr<Session>> opened = model->open_session();
                n_failed += !opened.ok();
                if (!opened.ok()) continue;
                Session& s = *opened.value();
                const size_t n = 30 + 61 * ((t + round) % 5);
                n_failed += !s.feed(ids.data(), n).ok();
                for (size_t i = 0; i < 6; i++) n_failed += !s.feed(&ids[n + i], 1).ok();
                n_failed += s.n_tokens() != n + 6 || !s.has_logits();
                n_failed += s.can_rewind(s.n_tokens() - 3) && !s.rewind(s.n_tokens() - 3).ok();
                n_failed += s.token(5) != ids[5];
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(n_failed == 0);
    CHECK(model->ledger().used_bytes() == model->plan().total_bytes);
}
