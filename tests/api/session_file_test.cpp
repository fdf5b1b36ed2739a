#include "runtime/api/session.h"
#include "runtime/base/state_file.h"
#include "tests/api/seal.h"
#include "tests/devices.h"
#include "tests/files.h"
#include "tests/model/tiny_model.h"
#include "tests/sanitized.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <random>
#include <set>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace ks;

namespace
{

const char* const kRecipes[] = {
    "exact",
    "exact,k=f32",
    "window,slots=48",
    "sink,slots=48",
    "h2o,slots=48",
    "h2o,slots=48,victims=merge",
    "h2o,slots=48,victims=merge,delta=5,decay=0.9",
    "scissorhands,slots=48,observe=9",
    "tova,slots=48",
    "h2o,slots=48,select=tokenselect,read=24,reuse=0.3",
    "h2o,slots=48,positions=compact",
    "mix,slots=48,select=quest,read=32,k=q8",
    "quest,read=64,reuse=0.1",
    "infllm,read=64,reuse=0.1",
    "snapkv,slots=48",
    "pyramid,slots=48",
    "ada,slots=48,delta=4",
    "ada,slots=48,victims=merge",
    "keydiff,slots=48",
    "kcenter,slots=48",
    "subgen,slots=48",
    "subgen,slots=64,delta=7,recent=9",
    "mix,slots=48,k=f32",
    "q8",
    "turbo4,v=turbo3,boundary=1",
    "mix,slots=48,k=turbo4,v=turbo4",
    "h2o,slots=48,victims=merge,k=q8,v=turbo2,delta=5",
    "ada,slots=48,k=f16,v=polar,delta=4",
    "subgen,slots=64,k=q8,v=q4",
    "sink,slots=48,k=polar,v=f16",
    "kivi",
    "kivi2,v=q4",
};

const SavedState kNone;

SavedState some_state()
{
    SavedState state;
    state.sampler.seed = 7;
    state.sampler.n_draws = 3;
    state.sampler.recent = {5, 250};
    state.note = "note";
    return state;
}

std::vector<uint32_t> some_ids(size_t n, uint32_t salt = 3)
{
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < n; i++) ids.push_back((i * 53 + salt * 17 + i * i) % 256);
    return ids;
}

struct Fixture {
    TempFile file;
    Folder folder;
    SessionOptions options;

    explicit Fixture(const char* arch = "llama", uint32_t seed = 1)
        : file(std::string(arch) + std::to_string(seed) + ".gguf",
               make_tiny_model(shape(arch, seed)).file)
    {
        options.model_path = file.path();
        options.n_threads = 2;
        options.context = 400;
    }
    static TinyShape shape(const char* arch, uint32_t seed)
    {
        TinyShape s;
        s.arch = arch;
        s.n_layers = s.arch == "gemma3" ? 6 : 2;
        s.seed = seed;
        s.key_bias = s.arch == "qwen2" ? 6.f : 0.f;
        return s;
    }
    std::unique_ptr<Session> open(const std::string& recipe, const char* device = "cpu",
                                  int64_t context = 400) const
    {
        SessionOptions o = options;
        o.recipe = recipe;
        o.device = device;
        o.context = context;
        Result<std::unique_ptr<Session>> result = Session::open(o);
        REQUIRE_MESSAGE(result.ok(), result.status().message());
        return std::move(result.value());
    }
};

std::vector<float> logits(const Session& s)
{
    return std::vector<float>(s.logits(), s.logits() + s.config().n_vocab);
}

void feed(Session& s, const std::vector<uint32_t>& ids, size_t begin, size_t end,
          bool one_by_one = false)
{
    for (size_t at = begin; one_by_one && at < end; at++) REQUIRE(s.feed(&ids[at], 1).ok());
    if (!one_by_one) REQUIRE(s.feed(&ids[begin], end - begin).ok());
}

void check_same(const Session& a, const Session& b)
{
    CHECK(a.n_tokens() == b.n_tokens());
    CHECK(logits(a) == logits(b));
    CHECK(a.evicted() == b.evicted());
    CHECK(a.merged() == b.merged());
    const uint32_t n = a.n_tokens();
    for (uint32_t p = n - std::min(n, a.plan().context); p < n; p++)
        CHECK(a.token(p) == b.token(p));
}

void write_all(const std::string& path, const std::string& bytes)
{
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), std::streamsize(bytes.size()));
}

