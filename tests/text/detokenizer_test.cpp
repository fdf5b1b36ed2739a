// The streaming detokenizer: the output does not depend on the pieces.
#include "runtime/text/detokenizer.h"
#include "runtime/text/unicode.h"

#include <doctest/doctest.h>
#include <iterator>
#include <random>

using namespace ks;

extern size_t g_allocations;

namespace
{

// The whole output, with the output of each piece in brackets.
std::string stream(const std::vector<std::string>& pieces, std::vector<std::string> stops)
{
    Detokenizer d(16, std::move(stops));
    std::string out;
    for (const std::string& piece : pieces) out += "[" + std::string(d.feed(piece)) + "]";
    out += std::string(d.flush());
    return out + (d.stopped_by() ? " stopped by " + *d.stopped_by() : "");
}

// The expected output by definition: byte by byte, until a stop string ends.
std::string expected(const std::string& text, const std::vector<std::string>& stops)
{
    for (size_t end = 1; end <= text.size(); end++) {
        size_t longest = 0;
        for (const std::string& stop : stops)
            if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0 &&
                stop.size() > longest)
                longest = stop.size();
        if (longest) return text.substr(0, end - longest) + "!";
    }
    return text;
}

} // namespace

TEST_CASE("detokenizer: whole characters")
{
    CHECK(stream({"a", "b"}, {}) == "[a][b]");
    CHECK(stream({"\xe4", "\xb8", "\xad!"}, {}) == "[][][\xe4\xb8\xad!]");
    CHECK(stream({"x\xf0\x9f", "\x98\x80y\xc3"}, {}) == "[x][\xf0\x9f\x98\x80y]\xc3");
    CHECK(stream({"\xff", "\x80", "\xc0", "a"}, {}) ==
          "[\xff][\x80][\xc0][a]"); // can never become a character
    CHECK(stream({"\xe0\x80", "\xed\xa0", "\xf4\x90", "\xf0\x80"}, {}) ==
          "[\xe0\x80][\xed\xa0][\xf4\x90][\xf0\x80]");
    CHECK(stream({"\xe4", "a"}, {}) == "[][\xe4"
                                       "a]");
    CHECK(stream({"\xe4", "\xe4\xb8", "\xad"}, {}) == "[][\xe4][\xe4\xb8\xad]");
    CHECK(stream({"", ""}, {"", ""}) == "[][]");
}

TEST_CASE("detokenizer: stop strings")
{
    CHECK(stream({"ab", "c"}, {"c"}) == "[ab][] stopped by c");
    CHECK(stream({"User", ":", " hi"}, {"User:"}) == "[][][] stopped by User:");
    CHECK(stream({"a\nUs", "e the"}, {"\nUser:"}) == "[a][\nUse the]");
    CHECK(stream({"aa", "ab"}, {"aab"}) == "[][a] stopped by aab");
    CHECK(stream({"xEND and more", "more"}, {"END"}) == "[x][] stopped by END");
    CHECK(stream({"abc"}, {"abc", "b"}) == "[a] stopped by b"); // ends first
    CHECK(stream({"abc"}, {"c", "bc", "xbc"}) ==
          "[a] stopped by bc"); // the longest stop string that ends there
    CHECK(stream({"ab"}, {"abc"}) == "[]ab");
    CHECK(stream({"\xe4\xb8", "STOP"}, {"STOP"}) == "[][\xe4\xb8] stopped by STOP");
    CHECK(stream({"\xe4", "\xb8\xad"}, {"\xe4\xb8\xad"}) == "[][] stopped by \xe4\xb8\xad");

    Detokenizer d(8, {"x"});
    CHECK(d.feed("ax") == "a");
    CHECK(d.feed("b").empty());
    CHECK(d.flush().empty());
    d.reset();
    CHECK(!d.stopped_by());
    CHECK(d.feed("b") == "b");
    CHECK(d.flush().empty());
}

TEST_CASE("detokenizer: the cuts do not matter")
{
    const char* const bits[] = {
        "a",    "b",    "ab",   "ba",   "\xe4\xb8\xad", "\xc3\xa9", "\xf0\x9f\x98\x80",
        "\xff", "\xe4", "\xb8", "STOP", "ST",           "\n"};
    std::mt19937 rng(3);
    auto below = [&](uint32_t n) { return uint32_t(rng()) % n; };
    for (int i = 0; i < 20000; i++) {
        std::vector<std::string> stops;
        for (uint32_t n = below(4); n > 0; n--) {
            stops.emplace_back();
            for (uint32_t k = 1 + below(4); k > 0; k--)
                stops.back() += bits[below(uint32_t(std::size(bits)))];
        }
        std::string text;
        for (uint32_t n = below(16); n > 0; n--) text += bits[below(uint32_t(std::size(bits)))];
        Detokenizer d(4, stops);
        std::string out, wanted = expected(text, stops);
        for (size_t at = 0; at < text.size();) {
            size_t n = below(5);
            std::string_view given = d.feed(std::string_view(text).substr(at, n));
            at += n;
            out += given;
            // The output so far ends with a whole character, or with one that can never be
            // completed.
            size_t tail = out.size();
            while (tail > 0 && out.size() - tail < 3 && (uint8_t(out[tail - 1]) & 0xc0) == 0x80)
                tail--;
            if (tail > 0 && !d.stopped_by() && (out[tail - 1] & 0x80) && at < text.size()) {
                std::string rest = text.substr(tail - 1);
                int32_t codepoint;
                size_t whole = utf8_char(rest.data(), rest.data() + rest.size(), &codepoint);
                CHECK(whole <= out.size() - (tail - 1));
            }
        }
        out += d.flush();
        if (d.stopped_by()) out += "!";
        CHECK(out == wanted);
    }
}

TEST_CASE("detokenizer: no allocation per token")
{
    Detokenizer d(8,
                  {"a stop string that is longer than what a string holds in itself", "another"});
    const std::string pieces[] = {"\xe4",     "\xb8\xad", "a stop s", "tring th",
                                  "at is lo", "nger tha", "n what a", "nother",
                                  " stri",    "12345678", "\xf0\x9f"};
    size_t before = g_allocations, bytes = 0;
    for (int i = 0; i < 10000; i++) {
        bytes += d.feed(pieces[size_t(i) % std::size(pieces)]).size();
        if (d.stopped_by()) d.reset();
    }
    CHECK(g_allocations == before);
    CHECK(bytes > 10000);
}
