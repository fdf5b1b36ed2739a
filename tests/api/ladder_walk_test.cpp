// Random walks of sessions that climb, in budgets that change and between sessions of different
// budgets. KS_TEST_WALKS=N: so many steps. KS_TEST_SEED=N: the seed of the first walk.
#include "tests/api/ladder_bed.h"
#include "tests/sanitized.h"
#include "tools/alloc_count.h"

#include <cstdlib>
#include <random>

using namespace ks;

namespace
{

constexpr int kSessions = 3; // on cpu with two threads and with one, and on the reference

// Three sessions that do the same in one budget.
struct Group {
    std::unique_ptr<Session> all[kSessions];
    uint64_t most[kSessions] = {}, budget[kSessions] = {};
    uint32_t n_read_again = 0;

    Group(ModelOptions options, uint64_t cache_bytes)
    {
        options.kv_memory_bytes = cache_bytes;
        for (int i = 0; i < kSessions; i++) {
            options.device = i < 2 ? "cpu" : "reference";
            options.n_threads = i == 0 ? 2 : 1;
            options.log = [this](const std::string& sentence) {
                n_read_again += sentence.find("read again") != sentence.npos;
            };
            Result<std::unique_ptr<Session>> opened = open_session(options);
            REQUIRE_MESSAGE(opened.ok(), opened.status().message());
            all[i] = std::move(opened.value());
            most[i] = budget[i] = all[i]->plan().total_bytes;
        }
    }
    bool climbs() const { return all[0]->plan().rungs.size() > 1; }
    // Whether the call succeeds, which it does on all or on none.
    template <class Call>
    bool each(const Call& call)
    {
        bool ok[kSessions];
        for (int i = 0; i < kSessions; i++) ok[i] = call(*all[i], i).ok();
        CHECK(ok[0] == ok[1]);
        CHECK(ok[0] == ok[2]);
        return ok[0];
    }
    bool change_budget(uint64_t freed)
    {
        const bool ok = each([&](Session& s, int i) { return s.set_memory(most[i] - freed); });
        for (int i = 0; ok && i < kSessions; i++) budget[i] = most[i] - freed;
        return ok;
    }
};

// Tables list tokens in the order of the text, the newest last; only a last rung has given some up.
// As many are held as in the other session; same: the same ones.
void check_positions(const Session& s, const Session& like, bool same)
{
    const uint32_t n = s.n_tokens();
    for (uint32_t il = 0; n && il < s.cache().n_layers(); il++) {
        const CacheLayer &layer = s.cache().layer(il), &other = like.cache().layer(il);
        if (!layer.spec.table) continue;
        REQUIRE(layer.spec.n_slots == other.spec.n_slots);
        for (uint32_t h = 0; h < layer.spec.n_kv_heads; h++) {
            const uint32_t *positions = layer.positions + layer.begin[h], held = layer.held[h];
            REQUIRE((held > 0 && held <= layer.spec.n_slots));
            REQUIRE(held == layer.held[0]);
            REQUIRE(held == other.held[h]);
            // Of two slots one is for the chunk, and the chosen token may have the other.
            bool ascending = (layer.spec.n_slots == 2 && held == 1) || positions[held - 1] == n - 1;
            for (uint32_t i = 1; i < held; i++) ascending &= positions[i - 1] < positions[i];
            REQUIRE(ascending);
            if (s.rung().recipe.exact() && !layer.spec.local) REQUIRE(held == n);
            if (same)
                REQUIRE(std::equal(positions, positions + held, other.positions + other.begin[h]));
        }
    }
}

struct Walk {
    TempFile file;
    Folder folder;
    ModelOptions options;
    std::vector<Group> groups;
    std::string why; // the last load was refused
    int now = 0;     // the group that has the text
    std::vector<uint32_t> text;
    size_t longest = 0; // tokens of it before going back
    std::mt19937& rng;
    uint32_t n_vocab = 0, n_climbs = 0, n_budgets = 0, n_moves = 0, n_same_files = 0;
    // The caches of all three sessions are the same bit for bit: they come from one file, and no
    // token was read since. Reading rounds otherwise on the reference.
    bool same_bits = false;

