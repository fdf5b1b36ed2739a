// The C API: threads with sessions of one model, a step that another thread cancels, and a fork.
#include "tests/api/c_api_step_bed.h"
#include "tests/files.h"
#include "tests/sanitized.h"

#include <atomic>
#include <sys/wait.h>
#include <thread>

using namespace ks;

namespace
{

constexpr int kTurns = kSanitized ? 6 : 30;

// Lets a session read, write, go back, and continue from a file. Returns what it wrote.
std::vector<uint32_t> live(ks_session* s, uint32_t salt, const std::string& path)
{
    std::vector<uint32_t> made;
    int n_wrong = 0;
    const auto fine = [&](int code) { n_wrong += code != KS_OK; };
    for (int turn = 0; turn < kTurns; turn++) {
        const std::vector<uint32_t> ids =
            salted_ids(5 + (salt * 37 + size_t(turn) * 11) % 60, salt);
        fine(ks_feed(s, ids.data(), ids.size()));
        for (uint32_t i = 0, id = 0; i < 5; i++) {
            fine(ks_sample(s, &id));
            made.push_back(id);
            fine(ks_feed(s, &id, 1));
        }
        ks_stats stats = {};
        stats.struct_size = sizeof stats;
        ks_get_stats(s, &stats);
        made.push_back(stats.n_tokens);
        uint32_t words[16];
        made.push_back(uint32_t(ks_tokenize(ks_session_model(s), "hello", 5, 0, words, 16)));
        if (turn % 3 == 2) fine(ks_rewind(s, stats.n_tokens > 250 ? 0 : stats.n_tokens - 3));
        if (turn % 5 == 4) {
            fine(ks_save(s, path.c_str()));
            fine(ks_load(s, path.c_str()));
        }
        if (turn % 7 == 6) fine(ks_rewind(s, 0));
    }
    CHECK(n_wrong == 0);
    return made;
}

} // namespace

TEST_CASE("C API: threads with sessions of one model write what each writes alone")
{
    StepModel file("c-company");
    const Folder folder;
    const auto path = [&](uint32_t i) { return folder / ("s" + std::to_string(i)); };
    for (const char* recipe : {"sink,slots=64", "mix,slots=64,chunk=16,k=q8,v=q4"}) {
        std::vector<std::vector<uint32_t>> alone(4), together(4);
        for (uint32_t i = 0; i < 4; i++) alone[i] = live(file.open(recipe).get(), i, path(i));
        CHECK(alone[0] != alone[1]);
        Company all(file, recipe, 4);
        std::vector<std::thread> threads;
        for (uint32_t i = 0; i < 4; i++)
            threads.emplace_back([&, i] { together[i] = live(all.sessions[i].get(), i, path(i)); });
        for (std::thread& thread : threads) thread.join();
        CHECK(together == alone);
    }
}