// Checks that the error is one sentence with the file name and the right code.
void check_refused(const Status& status, std::initializer_list<Code> codes,
                   const std::string& word = "")
{
    CAPTURE(status.message());
    CHECK(std::count(codes.begin(), codes.end(), status.code()) == 1);
    CHECK(status.message().find("/tmp/") == 0);
    CHECK(status.message().find(word) != std::string::npos);
    CHECK(status.message().find('\n') == std::string::npos);
}

} // namespace

TEST_CASE("session file: what goes on from it is what an uninterrupted session does, bit for bit")
{
    for (std::string arch : {"llama", "gemma3", "qwen2"}) { // the keys of qwen2 have a bias
        Fixture f(arch.c_str());
        const std::vector<uint32_t> ids = some_ids(300);
        for (const char* device : {"reference", "cpu"}) {
            for (const char* recipe : kRecipes) {
                if (!strcmp(device, "reference") && arch != "llama")
                    continue; // slow, and covers nothing new
                if (arch == "qwen2" && (!parse_recipe(recipe).value().codes() ||
                                        strstr(recipe, "subgen") || strstr(recipe, "select")))
                    continue; // not supported
                CAPTURE(arch);
                CAPTURE(device);
                CAPTURE(std::string(recipe));
                std::unique_ptr<Session> whole = f.open(recipe, device);
                const SavedState with = some_state();
                for (size_t end :
                     {9u, 47u, 150u, 153u, 200u}) { // before the first eviction, and long after
                    if (end > whole->n_tokens())
                        feed(*whole, ids, whole->n_tokens(), end, end == 153);
                    REQUIRE(whole->save(with, f.folder / "s").ok());
                    std::unique_ptr<Session> resumed = f.open(recipe, device);
                    if (end == 47) feed(*resumed, ids, 100, 190); // loading must discard this
                    SavedState loaded;
                    const Status status = resumed->load(f.folder / "s", &loaded);
                    REQUIRE_MESSAGE(status.ok(), status.message());
                    CHECK(loaded.sampler.seed == 7);
                    CHECK(loaded.sampler.n_draws == 3);
                    CHECK(loaded.sampler.recent == with.sampler.recent);
                    CHECK(loaded.note == "note");
                    CHECK(resumed->has_logits());
                    check_same(*whole, *resumed);
                    if (end != 153) continue;
                    feed(*whole, ids, 153, 190, true);
                    feed(*resumed, ids, 153, 190, true);
                    check_same(*whole, *resumed);
                    whole->rewind(185).ok(); // the last tokens are held with every recipe
                    resumed->rewind(185).ok();
                    feed(*whole, ids, 185, 197);
                    feed(*resumed, ids, 185, 197);
                    check_same(*whole, *resumed);
                }
            }
        }
    }
}

TEST_CASE("session file: saved on one device, it goes on on another")
{
    Fixture f;
    const std::vector<uint32_t> ids = some_ids(200);
    for (const DeviceInfo& tested : tested_devices())
        for (const char* recipe : kRecipes) {
            if (tested.backend == "reference") continue;
            CAPTURE(tested.id + ", " + recipe);
            std::unique_ptr<Session> device = f.open(recipe, tested.id.c_str()),
                                     reference = f.open(recipe, "reference");
            feed(*device, ids, 0, 150);
            SavedState with;
            REQUIRE((device->save(kNone, f.folder / "s").ok() &&
                     reference->load(f.folder / "s", &with).ok()));
            check_same(*device, *reference);
            for (Session* session : {device.get(), reference.get()}) feed(*session, ids, 150, 151);
            const std::vector<float> a = logits(*device), b = logits(*reference);
            double error = 0, size = 0;
            for (size_t i = 0; i < a.size(); i++)
                error += std::pow(double(a[i]) - double(b[i]), 2),
                    size += double(b[i]) * double(b[i]);
            CHECK(std::sqrt(error / size) < 0.05);
            REQUIRE((reference->save(kNone, f.folder / "s").ok() &&
                     device->load(f.folder / "s", &with).ok()));
            check_same(*device, *reference);
        }
}

TEST_CASE("session file: an empty session, and one with no next token")
{
    Fixture f;
    std::unique_ptr<Session> s = f.open("mix,slots=48"), other = f.open("mix,slots=48");
    const std::vector<uint32_t> ids = some_ids(100);
    SavedState with;
    REQUIRE(s->save(kNone, f.folder / "s").ok());
    feed(*other, ids, 0, 100);
    REQUIRE(other->load(f.folder / "s", &with).ok());
    CHECK(other->n_tokens() == 0);
    CHECK_FALSE(other->has_logits());
    feed(*other, ids, 0, 100);
    feed(*s, ids, 0, 100);
    check_same(*s, *other);
    REQUIRE(s->rewind(97).ok());
    REQUIRE(s->save(kNone, f.folder / "s").ok());
    REQUIRE(other->load(f.folder / "s", &with).ok());
    CHECK_FALSE(other->has_logits());
    feed(*s, ids, 97, 100);
    feed(*other, ids, 97, 100);
    CHECK(other->has_logits());
    check_same(*s, *other);
}

