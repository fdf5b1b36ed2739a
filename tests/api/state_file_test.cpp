// Saved sessions of models with recurrent layers: snapshots of the state.
#include "tests/api/seal.h"
#include "tests/api/session_file_bed.h"
#include "tests/model/state_model.h"

#include <cstring>
#include <unistd.h>

using namespace ks;

namespace
{

// Turns with prompts of 40 tokens and answers of 10.
void feed_turns(Session& s, const std::vector<uint32_t>& ids, size_t n_turns)
{
    for (size_t turn = 0; turn < n_turns; turn++) {
        feed(s, ids, 50 * turn, 50 * turn + 40);
        feed(s, ids, 50 * turn + 40, 50 * turn + 50, true);
    }
}

// A session whose last message of the log is in `said`.
std::unique_ptr<Session> open_logged(const std::string& path, std::string& said,
                                     const char* device = "cpu")
{
    ModelOptions o;
    o.model_path = path;
    o.device = device;
    o.context = 400;
    o.recipe = "exact";
    o.log = [&](const std::string& sentence) { said = sentence; };
    auto opened = open_session(o);
    REQUIRE_MESSAGE(opened.ok(), opened.status().message());
    return std::move(opened.value());
}

} // namespace

TEST_CASE("state: snapshots are saved with a session")
{
    const std::vector<uint32_t> ids = some_ids(300), others = some_ids(40, 7);
    for (const char* arch : {"lfm2", "qwen35", "falcon-h1"})
        for (const char* device : {"cpu", "reference"}) {
            CAPTURE(arch);
            TempFile file(std::string(arch) + "-snapshots.gguf", make_state_model(arch));
            const std::string saved = file.path() + ".session";
            std::string said;
            auto first = open_logged(file.path(), said, device),
                 other = open_logged(file.path(), said, device),
                 second = open_logged(file.path(), said, device);
            feed_turns(*first, ids, 6);
            REQUIRE(first->save({}, saved).ok());
            feed(*second, others, 0, 30); // forgotten, like their snapshot
            feed(*second, others, 30, 40);
            SavedState state;
            const Status loaded = second->load(saved, &state);
            REQUIRE_MESSAGE(loaded.ok(), loaded.message());
            const struct {
                uint32_t to;
                const char* read;
            } steps[] = {{250, ""}, {120, "from 100 on"}, {50, ""}, {40, "the text"}};
            for (const auto& step : steps) {
                CAPTURE(step.to);
                said.clear();
                CHECK(second->can_rewind(step.to) == (step.to != 40));
                REQUIRE(second->rewind(step.to).ok());
                CHECK((*step.read ? said.find(step.read) != std::string::npos : said.empty()));
                other->clear();
                feed(*other, ids, 0, step.to);
                feed(*other, others, 0, 40);
                feed(*second, others, 0, 40);
                CHECK(logits(*second) == logits(*other));
                REQUIRE(second->rewind(step.to).ok());
            }
            unlink(saved.c_str());
        }
}

// A session file with snapshots after 100 and 108 of 109 tokens, and one without.
struct Saved {
    TempFile file{"damaged.gguf", make_state_model("qwen35")};
    const std::string path = file.path() + ".session";
    std::string said, good, plain;
    std::unique_ptr<Session> session = open_logged(file.path(), said);
    size_t at, each; // where the number of snapshots is, and bytes of each

    Saved()
    {
        const std::vector<uint32_t> ids = some_ids(120);
        feed(*session, ids, 0, 100);
        REQUIRE(session->save({}, path).ok());
        plain = read_all(path);
        feed(*session, ids, 100, 110);
        REQUIRE(session->rewind(108).ok());
        feed(*session, ids, 108, 109);
        REQUIRE(session->save({}, path).ok());
        good = read_all(path);
        const RecurrentShape shape = recurrent_shape(session->model().config());
        each = 4 + 4ull * shape.n_layers *
                       (shape.conv_rows * shape.conv_cols + shape.rows * shape.cols);
        at = good.size() - 8 - 4 - 2 * each; // less the zeros before the checksum
        while (word(at) != 2 || word(at + 4) != 100 || word(at + 4 + each) != 108) at--;
        REQUIRE(at + 16 > good.size() - 8 - 2 * each);
    }
    ~Saved() { unlink(path.c_str()); }
    uint32_t word(size_t i) const
    {
        uint32_t found;
        memcpy(&found, &good[i], 4);
        return found;
    }
    Status load(std::string bytes) const
    {
        SavedState state;
        seal(bytes);
        write_all(path, bytes);
        return session->load(path, &state);
    }
};

TEST_CASE("state: damaged snapshots are refused")
{
    const Saved saved;
    const size_t at = saved.at, first = at + 4, second = first + saved.each;
    const struct {
        size_t at;
        uint32_t value;
    } damages[] = {{at, 3},       {at, ~0u},     {at, 1u << 31}, {at, 1},
                   {first, 0},    {first, 110},  {first, ~0u},   {first, 108},
                   {second, 100}, {second, 110}, {second, 0}};
    const std::vector<float> before = logits(*saved.session);
    for (const auto& damage : damages) {
        CAPTURE(damage.at - at);
        CAPTURE(damage.value);
        std::string bad = saved.good;
        memcpy(&bad[damage.at], &damage.value, 4);
        check_refused(saved.load(bad), {Code::invalid}, "is damaged: it has ");
        CHECK(logits(*saved.session) == before);
    }
    for (size_t n = saved.plain.size(); n < saved.good.size(); n += 8) {
        if (n - 8 >= at && n - 8 < at + 8) continue; // a file without snapshots
        check_refused(saved.load(saved.good.substr(0, n)), {Code::invalid}, "is damaged: it has ");
    }
    CHECK(saved.session->can_rewind(108));
    CHECK(saved.load(saved.good).ok());
}

TEST_CASE("state: files without snapshots are loaded")
{
    const Saved saved;
    REQUIRE(saved.load(saved.plain).ok());
    CHECK(saved.session->n_tokens() == 100);
    CHECK_FALSE(saved.session->can_rewind(99));
    REQUIRE(saved.load(saved.good).ok());
    CHECK(saved.session->n_tokens() == 109);
    CHECK(saved.session->can_rewind(108));
}
