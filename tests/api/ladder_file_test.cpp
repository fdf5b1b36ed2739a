// Saved sessions that climb, in the same budget and in others.
#include "tests/api/ladder_bed.h"
#include "tests/api/seal.h"
#include "tests/sanitized.h"

#include <random>

using namespace ks;

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

// What loads of files from other budgets did.
struct Loads {
    uint32_t kept = 0, more_slots = 0, read_again = 0;
};

static void load_elsewhere(Session& s, const Session& saved, const std::string& path,
                           const std::vector<uint32_t>& ids, bool larger, Loads& loads)
{
    const uint32_t n = saved.n_tokens();
    s.clear();
    feed(s, ids, 500, 500 + n % 100 + 1);
    SavedState state;
    const Status status = s.load(path, &state);
    REQUIRE_MESSAGE(status.ok(), status.message());
    CHECK(state.note == "note");
    REQUIRE(s.n_tokens() == n);
    CHECK(s.has_logits());
    for (uint32_t p = 0; p < n; p++) CHECK(s.token(p) == ids[p]);
    const auto check_plan = [&] {
        CHECK(s.model().ledger().peak_bytes() == s.plan().total_bytes);
        CHECK(s.model().ledger().used_bytes() == s.plan().total_bytes);
        CHECK(s.plan().total_bytes <= s.plan().budget_bytes);
    };
    check_plan();
    CHECK((s.rung().slots >= n || &s.rung() == &s.plan().rungs.back()));
    const bool same_codes =
        s.rung().recipe.k == saved.rung().recipe.k && s.rung().recipe.v == saved.rung().recipe.v;
    if (larger && s.plan().rungs.size() > 1) {
        CHECK(same_codes);
        CHECK(logits(s) == logits(saved));
        CHECK(s.evicted() == saved.evicted());
        loads.kept++;
        loads.more_slots += s.rung().slots > saved.rung().slots;
    } else {
        loads.read_again += s.rung().slots != saved.rung().slots;
    }
    feed(s, ids, n, n + 30);
    feed(s, ids, n + 30, n + 40, true);
    check_plan();
}

TEST_CASE("ladder: a session saved in one budget goes on in a larger and in a smaller one")
{
    for (const char* arch : {"llama", "gemma3", "falcon-h1"}) {
        CAPTURE(arch);
        Climber climber(arch);
        std::vector<std::unique_ptr<Session>> all; // of ever larger budgets
        const uint64_t kv = climber.options.kv_memory_bytes;
        for (uint64_t percent : {62, 80, 100, 110, 130, 250}) {
            climber.options.kv_memory_bytes = kv * percent / 100;
            all.push_back(climber.open());
        }
        const std::vector<uint32_t> ids = some_ids(1000);
        const Folder folder;
        const std::string path = folder / "s";
        Loads loads;
        const std::vector<uint32_t> lengths =
            kSanitized ? std::vector<uint32_t>{70, 250, 460}
                       : std::vector<uint32_t>{1, 70, 150, 250, 330, 460};
        for (uint32_t n : lengths)
            for (size_t from = 0; from < all.size(); from++) {
                all[from]->clear();
                feed(*all[from], ids, 0, n);
                REQUIRE(all[from]->save(some_state(), path).ok());
                for (size_t to = 0; to < all.size(); to++) {
                    CAPTURE(n);
                    CAPTURE(from);
                    CAPTURE(to);
                    if (to == from) continue;
                    load_elsewhere(*all[to], *all[from], path, ids, to > from, loads);
                }
            }
        CHECK(loads.kept > 10 * lengths.size() / 3);
        CHECK(loads.more_slots > 5 * lengths.size() / 6);
        CHECK(loads.read_again > 10 * lengths.size() / 3);
    }
}

