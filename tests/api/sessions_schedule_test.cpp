// Random schedules of several sessions of one model. Each text has the bits that it has alone.
// KS_TEST_SCHEDULES=N: so many.
#include "tests/api/company_bed.h"
#include "tests/api/ladder_bed.h"
#include "tests/sanitized.h"

#include <cstdlib>

using namespace ks;

namespace
{

const char* const kCompanyRecipes[] = {
    "exact",
    "mix,slots=64,chunk=16",
    "h2o,slots=48,chunk=12",
    "quest,read=32",
    "q8,slots=64,chunk=16",
    "mix,slots=48,chunk=12,k=turbo4,v=turbo4",
    "h2o,slots=48,victims=merge,chunk=8",
    "mix,slots=64,select=quest,read=32,chunk=16",
    "sink,slots=48,chunk=16",
    "kivi,slots=96,chunk=16",
    "ada,slots=48,delta=4,chunk=8",
    "quest,read=64,reuse=0.1",
    "subgen,slots=48,chunk=16",
};

struct Counts {
    uint32_t steps = 0, prompts = 0, long_prompts = 0, evictions = 0, climbs = 0, budgets = 0,
             moves = 0, refused = 0, shared = 0;
};

struct Schedule {
    TempFile file;
    Folder folder;
    std::mt19937& rng;
    Counts& counts;
    ModelOptions together, alone;
    std::shared_ptr<Model> model;
    std::vector<Pair> pairs;
    uint32_t n_vocab = 0;

    Schedule(const std::string& arch, std::mt19937& random, Counts& all)
        : file("company.gguf", walker(arch)), rng(random), counts(all)
    {
    }
    // Plans with the same parts for a model of n sessions and one of a session. Returns whether the
    // recipe is possible for this model.
    bool plan(const std::string& recipe, const std::string& device, uint32_t n, bool pads)
    {
        alone.model_path = file.path();
        alone.device = device;
        alone.recipe = recipe;
        alone.n_threads = 2;
        alone.context = 200 + rng() % 200;
        alone.memory_bytes = 64 << 20;
        together = alone;
        together.n_sessions = n;
        together.fixed_shares = alone.fixed_shares = true; // moving ones depend on who is open
        if (pads) together.wrap = padded;
        if (!make_plan(together).ok()) return false;
        if (recipe == "auto") return plan_rungs();
        if (recipe.find("chunk=") == std::string::npos) // then the smallest budget has small chunks
            for (ModelOptions* o : {&together, &alone})
                o->memory_bytes = make_plan(*o).value().smallest_bytes;
        return same_rungs(make_plan(together).value(), make_plan(alone).value());
    }
    // A budget in which the cache climbs. Rungs depend on n_sessions, since sessions share a
    // workspace, so the model of a session alone has as many, which are not opened.
    bool plan_rungs()
    {
        ModelOptions exact = alone;
        exact.recipe = "exact";
        const uint64_t cache = make_plan(exact).value().region_bytes("cache");
        together.kv_memory_bytes = together.n_sessions * cache * (25 + rng() % 60) / 100;
        const Plan plan = make_plan(together).value();
        alone.kv_memory_bytes = together.kv_memory_bytes;
        alone.n_sessions = together.n_sessions;
        alone.wrap = together.wrap;
        return same_rungs(plan, make_plan(alone).value()) && plan.rungs.size() > 1;
    }
    void open()
    {
        model = open_model(together);
        n_vocab = model->config().n_vocab;
        pairs.resize(together.n_sessions);
        for (Pair& p : pairs) p = {open_in(*model), open_in(*open_model(alone)), {}};
        REQUIRE(same_rungs(pairs[0].session->plan(), pairs[0].alone->plan()));
        CHECK(model->open_session().status().code() == Code::no_fit);
    }
    std::vector<uint32_t> draw(uint32_t n)
    {
        std::vector<uint32_t> ids(n);
        for (uint32_t& id : ids) id = uint32_t(rng() % n_vocab);
        return ids;
    }
    void step()
    {
        std::vector<Pair*> reading;
        for (Pair& p : pairs)
            if (rng() % 4) reading.push_back(&p);
        std::shuffle(reading.begin(), reading.end(), rng);
        std::vector<StepInput> inputs;
        for (Pair* p : reading) {
            if (!p->reads()) {
                p->prompt = draw(rng() % 2 ? 1 : 2 + rng() % 80);
                p->n_read = p->n_steps = 0;
                p->at_once = rng() % 2 && (!p->aborted || p->prompt.size() == 1);
            }
            inputs.push_back(
                {p->session.get(), &p->prompt[p->n_read], p->prompt.size() - p->n_read});
        }
        const Status status = model->step(inputs.data(), inputs.size());
        REQUIRE_MESSAGE(status.ok(), status.message());
        bool some = inputs.empty();
        uint32_t n_long = 0;
        for (size_t i = 0; i < inputs.size(); i++) {
            Pair& p = *reading[i];
            const StepInput& in = inputs[i];
            some |= in.n_read != 0;
            if (!in.status.ok()) { // the context is full
                REQUIRE(in.status.code() == Code::no_fit);
                REQUIRE((p.n_read == 0 && in.n_read == 0));
                CHECK(p.alone->feed(p.prompt.data(), p.prompt.size()).code() == Code::no_fit);
                p.prompt.clear();
                counts.refused++;
                some = true;
                continue;
            }
            if (in.n == 1) REQUIRE(in.n_read == 1);
            n_long += in.n > 1 && in.n_read;
            p.n_steps += in.n_read != 0;
            p.n_read += in.n_read;
            const bool ends = p.n_read == p.prompt.size();
            counts.prompts += ends && p.prompt.size() > 1;
            counts.long_prompts += ends && p.n_steps > 2;
            if (in.n_read) p.follow();
        }
        REQUIRE(some);
        counts.shared += n_long > 1;
        counts.steps++;
    }
    void go_back(Pair& p)
    {
        const uint32_t n = p.session->n_tokens(), to = n - std::min(n, uint32_t(rng() % 40));
        const Status a = p.session->rewind(to), b = p.alone->rewind(to);
        REQUIRE(a.code() == b.code());
        p.aborted &= to == n || !a.ok();
    }
    // A text moves into another session, or stays in its own.
    void save_and_load(Pair& from, Pair& to)
    {
        to.give_up();
        SavedState state;
        for (const bool is_alone : {false, true}) {
            Session& saved = is_alone ? *from.alone : *from.session;
            const Status status = saved.save(state, folder / (is_alone ? "alone" : "together"));
            REQUIRE_MESSAGE(status.ok(), status.message());
        }
        const char* name = rng() % 2 ? "together" : "alone"; // the files have the same contents
        const Status a = to.session->load(folder / name, &state),
                     b = to.alone->load(folder / name, &state);
        CAPTURE(a.message());
        CAPTURE(b.message());
        REQUIRE(a.code() == b.code());
        if (a.ok()) to.aborted = false;
        counts.moves += a.ok();
    }
    void change_budget(Pair& p)
    {
        const Plan opened = model->plan().of_session();
        if (opened.rungs.size() < 2) return;
        const uint64_t cache = opened.region_bytes("cache"),
                       total = opened.total_bytes - (rng() % 3 ? rng() % (cache / 2) : 0);
        const auto change = [&](Session& s) {
            const Model& m = s.model();
            return s.set_memory(m.ledger().used_bytes() - s.plan().total_bytes + total);
        };
        const Status a = change(*p.session), b = change(*p.alone);
        CAPTURE(a.message());
        CAPTURE(b.message());
        REQUIRE(a.code() == b.code());
        REQUIRE(same_rungs(p.session->plan(), p.alone->plan()));
        counts.budgets += a.ok();
    }
    void reopen(Pair& p)
    {
        p.session.reset();
        p.session = open_in(*model);
        p.alone = open_in(*open_model(alone));
        p.aborted = false;
    }
    void clear(Pair& p)
    {
        p.session->clear();
        p.alone->clear();
        p.aborted = false;
        if (rng() % 2 && p.session->pin(5).ok()) REQUIRE(p.alone->pin(5).ok());
    }
    void change(Pair& p)
    {
        p.give_up();
        const uint32_t what = rng() % 12;
        if (what < 4)
            go_back(p);
        else if (what < 7)
            save_and_load(p, pairs[rng() % pairs.size()]);
        else if (what < 9)
            change_budget(p);
        else if (what < 10)
            clear(p);
        else if (what < 11)
            reopen(p);
        else { // beside the steps of others
            const std::vector<uint32_t> ids = draw(1 + rng() % 60);
            const Status a = p.session->feed(ids.data(), ids.size()),
                         b = p.alone->feed(ids.data(), ids.size());
            REQUIRE(a.code() == b.code());
            if (a.ok()) p.aborted = false;
        }
    }
    void run(int n_rounds)
    {
        for (int round = 0; round < n_rounds; round++) {
            CAPTURE(round);
            if (rng() % 5)
                step();
            else
                change(pairs[rng() % pairs.size()]);
            for (const Pair& p : pairs) p.check();
        }
        for (Pair& p : pairs) {
            p.give_up();
            p.check();
            p.check_text();
            counts.evictions += p.session->evicted() != 0;
            counts.climbs += p.session->n_climbs();
        }
        uint64_t used = 0;
        for (const PlanRegion& region : model->plan().regions)
            used += region.of_sessions ? 0 : region.bytes;
        for (const Pair& p : pairs) used += p.session->plan().session_bytes();
        CHECK(model->ledger().used_bytes() == used);
    }
};

} // namespace

