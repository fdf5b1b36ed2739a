// Conversations: pinned tokens, template tokens, and both in a saved file. Saving by the C API.
#include "tests/api/open_alone.h"
#include "tests/api/seal.h"
#include "tests/model/tiny_model.h"
#include "tests/open_session.h"
#include "tools/cache_statistics.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <unistd.h>

using namespace ks;

namespace
{

constexpr uint32_t kHead = 9, kMessage = 20, kTemplate = 3;

std::vector<uint32_t> some_ids(size_t n)
{
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < n; i++) ids.push_back((i * 53 + 51 + i * i) % 256);
    return ids;
}

// A model, and a path for saved sessions.
struct Fixture {
    TempFile file;
    std::string saved;
    std::vector<uint32_t> ids = some_ids(400);
    std::vector<uint8_t> template_mask;

    explicit Fixture(const char* arch = "llama", uint32_t trained = 512)
        : file(std::string(arch) + "-turns.gguf", make(arch, trained)),
          saved(file.path() + ".session")
    {
        for (uint32_t p = 0; p < ids.size(); p++) template_mask.push_back(p % kMessage < kTemplate);
    }
    ~Fixture() { unlink(saved.c_str()); }
    static Bytes make(const char* arch, uint32_t trained)
    {
        TinyShape shape;
        shape.context = trained;
        shape.arch = arch;
        shape.n_layers = shape.arch == "gemma3" ? 6 : 2;
        return make_tiny_model(shape).file;
    }
    std::unique_ptr<Session> open(const std::string& recipe, int64_t context = 400) const
    {
        ModelOptions o;
        o.model_path = file.path();
        o.device = "cpu"; // its sums have a fixed order
        o.n_threads = 2;
        o.context = context;
        o.recipe = recipe;
        Result<std::unique_ptr<Session>> result = open_session(o);
        REQUIRE_MESSAGE(result.ok(), result.status().message());
        return std::move(result.value());
    }
    // In chunks of 20 tokens, aligned to 20, so stops between do not change the chunks.
    void feed(Session& s, uint32_t end) const
    {
        while (s.n_tokens() < end) {
            const uint32_t at = s.n_tokens(), n = std::min(20 - at % 20, end - at);
            REQUIRE(s.feed(&ids[at], n, &template_mask[at]).ok());
        }
    }
};

// For each token, the share of heads in evicting layers that hold it.
std::vector<double> held(const Session& s)
{
    std::vector<uint32_t> heads(s.n_tokens());
    const uint32_t n = count_holders(s.cache(), s.n_tokens(), 0, s.n_tokens(), heads.data());
    std::vector<double> shares;
    for (uint32_t h : heads) shares.push_back(double(h) / n);
    return shares;
}

void check_same(const Session& a, const Session& b)
{
    CHECK(a.n_tokens() == b.n_tokens());
    CHECK(std::equal(a.logits(), a.logits() + a.model().config().n_vocab, b.logits()));
    CHECK(held(a) == held(b));
    for (uint32_t p = 0; p < a.n_tokens(); p++) CHECK(a.token(p) == b.token(p));
}

const char* const kRecipes[] = {"h2o,slots=96,delta=4", "mix,slots=96,delta=4,victims=merge",
                                "ada,slots=96,delta=4", "subgen,slots=96", "sink,slots=96"};

} // namespace

