// Every allocation and every call for a file fails once while a session climbs, changes its budget
// or loads a session of another budget. The text is as before or, after a load, empty. The
// conversation goes on as if nothing had failed.
#include "tests/api/ladder_bed.h"
#include "tests/faults/inject.h"

#include <cstdlib>
#include <functional>
#include <new>

using namespace ks;

namespace
{

using Change = std::function<Status(Session&)>;

Status tried(Session& s, const Change& change)
{
    const Injecting now;
    try {
        return change(s);
    } catch (const std::bad_alloc&) {
        return Status(Code::no_fit, "no memory");
    }
}

// Lets the n-th call fail, for every fourth n, with KS_TEST_ALL=1 for all. `begin` brings the
// session to where it changes. Returns the last call that failed.
uint64_t fail_all(Session& s, Fault fault, const std::function<void()>& begin, const Change& change,
                  bool empties = false)
{
    const std::vector<uint32_t> next = some_ids(9, 5);
    std::vector<float> expected;
    const uint64_t step = getenv("KS_TEST_ALL") ? 1 : 4;
    uint64_t n_failed = 0;
    bool hit = true;
    for (uint64_t n = 0; hit; n += n ? step : 1) {
        CAPTURE(n);
        begin();
        const uint32_t before = s.n_tokens();
        const uint64_t budget = s.plan().budget_bytes;
        const std::vector<float> last = logits(s);
        if (n) arm(fault, n, false);
        const Status status = tried(s, change);
        hit = disarm() || n == 0;
        if (hit) n_failed = n;
        CHECK((status.ok() || (n && hit)));
        CHECK(s.model().ledger().used_bytes() == s.plan().total_bytes);
        if (!status.ok()) {
            CHECK((s.n_tokens() == before || (empties && s.n_tokens() == 0)));
            CHECK(s.plan().budget_bytes == budget);
            if (s.has_logits()) CHECK(logits(s) == last);
            REQUIRE(change(s).ok());
        }
        feed(s, next, 0, next.size());
        CHECK(s.model().ledger().used_bytes() == s.plan().total_bytes);
        if (n == 0) expected = logits(s);
        REQUIRE(logits(s) == expected);
    }
    return n_failed;
}

// Two sessions of different budgets, and texts that end in all of their rungs.
struct Faulty {
    Climber climber{"llama"};
    std::unique_ptr<Session> large = climber.open(), small;
    const std::vector<uint32_t> ids = some_ids(1000);
    Folder folder;
    const uint64_t most = large->plan().total_bytes, cache = large->plan().region_bytes("cache");

    Faulty()
    {
        climber.options.kv_memory_bytes = climber.options.kv_memory_bytes * 7 / 10;
        small = climber.open();
    }
    // KS_TEST_ALL=1: texts in every rung.
    static std::vector<uint32_t> lengths()
    {
        if (getenv("KS_TEST_ALL")) return {1, 50, 120, 200, 260, 400};
        return {200};
    }
    Status set(uint64_t percent) { return large->set_memory(most - cache * (100 - percent) / 100); }
    void begin(Session& s, uint32_t n, uint64_t percent = 100)
    {
        s.clear();
        if (&s == large.get()) REQUIRE(set(100).ok());
        feed(s, ids, 0, n);
        if (percent != 100) REQUIRE(set(percent).ok());
    }
};

} // namespace

TEST_CASE("faults: the n-th allocation of a change of the budget")
{
    Faulty f;
    for (uint32_t n : f.lengths())
        for (uint64_t percent : {75, 60, 95}) {
            if (percent != 75 && !getenv("KS_TEST_ALL")) continue;
            CAPTURE(n);
            CAPTURE(percent);
            const auto change = [&](uint64_t to) -> Change {
                return [&f, to](Session&) { return f.set(to); };
            };
            const auto whole = [&] { f.begin(*f.large, n); };
            const auto squeezed = [&] { f.begin(*f.large, n, percent); };
            CHECK(fail_all(*f.large, Fault::heap, whole, change(percent)) > 10);
            CHECK(fail_all(*f.large, Fault::heap, squeezed, change(100)) > 10);
            CHECK(fail_all(*f.large, Fault::heap, squeezed, change(percent - 8)) > 10);
        }
}

TEST_CASE("faults: the n-th allocation of reading with climbs")
{
    Faulty f;
    for (uint32_t n : f.lengths()) {
        CAPTURE(n);
        // One chunk, so all of it is read or nothing.
        const Change read = [&](Session& s) { return s.feed(&f.ids[n], 60); };
        REQUIRE(f.large->plan().chunk >= 60);
        fail_all(
            *f.large, Fault::heap, [&] { f.begin(*f.large, n); }, read);
    }
}

TEST_CASE("faults: the n-th call of a load from another budget")
{
    Faulty f;
    const std::string path = f.folder / "s";
    for (uint32_t n : f.lengths()) {
        for (bool to_large : {true, false})
            for (Fault fault : {Fault::heap, Fault::file}) {
                CAPTURE(n);
                CAPTURE(to_large);
                Session &from = to_large ? *f.small : *f.large,
                        &to = to_large ? *f.large : *f.small;
                f.begin(from, n);
                REQUIRE(from.save(some_state(), path).ok());
                const Change load = [&](Session& s) {
                    SavedState state;
                    return s.load(path, &state);
                };
                const auto begin = [&] { f.begin(to, 77); };
                CHECK(fail_all(to, fault, begin, load, true) > 5);
            }
    }
}

TEST_CASE("faults: the n-th allocation of a session that opens and takes bytes of another")
{
    Climber climber("llama");
    climber.options.n_sessions = 2;
    climber.options.kv_memory_bytes *= 2;
    const std::vector<uint32_t> ids = some_ids(500);
    const uint64_t step = getenv("KS_TEST_ALL") ? 1 : 4;
    std::vector<float> expected[2];
    uint64_t n_failed = 0;
    bool hit = true;
    for (uint64_t n = 0; hit; n += n ? step : 1) {
        CAPTURE(n);
        std::shared_ptr<Model> model = Model::open(climber.options).value();
        REQUIRE(model->plan().moves_shares);
        std::unique_ptr<Session> a = std::move(model->open_session().value()), b;
        feed(*a, ids, 0, 300);
        const std::vector<float> last = logits(*a);
        if (n) arm(Fault::heap, n, false);
        const Status status = tried(*a, [&](Session&) {
            Result<std::unique_ptr<Session>> opened = model->open_session();
            if (opened.ok()) b = std::move(opened.value());
            return opened.status();
        });
        hit = disarm() || n == 0;
        if (hit) n_failed = n;
        CHECK((status.ok() || (n && hit)));
        CHECK(logits(*a) == last);
        CHECK(model->ledger().used_bytes() == model->plan().total_bytes);
        if (!b) b = std::move(model->open_session().value());
        feed(*b, ids, 100, 140);
        feed(*a, ids, 300, 310);
        if (n == 0) expected[0] = logits(*a), expected[1] = logits(*b);
        REQUIRE(logits(*a) == expected[0]);
        REQUIRE(logits(*b) == expected[1]);
    }
    CHECK(n_failed > 10);
    MESSAGE(n_failed, " allocations");
}
