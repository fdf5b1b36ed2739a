// GBNF: its syntax, grammars that people write, and texts that they match.
#include "tests/chat/grammar_bed.h"

#include <doctest/doctest.h>
#include <string>
#include <vector>

using namespace ks;

static std::string repeated(std::string_view text, int n)
{
    std::string all;
    while (n-- > 0) all += text;
    return all;
}

struct Case {
    const char* grammar;
    std::vector<std::string> yes, no;
};
static const Case kCases[] = {
    {"root ::= \"ab\" | \"c\"", {"ab", "c"}, {"", "a", "abc", "b"}},
    {"root ::= \"a\"*", {"", "a", "aaaa"}, {"b", "ab"}},
    {"root ::= \"ab\"+ [0-9]?", {"ab", "abab", "ab7"}, {"", "7", "aba", "ab77"}},
    {"root ::= [a-c]{2}", {"ab", "cc"}, {"a", "abc", "ad"}},
    {"root ::= [a-c] {2} \"x\" * # comment", {"ab", "bbx", "abxx"}, {"a", "abxc"}},
    {"root ::= [a-c]{2,}", {"ab", "abc", "cccccc"}, {"a", ""}},
    {"root ::= [a-c]{1,3} \"!\"", {"a!", "abc!"}, {"!", "abca!"}},
    {"root ::= (\"a\" | \"b\" (\"c\" | \"d\")){2}", {"aa", "abc", "bdbc"}, {"a", "bb", "aaa"}},
    {"root ::= [^ab]",
     {"c", "\xc3\xa9", "\xe6\x97\xa5", "\xf0\x9f\x98\x80", "\n"},
     {"a", "", "\xc3"}},
    {"root ::= .",
     {"a", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"},
     {"\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80", "\xff"}},
    {"root ::= [\\x41-\\x43\\]\\-^] [-a] [b-]", {"A-b", "]a-", "^ab"}, {"Dab", "Abb"}},
    {"root ::= \"\\u00e9\\U0001F600\\n\\t\\\\\\\"\"",
     {"\xc3\xa9\xf0\x9f\x98\x80\n\t\\\""},
     {"\xc3\xa9"}},
    {"root ::= [\xd0\xb0-\xd1\x8f\xe3\x81\x81-\xe3\x82\x9f]+",
     {"\xd0\xb6", "\xe3\x81\x82\xd1\x8f"},
     {"\xd0\x96", "a"}},
    {"# a comment\nroot ::= # here\n  a # and here\na ::= \"x\"", {"x"}, {"", "a"}},
    {"root ::= (\n  # in a group\n  \"a\" |\n  b\n)\nb ::= \"b\" |\n  \"c\"\n\n",
     {"a", "b", "c"},
     {"d"}},
    {"root ::= \"a\"\n  | \"b\"\n", {"a", "b"}, {"c"}},
    {"root ::= a a\na ::= \"x\"?", {"", "x", "xx"}, {"xxx"}},
    {"root ::= \"\"", {""}, {"a"}},
    {"root ::= (\"a\"?)* \"b\"", {"b", "aab"}, {"a"}},
    {"root ::= [^\\x00-\\U0010FFFF] | \"a\"", {"a"}, {"b"}},
};

TEST_CASE("gbnf: elements")
{
    for (const Case& c : kCases) {
        Texts texts(parse_gbnf(c.grammar));
        CAPTURE(c.grammar);
        REQUIRE_MESSAGE(texts.status().ok(), texts.status().message());
        for (const std::string& text : c.yes) CHECK_MESSAGE(texts.matches(text), text);
        for (const std::string& text : c.no) CHECK_MESSAGE(!texts.matches(text), text);
    }
}

TEST_CASE("gbnf: every code point is one character, and nothing else is")
{
    Texts texts(parse_gbnf("root ::= ."));
    for (uint32_t code = 0; code < 0x110000; code += code < 0x3000 ? 1 : 97) {
        if (code >= 0xd800 && code < 0xe000) continue;
        std::string text;
        if (code < 0x80)
            text = {char(code)};
        else if (code < 0x800)
            text = {char(0xc0 | code >> 6), char(0x80 | (code & 63))};
        else if (code < 0x10000)
            text = {char(0xe0 | code >> 12), char(0x80 | (code >> 6 & 63)),
                    char(0x80 | (code & 63))};
        else
            text = {char(0xf0 | code >> 18), char(0x80 | (code >> 12 & 63)),
                    char(0x80 | (code >> 6 & 63)), char(0x80 | (code & 63))};
        if (!texts.matches(text)) FAIL(code);
    }
}

// A class against its definition, for classes whose borders fall anywhere.
TEST_CASE("gbnf: ranges of code points")
{
    uint64_t state = 7;
    for (int round = 0; round < 200; round++) {
        const auto draw = [&] {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const uint32_t bits = 3 + uint32_t(state >> 59) % 18;
            return uint32_t(state >> 20) & ((1u << bits) - 1);
        };
        uint32_t low = std::min(draw(), 0x10ffffu), high = std::min(low + draw(), 0x10ffffu);
        char grammar[64];
        snprintf(grammar, sizeof grammar, "root ::= [\\U%08x-\\U%08x]", low, high);
        Texts texts(parse_gbnf(grammar));
        REQUIRE(texts.status().ok());
        for (uint32_t code : {low - 1, low, low + 1, (low + high) / 2, high - 1, high, high + 1}) {
            if (code < 0x10000 || code > 0x10ffff) continue;
            const std::string text = {char(0xf0 | code >> 18), char(0x80 | (code >> 12 & 63)),
                                      char(0x80 | (code >> 6 & 63)), char(0x80 | (code & 63))};
            CAPTURE(grammar);
            CAPTURE(code);
            CHECK(texts.matches(text) == (code >= low && code <= high));
        }
    }
}

TEST_CASE("gbnf: grammars that people write")
{
    Texts json(parse_gbnf(R"gbnf(
root   ::= value
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)gbnf"));
    REQUIRE_MESSAGE(json.status().ok(), json.status().message());
    CHECK(json.matches(R"({"a": [1, -2.5e3, {"b": null}], "c\u00e9\n": "x"} )"));
    CHECK(json.matches("{\n    \"a\": true\n}"));
    CHECK_FALSE(json.matches("{\"a\" 1}"));
    CHECK_FALSE(json.matches("[1,]"));
    CHECK(json.matches(repeated("[", 1000) + repeated("]", 1000)));

    Texts arithmetic(parse_gbnf(R"gbnf(
root ::= (expr "=" ws num "\n")+
expr ::= term ([-+*/] term)*
term ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num ::= [0-9]+ ws
ws ::= [ \t\n]*
)gbnf"));
    CHECK(arithmetic.matches("(1+2) *x_1 = 3\n"));
    CHECK_FALSE(arithmetic.matches("(1+2 *x = 3\n"));

    Texts list(parse_gbnf("root ::= item+\n# one line each\nitem ::= \"- \" "
                          "[^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"\n"));
    CHECK(list.matches("- one\n- zwei \xe4\xb8\x89\n"));
    CHECK_FALSE(list.matches("- one\ntwo\n"));
}

TEST_CASE("gbnf: more grammars that people write")
{
    Texts chess(parse_gbnf(R"gbnf(
root   ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move   ::= (pawn | nonpawn | castle) [+#]?
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
castle  ::= "O-O" "-O"?
)gbnf"));
    CHECK(chess.matches("1. e4 e5\n2. Nf3 Nc6\n3. O-O exd8=Q+\n"));
    CHECK_FALSE(chess.matches("1. e4 e9\n"));

    Texts japanese(parse_gbnf(R"gbnf(
root ::= jp-char+ ([ \t\n] jp-char+)*
jp-char ::= hiragana | katakana | punctuation | cjk
hiragana ::= [ぁ-ゟ]
katakana ::= [ァ-ヿ]
punctuation ::= [、-〾]
cjk ::= [一-鿿]
)gbnf"));
    CHECK(japanese.matches("ひらがな カタカナ、漢字。"));
    CHECK_FALSE(japanese.matches("romaji"));

    Texts c(parse_gbnf(R"gbnf(
root ::= declaration*
declaration ::= type ident "(" parameter? ")" "{" statement* "}"
type ::= ("int" | "float" | "char") ws
ident ::= [a-zA-Z_] [a-zA-Z_0-9]*
parameter ::= type ident
statement ::= (
    type ident ws "=" ws expression ";" |
    ident ws "=" ws expression ";" |
    "return" ws expression ";" |
    "if" "(" expression ")" "{" statement* "}" ("else" "{" statement* "}")?
)
expression ::= term (ws [-+*/<>] ws term)*
term ::= ident | ident "(" (expression ("," ws expression)*)? ")" | "(" expression ")" | [0-9]+
ws ::= [ \t\n]*
)gbnf"));
    REQUIRE_MESSAGE(c.status().ok(), c.status().message());
    CHECK(c.matches("int f(int x){if(x < 2){return 1;}else{return f(x-1) * (x + 0);}}"));
    CHECK_FALSE(c.matches("int f(int x){return}"));
}

static const std::pair<const char*, const char*> kRefused[] = {
    {"", "grammar: rule 'root' is not defined"},
    {"root ::= x", "grammar: rule 'x' is not defined"},
    {"root ::= \"a\"\nroot = \"b\"", "line 2: a rule that is not defined yet expected"},
    {"root ::= \"a\"\na b", "line 2: '::=' expected, found 'b'"},
    {"root ::= \"a", "line 1: a character in UTF-8 expected, found the end"},
    {"root ::= (\"a\"", "line 1: ')' expected, found the end"},
    {"root ::= \"a\")", "line 1: the end of the line expected, found ')'"},
    {"root ::= \"\\q\"", "line 1: an escape that is known expected, found 'q'"},
    {"root ::= \"\\x4\"", "line 1: a hexadecimal digit expected"},
    {"root ::= \"\\ud800\"", "no surrogate"},
    {"root ::= [b-a]", "a range in ascending order"},
    {"root ::= *", "line 1: a text, a class, a group or a rule expected, found '*'"},
    {"root ::= \"a\"{2,1}", "an upper limit that is not below"},
    {"root ::= \"a\"{x}", "a number expected, found 'x'"},
    {"root ::= <think>", "text, not a token"},
    {"root ::= \"a\" ::= ", "found ':'"},
    {"root ::= \"\xff\"", "a character in UTF-8"},
    {"root ::= (((\"abcdef\"){0,9999}){0,9999}){0,9999}", "more than"},
    {"root ::= (((\"\"){0,9999}){0,9999}){0,9999}", "more than"},
};

TEST_CASE("gbnf: errors name the line and what was expected")
{
    for (const auto& [grammar, message] : kRefused) {
        const Result<Grammar> parsed = parse_gbnf(grammar);
        CAPTURE(grammar);
        CHECK(parsed.status().code() == Code::invalid);
        CHECK_MESSAGE(parsed.status().message().find(message) != std::string::npos,
                      parsed.status().message());
    }
    CHECK_FALSE(parse_gbnf("root ::= " + repeated("(", 100)).ok());
    CHECK_FALSE(parse_gbnf(std::string(2 << 20, '#')).ok());
}

TEST_CASE("gbnf: ambiguity and recursion")
{
    Texts ambiguous(parse_gbnf("root ::= \"x\" root \"x\" | \"x\" root | \"x\""));
    CHECK(ambiguous.matches(repeated("x", 100))); // about 2^100 readings
    for (const char* grammar :
         {"root ::= \"x\" root | \"\"", "root ::= wrap\nwrap ::= \"x\" root | \"\"",
          "root ::= (line root)?\nline ::= \"x\"",
          "root ::= a | \"\"\na ::= b\nb ::= \"x\" root"}) {
        CAPTURE(grammar);
        Texts texts(parse_gbnf(grammar));
        REQUIRE(texts.status().ok());
        CHECK(texts.matches(repeated("x", 100'000)));
    }
    Texts left(parse_gbnf("root ::= root \"+\" term | term\nterm ::= empty term \"!\" | \"x\"\n"
                          "empty ::= \"\""));
    CHECK(left.matches("x"));
    CHECK(left.matches("x+x!!" + repeated("+x", 10'000)));
    CHECK_FALSE(left.matches("x+"));
    CHECK_FALSE(left.matches("+x"));
    CHECK_FALSE(left.matches("!x"));
    Texts unit(parse_gbnf("root ::= a | \"\"\na ::= root | a | \"(\" a \")\" | \"x\""));
    CHECK(unit.matches("((x))"));
    CHECK(unit.matches("()"));
    CHECK_FALSE(unit.matches("((x)"));

    Texts nested(parse_gbnf("root ::= \"(\" root \")\" | \"\""));
    CHECK(nested.matches(repeated("(", 4000) + repeated(")", 4000)));
    CHECK(nested.walk(repeated("(", 10'000)).first < 5000); // then the memory is full
}
