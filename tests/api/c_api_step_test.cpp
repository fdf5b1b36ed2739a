// The C API: steps of several sessions, wrong inputs of them, and closing in any order.
#include "tests/api/c_api_step_bed.h"
#include "tools/alloc_count.h"

#include <algorithm>
#include <cstring>

using namespace ks;

namespace
{

bool says(const char* sentence, const char* word)
{
    return strstr(sentence, word) != nullptr;
}

// The first input has an id beyond the vocabulary, the second is longer than the context, and the
// last is cancelled.
void check_codes(const std::vector<ks_step_input>& inputs)
{
    const int codes[] = {KS_USAGE, KS_NO_FIT, KS_OK, KS_INTERRUPTED};
    const char* const words[] = {"258", "6 more tokens", "", "interrupted"};
    for (size_t i = 0; i < 4; i++) {
        CAPTURE(i);
        CHECK(inputs[i].code == codes[i]);
        CHECK(inputs[i].n_read == (i == 2 ? 6 : 0));
        CHECK(says(ks_error(inputs[i].session), words[i]));
        CHECK((ks_error(inputs[i].session)[0] == 0) == (i == 2));
    }
}

} // namespace

TEST_CASE("C API: a step reads several sessions, and each has the logits that it has alone")
{
    StepModel file("c-step");
    for (const char* recipe : {"exact", "mix,slots=64,chunk=16,k=q8,v=q4"}) {
        Company all(file, recipe, 4);
        std::vector<Handle> alone;
        std::vector<std::vector<uint32_t>> ids;
        std::vector<ks_step_input> inputs;
        for (uint32_t i = 0; i < 4; i++) {
            ids.push_back(salted_ids(30 + 40 * i, i));
            alone.push_back(file.open(recipe));
            REQUIRE(ks_feed(alone[i].get(), ids[i].data(), ids[i].size()) == KS_OK);
        }
        for (uint32_t i = 0; i < 4; i++) inputs.push_back(input(all.sessions[i], ids[i]));
        all.read(inputs);
        for (int turn = 0; turn < 40; turn++) {
            std::vector<uint32_t> next(4);
            for (uint32_t i = 0; i < 4; i++) {
                REQUIRE(logits_of(all.sessions[i]) == logits_of(alone[i]));
                REQUIRE(ks_sample(all.sessions[i].get(), &next[i]) == KS_OK);
                inputs[i] = {all.sessions[i].get(), &next[i], 1, 0, 0};
                REQUIRE(ks_feed(alone[i].get(), &next[i], 1) == KS_OK);
            }
            const uint64_t before = allocation_count();
            const int code = all.step(inputs);
            const uint64_t after = allocation_count();
            REQUIRE(code == KS_OK);
            if (counts_allocations()) CHECK(after == before);
            for (const ks_step_input& in : inputs) REQUIRE((in.n_read == 1 && in.code == KS_OK));
        }
    }
}

TEST_CASE("C API: a prompt of 4,096 tokens delays another session by a chunk at most")
{
    TinyShape shape;
    shape.context = 8192;
    const TempFile model("c-delay.gguf", make_tiny_model(shape).file);
    StepModel file("c-delays");
    file.options.model_path = model.path().c_str();
    file.options.context = 5000;
    for (const char* recipe : {"exact", "sink,slots=256"}) {
        Company two(file, recipe, 2);
        Handle alone = file.open(recipe);
        const std::vector<uint32_t> prompt = salted_ids(4096, 1);
        ks_step_input inputs[2] = {input(two.sessions[0], prompt), {}};
        uint32_t id = 7, n_steps = 0;
        size_t longest = 0;
        for (; inputs[0].n; n_steps++) {
            inputs[1] = {two.sessions[1].get(), &id, 1, 0, 0};
            // The order of the inputs does not matter.
            if (n_steps % 2) std::swap(inputs[0], inputs[1]);
            REQUIRE(ks_step(two.model.get(), inputs, 2, nullptr, 0) == KS_OK);
            if (n_steps % 2) std::swap(inputs[0], inputs[1]);
            REQUIRE(inputs[1].n_read == 1);
            REQUIRE(inputs[0].n_read > 0);
            longest = std::max(longest, inputs[0].n_read);
            inputs[0].ids += inputs[0].n_read;
            inputs[0].n -= inputs[0].n_read;
            REQUIRE(ks_feed(alone.get(), &id, 1) == KS_OK);
            REQUIRE(logits_of(two.sessions[1]) == logits_of(alone));
            REQUIRE(ks_sample(two.sessions[1].get(), &id) == KS_OK);
        }
        CHECK(longest <= 512);
        CHECK(n_steps == (4096 + longest - 1) / longest);
        CHECK(stats_of(two.sessions[1]).n_tokens == n_steps);
        CHECK(ks_logits(two.sessions[0].get()) != nullptr);
    }
}

