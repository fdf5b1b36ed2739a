// Sessions: the plan and the ledger, chunks, rewinding, interruption, threads.
#include "tests/api/open_alone.h"
#include "tests/devices.h"
#include "tests/model/tiny_model.h"
#include "tests/open_session.h"
#include "tools/scores.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <sys/mman.h>

using namespace ks;

static std::vector<uint32_t> some_ids(size_t n, uint32_t salt = 3)
{
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < n; i++) ids.push_back((i * 53 + salt * 17 + i * i) % 256);
    return ids;
}

static TinyShape shape_of(const char* arch)
{
    TinyShape shape;
    shape.arch = arch;
    shape.n_layers = shape.arch == "gemma3" ? 6 : 2;
    return shape;
}

struct Opened {
    TempFile file;
    ModelOptions options;
    std::unique_ptr<Session> session;

    Opened(const char* arch, const char* device, int64_t context, uint64_t memory = 0,
           const char* recipe = "auto")
        : file(std::string(arch) + ".gguf", make_tiny_model(shape_of(arch)).file)
    {
        options.model_path = file.path();
        options.device = device;
        options.context = context;
        options.memory_bytes = memory;
        options.recipe = recipe;
        options.n_threads = 2;
        session = open();
    }
    std::unique_ptr<Session> open() const
    {
        Result<std::unique_ptr<Session>> result = open_session(options);
        REQUIRE_MESSAGE(result.ok(), result.status().message());
        return std::move(result.value());
    }
    std::vector<float> logits() const
    {
        return std::vector<float>(session->logits(),
                                  session->logits() + session->model().config().n_vocab);
    }
};

TEST_CASE("session: the plan equals the ledger, at every budget, device and prompt length")
{
    for (const DeviceInfo& device : tested_devices()) {
        for (const char* arch : {"llama", "gemma3"}) {
            Opened all(arch, device.id.c_str(), -1, 64 << 20);
            uint64_t smallest = all.session->plan().smallest_bytes;
            for (uint64_t extra : {0, 1, 4096, 50000, 400000}) {
                ModelOptions options = all.options;
                options.memory_bytes = smallest + extra;
                Result<Plan> plan = make_plan(options);
                REQUIRE(plan.ok());
                Result<std::unique_ptr<Session>> session = open_session(options);
                REQUIRE(session.ok());
                Session& s = *session.value();
                CHECK(s.model().ledger().peak_bytes() == plan.value().total_bytes);
                CHECK(s.model().ledger().peak_bytes() <= options.memory_bytes);
                std::vector<uint32_t> ids = some_ids(s.plan().context);
                CHECK(s.feed(ids.data(), ids.size()).ok());
                CHECK(s.model().ledger().peak_bytes() == plan.value().total_bytes);
            }
            ModelOptions options = all.options;
            options.memory_bytes = smallest - 1;
            Result<std::unique_ptr<Session>> refused = open_session(options);
            REQUIRE_FALSE(refused.ok());
            CHECK(refused.status().code() == Code::no_fit);
        }
    }
}

// Relative distance of whole vectors.
static double distance(const std::vector<float>& a, const std::vector<float>& b)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < a.size(); i++) {
        error += std::pow(double(a[i]) - double(b[i]), 2);
        size += std::pow(double(b[i]), 2);
    }
    return std::sqrt(error / size);
}

TEST_CASE("session: prompt and decode give the same logits in any chunks, bit for bit if sums keep "
          "their order")
{
    for (const DeviceInfo& device : tested_devices()) {
        for (const char* arch : {"llama", "gemma3"}) {
            // A different last bit can round to another f16 value, a thousand times as different.
            // So the cache is f32 here.
            const char *id = device.id.c_str(),
                       *recipe = sums_keep_order(id) ? "auto" : "exact,k=f32,v=f32";
            Opened whole(arch, id, 400, 0, recipe), single(arch, id, 400, 0, recipe),
                mixed(arch, id, 400, 0, recipe);
            std::vector<uint32_t> ids = some_ids(390);
            REQUIRE(whole.session->feed(ids.data(), ids.size()).ok());
            for (uint32_t one : ids) REQUIRE(single.session->feed(&one, 1).ok());
            for (size_t at = 0, n = 1; at < ids.size();
                 at += n, n = std::min(n % 37 + 5, ids.size() - at))
                REQUIRE(mixed.session->feed(&ids[at], n).ok());
            CAPTURE(device.id);
            CAPTURE(arch);
            CHECK(whole.session->n_tokens() == 390);
            for (const Opened* other : {&single, &mixed}) {
                const double difference = distance(whole.logits(), other->logits());
                if (sums_keep_order(device.id)) CHECK(difference == 0);
                CAPTURE(difference);
                CHECK(difference < 1e-5);
            }
        }
    }
}

