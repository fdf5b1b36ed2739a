// JSON schemas: the answers that they allow, and what is refused.
#include "tests/chat/grammar_bed.h"

#include <doctest/doctest.h>
#include <string>
#include <vector>

using namespace ks;

struct Case {
    const char* schema;
    std::vector<std::string> yes, no;
};
static const Case kCases[] = {
    {R"({"type": "null"})", {"null"}, {"", "0", "nul"}},
    {R"({"type": "boolean"})", {"true", "false"}, {"1", "True"}},
    {R"({"type": "integer"})",
     {"0", "-1", "42", "999999999999999"},
     {"-0", "01", "1.0", "1e3", "1000000000000000"}},
    {R"({"type": "integer", "minimum": -12, "maximum": 345})",
     {"-12", "-9", "0", "99", "100", "345", "299"},
     {"-13", "346", "400", "-20", "1000"}},
    {R"({"type": "integer", "exclusiveMinimum": 1.5, "exclusiveMaximum": 4})",
     {"2", "3"},
     {"1", "4"}},
    {R"({"type": "integer", "minimum": 9007199254})",
     {"9007199254", "10000000000"},
     {"9007199253", "1"}},
    {R"({"type": "number"})",
     {"0", "-0.5", "1.25", "-3e-7", "1.5E+10"},
     {".5", "1.", "+1", "01", "NaN", "1e100"}},
    {R"({"type": "number", "minimum": 0, "maximum": 1})",
     {"0", "1", "0.5", "0.999"},
     {"-0.5", "1.5", "2", "-1", "1e0"}},
    {R"({"type": "number", "minimum": -2.5, "maximum": -1})",
     {"-1", "-2", "-1.75"},
     {"-2.5", "-0.5", "-2.1", "0"}},
    {R"({"type": "number", "exclusiveMinimum": 0})", {"1", "1.5"}, {"0", "-1"}},
    {R"({"type": "string"})",
     {R"("")", R"("a\n\"\\é日😀")"},
     {R"("a)", "\"\n\"", R"("\u0061")", "a", "\"\xff\""}},
    {R"({"type": "string", "minLength": 1, "maxLength": 3})",
     {R"("a")", R"("é日😀")", R"("\n\n\n")"},
     {R"("")", R"("abcd")"}},
    {R"({"type": "string", "maxLength": 1000000})", {R"("abc")"}, {}},
    {R"({"type": "string", "pattern": "^[a-c]{2}\\d*$"})",
     {R"("ab")", R"("cc12")"},
     {R"("a1")", R"("abx")"}},
    {R"({"type": "string", "pattern": "b|^c$"})",
     {R"("abc")", R"("b")", R"("c")"},
     {R"("cd")", R"("a")"}},
    {R"({"type": "string", "pattern": "^(?:\"|\\\\|\\.|[^\\w\\s])+?$"})",
     {R"("\"\\.")", R"("!.")"},
     {R"("a")", R"(" ")", R"("é")"}},
    {R"({"type": "string", "format": "date"})",
     {R"("2024-02-28")", R"("1999-12-31")"},
     {R"("2023-02-30")", R"("2023-13-01")", R"("2023-1-1")"}},
    {R"({"type": "string", "format": "date-time"})",
     {R"("2024-02-28T23:59:59.5Z")", R"("2024-01-01T00:00:00+02:00")"},
     {R"("2024-02-28 10:00:00Z")", R"("2024-02-28T24:00:00Z")"}},
    {R"({"format": "uuid"})", {R"("01234567-89ab-cdef-0123-456789abcdef")"}, {R"("0123")", "1"}},
    {R"({"format": "ipv4"})", {R"("192.168.0.255")"}, {R"("192.168.0.256")", R"("1.2.3")"}},
    {R"({"enum": ["a", 1, null, [1, {"x": 2.5}]]})",
     {R"("a")", "1", "null", R"([1, {"x": 2.5}])"},
     {"2", "[1]"}},
    {R"({"enum": ["a", 1, null], "type": ["string", "null"]})", {R"("a")", "null"}, {"1"}},
    {R"({"const": "é\n"})", {R"("é\n")"}, {R"("e")"}},
    {R"({"type": ["string", "integer"]})", {"1", R"("1")"}, {"null", "1.5"}},
    {R"({"type": "object", "properties": {"a": {"type": "integer"}, )"
     R"("b": {"type": "null"}}, "required": ["a"]})",
     {R"({"a":1})", R"({"a": 1, "b":null})"},
     {"{}", R"({"b":null})", R"({"b":null,"a":1})", R"({"a":1,})", R"({"a":1,"c":1})",
      R"({"a":  1})"}},
    {R"({"properties": {"a": {}, "b": {"const": 1}, "c": {"const": 2}}})",
     {"{}", R"({"a":[1,{"x":""}]})", R"({"b":1})", R"({"c":2})", R"({"a":0,"c":2})",
      R"({"b":1, "c":2})"},
     {R"({,"c":2})", R"({"c":2,"b":1})"}},
    {R"({"properties": {"a": {"const": 1}, "ab": {"const": 2}}, )"
     R"("additionalProperties": {"type": "null"}})",
     {"{}", R"({"a":1,"x":null})", R"({"abc":null,"":null})", R"({"ab":2,"b":null})",
      R"({"é":null})"},
     {R"({"a":null})", R"({"x":null,"a":null})", R"({"ab":null})", R"({"x":1})",
      R"({"\u0061":null})"}},
    {R"({"type": "object", "additionalProperties": true, "required": ["n"]})",
     {R"({"n":1})", R"({"n":"","m":[]})"},
     {"{}", R"({"m":1})"}},
    {R"({"type": "object"})", {"{}", R"({"x":{"y":[]}})"}, {"[]"}},
    {R"({"type": "array"})", {"[]", R"([1, "a",{}])"}, {"{}", "[1,]"}},
    {R"({"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 3})",
     {"[null]", "[null,null,null]"},
     {"[]", "[null,null,null,null]", "[1]"}},
    {R"({"items": {"const": 1}, "maxItems": 1})", {"[]", "[1]"}, {"[1,1]"}},
    {R"({"items": {"const": 1}, "minItems": 3})", {"[1,1,1]", "[1, 1,1,1,1]"}, {"[1,1]"}},
    {R"({"prefixItems": [{"const": 1}, {"const": 2}]})", {"[1,2]"}, {"[1]", "[1,2,3]"}},
    {R"({"prefixItems": [{"const": 1}], "items": {"const": 3}, "minItems": 2})",
     {"[1,3]", "[1,3,3]"},
     {"[1]", "[3]"}},
    {R"({"maxItems": 0, "type": "array"})", {"[]"}, {"[1]"}},
    {R"({"anyOf": [{"type": "null"}, {"const": 5}]})", {"null", "5"}, {"6"}},
    {R"({"oneOf": [{"type": "integer"}, {"type": "string"}]})", {"1", R"("")"}, {"null"}},
    {R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}}, )"
     R"("required": ["k"]}, {"type": "object", "properties": {"k": {"enum": ["b", )"
     R"("c"]}, "n": {"type": "null"}}, "required": ["k"]}]})",
     {R"({"k":"a"})", R"({"k":"c","n":null})"},
     {R"({"k":"a","n":null})"}},
    {R"({"allOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}, )"
     R"({"properties": {"b": {"const": 2}, "a": {"type": "integer"}}}]})",
     {R"({"a":1})", R"({"a":1,"b":2})"},
     {"{}", R"({"b":2})"}},
    {R"({"type": "integer", "minimum": 0, "allOf": [{"maximum": 7}, {"minimum": 3}]})",
     {"3", "7"},
     {"2", "8"}},
    {R"({"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"], )"
     R"("anyOf": [{"properties": {"x": {"type": "null"}}, "required": ["x"]}, )"
     R"({"properties": {"y": {"type": "null"}}}]})",
     {R"({"k":1,"x":null})", R"({"k":1,"y":null})", R"({"k":1})"},
     {R"({"k":1,"x":null,"y":null})"}},
    {R"({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 1}}})", {"1"}, {"2"}},
    {R"({"type": "object", "properties": {"v": {"type": "integer"}, )"
     R"("next": {"anyOf": [{"$ref": "#"}, {"type": "null"}], "default": null}}, )"
     R"("required": ["v", "next"]})",
     {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"},
     {R"({"v":1})", R"({"v":1,"next":{}})"}},
    {R"({"properties": {"next": {"allOf": [{"$ref": "#"}], "title": "x"}}})",
     {"{}", R"({"next":{"next":{}}})"},
     {R"({"next":1})"}},
    {"true", {"1", "{}", R"([{"a":null}])"}, {"", "a"}},
    {"{}", {"1", "{}", "true"}, {" 1"}},
};

