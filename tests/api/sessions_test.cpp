// Sessions of one model: their plan, their bytes in memory, their seats, and their steps.
#include "tests/api/ladder_bed.h"
#include "tests/sanitized.h"
#include "tools/alloc_count.h"

#include <cstdio>

using namespace ks;

namespace
{

ModelOptions options_of(const TempFile& file, const std::string& recipe, uint32_t n_sessions)
{
    ModelOptions o;
    o.model_path = file.path();
    o.device = "cpu";
    o.n_threads = 2;
    o.context = 200;
    o.memory_bytes = 64 << 20;
    o.recipe = recipe;
    o.n_sessions = n_sessions;
    return o;
}

// Tokens of the smallest vocabulary.
std::vector<uint32_t> few_ids(size_t n)
{
    std::vector<uint32_t> ids = some_ids(n);
    for (uint32_t& id : ids) id %= 6;
    return ids;
}

uint64_t resident_bytes()
{
    unsigned long long pages = 0, resident = 0;
    FILE* file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%llu %llu", &pages, &resident) != 2) resident = 0;
    if (file) fclose(file);
    return resident * uint64_t(sysconf(_SC_PAGESIZE));
}

// One more session is refused. Its place can be taken again once one is closed.
void check_seats(Model& model, std::vector<std::unique_ptr<Session>>& sessions)
{
    const Result<std::unique_ptr<Session>> more = model.open_session();
    REQUIRE(!more.ok());
    CHECK(more.status().code() == Code::no_fit);
    CHECK(more.status().message() ==
          std::to_string(sessions.size()) + " sessions are open, as many as were planned");
    const std::vector<uint32_t> ids = {1, 2, 3, 4, 5};
    Session* last = sessions.back().get();
    REQUIRE(last->feed(ids.data(), ids.size()).ok());
    const std::vector<float> expected = logits(*last);
    const size_t place = sessions.size() / 2;
    sessions[place].reset();
    auto again = open_sessions(model, 1);
    CHECK(again[0]->n_tokens() == 0);
    CHECK(!again[0]->has_logits());
    REQUIRE(again[0]->feed(ids.data(), ids.size()).ok());
    CHECK(logits(*again[0]) == expected);
    CHECK(!model.open_session().ok());
}

// Weights and texts of several MiB.
TempFile wide_model()
{
    TinyShape s;
    s.n_layers = 4;
    s.n_heads = s.n_kv_heads = 4;
    s.head_dim = s.dim = 64;
    s.ffn_dim = 2048;
    s.context = 1024;
    return TempFile("wide.gguf", make_tiny_model(s).file);
}

} // namespace

TEST_CASE("sessions: the plan of 1 to 32 is what is held, and seats are taken again")
{
    for (const std::string arch : {"llama", "gemma4", "falcon-h1"})
        for (const std::string recipe : {"exact", "h2o,slots=48", "quest,read=32", "auto"}) {
            CAPTURE(arch);
            CAPTURE(recipe);
            const TempFile file("seats.gguf", walker(arch));
            uint64_t cost = 0;
            for (uint32_t n = 1; n <= 32; n += n < 4 || !kSanitized ? 1 : 7) {
                CAPTURE(n);
                ModelOptions o = options_of(file, recipe, n);
                if (o.recipe == "auto") o.kv_memory_bytes = n * 40000;
                const Plan plan = make_plan(o).value();
                if (!plan.fits && o.recipe == "auto") continue; // too few bytes for this model
                REQUIRE(plan.fits);
                CHECK(plan.total_bytes <= plan.budget_bytes);
                if (o.kv_memory_bytes) CHECK(plan.cache_bytes() <= o.kv_memory_bytes);
                const auto model = open_model(o);
                auto sessions = open_sessions(*model, n);
                CHECK(model->ledger().used_bytes() == plan.total_bytes);
                CHECK(model->ledger().peak_bytes() == plan.total_bytes);
                if (o.recipe == "exact" && n > 1) { // with the same context and chunk
                    const uint64_t snapshots = plan.region_bytes("snapshots") / n, // fewer each
                        now = plan.session_bytes() - snapshots;
                    CHECK((cost == 0 || now == cost));
                    cost = now;
                }
                uint64_t parts = 0;
                for (const auto& s : sessions) parts += s->plan().session_bytes();
                CHECK(parts == n * plan.session_bytes());
                check_seats(*model, sessions);
                CHECK(model->ledger().used_bytes() == plan.total_bytes);
                CHECK(model->ledger().peak_bytes() == plan.total_bytes);
            }
        }
}