    Walk(const std::string& arch, std::mt19937& random)
        : file("walk.gguf", walker(arch)), rng(random)
    {
        options.model_path = file.path();
        options.memory_bytes = 64 << 20;
        options.context = 300 + rng() % 212;
        ModelOptions exact = options;
        exact.recipe = "exact";
        REQUIRE_MESSAGE(make_plan(exact).ok(), make_plan(exact).status().message());
        const uint64_t cache = make_plan(exact).value().region_bytes("cache");
        groups.reserve(2); // a log refers to its group
        for (uint32_t percent = 25 + rng() % 70; groups.size() < 2; percent += 7) {
            REQUIRE(percent < 1000);
            ModelOptions o = options;
            o.kv_memory_bytes = cache * percent / 100;
            if (make_plan(o).value().fits) groups.emplace_back(options, o.kv_memory_bytes);
        }
        n_vocab = groups[0].all[0]->model().config().n_vocab;
    }
    Group& group() { return groups[size_t(now)]; }
    void read(uint32_t n, bool one_by_one)
    {
        std::vector<uint32_t> ids(n);
        for (uint32_t& id : ids) id = uint32_t(rng() % n_vocab);
        const bool fits = n <= group().all[0]->n_free_tokens();
        const bool ok = group().each([&](Session& s, int) {
            if (!one_by_one) return s.feed(ids.data(), n);
            for (uint32_t id : ids) {
                const bool evicts = !s.rung().recipe.exact();
                const PlanRung* rung = &s.rung();
                const uint64_t before = allocation_count();
                const Status status = s.feed(&id, 1);
                const uint64_t after = allocation_count();
                if (!status.ok()) return status;
                if (counts_allocations() && (rung == &s.rung() || !evicts)) CHECK(after == before);
            }
            return Status();
        });
        if (!one_by_one) CHECK(ok == fits);
        same_bits = same_bits && !n;
        const uint32_t n_read = group().all[0]->n_tokens();
        while (text.size() < n_read) text.push_back(ids[ids.size() - (n_read - text.size())]);
    }
    // Each session loads what the first one saved.
    bool exchange(Group& to)
    {
        SavedState state;
        const std::string path = folder / "first";
        REQUIRE(group().all[0]->save(state, path).ok());
        to.n_read_again = 0;
        const bool ok = to.each([&](Session& s, int) {
            const Status status = s.load(path, &state);
            why = status.message();
            return status;
        });
        if (ok) same_bits = !to.n_read_again;
        return ok;
    }
    void go_back()
    {
        const uint32_t n =
            uint32_t(text.size()) - std::min(uint32_t(text.size()), uint32_t(rng() % 30));
        const bool can = group().all[0]->can_rewind(n);
        // A session that holds other tokens may have to read the text again.
        if (can != group().all[2]->can_rewind(n)) REQUIRE(exchange(group()));
        group().n_read_again = 0;
        if (group().each([&](Session& s, int) { return s.rewind(n); })) text.resize(n);
        same_bits = same_bits && !group().n_read_again && !text.empty();
    }
    void save_and_load(bool elsewhere)
    {
        Group& to = groups[size_t(elsewhere ? 1 - now : now)];
        const bool ok = exchange(to);
        // What is not kept is read again, if all of the text is known.
        CHECK_MESSAGE((ok || (elsewhere && int64_t(longest) > options.context)), why);
        if (!ok) return;
        now = elsewhere ? 1 - now : now;
        n_moves += elsewhere;
    }
    void change_budget()
    {
        if (rng() % 2) REQUIRE(exchange(group()));
        const Plan& plan = group().all[0]->plan();
        const uint64_t cache = plan.region_bytes("cache") + plan.region_bytes("cache tables");
        const bool ok = group().change_budget(rng() % 3 ? rng() % (cache / 2) : 0);
        CHECK((!ok || group().climbs()));
        n_budgets += ok;
    }
    void step()
    {
        const uint32_t what = rng() % 18;
        if (what < 4)
            read(1 + rng() % 60, false);
        else if (what < 8)
            read(1 + rng() % 4, true);
        else if (what < 10)
            go_back();
        else if (what < 11 || text.size() > 700) {
            for (auto& one : group().all) one->clear();
            text.clear();
            longest = 0;
            same_bits = false; // the logits stay
        } else if (what < 14)
            save_and_load(what > 11);
        else
            change_budget();
        longest = std::max(longest, text.size());
        n_climbs = std::max(n_climbs, group().all[0]->n_climbs());
    }
    void check()
    {
        const Session& first = *group().all[0];
        for (int i = 0; i < kSessions; i++) {
            const Session& one = *group().all[i];
            CHECK(one.model().ledger().peak_bytes() == one.plan().total_bytes);
            CHECK(one.model().ledger().peak_bytes() <= group().budget[i]);
            CHECK(one.model().ledger().used_bytes() == one.model().ledger().peak_bytes());
            REQUIRE(one.n_tokens() == text.size());
            CHECK(one.rung().recipe_text == first.rung().recipe_text);
            CHECK(one.rung().slots == first.rung().slots);
            CHECK(one.n_climbs() == first.n_climbs());
            const bool last = &one.rung() == &one.plan().rungs.back();
            CHECK((last || text.size() <= one.rung().slots));
            const size_t known = std::min<size_t>(text.size(), one.plan().context);
            bool same = true;
            for (size_t p = text.size() - known; p < text.size(); p++)
                same &= one.token(uint32_t(p)) == text[p] ||
                        (longest > one.plan().context && one.token(uint32_t(p)) == kUnknownToken);
            CHECK(same);
            CHECK(one.evicted() == first.evicted());
            CHECK(one.merged() == first.merged());
            CHECK(one.has_logits() == first.has_logits());
            check_positions(one, first, i < 2 || same_bits);
        }
        const Session& second = *group().all[1];
        if (first.has_logits()) CHECK(logits(first) == logits(second));
        if (same_bits) check_files();
    }
    // Caches that have the same bits are saved as the same bytes.
    void check_files()
    {
        std::string files[kSessions];
        for (int i = 0; i < kSessions; i++) {
            REQUIRE(group().all[i]->save({}, folder / "same").ok());
            files[i] = read_all(folder / "same");
        }
        CHECK(files[0] == files[1]);
        CHECK(files[0] == files[2]);
        n_same_files++;
    }
};

} // namespace