TEST_CASE("session file: every truncation and a changed bit in every byte is refused, and the "
          "session is as it was")
{
    Fixture f;
    const std::vector<uint32_t> ids = some_ids(200);
    for (const char* recipe : {"exact", "h2o,slots=48,victims=merge"}) {
        std::unique_ptr<Session> s = f.open(recipe), same = f.open(recipe), saved = f.open(recipe);
        feed(*saved, ids, 50, 50 + (recipe[0] == 'e' ? 20 : 90));
        REQUIRE(saved->save(some_state(), f.folder / "s").ok());
        feed(*s, ids, 0, 120);
        feed(*same, ids, 0, 120);
        const std::string good = read_all(f.folder / "s");
        CHECK(good.size() % 8 == 0);
        const int fd = open((f.folder / "s").c_str(), O_RDWR);
        SavedState with;
        with.note = "untouched";
        size_t accepted = 0;
        for (size_t i = 0; i < good.size(); i++) {
            const char changed = char(good[i] ^ (1 << (i * 5 % 8)));
            REQUIRE(pwrite(fd, &changed, 1, off_t(i)) == 1);
            const Status status = s->load(f.folder / "s", &with);
            accepted += status.code() != Code::invalid || status.message().find("/tmp/") != 0;
            REQUIRE(pwrite(fd, &good[i], 1, off_t(i)) == 1);
        }
        for (size_t n = good.size(); n-- > 0;) {
            REQUIRE(ftruncate(fd, off_t(n)) == 0);
            accepted += s->load(f.folder / "s", &with).code() != Code::invalid;
        }
        close(fd);
        CHECK(accepted == 0);
        write_all(f.folder / "s", good + std::string(8, '\0'));
        check_refused(s->load(f.folder / "s", &with), {Code::invalid}, "checksum");
        CHECK(with.note == "untouched");
        check_same(*s, *same);
        feed(*s, ids, 120, 170, true);
        feed(*same, ids, 120, 170, true);
        check_same(*s, *same);
        write_all(f.folder / "s", good);
        CHECK(s->load(f.folder / "s", &with).ok());
        check_same(*s, *saved);
    }
}

TEST_CASE("session file: another model, recipe or context is named, other files are no sessions")
{
    Fixture f("llama", 3), other("llama", 2);
    const std::vector<uint32_t> ids = some_ids(300);
    SavedState with;
    std::unique_ptr<Session> s = f.open("h2o,slots=48"), strange = other.open("h2o,slots=48");
    feed(*s, ids, 0, 100);
    REQUIRE(s->save(kNone, f.folder / "s").ok());
    check_refused(strange->load(f.folder / "s", &with), {Code::invalid}, "another model");
    for (const char* recipe : {"h2o,slots=64", "h2o,slots=48,victims=merge", "sink,slots=48",
                               "h2o,slots=48,k=f32", "exact"})
        check_refused(f.open(recipe)->load(f.folder / "s", &with), {Code::unsupported},
                      "retain=h2o,k=f16,v=f16,sink=4,slots=48");
    CHECK(f.open("h2o,slots=48", "cpu", 500)->load(f.folder / "s", &with).ok());

    for (const char* arch :
         {"llama",
          "gemma3"}) { // an exact session can be loaded into every context that is long enough
        Fixture g(arch);
        std::unique_ptr<Session> exact = g.open("exact", "cpu", 200);
        feed(*exact, ids, 0, 100);
        REQUIRE(exact->save(kNone, g.folder / "s").ok());
        check_refused(g.open("exact", "cpu", 99)->load(g.folder / "s", &with), {Code::no_fit},
                      "200");
        std::unique_ptr<Session> longer = g.open("exact", "cpu", 300),
                                 shorter = g.open("exact", "cpu", 130);
        REQUIRE(longer->load(g.folder / "s", &with).ok());
        REQUIRE(shorter->load(g.folder / "s", &with).ok());
        for (Session* one : {exact.get(), longer.get(), shorter.get()}) feed(*one, ids, 100, 130);
        check_same(*exact, *longer);
        check_same(*exact, *shorter);
    }
    std::unique_ptr<Session> beyond = f.open("sink,slots=48", "cpu", 100);
    feed(*beyond, ids, 0, 250);
    REQUIRE(beyond->save(kNone, f.folder / "s").ok());
    CHECK(f.open("sink,slots=48", "cpu", 60)->load(f.folder / "s", &with).ok());
    check_refused(f.open("sink,slots=48", "cpu", 200)->load(f.folder / "s", &with),
                  {Code::unsupported}, "one of 100 would do");

    const std::string good = read_all(f.folder / "s");
    std::string later = good;
    later[8] = 99;
    seal(later);
    write_all(f.folder / "s", later);
    check_refused(beyond->load(f.folder / "s", &with), {Code::unsupported}, "version 99");
    for (const std::string& bytes :
         {std::string(), std::string("knapsack"), std::string(999, 'x'), read_all(f.file.path())}) {
        write_all(f.folder / "s", bytes);
        check_refused(beyond->load(f.folder / "s", &with), {Code::invalid}, "not a saved session");
    }
    CHECK(beyond->load(f.folder.path, &with).code() == Code::invalid);
    CHECK(beyond->load(f.folder / "nothing", &with).code() == Code::invalid);
}

