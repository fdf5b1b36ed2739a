// Steps of more sessions than rows whose logits one call computes.
#include "tests/devices.h"
#include "tests/model/tiny_model.h"
#include "tests/open_session.h"

#include <cmath>
#include <cstring>

using namespace ks;

namespace
{

using Sessions = std::vector<std::unique_ptr<Session>>;

Sessions open_on(const std::string& device, const std::string& path, const char* recipe,
                 uint32_t context, uint32_t n)
{
    ModelOptions options;
    options.model_path = path;
    options.device = device;
    options.recipe = recipe;
    options.context = context;
    options.n_threads = 2;
    options.n_sessions = n;
    return open_sessions(*open_model(options), n);
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
        const Sessions sessions = open_on("cpu", file.path(), "auto", 64, n),
                       alone = open_on("cpu", file.path(), "auto", 64, 1);
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

// Whether both hold the same tokens in every table.
static bool hold_the_same(const Session& a, const Session& b)
{
    for (uint32_t il = 0; il < a.cache().n_layers(); il++) {
        const CacheLayer &x = a.cache().layer(il), &y = b.cache().layer(il);
        for (uint32_t h = 0; x.spec.table && h < x.spec.n_kv_heads; h++)
            if (x.held[h] != y.held[h] ||
                !std::equal(x.positions + x.begin[h], x.positions + x.begin[h] + x.held[h],
                            y.positions + y.begin[h]))
                return false;
    }
    return a.evicted() == b.evicted();
}

static double difference(const Session& a, const Session& b)
{
    double sum = 0, all = 0;
    for (uint32_t i = 0; i < a.model().config().n_vocab; i++) {
        sum += std::pow(a.logits()[i] - b.logits()[i], 2);
        all += std::pow(b.logits()[i], 2);
    }
    return std::sqrt(sum / all);
}

TEST_CASE("sessions: steps on each device, with the victims of a text alone")
{
    constexpr uint32_t kTexts = 3;
    const TempFile file("company.gguf", make_tiny_model(TinyShape()).file);
    for (const std::string& device : tested_names()) {
        for (const char* recipe : {"exact", "mix,slots=64,chunk=16", "sink,slots=48,chunk=16"}) {
            CAPTURE(device);
            CAPTURE(recipe);
            const Sessions together = open_on(device, file.path(), recipe, 256, kTexts);
            std::vector<Sessions> alone;
            for (uint32_t i = 0; i < kTexts; i++)
                alone.push_back(open_on(device, file.path(), recipe, 256, 1));
            std::vector<uint32_t> ids(40);
            for (uint32_t round = 0; round < 10; round++) {
                std::vector<StepInput> inputs;
                std::vector<std::vector<uint32_t>> texts(kTexts);
                for (uint32_t i = 0; i < kTexts; i++) {
                    const uint32_t n = (round + i) % 3 == 0 ? 16 : 1; // a chunk or a token
                    for (uint32_t k = 0; k < n; k++) texts[i].push_back(token(i + k, round));
                    inputs.push_back({together[i].get(), texts[i].data(), n});
                }
                for (bool left = true; left;) {
                    REQUIRE(together[0]->model().step(inputs.data(), inputs.size()).ok());
                    left = false;
                    for (StepInput& in : inputs) {
                        in.ids += in.n_read;
                        in.n -= in.n_read;
                        left |= in.n > 0;
                    }
                }
                for (uint32_t i = 0; i < kTexts; i++) {
                    Session& s = *alone[i][0];
                    REQUIRE(s.feed(texts[i].data(), texts[i].size()).ok());
                    CHECK(hold_the_same(*together[i], s));
                    CHECK(difference(*together[i], s) <= (sums_keep_order(device) ? 0 : 2e-3));
                }
            }
        }
    }
}