TEST_CASE("sessions: the smallest budget of several opens them all, and less does not")
{
    for (const std::string arch : {"llama", "gemma3", "qwen35"})
        for (const std::string recipe : {"exact", "mix,slots=48", "auto"})
            for (uint32_t n : {2u, 9u}) {
                CAPTURE(arch);
                CAPTURE(recipe);
                CAPTURE(n);
                const TempFile file("least.gguf", walker(arch));
                ModelOptions o = options_of(file, recipe, n);
                o.memory_bytes = make_plan(o).value().smallest_bytes;
                const auto model = open_model(o);
                auto sessions = open_sessions(*model, n);
                const std::vector<uint32_t> ids = few_ids(90);
                std::vector<StepInput> inputs;
                for (auto& s : sessions) inputs.push_back({s.get(), ids.data(), ids.size()});
                for (int steps = 0; !inputs.empty(); steps++) {
                    REQUIRE(steps < 2000);
                    REQUIRE(model->step(inputs.data(), inputs.size()).ok());
                    for (size_t i = inputs.size(); i-- > 0;) {
                        StepInput& in = inputs[i];
                        REQUIRE(in.status.ok());
                        in.ids += in.n_read;
                        in.n -= in.n_read;
                        if (in.n == 0) inputs.erase(inputs.begin() + long(i));
                    }
                }
                for (auto& s : sessions) CHECK(logits(*s) == logits(*sessions[0]));
                CHECK(model->ledger().peak_bytes() <= o.memory_bytes);
                o.memory_bytes--;
                CHECK(!make_plan(o).value().fits);
                CHECK(Model::open(o).status().code() == Code::no_fit);
            }
    const TempFile file("least.gguf", walker("llama"));
    CHECK(make_plan(options_of(file, "exact", 0)).status().code() == Code::usage);
    CHECK(make_plan(options_of(file, "exact", 256)).ok());
    CHECK(make_plan(options_of(file, "exact", 257)).status().code() == Code::usage);
}

TEST_CASE("sessions: a second one costs its part, not the weights, and all stay in the plan")
{
    const TempFile file = wide_model();
    ModelOptions o = options_of(file, "exact", 1);
    o.context = 512;
    o.memory_bytes = 1 << 30;
    const Plan one = make_plan(o).value();
    o.n_sessions = 8;
    const Plan eight = make_plan(o).value();
    CHECK(eight.region_bytes("weights") == one.region_bytes("weights"));
    CHECK(one.region_bytes("weights") > one.session_bytes());
    CHECK(eight.session_bytes() < one.session_bytes() + 65536);
    // Beside their parts, eight have seven more rows of activations.
    CHECK(eight.total_bytes - one.total_bytes < 7 * eight.session_bytes() + (1 << 20));
    if (kSanitized) return;

    const uint64_t before = resident_bytes();
    const auto model = open_model(o);
    const uint64_t opened = resident_bytes();
    const std::vector<uint32_t> ids = some_ids(512);
    uint64_t last = opened;
    std::vector<std::unique_ptr<Session>> sessions;
    for (uint32_t i = 0; i < o.n_sessions; i++) {
        sessions.push_back(std::move(open_sessions(*model, 1)[0]));
        REQUIRE(sessions[i]->feed(ids.data(), ids.size()).ok());
        const uint64_t now = resident_bytes(), most = eight.session_bytes() + (1 << 18);
        if (i) CHECK(now <= last + most);
        last = now;
    }
    const uint64_t held = last - std::min(last, before);
    MESSAGE("plan ", eight.total_bytes, ", resident ", held, ", of a session ",
            eight.session_bytes());
    CHECK(held <= eight.total_bytes + (1 << 20));
    CHECK(held >= eight.region_bytes("weights") + eight.region_bytes("cache") * 9 / 10);
    sessions.clear();
}

TEST_CASE("sessions: steps of several allocate nothing")
{
    for (const std::string arch : {"llama", "gemma4", "qwen35"})
        for (const std::string recipe :
             {"exact", "h2o,slots=48", "quest,read=32", "mix,slots=48,k=turbo4"}) {
            CAPTURE(arch);
            CAPTURE(recipe);
            const TempFile file("steps.gguf", walker(arch));
            const ModelOptions o = options_of(file, recipe, 5);
            if (!make_plan(o).ok()) continue; // not for heads of this size
            const auto model = open_model(o);
            auto sessions = open_sessions(*model, 5);
            const std::vector<uint32_t> ids = few_ids(100);
            std::vector<StepInput> inputs(5);
            size_t done[5] = {};
            (void)allocation_count();
            for (int steps = 0; steps < 60; steps++) {
                for (size_t i = 0; i < 5; i++)
                    inputs[i] = {sessions[i].get(), &ids[done[i]],
                                 i < 2 ? ids.size() - done[i] : size_t(1)};
                const uint64_t before = allocation_count();
                const Status status = model->step(inputs.data(), 5);
                const uint64_t after = allocation_count();
                REQUIRE(status.ok());
                if (counts_allocations()) REQUIRE(after == before);
                for (size_t i = 0; i < 5; i++) done[i] = (done[i] + inputs[i].n_read) % ids.size();
                for (auto& s : sessions)
                    if (s->n_free_tokens() < 100) s->clear();
            }
        }
}