TEST_CASE(
    "session file: whatever stands behind a right checksum, nothing is read or written outside")
{
    Fixture f;
    const std::vector<uint32_t> ids = some_ids(300);
    std::mt19937 rng(5);
    size_t loaded = 0, refused = 0;
    for (const char* recipe : kRecipes) {
        std::unique_ptr<Session> s = f.open(recipe), same = f.open(recipe);
        feed(*s, ids, 0, 130);
        REQUIRE(s->save(some_state(), f.folder / "s").ok());
        const std::string good = read_all(f.folder / "s");
        feed(*same, ids, 0, 20);
        SavedState with;
        for (int round = 0; round < (kSanitized ? 50 : 150); round++) {
            std::string bad = good;
            const uint32_t values[] = {0,
                                       1,
                                       47,
                                       48,
                                       49,
                                       96,
                                       129,
                                       130,
                                       131,
                                       0x7fffffff,
                                       0x80000000,
                                       0xffffffff,
                                       uint32_t(rng())};
            for (uint32_t n = 1 + rng() % 3; n-- > 0;) {
                const size_t at = rng() % (bad.size() / 4 - 4) * 4,
                             from = rng() % (bad.size() / 4 - 4) * 4;
                if (rng() % 4 == 0)
                    memcpy(&bad[at], &good[from], 4);
                else
                    memcpy(&bad[at], &values[rng() % std::size(values)], 4);
            }
            if (rng() % 10 == 0) bad.resize(bad.size() - 8 * (1 + rng() % (bad.size() / 8 - 3)));
            seal(bad);
            write_all(f.folder / "s", bad);
            const Status status = same->load(f.folder / "s", &with);
            (status.ok() ? loaded : refused)++;
            if (!status.ok())
                check_refused(status, {Code::invalid, Code::unsupported, Code::no_fit});
            if (status.ok() && same->n_tokens() < 300) {
                const size_t n = std::min<size_t>(
                    60, same->plan().recipe.exact() ? same->plan().context - same->n_tokens() : 60);
                CHECK(same->feed(ids.data(), n).ok());
                feed(*same, ids, 0, 1);
                feed(*same, ids, 1, 9, true);
            }
            if (status.ok()) same->clear();
        }
        write_all(f.folder / "s", good);
        REQUIRE(same->load(f.folder / "s", &with).ok());
        check_same(*s, *same);
    }
    CHECK(std::min(loaded, refused) > 100); // K, V and similar data may hold any bytes
}