TEST_CASE("C API: threads open and close sessions of one model")
{
    StepModel file("c-doors");
    Company all(file, "h2o,slots=48", 3);
    const std::vector<uint32_t> ids = salted_ids(40, 1);
    all.read({input(all.sessions[0], ids)});
    const std::vector<float> expected = logits_of(all.sessions[0]);
    for (Handle& s : all.sessions) s.reset();
    std::atomic<int> n_opened{0}, n_full{0}, n_wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 5; t++)
        threads.emplace_back([&] {
            for (int i = 0; i < 2 * kTurns; i++) {
                ks_session* opened = nullptr;
                const int code = ks_session_open(all.model.get(), &opened, nullptr, 0);
                const Handle s(opened);
                n_full += code == KS_NO_FIT;
                n_opened += code == KS_OK;
                n_wrong += code != KS_OK && code != KS_NO_FIT;
                if (!s) continue;
                n_wrong += ks_feed(s.get(), ids.data(), ids.size()) != KS_OK;
                n_wrong += logits_of(s) != expected;
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(n_wrong == 0);
    CHECK(n_opened > 0);
    CHECK(n_opened + n_full == 5 * 2 * kTurns);
}

// A budget changes in one thread while another asks what is held.
TEST_CASE("C API: statistics are read while another session changes its budget")
{
    StepModel file("c-budgets");
    file.options.context = 400;
    ks_stats plan = {};
    plan.struct_size = sizeof plan;
    file.options.recipe = "exact";
    REQUIRE(ks_plan(&file.options, &plan, nullptr, 0) == KS_OK);
    file.options.kv_memory_bytes = 2 * plan.bytes_per_token * 400 / 2;
    Company two(file, "auto", 2);
    const std::vector<uint32_t> ids = salted_ids(60, 1);
    const uint64_t most = stats_of(two.sessions[0]).plan_bytes;
    std::atomic<bool> stop{false};
    std::atomic<int> n_changed{0};
    std::thread changes([&] {
        for (int i = 0; i < 4 * kTurns; i++) {
            const uint64_t less = i % 2 ? 0 : 4096 * (1 + uint64_t(i) % 5);
            n_changed += ks_session_set_memory(two.sessions[0].get(), most - less) == KS_OK;
        }
        stop = true;
    });
    do {
        const ks_stats stats = stats_of(two.sessions[1]);
        CHECK(stats.plan_bytes <= most);
        CHECK(ks_rewind(two.sessions[1].get(), 0) == KS_OK);
        CHECK(ks_feed(two.sessions[1].get(), ids.data(), ids.size()) == KS_OK);
    } while (!stop);
    changes.join();
    CHECK(n_changed > 0);
}

TEST_CASE("C API: another thread cancels a session of a step, and the others go on")
{
    StepModel file("c-stops");
    Company all(file, "sink,slots=64,chunk=16", 3);
    const std::vector<uint32_t> ids = salted_ids(100, 1);
    std::atomic<bool> stop{false};
    std::atomic<uint32_t> n_asked{0};
    std::thread canceller([&] {
        for (; !stop; std::this_thread::yield()) {
            ks_cancel(all.sessions[1].get());
            n_asked++;
        }
    });
    uint32_t n_interrupted = 0, n_read = 0;
    for (int i = 0; i < 20 * kTurns || n_interrupted == 0; i++) {
        std::vector<ks_step_input> inputs;
        for (const Handle& s : all.sessions) inputs.push_back(input(s, ids));
        REQUIRE(all.step(inputs) == KS_OK);
        for (size_t k = 0; k < 3; k++)
            REQUIRE((inputs[k].code == KS_OK || (k == 1 && inputs[k].code == KS_INTERRUPTED)));
        REQUIRE((inputs[1].code == KS_OK || inputs[1].n_read == 0));
        n_interrupted += inputs[1].code == KS_INTERRUPTED;
        n_read += uint32_t(inputs[0].n_read + inputs[2].n_read);
    }
    stop = true;
    canceller.join();
    CHECK(n_interrupted > 0);
    CHECK(stats_of(all.sessions[0]).n_tokens + stats_of(all.sessions[2]).n_tokens == n_read);
    ks_clear_cancel(all.sessions[1].get());
    std::vector<ks_step_input> inputs = {input(all.sessions[1], ids)};
    REQUIRE(all.step(inputs) == KS_OK);
    CHECK(inputs[0].code == KS_OK);
}

TEST_CASE("C API: the child of a fork can exit, and the parent goes on")
{
    StepModel file("c-fork");
    Company two(file, "exact", 2);
    const std::vector<uint32_t> ids = salted_ids(40, 1), more = salted_ids(9, 2);
    two.read({input(two.sessions[0], ids), input(two.sessions[1], ids)});
    for (bool handlers : {false, true}) {
        fflush(nullptr);
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            if (handlers) exit(7);
            _exit(7);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 7));
        two.read({input(two.sessions[0], more), input(two.sessions[1], more)});
        CHECK(logits_of(two.sessions[0]) == logits_of(two.sessions[1]));
    }
}