TEST_CASE("ladder: files of budgets for fewer slots than a rung has, and of others, load")
{
    for (std::string arch : {"llama", "gemma3", "deepseek2", "qwen2", "falcon-h1"}) {
        if (kSanitized && arch != "gemma3" && arch != "deepseek2") continue;
        CAPTURE(arch);
        const TempFile file("tiny_budget.gguf", walker(arch));
        ModelOptions options = cpu_options(file, "exact");
        options.context = 300;
        const uint64_t cache = make_plan(options).value().region_bytes("cache");
        options.recipe = "auto";
        std::vector<std::unique_ptr<Session>> all; // of ever more slots
        uint32_t n_few = 0;
        for (uint64_t percent = 1; percent < 130; percent += 1 + percent / 5) {
            options.kv_memory_bytes = cache * percent / 100;
            const Plan plan = make_plan(options).value();
            if (!plan.fits || (all.size() && all.back()->plan().slots == plan.slots)) continue;
            if (plan.slots < kLeastOfRung && ++n_few > 3) continue;
            all.push_back(std::move(open_session(options).value()));
        }
        REQUIRE(n_few > 1);
        std::vector<uint32_t> ids = some_ids(1000);
        for (uint32_t& id : ids) id %= all[0]->model().config().n_vocab;
        const Folder folder;
        const std::string path = folder / "s";
        for (uint32_t n : {1u, 40u, 299u})
            for (auto& from : all) {
                from->clear();
                feed(*from, ids, 0, n);
                CAPTURE(n);
                CAPTURE(from->plan().slots);
                const Status saves = from->save(kNone, path);
                REQUIRE_MESSAGE(saves.ok(), saves.message());
                for (auto& to : all) {
                    to->clear();
                    feed(*to, ids, 500, 520);
                    CAPTURE(to->plan().slots);
                    SavedState state;
                    const Status status = to->load(path, &state);
                    REQUIRE_MESSAGE(status.ok(), status.message());
                    REQUIRE(to->n_tokens() == n);
                    CHECK(to->has_logits());
                    for (uint32_t p = 0; p < n; p++) CHECK(to->token(p) == ids[p]);
                    CHECK(to->model().ledger().used_bytes() == to->plan().total_bytes);
                    if (to == from) CHECK(logits(*to) == logits(*from));
                    if (n < 299) feed(*to, ids, n, n + 1, true);
                }
                from->clear();
            }
    }
}

TEST_CASE("ladder: slots and codes that a file shares with a session of another context load")
{
    TinyShape shape = window_shape(2048, 300);
    shape.head_dim = 64;
    TempFile file("windows_saved.gguf", make_tiny_model(shape).file);
    Climber climber("gemma3");
    climber.options.model_path = file.path();
    climber.options.kv_memory_bytes /= 2;
    std::unique_ptr<Session> cut = climber.open(), whole;
    const PlanRung last = cut->plan().rungs.back();
    REQUIRE(last.slots < 480);
    climber.options.context = last.slots;
    const uint64_t kv = climber.options.kv_memory_bytes;
    for (uint64_t percent = 100; percent < 400; percent += 10) {
        climber.options.kv_memory_bytes = kv * percent / 100;
        whole = climber.open();
        if (whole->plan().slots == last.slots && whole->plan().rungs.size() > 1 &&
            whole->plan().recipe_text == last.recipe_text)
            break;
    }
    REQUIRE(whole->plan().recipe_text == last.recipe_text);
    REQUIRE(whole->plan().slots == last.slots);
    const std::vector<uint32_t> ids = some_ids(1000);
    const Folder folder;
    const std::string path = folder / "s";
    for (const auto& [from, to] : {std::pair{&cut, &whole}, std::pair{&whole, &cut}}) {
        (*from)->clear();
        feed(**from, ids, 0, last.slots - 10);
        REQUIRE((*from)->rung().recipe_text == last.recipe_text);
        REQUIRE((*from)->save(some_state(), path).ok());
        SavedState state;
        const Status status = (*to)->load(path, &state);
        REQUIRE_MESSAGE(status.ok(), status.message());
        CHECK((*to)->n_tokens() == last.slots - 10);
        CHECK((*to)->model().ledger().peak_bytes() == (*to)->plan().total_bytes);
        feed(**to, ids, last.slots - 10, last.slots + 40);
    }
}

TEST_CASE("ladder: a text that a smaller budget cannot hold and nobody can read again is refused")
{
    Climber climber("llama");
    climber.options.context = 300; // shorter than the model's
    std::unique_ptr<Session> large = climber.open();
    climber.options.kv_memory_bytes = climber.options.kv_memory_bytes * 7 / 10;
    std::unique_ptr<Session> small = climber.open();
    const std::vector<uint32_t> ids = some_ids(1000);
    const Folder folder;
    const std::string path = folder / "s";
    feed(*large, ids, 0, 700);
    REQUIRE(large->save(some_state(), path).ok());
    feed(*small, ids, 300, 400);
    const std::vector<float> before = logits(*small);
    SavedState state;
    check_refused(small->load(path, &state), {Code::no_fit}, "700 tokens only the last 300");
    CHECK(small->n_tokens() == 100);
    CHECK(logits(*small) == before);
    feed(*small, ids, 400, 420);
    std::unique_ptr<Session> other = climber.open();
    feed(*other, ids, 300, 400);
    feed(*other, ids, 400, 420);
    check_same(*small, *other);
}

