// Steps of more sessions than rows whose logits one call computes.
#include "tests/devices.h"
#include "tests/model/tiny_model.h"

#include "runtime/api/session.h"

#include <doctest/doctest.h>

#include <cstring>

using namespace ks;

namespace
{

using Sessions = std::vector<std::unique_ptr<Session>>;

Sessions open_sessions(const std::string& path, uint32_t n)
{
    ModelOptions options;
    options.model_path = path;
    options.device = "cpu";
    options.context = 64;
    options.n_threads = 2;
    options.n_sessions = n;
    const Result<std::shared_ptr<Model>> model = Model::open(options);
    REQUIRE_MESSAGE(model.ok(), model.status().message());
    Sessions sessions;
    for (uint32_t i = 0; i < n; i++) {
        Result<std::unique_ptr<Session>> session = model.value()->open_session();
        REQUIRE(session.ok());
        sessions.push_back(std::move(session.value()));
    }
    return sessions;
}

uint32_t token(size_t i, uint32_t step)
{
    return uint32_t(7 + 11 * i + 29 * step) % 256;
}

} // namespace

TEST_CASE("sessions: a step gives each of many texts its own logits")
{
    const TempFile file("many.gguf", make_tiny_model(TinyShape()).file);
    for (const uint32_t n : {4u, 7u, 8u, 9u, 19u}) {
        const Sessions sessions = open_sessions(file.path(), n),
                       alone = open_sessions(file.path(), 1);
        for (uint32_t step = 0; step < 3; step++) {
            std::vector<uint32_t> ids;
            for (size_t i = 0; i < n; i++) ids.push_back(token(i, step));
            std::vector<StepInput> inputs;
            for (size_t i = 0; i < n; i++) inputs.push_back({sessions[i].get(), &ids[i], 1});
            REQUIRE(sessions[0]->model().step(inputs.data(), n).ok());
            for (const StepInput& in : inputs) REQUIRE(in.n_read == 1);
        }
        const size_t bytes = 4 * alone[0]->model().config().n_vocab;
        for (size_t i = 0; i < n; i++) {
            alone[0]->clear();
            for (uint32_t step = 0; step < 3; step++) {
                const uint32_t id = token(i, step);
                REQUIRE(alone[0]->feed(&id, 1).ok());
            }
            CHECK_MESSAGE(memcmp(alone[0]->logits(), sessions[i]->logits(), bytes) == 0, "text ", i,
                          " of ", n);
        }
    }
}

// A model with few sessions holds no more logits than one with a session.
TEST_CASE("sessions: rows of logits grow with the sessions, up to a limit")
{
    CHECK(logit_rows(1) == kLogitRows);
    CHECK(logit_rows(kLogitRows) == kLogitRows);
    CHECK(logit_rows(kLogitRows + 1) == kLogitRows + 1);
    CHECK(logit_rows(kMaxSessions) == kMostLogitRows);
}