TEST_CASE("C API: an input of a step that is wrong by itself has its code, and others are read")
{
    StepModel file("c-wrong");
    file.options.context = 100;
    Company all(file, "exact", 4);
    const std::vector<uint32_t> first = salted_ids(20, 1), full = salted_ids(95, 2),
                                strange = {1, 2, 258}, more = salted_ids(6, 3), none;
    all.read({input(all.sessions[0], first), input(all.sessions[1], full),
              input(all.sessions[2], first), input(all.sessions[3], first)});
    const std::vector<float> before = logits_of(all.sessions[1]);
    ks_cancel(all.sessions[3].get());
    std::vector<ks_step_input> inputs = {input(all.sessions[2], strange),
                                         input(all.sessions[1], more), input(all.sessions[0], more),
                                         input(all.sessions[3], more)};
    REQUIRE(all.step(inputs) == KS_OK);
    CHECK(all.error == std::string());
    check_codes(inputs);
    CHECK(stats_of(all.sessions[1]).n_tokens == 95);
    CHECK(stats_of(all.sessions[2]).n_tokens == 20);
    CHECK(logits_of(all.sessions[1]) == before); // nothing was read
    Handle alone = file.open("exact");
    REQUIRE(ks_feed(alone.get(), first.data(), first.size()) == KS_OK);
    for (int i : {2, 3}) CHECK(logits_of(all.sessions[size_t(i)]) == logits_of(alone));
    REQUIRE(ks_feed(alone.get(), more.data(), more.size()) == KS_OK);
    CHECK(logits_of(all.sessions[0]) == logits_of(alone));

    // The request to stop is cleared once it has interrupted.
    inputs = {input(all.sessions[3], more), input(all.sessions[2], more),
              input(all.sessions[0], none)};
    REQUIRE(all.step(inputs) == KS_OK);
    CHECK((inputs[0].code == KS_OK && inputs[0].n_read == 6));
    CHECK((inputs[2].code == KS_OK && inputs[2].n_read == 0));
    for (size_t i : {0, 2, 3}) {
        CHECK(ks_error(all.sessions[i].get()) == std::string());
        CHECK(logits_of(all.sessions[i]) == logits_of(alone));
    }
}

TEST_CASE("C API: an input that concerns all reads nothing")
{
    StepModel file("c-all");
    Company all(file, "exact", 2), other(file, "exact", 1);
    const std::vector<uint32_t> ids = salted_ids(20, 1);
    const ks_step_input good = input(all.sessions[0], ids);
    const ks_step_input bad[] = {{nullptr, ids.data(), ids.size(), 99, 99},
                                 {all.sessions[1].get(), nullptr, 3, 99, 99},
                                 good,
                                 input(other.sessions[0], ids)};
    const char* const words[] = {"no session or no ids", "no session or no ids", "twice",
                                 "another model"};
    for (size_t i = 0; i < 4; i++)
        for (bool first : {true, false}) {
            CAPTURE(i);
            std::vector<ks_step_input> inputs = {good, bad[i]};
            if (first) std::swap(inputs[0], inputs[1]);
            CHECK(all.step(inputs) == KS_USAGE);
            CHECK(says(all.error, words[i]));
            for (const ks_step_input& in : inputs) CHECK((in.n_read == 0 && in.code == KS_USAGE));
            for (const Handle& s : all.sessions) CHECK(stats_of(s).n_tokens == 0);
            CHECK(stats_of(other.sessions[0]).n_tokens == 0);
            CHECK(ks_step(all.model.get(), inputs.data(), 2, nullptr, 0) == KS_USAGE);
        }
    std::vector<ks_step_input> many(257, good);
    CHECK(all.step(many) == KS_USAGE);
    CHECK(says(all.error, "257"));
    CHECK(ks_step(all.model.get(), nullptr, 0, all.error, sizeof all.error) == KS_OK);
    // Afterwards a step works.
    all.read({good, input(all.sessions[1], ids)});
    CHECK(logits_of(all.sessions[0]) == logits_of(all.sessions[1]));
}