TEST_CASE("sessions: random schedules have the bits of a session alone")
{
    const char* wanted = getenv("KS_TEST_SCHEDULES");
    const int n_schedules = wanted ? atoi(wanted) : kSanitized ? 10 : 30;
    Counts counts;
    int n_done = 0;
    for (int i = 0; n_done < n_schedules; i++) {
        REQUIRE(i < 10 * n_schedules + 100);
        std::mt19937 rng(uint32_t(500 + i));
        const std::string arch = kWalkers[i % int(std::size(kWalkers))],
                          recipe = rng() % 3 ? kCompanyRecipes[rng() % std::size(kCompanyRecipes)]
                                             : "auto",
                          device = i % 4 == 3 ? "reference" : "cpu";
        const uint32_t n = i % 3 ? 2 + rng() % 7 : 8;
        CAPTURE(i);
        CAPTURE(arch);
        CAPTURE(recipe);
        CAPTURE(device);
        CAPTURE(n);
        Schedule schedule(arch, rng, counts);
        if (!schedule.plan(recipe, device, n, rng() % 4 == 0)) continue;
        schedule.open();
        schedule.run(60);
        n_done++;
    }
    MESSAGE(n_done, " schedules, ", counts.steps, " steps, ", counts.prompts, " prompts, ",
            counts.long_prompts, " of several chunks, ", counts.shared, " steps with two of them, ",
            counts.climbs, " climbs, ", counts.evictions, " texts with evictions, ", counts.budgets,
            " budgets, ", counts.moves, " moves, ", counts.refused, " refused");
    const uint32_t least = uint32_t(n_done);
    CHECK(counts.long_prompts > least);
    CHECK(counts.climbs > least / 4);
    CHECK(counts.evictions > least / 2);
    CHECK(counts.budgets > least / 8);
    CHECK(counts.moves > least);
    CHECK(counts.shared > least / 8);
}