TEST_CASE("schema: what an answer may be")
{
    for (const Case& c : kCases) {
        Texts texts(parse_json_schema(c.schema));
        CAPTURE(std::string(c.schema));
        REQUIRE_MESSAGE(texts.status().ok(), texts.status().message());
        for (const std::string& text : c.yes) CHECK_MESSAGE(texts.matches(text), text);
        for (const std::string& text : c.no) CHECK_MESSAGE(!texts.matches(text), text);
    }
}

TEST_CASE("schema: every range of integers")
{
    uint64_t state = 3;
    for (int round = 0; round < 300; round++) {
        const auto draw = [&](uint64_t below) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            return int64_t((state >> 33) % below);
        };
        const int64_t low = draw(3000) - 1500, high = low + draw(round % 2 ? 20 : 3000);
        Texts texts(parse_json_schema("{\"type\":\"integer\",\"minimum\":" + std::to_string(low) +
                                      ",\"maximum\":" + std::to_string(high) + "}"));
        REQUIRE(texts.status().ok());
        for (int i = 0; i < 40; i++) {
            const int64_t value = i < 10   ? low - 5 + i
                                  : i < 20 ? high - 5 + i - 10
                                           : draw(6000) - 3000;
            CAPTURE(low);
            CAPTURE(high);
            CAPTURE(value);
            CHECK(texts.matches(std::to_string(value)) == (low <= value && value <= high));
        }
    }
}