TEST_CASE("ladder: a damaged file of another budget is refused, or what it holds goes on")
{
    Climber climber("gemma3");
    const uint64_t kv = climber.options.kv_memory_bytes;
    std::unique_ptr<Session> small = climber.open();
    climber.options.kv_memory_bytes = kv * 108 / 100;
    std::unique_ptr<Session> large = climber.open();
    climber.options.kv_memory_bytes = kv / 12; // for fewer slots than a rung has
    std::unique_ptr<Session> tiny = climber.open();
    REQUIRE(tiny->plan().slots < kLeastOfRung);
    const std::vector<uint32_t> ids = some_ids(1000);
    const Folder folder;
    const std::string path = folder / "s";
    std::mt19937 rng(5);
    uint32_t refused = 0, loaded = 0;
    for (Session* from : {small.get(), large.get(), tiny.get()})
        for (uint32_t n : {70u, 240u, 420u, 700u}) {
            Session& to = from != large.get() ? *large : *small;
            from->clear();
            feed(*from, ids, 0, n);
            REQUIRE(from->save(some_state(), path).ok());
            const std::string good = read_all(path);
            for (int i = 0; i < (kSanitized ? 40 : 150); i++) {
                std::string bad = good;
                const bool front = rng() % 2; // where the numbers are
                for (uint32_t k = 0; k <= rng() % 3; k++)
                    bad[12 + rng() % (front ? 300 : bad.size() - 20)] = char(rng());
                seal(bad);
                write_all(path, bad);
                to.clear();
                feed(to, ids, 500, 520);
                const std::vector<float> before = logits(to);
                SavedState state;
                const Status status = to.load(path, &state);
                (status.ok() ? loaded : refused)++;
                if (status.ok()) {
                    CHECK(to.model().ledger().peak_bytes() == to.plan().total_bytes);
                } else {
                    CHECK(to.n_tokens() == 20);
                    CHECK(logits(to) == before);
                }
                feed(to, ids, 520, 560);
            }
        }
    CHECK(refused > 20);
    CHECK(loaded > 20);
}

TEST_CASE("ladder: going back never reads other tokens again than those of the text")
{
    Climber climber("llama");
    climber.options.context = 300;
    std::unique_ptr<Session> s = climber.open(), same = climber.open();
    climber.options.kv_memory_bytes = climber.options.kv_memory_bytes * 7 / 10;
    std::unique_ptr<Session> small = climber.open();
    const std::vector<uint32_t> ids = some_ids(400);
    const Folder folder;
    for (uint32_t n : {300u, 301u, 309u}) { // the first tokens are overwritten, but for the first n
        CAPTURE(n);
        s->clear();
        feed(*s, ids, 0, n);
        REQUIRE(s->evicted() > 0);
        REQUIRE(s->can_rewind(298));
        REQUIRE(s->rewind(298).ok());
        for (uint32_t p = 0; p < 298; p++)
            CHECK(s->token(p) == (p < n - 300 ? kUnknownToken : ids[p]));
        feed(*s, ids, 298, 299);
        SavedState state;
        REQUIRE(s->save(some_state(), folder / "s").ok());
        REQUIRE(same->load(folder / "s", &state).ok());
        check_same(*s, *same);
        const Status load = small->load(folder / "s", &state);
        CHECK(load.ok() == (n == 300));
        if (!load.ok()) check_refused(load, {Code::no_fit}, "299 tokens only the last");
        const Status status = s->rewind(40);
        CHECK(status.ok() == (n == 300));
        if (!status.ok()) CHECK(s->n_tokens() == 299);
        if (!status.ok()) continue;
        same->clear();
        feed(*same, ids, 0, 40);
        check_same(*s, *same);
    }
}

TEST_CASE("ladder: wherever a text goes back to, it can be saved")
{
    const Climber climber("llama");
    std::unique_ptr<Session> s = climber.open(), same = climber.open();
    const std::vector<uint32_t> ids = some_ids(500);
    const Folder folder;
    for (uint32_t n = 1; n < 60; n++) {
        CAPTURE(n);
        s->clear();
        feed(*s, ids, 0, 400 + n % 7);
        REQUIRE(s->evicted() > 0);
        REQUIRE(s->rewind(400 + n % 7 - n).ok());
        SavedState state;
        const Status status = s->save(some_state(), folder / "s");
        REQUIRE_MESSAGE(status.ok(), status.message());
        REQUIRE(same->load(folder / "s", &state).ok());
    }
}