TEST_CASE(
    "turns: pinned and template tokens go on from a file, after clear and after rereading the text")
{
    for (const char* arch : {"llama", "gemma3"}) {
        const Fixture f(arch);
        for (const char* recipe : kRecipes) {
            CAPTURE(arch);
            CAPTURE(std::string(recipe));
            const bool weighs_template = !strstr(recipe, "subgen") && !strstr(recipe, "sink");
            std::unique_ptr<Session> whole = f.open(recipe), resumed = f.open(recipe);
            f.feed(*whole, 40);
            REQUIRE(whole->pin(kHead).ok());
            f.feed(*whole, 200);
            const SavedState none;
            REQUIRE(whole->save(none, f.saved).ok());
            SavedState with;
            const Status status = resumed->load(f.saved, &with);
            REQUIRE_MESSAGE(status.ok(), status.message());
            CHECK(resumed->cache().n_pinned() == kHead);
            f.feed(*whole, 380);
            f.feed(*resumed, 380);
            check_same(*whole, *resumed);
            std::vector<double> shares = held(*whole);
            for (uint32_t p = 0; p < kHead; p++) CHECK(shares[p] == 1);
            for (uint32_t p = 340; p < 343 && weighs_template; p++) CHECK(shares[p] == 1);
            for (uint32_t p = 40; p < 43 && weighs_template; p++) CHECK(shares[p] == 0);

            // Rewinding beyond what is held reads the text again, with its template marks.
            std::unique_ptr<Session> fresh = f.open(recipe);
            REQUIRE(fresh->pin(kHead).ok());
            REQUIRE(fresh->feed(f.ids.data(), 300, f.template_mask.data()).ok());
            REQUIRE(resumed->rewind(300).ok());
            check_same(*fresh, *resumed);
            resumed->clear();
            CHECK(resumed->feed(f.ids.data(), 300, f.template_mask.data()).ok());
            check_same(*fresh, *resumed);

            const Status late = resumed->pin(kHead + 1);
            CHECK(late.code() == Code::usage);
            CHECK(late.message().find("300") != std::string::npos);
            CHECK(resumed->pin(kHead).ok()); // already pinned
        }
    }
}

TEST_CASE("turns: with slots for all tokens pinning changes nothing")
{
    const Fixture f;
    for (const char* recipe : {"exact", "mix,slots=400", "sink,slots=400", "subgen,slots=400",
                               "ada,slots=400,victims=merge"}) {
        std::unique_ptr<Session> plain = f.open("exact"), turns = f.open(recipe);
        CHECK(turns->pin(50).ok());
        f.feed(*turns, 390);
        REQUIRE(plain->feed(f.ids.data(), 390).ok());
        CAPTURE(std::string(recipe));
        CHECK(std::equal(plain->logits(), plain->logits() + plain->model().config().n_vocab,
                         turns->logits()));
        CHECK(turns->token(41) == f.ids[41]);
    }
}

TEST_CASE("turns: pinned tokens equal as many sinks, also beyond the trained distance")
{
    for (const char* arch : {"llama", "gemma3"}) {
        const Fixture f(arch, 100);
        const char* const pairs[][2] = {
            {"mix,slots=96", "mix,slots=96,sink=9"},
            {"window,slots=96", "sink,slots=96,sink=9"},
            {"h2o,slots=96,sink=0", "h2o,slots=96,sink=9"},
            {"sink,slots=96,positions=offset", "sink,slots=96,positions=offset,sink=9"},
            {"window,slots=96,positions=offset", "sink,slots=96,positions=offset,sink=9"}};
        for (const auto& pair : pairs) {
            std::unique_ptr<Session> pinned = f.open(pair[0], 100), sinks = f.open(pair[1], 100),
                                     neither = f.open(pair[0], 100);
            REQUIRE(pinned->pin(kHead).ok());
            for (Session* s : {pinned.get(), sinks.get(), neither.get()})
                REQUIRE(s->feed(f.ids.data(), 390).ok());
            CAPTURE(arch);
            CAPTURE(pair[0]);
            check_same(*pinned, *sinks);
            CHECK_FALSE(std::equal(pinned->logits(),
                                   pinned->logits() + pinned->model().config().n_vocab,
                                   neither->logits()));
        }
    }
}

TEST_CASE("turns: a file's number of pinned tokens is accepted only if they are held")
{
    const Fixture f;
    for (const char* recipe : kRecipes) {
        for (uint32_t pinned :
             {5u, 0x00abcdefu}) { // the second is limited to a quarter of the slots
            std::unique_ptr<Session> s = f.open(recipe);
            REQUIRE(s->pin(pinned).ok());
            f.feed(*s, 200);
            REQUIRE(s->save({}, f.saved).ok());
            const std::string good = read_all(f.saved);
            const uint64_t before[] = {s->evicted(), s->merged()};
            const size_t at =
                good.find(std::string(reinterpret_cast<const char*>(before), sizeof before)) +
                sizeof before;
            REQUIRE(at < good.size());
            REQUIRE(memcmp(&good[at], &pinned, 4) == 0);
            for (uint32_t value : {0u, 5u, 23u, 24u, 25u, 0x7fffffffu, 0xffffffffu}) {
                std::string bad = good;
                memcpy(&bad[at], &value, 4);
                seal(bad);
                std::ofstream(f.saved, std::ios::binary | std::ios::trunc)
                    .write(bad.data(), std::streamsize(bad.size()));
                std::unique_ptr<Session> other = f.open(recipe);
                SavedState with;
                const Status status = other->load(f.saved, &with);
                CAPTURE(std::string(recipe));
                CAPTURE(pinned);
                CAPTURE(value);
                // The table of an estimator reveals the pinned tokens; a ring does not.
                const bool same = std::min(std::max(value, 4u), 24u) == std::min(pinned, 24u),
                           less = value <= pinned;
                const bool fine =
                    same || strstr(recipe, "sink") || (less && !strstr(recipe, "subgen"));
                CHECK(status.code() == (fine ? Code::ok : Code::invalid));
                if (!status.ok()) continue;
                f.feed(*other, 380);
                for (uint32_t p = 0; p < std::max(4u, std::min(value, 24u)); p++)
                    CHECK(held(*other)[p] == 1);
            }
        }
    }
}