TEST_CASE("C API: more sessions than planned are refused, and a closed one's place is free")
{
    StepModel file("c-seats");
    Company all(file, "exact", 3);
    ks_session* none = reinterpret_cast<ks_session*>(&all);
    CHECK(ks_session_open(all.model.get(), &none, all.error, sizeof all.error) == KS_NO_FIT);
    CHECK(none == nullptr);
    CHECK(all.error == std::string("3 sessions are open, as many as were planned"));
    CHECK(ks_session_open(all.model.get(), nullptr, all.error, sizeof all.error) == KS_USAGE);
    const ks_stats stats = stats_of(all.sessions[0]);
    CHECK(stats.n_sessions == 3);
    CHECK(stats.bytes_per_session > 0);
    CHECK(stats.plan_bytes == stats.peak_bytes);
    const std::vector<uint32_t> ids = salted_ids(20, 1);
    all.read({input(all.sessions[0], ids), input(all.sessions[1], ids)});
    ks_sampling sampling = {};
    sampling.struct_size = sizeof sampling;
    const ks_bias bias = {9, 1000.f};
    sampling.biases = &bias;
    sampling.n_biases = 1;
    REQUIRE(ks_set_sampling(all.sessions[1].get(), &sampling) == KS_OK);
    all.sessions[1].reset();
    all.sessions[1] = all.open(); // has no text, and no settings of the one before
    CHECK(stats_of(all.sessions[1]).n_tokens == 0);
    CHECK(ks_logits(all.sessions[1].get()) == nullptr);
    all.read({input(all.sessions[1], ids)});
    uint32_t a = 0, b = 0;
    REQUIRE(ks_sample(all.sessions[0].get(), &a) == KS_OK);
    REQUIRE(ks_sample(all.sessions[1].get(), &b) == KS_OK);
    CHECK(a == b);
    file.options.n_sessions = 257;
    ks_model* model = nullptr;
    CHECK(ks_model_open(&file.options, &model, all.error, sizeof all.error) == KS_USAGE);
    CHECK(says(all.error, "257"));
}

TEST_CASE("C API: models and sessions close in any order")
{
    StepModel file("c-close");
    const std::vector<uint32_t> ids = salted_ids(30, 1);
    std::vector<float> expected;
    std::vector<int> order = {0, 1, 2, 3}; // 3 is the model
    do {
        Company all(file, "mix,slots=64", 3);
        all.read({input(all.sessions[0], ids), input(all.sessions[1], ids),
                  input(all.sessions[2], ids)});
        for (size_t i = 0; i < order.size(); i++) {
            order[i] == 3 ? all.model.reset() : all.sessions[size_t(order[i])].reset();
            for (const Handle& s : all.sessions) {
                if (!s) continue;
                // What is still open works as before.
                REQUIRE(ks_rewind(s.get(), 0) == KS_OK);
                REQUIRE(ks_feed(s.get(), ids.data(), ids.size()) == KS_OK);
                if (expected.empty()) expected = logits_of(s);
                CHECK(logits_of(s) == expected);
                char piece[8];
                CHECK(ks_piece(ks_session_model(s.get()), 65, piece, sizeof piece) == 1);
            }
        }
    } while (std::next_permutation(order.begin(), order.end()));
}