TEST_CASE("session: score gives the log-probabilities of the next tokens, in one part or two")
{
    Opened o("llama", "reference", 64);
    std::vector<uint32_t> ids = some_ids(30);
    std::vector<double> a(29), b(29);
    std::vector<uint32_t> top(30), top_again(30);
    REQUIRE(feed_scored(*o.session, ids.data(), 30, ids.data() + 1, 29, a.data(), top.data()).ok());
    o.session->clear();
    REQUIRE(feed_scored(*o.session, ids.data(), 11, ids.data() + 1, 11, b.data(), top_again.data())
                .ok());
    REQUIRE(feed_scored(*o.session, ids.data() + 11, 19, ids.data() + 12, 18, b.data() + 11,
                        top_again.data() + 11)
                .ok());
    CHECK(a == b);
    CHECK(top == top_again);
    double sum = 0; // the probabilities after the last token sum to one
    std::vector<float> logits = o.logits();
    double largest = *std::max_element(logits.begin(), logits.end());
    for (float l : logits) sum += std::exp(l - largest);
    CHECK(top[29] == uint32_t(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    CHECK(sum >= 1.0);
    for (double p : a) CHECK(p < 0.0);
}

TEST_CASE("session: rewinding forgets exactly what came after, also beyond what a ring holds")
{
    for (const char* arch : {"llama", "gemma3"}) {
        Opened o(arch, "reference", 400), fresh(arch, "reference", 400);
        std::vector<uint32_t> ids = some_ids(300), other = some_ids(20, 9);
        for (uint32_t keep : {290u, 40u, 0u}) {
            o.session->clear();
            fresh.session->clear();
            for (size_t at = 0; at < ids.size(); at += 30)
                REQUIRE(o.session->feed(&ids[at], 30).ok());
            REQUIRE(o.session->rewind(keep).ok());
            CHECK(o.session->n_tokens() == keep);
            REQUIRE(o.session->feed(other.data(), other.size()).ok());
            if (keep) REQUIRE(fresh.session->feed(ids.data(), keep).ok());
            REQUIRE(fresh.session->feed(other.data(), other.size()).ok());
            CAPTURE(arch);
            CAPTURE(keep);
            CHECK(o.logits() == fresh.logits());
        }
    }
}

TEST_CASE("session: tokens beyond the context are refused together, and the session goes on")
{
    Opened o("llama", "", 32, 0, "exact");
    std::vector<uint32_t> ids = some_ids(40);
    CHECK(o.session->feed(ids.data(), 30).ok());
    std::vector<float> before = o.logits();
    Status full = o.session->feed(ids.data(), 3);
    CHECK(full.code() == Code::no_fit);
    CHECK(o.session->n_tokens() == 30);
    CHECK(o.logits() == before);
    CHECK(o.session->feed(ids.data(), 2).ok());
    uint32_t beyond = 258;
    o.session->clear();
    CHECK(o.session->feed(&beyond, 1).code() == Code::usage);
}

TEST_CASE("session: cancel and progress interrupt, and reading can go on")
{
    Opened o("llama", "", 256);
    std::vector<uint32_t> ids = some_ids(100);
    o.session->cancel();
    CHECK(o.session->feed(ids.data(), ids.size()).code() == Code::interrupted);
    CHECK(o.session->n_tokens() == 0);
    o.session->clear_cancel();
    CHECK(o.session->feed(ids.data(), ids.size()).ok());

    ModelOptions options = o.options;
    options.progress = [](const char* stage, uint64_t, uint64_t) {
        return strcmp(stage, "loading weights") != 0;
    };
    Result<std::unique_ptr<Session>> session = open_session(options);
    REQUIRE_FALSE(session.ok());
    CHECK(session.status().code() == Code::interrupted);
}

TEST_CASE(
    "session: where a chunk selects by its mean query, the end of a prompt is in small chunks")
{
    const std::pair<const char*, std::vector<uint64_t>> cases[] = {
        {"tokenselect,chunk=128", {128, 256, 268, 284, 300}},
        {"infllm,chunk=8", {8, 16, 18, 26, 34, 42, 50}},
        {"tokenselect,chunk=128", {16, 20}},
        {"quest,chunk=128", {128, 256, 300}},
        {"window,chunk=128", {128, 256, 300}},
    };
    for (const auto& row : cases) {
        const char* recipe = row.first;
        const std::vector<uint64_t>& expected = row.second;
        Opened o("llama", "", 512, 0, recipe);
        std::vector<uint64_t> ends;
        o.options.progress = [&](const char* stage, uint64_t done, uint64_t) {
            if (strcmp(stage, "reading prompt") == 0) ends.push_back(done);
            return true;
        };
        std::unique_ptr<Session> session = o.open();
        std::vector<uint32_t> ids = some_ids(expected.back());
        REQUIRE(session->feed(ids.data(), ids.size()).ok());
        CAPTURE(recipe);
        CHECK(ends == expected);
    }
}

TEST_CASE("session: logits do not depend on the number of threads or on another session")
{
    std::vector<uint32_t> ids = some_ids(90);
    std::vector<float> first;
    Opened o("gemma3", "", 128);
    for (int threads : {1, 2, 3}) {
        o.options.n_threads = threads;
        std::unique_ptr<Session> a = o.open(), b = o.open();
        REQUIRE(a->feed(ids.data(), 50).ok());
        REQUIRE(b->feed(ids.data() + 20, 60).ok());
        REQUIRE(a->feed(ids.data() + 50, 40).ok());
        std::vector<float> logits(a->logits(), a->logits() + a->model().config().n_vocab);
        if (first.empty()) first = logits;
        CHECK(logits == first);
    }
}

TEST_CASE("C API: a suppressed token is never sampled")
{
    uint32_t best = 0;
    for (bool suppressed : {false, true}) {
        TinyShape shape;
        if (suppressed) shape.suppressed = {int32_t(best), -1, 100000};
        TempFile file("suppressed.gguf", make_tiny_model(shape).file);
        ks_model_options options = {};
        options.struct_size = sizeof options;
        options.model_path = file.path().c_str();
        options.memory_bytes = 64 << 20;
        char error[400] = "";
        ks_session* session = nullptr;
        REQUIRE_MESSAGE(open_alone(&options, &session, error, sizeof error) == KS_OK, error);
        const uint32_t ids[] = {257, 72, 101};
        REQUIRE(ks_feed(session, ids, 3) == KS_OK);
        uint32_t id = 0;
        REQUIRE(ks_sample(session, &id) == KS_OK);
        CHECK((!suppressed || id != best));
        CHECK(std::isinf(ks_logits(session)[best]) == suppressed);
        best = id;
        ks_session_close(session);
    }
}

TEST_CASE("C API: plan, open in the caller's memory, read, sample, rewind")
{
    Opened o("llama", "", 128);
    ks_model_options options = {};
    options.struct_size = sizeof options;
    options.model_path = o.options.model_path.c_str();
    options.device = "cpu";
    options.context = 128;
    char error[400] = "";
    ks_stats stats = {};
    stats.struct_size = sizeof stats;
    REQUIRE(ks_plan(&options, &stats, error, sizeof error) == KS_OK);
    CHECK(stats.fits == 1);
    CHECK(stats.context == 128);

    std::vector<uint8_t> memory(stats.plan_bytes + 3 * 4096, 0xee);
    options.memory = memory.data();
    options.memory_size = memory.size();
    ks_session* session = nullptr;
    REQUIRE_MESSAGE(open_alone(&options, &session, error, sizeof error) == KS_OK, error);
    uint32_t ids[64];
    size_t n = ks_tokenize(ks_session_model(session), "Hello there", 11, 0, ids, 64);
    REQUIRE(n == 12); // one token per byte, and the BOS
    CHECK(ids[0] == 257);
    CHECK(ks_is_end(ks_session_model(session), 256) == 1);
    CHECK(ks_is_end(ks_session_model(session), ids[3]) == 0);
    char piece[64];
    REQUIRE(ks_piece(ks_session_model(session), ids[1], piece, sizeof piece) == 1);
    CHECK(piece[0] == 'H');

    uint32_t id = 0;
    CHECK(ks_sample(session, &id) == KS_USAGE);
    REQUIRE(ks_feed(session, ids, n) == KS_OK);
    REQUIRE(ks_sample(session, &id) == KS_OK);
    const float* logits = ks_logits(session);
    CHECK(id == uint32_t(std::max_element(logits, logits + 258) - logits));
    REQUIRE(ks_feed(session, &id, 1) == KS_OK);
    ks_get_stats(session, &stats);
    CHECK(stats.n_tokens == n + 1);
    CHECK(stats.peak_bytes == stats.plan_bytes);
    CHECK(ks_rewind(session, 99) == KS_USAGE);
    CHECK(std::string(ks_error(session)).find("99") != std::string::npos);
    CHECK(ks_rewind(session, 0) == KS_OK);
    ks_session_close(session);

    options.memory_size = size_t(stats.plan_bytes / 2);
    CHECK(open_alone(&options, &session, error, sizeof error) == KS_NO_FIT);
    CHECK(session == nullptr);
    options.struct_size = 3;
    CHECK(open_alone(&options, &session, error, sizeof error) == KS_USAGE);
    options.struct_size = sizeof options;
    options.model_path = "/no/such/file.gguf";
    CHECK(open_alone(&options, &session, error, sizeof error) == KS_INVALID);
    CHECK(std::string(error).find("file.gguf") != std::string::npos);
}
