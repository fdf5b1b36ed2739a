// Files that a session refuses, and files that are damaged behind a valid checksum.
#include "runtime/api/session.h"
#include "tests/api/seal.h"
#include "tests/api/session_file_bed.h"
#include "tests/files.h"
#include "tests/sanitized.h"

#include <cstring>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <random>
#include <unistd.h>

using namespace ks;

TEST_CASE(
    "session file: every truncation and every changed bit is refused, and the session is unchanged")
{
    FileFixture f;
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

TEST_CASE("session file: another model or recipe is named in the message")
{
    FileFixture f("llama", 3), other("llama", 2);
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
}

TEST_CASE("session file: an exact session is loaded into every context that is long enough")
{
    const std::vector<uint32_t> ids = some_ids(300);
    SavedState with;
    for (const char* arch : {"llama", "gemma3"}) {
        FileFixture g(arch);
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
}

TEST_CASE("session file: a cache of other slots, another version and other files are refused")
{
    FileFixture f("llama", 3);
    const std::vector<uint32_t> ids = some_ids(300);
    SavedState with;
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

// The file with up to three words changed, sometimes cut, and a valid checksum.
static std::string damaged(const std::string& good, std::mt19937& rng)
{
    std::string bad = good;
    const uint32_t values[] = {
        0, 1, 47, 48, 49, 96, 129, 130, 131, 0x7fffffff, 0x80000000, 0xffffffff, uint32_t(rng())};
    for (uint32_t n = 1 + rng() % 3; n-- > 0;) {
        const size_t at = rng() % (bad.size() / 4 - 4) * 4, from = rng() % (bad.size() / 4 - 4) * 4;
        if (rng() % 4 == 0)
            memcpy(&bad[at], &good[from], 4);
        else
            memcpy(&bad[at], &values[rng() % std::size(values)], 4);
    }
    if (rng() % 10 == 0) bad.resize(bad.size() - 8 * (1 + rng() % (bad.size() / 8 - 3)));
    seal(bad);
    return bad;
}

TEST_CASE("session file: whatever a valid checksum covers, no access is out of bounds")
{
    FileFixture f;
    const std::vector<uint32_t> ids = some_ids(300);
    std::mt19937 rng(5);
    size_t loaded = 0, refused = 0;
    for (const char* recipe : kFileRecipes) {
        std::unique_ptr<Session> s = f.open(recipe), same = f.open(recipe);
        feed(*s, ids, 0, 130);
        REQUIRE(s->save(some_state(), f.folder / "s").ok());
        const std::string good = read_all(f.folder / "s");
        feed(*same, ids, 0, 20);
        SavedState with;
        for (int round = 0; round < 50; round++) {
            write_all(f.folder / "s", damaged(good, rng));
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
    FileFixture f;
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
        // The table of the first layer.
        const size_t table =
            good.find(std::string(reinterpret_cast<const char*>(&n_rows), 4), 1500);
        REQUIRE(table != good.npos);
        SavedState with;
        size_t loaded = 0;
        // Only sanitizers see every access, so other builds damage fewer words.
        const size_t step = kSanitized ? 4 : 28;
        for (size_t at = table; at < table + 4 * (1 + 2 + 2 + 96 * 5); at += step) {
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
