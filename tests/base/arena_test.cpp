// The ledger, and arenas in memory of the system and of the caller.
#include "runtime/base/arena.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <doctest/doctest.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace ks;

template <class Bug>
static bool aborts(Bug bug)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL); // not the handler of the test runner
        close(2);
        bug();
        _exit(0);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGABRT;
}

TEST_CASE("ledger: counts by region and remembers the most")
{
    Ledger ledger;
    CHECK(ledger.used_bytes() == 0);
    CHECK(ledger.peak_bytes() == 0);
    CHECK(ledger.size() == 0);
    ledger.add("weights", 100);
    ledger.add("cache", 50);
    std::string same_text = "weights"; // another pointer
    ledger.add(same_text.c_str(), 7);
    REQUIRE(ledger.size() == 2);
    CHECK(std::string(ledger[0].name) == "weights");
    CHECK(ledger[0].bytes == 107);
    CHECK(ledger[1].bytes == 50);
    CHECK(ledger.peak_bytes() == 157);
    ledger.release("cache", 20);
    CHECK(ledger[1].bytes == 30);
    CHECK(ledger.used_bytes() == 137);
    CHECK(ledger.peak_bytes() == 137); // it begins anew
    ledger.add("cache", 19);
    CHECK(ledger.peak_bytes() == 156);
    CHECK(aborts([&] { ledger.release("cache", 50); }));
    CHECK(aborts([&] { ledger.release("scratch", 0); }));
}

TEST_CASE("ledger: more than 32 bits of bytes, and a limited number of regions")
{
    Ledger ledger;
    std::vector<std::string> names;
    for (int i = 0; i < Ledger::kMaxRegions; i++) names.push_back("region " + std::to_string(i));
    for (const std::string& name : names) ledger.add(name.c_str(), uint64_t(1) << 40);
    CHECK(ledger.used_bytes() == uint64_t(Ledger::kMaxRegions) << 40);
    CHECK(aborts([&] { ledger.add("one more", 1); }));
}

TEST_CASE("arena: regions in order, aligned, zeroed, counted")
{
    for (bool callers : {false, true}) {
        std::vector<uint8_t> dirty(3 * 4096, 0xaa);
        MemorySource source =
            callers ? MemorySource(dirty.data() + 1, dirty.size() - 1) : MemorySource();
        Ledger ledger;
        Arena arena;
        REQUIRE(arena.open(source, ledger, 4 * kRegionAlign).ok());
        CHECK(ledger.peak_bytes() == 0); // the ledger counts taken regions
        uint8_t* a = static_cast<uint8_t*>(arena.take("a", 1));
        float* b = arena.take_array<float>("b", 17);
        uint8_t* again = static_cast<uint8_t*>(arena.take("a", kRegionAlign));
        CHECK(reinterpret_cast<uintptr_t>(a) % kRegionAlign == 0);
        CHECK(reinterpret_cast<uint8_t*>(b) == a + kRegionAlign);
        CHECK(again == a + 3 * kRegionAlign);
        CHECK(std::all_of(a, a + 4 * kRegionAlign, [](uint8_t byte) { return byte == 0; }));
        CHECK(arena.used_bytes() == 4 * kRegionAlign);
        CHECK(ledger.peak_bytes() == 4 * kRegionAlign);
        REQUIRE(ledger.size() == 2);
        CHECK(ledger[0].bytes == 2 * kRegionAlign);
        CHECK(ledger[1].bytes == 2 * kRegionAlign);
        CHECK(aborts([&] { arena.take("a", 1); }));
        CHECK_FALSE(aborts([&] { arena.take("a", 0); }));
    }
}

TEST_CASE("arena: the caller's memory suffices to the byte, and nothing else is touched")
{
    constexpr size_t kPage = 4096, kBytes = 6 * kPage;
    std::vector<uint8_t> block(kBytes + 2 * kPage, 0xaa);
    // Aligned to a page.
    uint8_t* begin = block.data() + kPage - reinterpret_cast<uintptr_t>(block.data()) % kPage;
    auto untouched = [&](const uint8_t* from, const uint8_t* to) {
        return std::all_of(from, to, [](uint8_t byte) { return byte == 0xaa; });
    };
    Ledger ledger;
    {
        MemorySource source(begin, 3 * kPage);
        Arena first, second, third;
        REQUIRE(first.open(source, ledger, 2 * kPage).ok());
        REQUIRE(second.open(source, ledger, kRegionAlign).ok());
        Status full = third.open(source, ledger, 1);
        CHECK(full.code() == Code::no_fit);
        CHECK(full.message() == "the caller's memory has 0 bytes left, 4096 are needed");
        CHECK(first.take("x", 2 * kPage) == begin);
        CHECK(second.take("x", 1) == begin + 2 * kPage);
    }
    CHECK(untouched(block.data(), begin));
    CHECK(untouched(begin + 3 * kPage, block.data() + block.size()));
    CHECK(std::count(begin, begin + 3 * kPage, 0) == 3 * kPage);

    for (size_t bytes : {size_t(0), size_t(1), kPage - 1}) { // less than a page
        MemorySource source(begin + 1, bytes);
        Arena arena;
        CHECK(arena.open(source, ledger, 1).code() == Code::no_fit);
    }
    MemorySource source(begin + 1, 2 * kPage - 1); // one whole page is left after alignment
    CHECK(source.take(kPage).value() == begin + kPage);
    CHECK_FALSE(source.take(1).ok());
    // Rounding up does not wrap around.
    CHECK_FALSE(MemorySource(begin, 4 * kPage).take(~size_t(0)).ok());
}

TEST_CASE("arena: more memory than exists is refused")
{
    Ledger ledger;
    MemorySource source;
    Arena arena;
    Status status = arena.open(source, ledger, size_t(1) << 60);
    CHECK(status.code() == Code::no_fit);
    CHECK(status.message().find("1048576.0 TiB") != std::string::npos);
    CHECK(arena.open(source, ledger, 100).ok()); // opening again works
    memset(arena.take("x", 64), 1, 64);
    CHECK(align_up(0, 64) == 0);
    CHECK(align_up(1, 64) == 64);
    CHECK(align_up(64, 64) == 64);
    CHECK(align_up(65, 64) == 128);
}
