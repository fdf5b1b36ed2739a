// Sessions that climb: exact below the first rung, the plan at every rung and budget, random walks.
#include "tests/api/session_file_bed.h"
#include "tests/devices.h"
#include "tests/model/state_model.h"

#include <random>

using namespace ks;

namespace
{

// A model whose rungs lie far apart, and a budget in which it has several.
struct Climber {
    TempFile file;
    SessionOptions options;

    explicit Climber(const std::string& arch, const std::string& device = "cpu", int n_threads = 2)
        : file(arch + "_climbs.gguf", bytes_of(arch))
    {
        options.model_path = file.path();
        options.device = device;
        options.n_threads = n_threads;
        options.context = 512;
        options.memory_bytes = 64 << 20;
        SessionOptions exact = options;
        exact.recipe = "exact";
        options.kv_memory_bytes =
            make_plan(exact).value().region_bytes("cache") * (arch == "gemma3" ? 5 : 4) / 10;
    }
    static Bytes bytes_of(const std::string& arch)
    {
        if (arch == "lfm2" || arch == "qwen35" || arch == "falcon-h1")
            return make_state_model(arch);
        TinyShape s;
        s.arch = arch;
        s.head_dim = 64;
        s.n_layers = arch == "gemma3" ? 6 : 2;
        s.window = 40;
        return make_tiny_model(s).file;
    }
    std::unique_ptr<Session> open(const std::string& recipe = "auto", uint64_t memory = 0) const
    {
        SessionOptions o = options;
        o.recipe = recipe;
        if (memory) o.memory_bytes = memory;
        if (recipe != "auto") o.kv_memory_bytes = 0;
        Result<std::unique_ptr<Session>> result = Session::open(o);
        REQUIRE_MESSAGE(result.ok(), result.status().message());
        return std::move(result.value());
    }
};

const PlanRung& first_rung(const Session& s)
{
    size_t i = 0;
    while (!s.plan().rungs[i].slots) i++;
    return s.plan().rungs[i];
}

} // namespace

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
            for (uint32_t i = 0; i < s->config().n_vocab; i++) {
                dot += double(s->logits()[i]) * exact->logits()[i];
                a += double(s->logits()[i]) * s->logits()[i];
                b += double(exact->logits()[i]) * exact->logits()[i];
            }
            CHECK(dot / std::sqrt(a * b) > 0.99);
            feed(*s, ids, n + 1, 500);
            CHECK((&s->rung() == &s->plan().rungs.back() || s->rung().slots >= 500));
            CHECK(s->n_climbs() > 1);
            CHECK(s->peak_bytes() == s->plan().total_bytes);
            s->clear();
            CHECK(s->rung().recipe_text == "exact,k=f16,v=f16");
            exact->clear();
            feed(*s, ids, 5, 40);
            feed(*exact, ids, 5, 40);
            CHECK(logits(*s) == logits(*exact));
        }
}

TEST_CASE("ladder: a saved session continues at its rung as if it had not been interrupted")
{
    const Climber climber("gemma3");
    std::unique_ptr<Session> s = climber.open();
    const std::vector<uint32_t> ids = some_ids(1000);
    const Folder folder;
    uint32_t n_read = 0;
    for (uint32_t n : {60u, 190u, 260u, 330u, 480u}) {
        feed(*s, ids, n_read, n);
        n_read = n;
        const std::string path = folder / "s";
        REQUIRE(s->save(some_state(), path).ok());
        std::unique_ptr<Session> other = climber.open();
        feed(*other, ids, 300, 300 + n / 2);
        SavedState state;
        REQUIRE(other->load(path, &state).ok());
        CHECK(&other->rung() - other->plan().rungs.data() == &s->rung() - s->plan().rungs.data());
        check_same(*s, *other);
        feed(*other, ids, n, n + 15);
        std::unique_ptr<Session> third = climber.open();
        REQUIRE(third->load(path, &state).ok());
        feed(*third, ids, n, n + 15);
        check_same(*third, *other);
    }
}

namespace
{

// Three sessions that do the same.
struct Walk {
    std::vector<uint32_t> ids = some_ids(4000), text;
    std::unique_ptr<Session> all[3];
    uint64_t most[3], budget[3], cache;
    uint32_t n_changes = 0;
    Folder folder;