TEST_CASE("session file: no table makes eviction or attention reach outside")
{
    Fixture f;
    const std::vector<uint32_t> ids = some_ids(300);
    for (const char* recipe :
         {"h2o,slots=48,victims=merge,delta=6", "ada,slots=48,delta=4", "subgen,slots=48",
          "mix,slots=48,victims=merge,k=turbo4,v=q8", "sink,slots=100,k=q8,v=q4"}) {
        std::unique_ptr<Session> s = f.open(recipe);
        feed(*s, ids, 0, 130);
        feed(*s, ids, 130, 132, true); // with some free rows
        REQUIRE(s->save(kNone, f.folder / "s").ok());
        const std::string good = read_all(f.folder / "s");
        const uint32_t n_rows = s->plan().slots;
        const size_t table = good.find(std::string(reinterpret_cast<const char*>(&n_rows), 4),
                                       1500); // of the first layer
        REQUIRE(table != good.npos);
        SavedState with;
        size_t loaded = 0;
        for (size_t at = table; at < table + 4 * (1 + 2 + 2 + 96 * 5); at += 4) {
            for (uint32_t value : {0u, 1u, 95u, 96u, 0xffffffffu}) {
                std::string bad = good;
                memcpy(&bad[at], &value, 4);
                seal(bad);
                write_all(f.folder / "s", bad);
                if (!s->load(f.folder / "s", &with).ok()) continue;
                loaded++;
                feed(*s, ids, 132, 150, true);
                feed(*s, ids, 150, 160);
            }
        }
        for (size_t i = 0; i < 96;
             i++) { // rows follow the held counts and the capacities; here a row occurs twice
            std::string bad = good;
            memcpy(&bad[table + 4 * (5 + i)], &good[table + 4 * (5 + (i + 1) % 96)], 4);
            seal(bad);
            write_all(f.folder / "s", bad);
            check_refused(s->load(f.folder / "s", &with), {Code::invalid}, "a table of slots");
        }
        CAPTURE(std::string(recipe));
        CAPTURE(loaded);
        CHECK((loaded > 5 && loaded < 2000));
    }
}

TEST_CASE("session file: where writing fails, the old file is whole and nothing is left beside it")
{
    Fixture f;
    const std::vector<uint32_t> ids = some_ids(300);
    std::unique_ptr<Session> s = f.open("exact", "cpu", 2000), again = f.open("exact", "cpu", 2000);
    feed(*s, ids, 0, 300);
    REQUIRE(s->save(kNone, f.folder / "s").ok());
    const std::string good = read_all(f.folder / "s");
    for (int i = 0; i < 6; i++) feed(*s, ids, 0, 250); // longer than one write
    signal(SIGXFSZ, SIG_IGN);
    rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    size_t failed = 0, tries = 0;
    for (rlim_t limit = 0; limit < 500000; limit += 1 + limit / 2, tries++) {
        const rlimit small{limit, before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &small);
        const Status status = s->save(kNone, f.folder / "s");
        setrlimit(RLIMIT_FSIZE, &before);
        failed += status.code() == Code::io &&
                  status.message().find("/s: cannot be written: ") != std::string::npos;
        CHECK(read_all(f.folder / "s") == good);
        CHECK(f.folder.names() == std::set<std::string>{"s"});
    }
    CHECK((failed == tries && tries > 20));
    check_refused(s->save(kNone, f.folder.path), {Code::io}, "not a regular file");
    CHECK(s->save(kNone, "/dev/full").code() == Code::io);
    CHECK(s->save(kNone, f.folder / "no/folder").code() == Code::io);
    CHECK(s->save(kNone, f.folder / std::string(300, 'x')).code() == Code::io);
    CHECK(f.folder.names() == std::set<std::string>{"s"});

    REQUIRE(symlink("s", (f.folder / "link").c_str()) == 0);
    REQUIRE(chmod((f.folder / "s").c_str(), 0600) == 0);
    REQUIRE(s->save(kNone, f.folder / "link").ok());
    struct stat info;
    REQUIRE(lstat((f.folder / "s").c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0600);
    REQUIRE(lstat((f.folder / "link").c_str(), &info) == 0);
    CHECK(S_ISLNK(info.st_mode));
    SavedState with;
    REQUIRE(again->load(f.folder / "s", &with).ok());
    check_same(*s, *again);
}

TEST_CASE("session file: a sampler goes on in its stream with what it has seen")
{
    std::vector<float> l(258);
    for (size_t i = 0; i < l.size(); i++) l[i] = float(i * 37 % 101) / 40;
    std::vector<char> memory(Sampler::bytes_needed(258)), other(memory.size());
    for (float penalty : {1.0f, 1.5f}) {
        SamplerOptions o;
        o.seed = 11;
        o.top_k = 0;
        o.repeat_penalty = penalty;
        o.repeat_last_n = 8;
        Sampler whole(o, 258, memory.data()), resumed(o, 258, other.data());
        for (int i = 0; i < 30; i++) whole.sample(l.data());
        CHECK(whole.state().recent.size() == 8);
        resumed.set_state(whole.state());
        std::vector<uint32_t> a, b;
        for (int i = 0; i < 30; i++)
            a.push_back(whole.sample(l.data())), b.push_back(resumed.sample(l.data()));
        CHECK(a == b);
    }
}
