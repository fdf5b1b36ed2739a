// Sessions that go on from a file, and how the file is written.
#include "runtime/api/session.h"
#include "tests/api/ladder_bed.h"
#include "tests/devices.h"
#include "tests/files.h"

#include <cmath>
#include <csignal>
#include <cstring>
#include <doctest/doctest.h>
#include <set>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace ks;

TEST_CASE("session file: what follows equals an uninterrupted session, bit for bit")
{
    for (std::string arch : {"llama", "gemma3", "qwen2"}) { // the keys of qwen2 have a bias
        FileFixture f(arch.c_str());
        const std::vector<uint32_t> ids = some_ids(300);
        for (const char* device : {"reference", "cpu"}) {
            for (const char* recipe : kFileRecipes) {
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
    FileFixture f;
    const std::vector<uint32_t> ids = some_ids(200);
    for (const DeviceInfo& tested : tested_devices())
        for (const char* recipe : kFileRecipes) {
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
    FileFixture f;
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

TEST_CASE("session file: where writing fails, the old file is whole and nothing is left beside it")
{
    FileFixture f;
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

TEST_CASE("session file: a cache of two slots that has evicted the newest token")
{
    int n_without = 0;
    TempFile file("two_slots.gguf", walker("llama"));
    ModelOptions options;
    options.model_path = file.path();
    options.device = "cpu";
    options.recipe = "q8";
    options.context = 333;
    options.memory_bytes = 64 << 20;
    options.memory_bytes = make_plan(options).value().smallest_bytes;
    std::unique_ptr<Session> s = std::move(open_session(options).value()),
                             to = std::move(open_session(options).value());
    const Folder folder;
    for (uint32_t n = 0; n < 200; n++) {
        CAPTURE(n);
        std::vector<uint32_t> ids(8 + n % 5);
        for (uint32_t i = 0; i < ids.size(); i++)
            ids[i] = (n * 7919 + i * 104729 + i * i * 31 + n * i * 17) % 256;
        s->clear();
        REQUIRE(s->feed(ids.data(), ids.size()).ok());
        const CacheLayer& layer = s->cache().layer(0);
        n_without += layer.positions[layer.begin[0] + layer.held[0] - 1] + 1 < ids.size();
        SavedState state;
        REQUIRE(s->save(state, folder / "s").ok());
        REQUIRE(to->load(folder / "s", &state).ok());
        CHECK(logits(*s) == logits(*to));
    }
    CHECK(n_without > 0);
}
