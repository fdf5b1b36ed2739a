#include "runtime/chat/json.h"
#include <doctest/doctest.h>

using namespace ks;
using namespace ks::jinja;

static std::string read_and_write(std::string_view text, const JsonLimits& limits = {})
{
    const Result<Value> value = parse_json(text, limits);
    return value.ok() ? write(value.value()) : value.status().message();
}

TEST_CASE("json: what is read is written in the same form")
{
    for (const char* text :
         {"null", "true", "[1, 1.0, -2, 1e+16, 1e-07, 0.0001, -0.0]", "\"a\\\"\\\\\\n\\u0001/\"",
          "{\"b\": [], \"a\": {}}", "9223372036854775807", "\"\xc3\xa9\xf0\x9f\x99\x82\""})
        CHECK(read_and_write(text) == text);
    CHECK(read_and_write("{\"a\":1,\"b\":2,\"a\":3}") == "{\"a\": 3, \"b\": 2}");
    CHECK(read_and_write("\"\\ud83d\\ude42 \\ud83d \\u00e9\"") ==
          "\"\xf0\x9f\x99\x82 \xef\xbf\xbd \xc3\xa9\"");
    CHECK(read_and_write("\"\xff\"") == "\"\xef\xbf\xbd\"");
}

TEST_CASE("json: errors name the place")
{
    CHECK(read_and_write("[1,]") == "JSON: a value expected at byte 3, found ']'");
    CHECK(read_and_write("01") == "JSON: a value expected at byte 0, found '0'");
    CHECK(read_and_write("{\"a\" 1}") == "JSON: ':' expected at byte 5, found '1'");
    CHECK(read_and_write("1 2") == "JSON: the end expected at byte 2, found '2'");
    for (const char* text : {"", "nul", "\"a", "\"\\x\"", "\"\\u12\"", "[", "{", "1.", "1e", "-",
                             "\"\n\"", "9223372036854775808", "NaN"})
        CHECK(read_and_write(text).substr(0, 6) == "JSON: ");
}

TEST_CASE("json: limits")
{
    const std::string deep = std::string(202, '[') + std::string(202, ']');
    CHECK(read_and_write(deep) == "JSON: nested deeper than 200");
    CHECK(read_and_write(deep.substr(1, 402)).size() == 402);
    JsonLimits limits;
    limits.values = 3;
    CHECK(read_and_write("[1, 2]", limits) == "[1, 2]");
    CHECK(read_and_write("[1, 2, 3]", limits) == "JSON: more than 3 values");
    limits.bytes = 4;
    CHECK(read_and_write("[1, 2]", limits) == "JSON of 6 bytes, at most 4 are read");
}

TEST_CASE("json: styles")
{
    const Value value = parse_json("{\"b\": [1, {}], \"a\": \"\\u00e9\\ud83d\\ude42\"}").value();
    WriteStyle style;
    style.ascii = style.sorted = style.lines = true;
    style.comma = ",";
    style.indent = " ";
    CHECK(write(value, style) ==
          "{\n \"a\": \"\\u00e9\\ud83d\\ude42\",\n \"b\": [\n  1,\n  {}\n ]\n}");
    style = {};
    style.python = true;
    CHECK(write(parse_json("[null, true, \"it's\", \"\\u200b\\\"\", 1.5]").value(), style) ==
          "[None, True, \"it's\", '\\u200b\"', 1.5]");
}