static ks_model_options c_options(const Fixture& f)
{
    ks_model_options options = {};
    options.struct_size = sizeof options;
    options.model_path = f.file.path().c_str();
    options.context = 128;
    options.recipe = "mix,slots=48";
    options.memory_bytes = 64 << 20;
    return options;
}

static ks_sampling random_sampling()
{
    ks_sampling sampling = {};
    sampling.struct_size = sizeof sampling;
    sampling.temperature = 1.5f;
    sampling.repeat_penalty = 1.3f;
    sampling.repeat_last_n = 16;
    sampling.seed = 5;
    return sampling;
}

static std::vector<uint32_t> draw(ks_session* s, int n)
{
    std::vector<uint32_t> ids(size_t(n), 0);
    for (uint32_t& id : ids) {
        REQUIRE(ks_sample(s, &id) == KS_OK);
        REQUIRE(ks_feed(s, &id, 1) == KS_OK);
    }
    return ids;
}

TEST_CASE("C API: a session in a file goes on as an uninterrupted one, random draws too")
{
    const Fixture f;
    ks_model_options options = c_options(f);
    const ks_sampling sampling = random_sampling();
    char error[400] = "";
    ks_session *whole = nullptr, *resumed = nullptr;
    for (ks_session** s : {&whole, &resumed}) {
        REQUIRE_MESSAGE(open_alone(&options, s, error, sizeof error) == KS_OK, error);
        REQUIRE(ks_set_sampling(*s, &sampling) == KS_OK);
    }
    REQUIRE(ks_feed(whole, f.ids.data(), 70) == KS_OK);
    draw(whole, 20);
    REQUIRE(ks_save(whole, f.saved.c_str()) == KS_OK);
    REQUIRE(ks_feed(resumed, f.ids.data() + 100, 9) == KS_OK);
    REQUIRE_MESSAGE(ks_load(resumed, f.saved.c_str()) == KS_OK, ks_error(resumed));
    CHECK(draw(whole, 30) == draw(resumed, 30));
    ks_stats a = {}, b = {};
    a.struct_size = b.struct_size = sizeof a;
    ks_get_stats(whole, &a);
    ks_get_stats(resumed, &b);
    CHECK(a.n_tokens == 120);
    CHECK(memcmp(&a, &b, sizeof a) == 0);

    CHECK(ks_load(resumed, (f.saved + ".none").c_str()) == KS_INVALID);
    CHECK(std::string(ks_error(resumed)).find(".session.none") != std::string::npos);
    CHECK(ks_save(resumed, "/dev/full") == KS_IO);
    CHECK(ks_save(resumed, nullptr) == KS_USAGE);
    CHECK(ks_load(resumed, nullptr) == KS_USAGE);
    CHECK(draw(whole, 5) == draw(resumed, 5)); // unchanged
    options.recipe = "h2o,slots=48";
    ks_session* other = nullptr;
    REQUIRE(open_alone(&options, &other, error, sizeof error) == KS_OK);
    CHECK(ks_load(other, f.saved.c_str()) == KS_UNSUPPORTED);
    uint32_t id = 0;
    CHECK(ks_sample(other, &id) == KS_USAGE);
    REQUIRE(ks_rewind(whole, 100) == KS_OK); // the logits belong to another token
    REQUIRE(ks_rewind(whole, 99) == KS_OK);
    CHECK(ks_sample(whole, &id) == KS_USAGE);
    for (ks_session* s : {whole, resumed, other}) ks_session_close(s);
}
