// Any bytes as a saved session, with or without a valid header and checksum. Either it is refused
// and the session continues unchanged, or it is loaded and continuing from it stays in bounds.
#include "tests/api/seal.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/small_model.h"
#include "tests/open_session.h"

#include <algorithm>
#include <iterator>

using namespace ks;

namespace
{

const char* const kRecipes[] = {
    "exact",
    "sink,slots=12,recent=4,sink=2",
    "h2o,slots=12,victims=merge,delta=3,recent=4,sink=2",
    "ada,slots=16,delta=2,recent=4,sink=2",
    "subgen,slots=20,sink=2,recent=4",
    "mix,slots=12,k=turbo4,v=q4,recent=4,sink=2",
    "kivi",
    "h2o,slots=24,recent=4,sink=2,select=tokenselect,read=20,reuse=0.3"};
constexpr size_t kRecipesCount = std::size(kRecipes);
constexpr size_t kKivi = 6;                // holds every token, and codes them in groups of 32
constexpr uint8_t kRecurrent = 64;         // bit of the choice of a session with recurrent layers
constexpr size_t kHeaderBytes = 8 + 4 + 8; // magic, version, fingerprint of the model
constexpr uint32_t kBefore[] = {0, 3, 1}, kNext = 4;

// A session and its expected continuation.
struct Bed {
    std::unique_ptr<Session> session;
    std::string header;
    std::vector<float> expected;

    std::vector<float> logits() const
    {
        return {session->logits(), session->logits() + session->model().config().n_vocab};
    }
    void begin()
    {
        session->clear();
        KS_CHECK(session->feed(kBefore, 3).ok(), "feed");
    }
    std::string saved(size_t n_tokens)
    {
        TempFile to("fuzz.session", "");
        session->clear();
        for (uint32_t i = 0; i < n_tokens; i++) {
            const uint32_t ids[] = {i * i % 6, 3};
            KS_CHECK(session->feed(ids, 1).ok(), "feed");
            // Snapshots of a state are taken before several tokens.
            if (i % 4 == 3 && session->model().config().recurrent.kernel)
                KS_CHECK(session->feed(ids, 2).ok(), "feed");
        }
        SavedState with;
        with.sampler.recent = {1, 2};
        with.note = "note";
        const Status status = session->save(with, to.path());
        KS_CHECK(status.ok(), "%s", status.message().c_str());
        return read_all(to.path());
    }
};

std::vector<Bed>& beds()
{
    static std::vector<Bed> all = [] {
        TempFile model("fuzz-session.gguf", smallest_model("llama").bytes()),
            recurrent("fuzz-recurrent.gguf", smallest_mixed("lfm2").bytes());
        std::vector<Bed> made(kRecipesCount + 1);
        for (size_t i = 0; i < made.size(); i++) {
            ModelOptions options;
            options.model_path = i < kRecipesCount ? model.path() : recurrent.path();
            options.device = "cpu";
            options.n_threads = 1;
            options.recipe = kRecipes[i % kRecipesCount];
            options.context = i == kKivi ? 96 : 24;
            options.memory_bytes = 64 << 20;
            Result<std::unique_ptr<Session>> opened = open_session(options);
            KS_CHECK(opened.ok(), "%s", opened.status().message().c_str());
            made[i].session = std::move(opened.value());
            made[i].header = made[i].saved(0).substr(0, kHeaderBytes);
            made[i].begin();
            KS_CHECK(made[i].session->feed(&kNext, 1).ok(), "feed");
            made[i].expected = made[i].logits();
        }
        return made;
    }();
    return all;
}

void go_on(Session& session)
{
    for (uint32_t id = 0; id < 20; id++) {
        const uint32_t some[] = {id % 6, 1, 2};
        const size_t n = std::min<uint64_t>(session.n_free_tokens(), id == 7 ? 3 : 1);
        KS_CHECK(session.feed(some, n).ok(), "feed after %u tokens", session.n_tokens());
    }
    (void)session.rewind(session.n_tokens() - session.n_tokens() / 3).ok();
    KS_CHECK(session.n_free_tokens() == 0 || session.feed(&kNext, 1).ok(), "feed after %u tokens",
             session.n_tokens());
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    static MemoryFile file;
    Input in = input_of(data, size);
    const uint8_t choice = in.byte();
    Bed& bed = beds()[choice & kRecurrent ? kRecipesCount : choice % kRecipesCount];
    const Deadline deadline;
    std::string bytes(in.rest);
    if (choice < 128) {
        bytes = bed.header + bytes;
        bytes.resize((bytes.size() + 7) / 8 * 8 + 8);
        seal(bytes);
    }
    file.set(bytes);
    bed.begin();
    SavedState with;
    with.note = "untouched";
    const Status status = bed.session->load(file.path(), &with);
    if (status.ok()) {
        g_accepted++;
        KS_CHECK(with.note.size() <= SavedState::kMaxNoteBytes, "%zu bytes", with.note.size());
        go_on(*bed.session);
        return 0;
    }
    check_sentence(status);
    KS_CHECK(with.note == "untouched" && bed.session->n_tokens() == 3, "%u tokens",
             bed.session->n_tokens());
    KS_CHECK(bed.session->feed(&kNext, 1).ok() && bed.logits() == bed.expected,
             "refused, and something has changed");
    return 0;
}

std::vector<std::string> fuzz_seeds()
{
    std::vector<std::string> seeds;
    for (size_t i = 0; i < kRecipesCount; i++)
        for (size_t n_tokens : {size_t(9), i == kKivi ? size_t(70) : size_t(30)}) {
            if (i == 0 && n_tokens > 24) continue;
            const std::string whole = beds()[i].saved(n_tokens);
            seeds.push_back(char(i) + whole.substr(kHeaderBytes, whole.size() - kHeaderBytes - 8));
            if (n_tokens == 9 && i < 2) seeds.push_back(char(128 + i) + whole);
        }
    for (size_t n_tokens : {3, 9}) {
        const std::string whole = beds()[kRecipesCount].saved(n_tokens);
        seeds.push_back(char(kRecurrent) +
                        whole.substr(kHeaderBytes, whole.size() - kHeaderBytes - 8));
        if (n_tokens == 9) seeds.push_back(char(128 + kRecurrent) + whole);
    }
    return seeds;
}