TEST_CASE("sessions: every step reads all single tokens and the first prompt")
{
    const TempFile file("order.gguf", walker("llama"));
    ModelOptions o = options_of(file, "exact", 6);
    o.memory_bytes = make_plan(o).value().smallest_bytes; // the smallest chunk
    const auto model = open_model(o);
    auto sessions = open_sessions(*model, 6);
    const std::vector<uint32_t> ids = some_ids(120);
    const uint32_t chunk = model->plan().chunk;
    REQUIRE(chunk < 40);
    uint32_t n_steps = 0, n_short = 0;
    for (size_t done = 0; done < ids.size(); n_steps++) {
        // A prompt, two that would take the rows of single tokens, and three single tokens.
        StepInput inputs[6] = {{sessions[0].get(), &ids[done], ids.size() - done}};
        for (size_t i = 1; i < 6; i++)
            inputs[i] = {sessions[i].get(), ids.data(), size_t(i < 3 ? 3 : 1)};
        REQUIRE(model->step(inputs, 6).ok());
        for (size_t i = 3; i < 6; i++) REQUIRE(inputs[i].n_read == 1);
        CHECK(inputs[0].n_read == std::min<size_t>(chunk, ids.size() - done));
        done += inputs[0].n_read;
        n_short += uint32_t(inputs[1].n_read + inputs[2].n_read);
        CHECK(sessions[0]->n_tokens() == done);
        CHECK(sessions[0]->has_logits() == (done == ids.size()));
    }
    CHECK(n_steps == (ids.size() + chunk - 1) / chunk);
    CHECK(sessions[3]->n_tokens() == n_steps);
    CHECK(sessions[1]->n_tokens() + sessions[2]->n_tokens() == n_short);
}

TEST_CASE("sessions: a text saved in company loads alone, and the other way round")
{
    for (const std::string arch : {"llama", "gemma3", "qwen35"})
        for (const std::string recipe : {"exact", "h2o,slots=48", "auto"}) {
            CAPTURE(arch);
            CAPTURE(recipe);
            const TempFile file("moves.gguf", walker(arch));
            const Folder folder;
            ModelOptions o = options_of(file, recipe, 1);
            const bool climbs = o.recipe == "auto";
            if (climbs && arch == "qwen35") continue; // few bytes of the cache
            uint32_t n_sentences = 0;
            ModelOptions exact = o;
            exact.recipe = "exact";
            if (climbs) o.kv_memory_bytes = make_plan(exact).value().region_bytes("cache") * 6 / 10;
            o.log = [&](const std::string&) { n_sentences++; };
            const auto alone_model = open_model(o);
            o.n_sessions = 3;
            o.kv_memory_bytes *= 3;
            const auto model = open_model(o);
            auto alone = std::move(open_sessions(*alone_model, 1)[0]);
            REQUIRE(alone->plan().chunk == model->plan().chunk);
            if (climbs) CHECK(model->plan().rungs.size() > 1);
            auto sessions = open_sessions(*model, 3);
            const std::vector<uint32_t> ids = few_ids(150);
            for (uint32_t n : {20u, 70u, 140u}) {
                CAPTURE(n);
                for (Session* from : {alone.get(), sessions[1].get()}) {
                    Session* to = from == alone.get() ? sessions[2].get() : alone.get();
                    from->clear();
                    to->clear();
                    sessions[0]->clear();
                    feed(*sessions[0], ids, 0, 60);
                    const std::vector<float> other = logits(*sessions[0]);
                    feed(*from, ids, 0, n);
                    SavedState state;
                    REQUIRE(from->save(state, folder / "s").ok());
                    n_sentences = 0;
                    const Status status = to->load(folder / "s", &state);
                    REQUIRE_MESSAGE(status.ok(), status.message());
                    CHECK(to->n_tokens() == n);
                    if (n == 20) CHECK(n_sentences == 0); // codes are kept, nothing is read again
                    if (!climbs) {
                        feed(*from, ids, n, n + 10);
                        feed(*to, ids, n, n + 10);
                        check_same(*from, *to);
                    }
                    CHECK(logits(*sessions[0]) == other);
                }
            }
        }
}
