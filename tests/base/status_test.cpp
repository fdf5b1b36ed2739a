// Status, Result and the texts of messages.
#include "runtime/base/status.h"

#include <csignal>
#include <doctest/doctest.h>
#include <memory>
#include <sys/wait.h>
#include <unistd.h>

using namespace ks;

static Status half(int value, int* out)
{
    if (value % 2) return fail(Code::invalid, "%d is odd", value);
    *out = value / 2;
    return {};
}

static Result<std::string> quarter(int value)
{
    int out = 0;
    KS_TRY(half(value, &out));
    KS_TRY(half(out, &out));
    return std::to_string(out);
}

TEST_CASE("status: a value or one sentence")
{
    CHECK(Status().ok());
    CHECK(Status().code() == Code::ok);
    CHECK(Status().message().empty());
    Status status = fail(Code::no_fit, "%s needs %d bytes, %d are left", "cache", 7, 3);
    CHECK_FALSE(status.ok());
    CHECK(status.code() == Code::no_fit);
    CHECK(status.message() == "cache needs 7 bytes, 3 are left");

    CHECK(quarter(12).value() == "3");
    CHECK(quarter(7).status().message() == "7 is odd");
    CHECK(quarter(6).status().message() == "3 is odd");
    CHECK(quarter(6).status().code() == Code::invalid);

    Result<std::unique_ptr<int>> moved(std::make_unique<int>(5)); // values need not be copyable
    REQUIRE(moved.ok());
    CHECK(*std::move(moved.value()) == 5);
}

TEST_CASE("status: a message of any length is cut, not overrun")
{
    std::string text(5000, 'x');
    Status status = fail(Code::io, "%s", text.c_str());
    CHECK(status.message().size() < 2000);
    CHECK(status.message().substr(0, 100) == text.substr(0, 100));
}

TEST_CASE("status: the codes are the program's exit codes")
{
    const std::pair<Code, int> codes[] = {
        {Code::ok, 0},     {Code::usage, 1},  {Code::invalid, 2}, {Code::unsupported, 3},
        {Code::no_fit, 4}, {Code::device, 5}, {Code::io, 6},      {Code::interrupted, 130}};
    for (auto [code, number] : codes) CHECK(int(code) == number);
}

TEST_CASE("status: untrusted text becomes printable ASCII of bounded length")
{
    CHECK(printable("") == "");
    CHECK(printable("plain text ~") == "plain text ~");
    CHECK(printable(std::string_view("\0\n\x1b[2J\x7f\xff", 8)) == "\\x00\\x0a\\x1b[2J\\x7f\\xff");
    CHECK(printable("caf\xc3\xa9") == "caf\\xc3\\xa9");
    CHECK(printable("12345", 5) == "12345");
    CHECK(printable("123456", 5) == "12345...");
    // An escape is never truncated.
    CHECK(printable(std::string(1000000, '\xff'), 60).size() <= 60 + 3 + 3);
    for (int c = 0; c < 256; c++)
        for (char printed : printable(std::string(1, char(c))))
            CHECK((printed >= 0x20 && printed < 0x7f));
}

TEST_CASE("status: bytes for people")
{
    CHECK(human_bytes(0) == "0 B");
    CHECK(human_bytes(1023) == "1023 B");
    CHECK(human_bytes(1024) == "1.0 KiB");
    CHECK(human_bytes(1536) == "1.5 KiB");
    CHECK(human_bytes(90387251) == "86.2 MiB");
    CHECK(human_bytes(uint64_t(3) << 30) == "3.0 GiB");
    CHECK(human_bytes(uint64_t(5) << 40) == "5.0 TiB");
    CHECK(human_bytes(~uint64_t(0)) == "16777216.0 TiB");
}

TEST_CASE("status: a bug aborts and says where and with which values")
{
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL); // not the handler of the test runner
        dup2(ends[1], 2);
        KS_CHECK(1 + 1 == 3, "one and one are %d", 2);
        _exit(0);
    }
    close(ends[1]);
    char text[500] = {};
    size_t n = 0;
    for (ssize_t got;
         n < sizeof text - 1 && (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0;)
        n += size_t(got);
    close(ends[0]);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGABRT);
    std::string said = text;
    CHECK(said.find("status_test.cpp:") != said.npos);
    CHECK(said.find("1 + 1 == 3") != said.npos);
    CHECK(said.find("one and one are 2\n") != said.npos);
}
