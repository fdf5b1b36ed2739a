// Random walks of sessions that climb.
#include "tests/api/ladder_bed.h"

#include <random>

using namespace ks;

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