TEST_CASE("ladder: random walks of reading, going back, saving, other sessions and budgets")
{
    const int n_archs = int(std::size(kWalkers));
    const char *const wanted = getenv("KS_TEST_WALKS"), *const seed = getenv("KS_TEST_SEED");
    const int n_steps = wanted ? atoi(wanted) : kSanitized ? 300 : 1300;
    const int n_at_once = std::min(200, n_steps / n_archs);
    uint32_t n_climbs = 0, n_budgets = 0, n_moves = 0, n_same_files = 0;
    for (int i = 0, done = 0; done < n_steps; i++) {
        CAPTURE(i);
        std::mt19937 rng(uint32_t((seed ? atoi(seed) : 1) + i));
        const char* arch = kWalkers[i % n_archs];
        CAPTURE(arch);
        Walk walk(arch, rng);
        for (int step = 0; step < n_at_once; step++) {
            CAPTURE(step);
            walk.step();
            walk.check();
        }
        done += n_at_once;
        n_climbs += walk.n_climbs;
        n_budgets += walk.n_budgets;
        n_moves += walk.n_moves;
        n_same_files += walk.n_same_files;
    }
    MESSAGE(n_steps, " steps, ", n_climbs, " climbs, ", n_budgets, " budgets, ", n_moves,
            " moves, ", n_same_files, " times the same files");
    CHECK(n_climbs >= uint32_t(n_steps / 150));
    CHECK(n_budgets >= uint32_t(n_steps / 20));
    CHECK(n_moves >= uint32_t(n_steps / 20));
    CHECK(n_same_files >= uint32_t(n_steps / 20));
}