    explicit Walk(const Climber (&climbers)[3])
    {
        for (int i = 0; i < 3; i++) {
            all[i] = climbers[i].open();
            most[i] = budget[i] = all[i]->plan().total_bytes;
        }
        const Plan& plan = all[0]->plan();
        cache = plan.region_bytes("cache") + plan.region_bytes("cache tables");
    }
    void read(uint32_t n, uint32_t at)
    {
        text.insert(text.end(), &ids[at], &ids[at] + n);
        for (auto& one : all) REQUIRE(one->feed(&ids[at], n).ok());
    }
    void go_back(uint32_t n)
    {
        text.resize(text.size() - n);
        for (auto& one : all) REQUIRE(one->rewind(uint32_t(text.size())).ok());
    }
    void clear()
    {
        text.clear();
        for (auto& one : all) one->clear();
    }
    void save_and_load()
    {
        SavedState state;
        for (auto& one : all) {
            REQUIRE(one->save(some_state(), folder / "s").ok());
            one->clear();
            REQUIRE(one->load(folder / "s", &state).ok());
        }
    }
    void change_budget(uint64_t freed)
    {
        bool ok[3];
        for (int i = 0; i < 3; i++) ok[i] = all[i]->set_memory(most[i] - freed).ok();
        CHECK(ok[0] == ok[1]);
        CHECK(ok[0] == ok[2]);
        for (int i = 0; ok[0] && i < 3; i++) budget[i] = most[i] - freed;
        n_changes += ok[0];
    }
    void check() const
    {
        for (int i = 0; i < 3; i++) {
            const Session& one = *all[i];
            CHECK(one.peak_bytes() == one.plan().total_bytes);
            CHECK(one.peak_bytes() <= budget[i]);
            CHECK(one.ledger().used_bytes() == one.peak_bytes());
            REQUIRE(one.n_tokens() == text.size());
            CHECK(one.rung().recipe_text == all[0]->rung().recipe_text);
            CHECK(one.n_climbs() == all[0]->n_climbs());
            CHECK(one.evicted() == all[0]->evicted());
            const bool last = &one.rung() == &one.plan().rungs.back();
            CHECK((last || text.size() <= one.rung().slots));
            for (size_t p = text.size() - std::min<size_t>(text.size(), 500); p < text.size();
                 p += 7)
                CHECK(one.token(uint32_t(p)) == text[p]);
        }
        CHECK(all[0]->has_logits() == all[2]->has_logits());
        if (all[0]->has_logits()) CHECK(logits(*all[0]) == logits(*all[2]));
    }
};

} // namespace

TEST_CASE("ladder: random walks of reading, going back, saving and budgets")
{
    for (const char* arch : {"llama", "gemma3", "lfm2", "qwen35", "falcon-h1", "qwen2"}) {
        CAPTURE(arch);
        const Climber climbers[] = {Climber(arch), Climber(arch, "reference", 1),
                                    Climber(arch, "cpu", 1)};
        Walk walk(climbers);
        std::mt19937 rng(3);
        uint32_t climbs = 0;
        const bool climbing = walk.all[0]->plan().rungs.size() > 1;
        for (int step = 0; step < 150; step++) {
            CAPTURE(step);
            const uint32_t what = rng() % 16, n = uint32_t(walk.text.size());
            if (what < 9)
                walk.read(1 + rng() % (what < 3 ? 60 : 4), rng() % 3000);
            else if (what < 12 && n <= 500) // the ids of all tokens are known
                walk.go_back(std::min(n, 1 + uint32_t(rng() % 20)));
            else if (what < 13 || n > 700)
                walk.clear();
            else if (what < 14)
                walk.save_and_load();
            else if (climbing)
                walk.change_budget(rng() % walk.cache);
            climbs = std::max(climbs, walk.all[0]->n_climbs());
            walk.check();
        }
        CHECK((climbs > 0) == climbing);
        CHECK((walk.n_changes > 0) == climbing);
    }
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

TEST_CASE("ladder: a squeeze goes to rungs that the budget at open does not need")
{
    const struct {
        uint64_t percent, after; // of the exact cache
    } cases[] = {{95, 50}, {88, 47}};
    for (const auto& c : cases) {
        CAPTURE(c.percent);
        Climber climber("llama");
        SessionOptions exact = climber.options;
        exact.recipe = "exact";
        exact.kv_memory_bytes = 0;
        const uint64_t whole = make_plan(exact).value().region_bytes("cache");
        climber.options.kv_memory_bytes = whole * c.percent / 100;
        std::unique_ptr<Session> s = climber.open();
        const Plan open = s->plan();
        const auto squeeze = [&](uint64_t percent) {
            REQUIRE(s->set_memory(open.total_bytes - whole * (c.percent - percent) / 100).ok());
            CHECK(s->peak_bytes() == s->plan().total_bytes);
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