static const std::pair<const char*, const char*> kRefused[] = {
    {"{", "JSON"},
    {"1", "#: a schema was expected"},
    {"false", "#: false allows no value"},
    {R"({"properties": {"a": {"not": {}}}})", "#/properties/a: the keyword 'not' is not supported"},
    {R"({"anyOf": [{"if": 1}]})", "#/anyOf/0: the keyword 'if' is not supported"},
    {R"({"items": {"uniqueItems": true}})", "#/items: the keyword 'uniqueItems'"},
    {R"({"type": "text"})", "#/type: the name of a type was expected"},
    {R"({"type": "integer", "multipleOf": 3})", "'multipleOf'"},
    {R"({"type": "string", "format": "hostname"})", "#/format: 'hostname' is not supported"},
    {R"({"pattern": "(?=a)x"})", "'(?=a)x' byte 2: no look-around"},
    {R"({"pattern": "a\\b"})", "an escape that is known expected, found 'b'"},
    {R"({"pattern": "^a", "minLength": 2})", "#/pattern: beside another limit of a text"},
    {R"({"minLength": 5, "maxLength": 4})", "minLength is 5, at most 4"},
    {R"({"minimum": "1"})", "#/minimum: a number was expected"},
    {R"({"minimum": 0.2, "maximum": 0.8})", "no whole number"},
    {R"({"enum": []})", "#/enum: a list that is not empty"},
    {R"({"enum": [1], "type": "string"})", "#/enum: no value fits"},
    {R"({"anyOf": 1})", "#/anyOf: a list that is not empty"},
    {R"({"oneOf": [{"type": "number"}, {"type": "integer"}]})",
     "#/oneOf/1: a value may match #/oneOf/0 too"},
    {R"({"oneOf": [{"const": 1}, {"const": 1.0}]})", "a value may match"},
    {R"({"$ref": "#/$defs/x"})", "$ref '#/$defs/x' names no schema"},
    {R"({"$ref": "http://x"})", "$ref 'http://x' names no schema"},
    {R"({"$ref": "#"})", "no finite value is allowed"},
    {R"({"$ref": "#/$defs/a", "type": "null", "$defs": {"a": {"$ref": "#/$defs/b", )"
     R"("type": "null"}, )"
     R"("b": {"$ref": "#/$defs/a", "type": "null"}}})",
     "leads to itself"},
    {R"({"type": "object", "anyOf": [{"$ref": "#"}, {"$ref": "#", "minItems": 0}]})",
     "leads to itself"},
    {R"({"allOf": [{"$ref": "#"}, {"type": "null"}]})", "leads to itself"},
    {R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "no finite value is allowed"},
    {R"({"properties": {}, "additionalProperties": false, "required": ["a"]})",
     "#/required: 'a' is no property"},
    {R"({"properties": 1})", "#/properties: an object was expected"},
    {R"({"required": 1})", "#/required: a list was expected"},
    {R"({"allOf": [{"type": "string"}, {"type": "null"}]})", "no type is left"},
    {R"({"allOf": [{"additionalProperties": false}, {"properties": {"a": {}}}]})",
     "additionalProperties beside"},
    {R"({"minItems": 3, "prefixItems": [{}]})", "minItems is more than prefixItems has"},
    {R"({"type": "array", "minItems": 100000})", "minItems is 100000"},
};

TEST_CASE("schema: refusals name the path")
{
    for (const auto& [schema, message] : kRefused) {
        const Result<Grammar> parsed = parse_json_schema(schema);
        CAPTURE(std::string(schema));
        CHECK(parsed.status().code() == Code::invalid);
        CHECK_MESSAGE(parsed.status().message().find(message) != std::string::npos,
                      parsed.status().message());
    }
    std::string deep;
    for (int i = 0; i < 60; i++) deep += "{\"items\":";
    CHECK_FALSE(parse_json_schema(deep + deep + "{}" + std::string(120, '}')).ok());
}
