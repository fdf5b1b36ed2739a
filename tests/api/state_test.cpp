// Sessions of models with recurrent layers: chunks, saved files, snapshots, memory.
#include "tests/model/state_model.h"
#include "tests/open_session.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <unistd.h>

using namespace ks;

namespace
{

const char* const kArchs[] = {"lfm2", "qwen35", "falcon-h1"};

std::vector<uint32_t> some_ids(size_t n, uint32_t seed = 51)
{
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < n; i++) ids.push_back((i * 53 + seed + i * i) % 256);
    return ids;
}

std::unique_ptr<Session> open(const std::string& path, const std::string& recipe = "exact",
                              const std::string& device = "cpu", uint64_t memory = 0)
{
    ModelOptions o;
    o.model_path = path;
    o.device = device;
    o.n_threads = 2;
    o.context = 400;
    o.recipe = recipe;
    o.memory_bytes = memory;
    Result<std::unique_ptr<Session>> result = open_session(o);
    REQUIRE_MESSAGE(result.ok(), result.status().message());
    CHECK(result.value()->model().ledger().peak_bytes() == result.value()->plan().total_bytes);
    return std::move(result.value());
}

void feed(Session& s, const std::vector<uint32_t>& ids, size_t first, size_t end)
{
    REQUIRE(s.feed(ids.data() + first, end - first).ok());
}

std::vector<float> logits(const Session& s)
{
    return {s.logits(), s.logits() + s.model().config().n_vocab};
}

} // namespace

TEST_CASE("state: chunks do not change the logits")
{
    const std::vector<uint32_t> ids = some_ids(150);
    for (const char* arch : kArchs)
        for (const char* device : {"cpu", "reference"}) {
            CAPTURE(arch);
            CAPTURE(device);
            TempFile file(std::string(arch) + "-chunks.gguf", make_state_model(arch));
            auto whole = open(file.path(), "exact", device),
                 parts = open(file.path(), "exact", device);
            feed(*whole, ids, 0, ids.size());
            std::mt19937 rng(3);
            for (int i = 0; i < 8; i++) {
                parts->clear();
                for (size_t at = 0, n; at < ids.size(); at += n) {
                    n = std::min<size_t>(1 + rng() % 60, ids.size() - at);
                    feed(*parts, ids, at, at + n);
                }
                CHECK(logits(*parts) == logits(*whole));
            }
        }
}

TEST_CASE("state: a saved session goes on like one that never stopped")
{
    const std::vector<uint32_t> ids = some_ids(200);
    for (const char* arch : kArchs)
        for (const char* recipe :
             {"exact", "mix,slots=48", "q8", "h2o,slots=48,positions=compact"}) {
            CAPTURE(arch);
            CAPTURE(recipe);
            TempFile file(std::string(arch) + "-saved.gguf", make_state_model(arch));
            const std::string saved = file.path() + ".session";
            SavedState state;
            auto whole = open(file.path(), recipe), first = open(file.path(), recipe),
                 second = open(file.path(), recipe);
            feed(*whole, ids, 0, 100);
            feed(*whole, ids, 100, 200);
            feed(*first, ids, 0, 100);
            REQUIRE(first->save({}, saved).ok());
            feed(*second, ids, 50, 90); // forgotten
            const Status loaded = second->load(saved, &state);
            REQUIRE_MESSAGE(loaded.ok(), loaded.message());
            feed(*second, ids, 100, 200);
            CHECK(logits(*second) == logits(*whole));
            unlink(saved.c_str());
        }
}

TEST_CASE("state: going back gives the text that never went on")
{
    const std::vector<uint32_t> ids = some_ids(300), others = some_ids(40, 7);
    for (const char* arch : kArchs) {
        CAPTURE(arch);
        TempFile file(std::string(arch) + "-back.gguf", make_state_model(arch));
        std::string log;
        ModelOptions o;
        o.model_path = file.path();
        o.device = "cpu";
        o.context = 400;
        o.recipe = "exact";
        o.log = [&](const std::string& sentence) { log = sentence; };
        auto opened = open_session(o);
        REQUIRE(opened.ok());
        Session& s = *opened.value();
        auto other = open(file.path());
        REQUIRE(s.plan().n_snapshots == 8);
        for (size_t turn = 0; turn < 6; turn++) { // prompts of 40, answers of 10
            feed(s, ids, 50 * turn, 50 * turn + 40);
            for (size_t i = 40; i < 50; i++) feed(s, ids, 50 * turn + i, 50 * turn + i + 1);
        }
        const struct {
            uint32_t to;
            const char* said;
        } steps[] = {
            {295, "from 250 on"}, {295, ""}, {250, ""}, {120, "from 100 on"}, {30, "the text"}};
        for (const auto& step : steps) {
            CAPTURE(step.to);
            log.clear();
            if (step.to == 250) feed(s, ids, 295, 300);
            REQUIRE(s.rewind(step.to).ok());
            CHECK((*step.said ? log.find(step.said) != std::string::npos : log.empty()));
            CHECK(s.n_tokens() == step.to);
            other->clear();
            feed(*other, ids, 0, step.to);
            feed(*other, others, 0, 40);
            feed(s, others, 0, 40);
            CHECK(logits(s) == logits(*other));
            REQUIRE(s.rewind(step.to).ok());
        }
    }
}

TEST_CASE("state: with one snapshot the newest turn replaces it")
{
    const std::vector<uint32_t> ids = some_ids(200);
    TempFile file("snapshot.gguf", make_state_model("qwen35"));
    auto whole = open(file.path());
    ModelOptions o;
    o.model_path = file.path();
    o.device = "cpu";
    o.context = 400;
    o.recipe = "exact";
    o.memory_bytes = 1;
    const Result<Plan> small = make_plan(o);
    REQUIRE(small.ok());
    auto s = open(file.path(), "exact", "cpu", small.value().smallest_bytes);
    CHECK(s->plan().total_bytes <= small.value().smallest_bytes);
    CHECK(s->plan().n_snapshots >= 1);
    for (size_t at = 0; at < 200; at += 20) feed(*s, ids, at, at + 20);
    REQUIRE(s->rewind(190).ok());
    feed(*s, ids, 190, 200);
    feed(*whole, ids, 0, 200);
    CHECK(logits(*s) == logits(*whole));
}

TEST_CASE("state: a long text has a flat state and finite logits")
{
    const char* many = getenv("KS_TEST_TOKENS");
    const size_t n_tokens = many ? strtoul(many, nullptr, 10) : 5000;
    for (const char* arch : kArchs) {
        CAPTURE(arch);
        TempFile file(std::string(arch) + "-long.gguf", make_state_model(arch));
        auto s = open(file.path(), "sink,slots=64");
        const uint64_t peak = s->model().ledger().peak_bytes();
        const std::vector<uint32_t> ids = some_ids(250);
        while (s->n_tokens() < n_tokens) {
            feed(*s, ids, 0, ids.size());
            const std::vector<float> found = logits(*s);
            REQUIRE(
                std::all_of(found.begin(), found.end(), [](float x) { return std::isfinite(x); }));
        }
        CHECK(s->model().ledger().peak_bytes() == peak);
    }
}
