// Tokenizers against the results of llama.cpp for the same texts and vocabularies, and on arbitrary
// bytes.
#include "runtime/text/pretokenizer.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/unicode.h"
#include "vocab_builder.h"

#include <cmath>
#include <iterator>
#include <random>

using namespace ks;
using namespace ks::char_kind;

extern size_t g_allocations;

namespace
{

const char* const kPres[] = {"default", "gpt-2", "smollm", "llama-bpe", "qwen2"};

std::string words(const char* pre, std::string_view text)
{
    std::string out;
    WordSplitter splitter(*find_pre_tokenizer(pre), text);
    size_t at = 0;
    for (std::string_view word = splitter.next(); !word.empty(); word = splitter.next()) {
        REQUIRE(word.data() == text.data() + at);
        at += word.size();
        out += (out.empty() ? "" : " ") + std::to_string(word.size());
    }
    REQUIRE(at == text.size());
    return out;
}

std::vector<Loaded> all_kinds()
{
    std::vector<Loaded> kinds;
    for (const char* pre : kPres) kinds.emplace_back(bpe_builder(pre));
    kinds.emplace_back(spm_builder());
    VocabBuilder gemma = spm_builder();
    gemma.rest.add_space_prefix = 0;
    gemma.rest.add_eos = 1;
    kinds.emplace_back(gemma);
    VocabBuilder phi3 = spm_builder();
    phi3.name = "Phi-3 mini";
    kinds.emplace_back(phi3);
    return kinds;
}

CharKind kind(const char* text)
{
    Char c = char_at(text, text + strlen(text));
    CHECK(c.bytes == (c.kind == kEndOfText ? 0 : strlen(text)));
    return c.kind;
}

} // namespace

TEST_CASE("tokenizer: words of every pre-tokenizer")
{
    for (const golden::Case& c : golden::kCases) {
        for (size_t i = 0; i < std::size(kPres); i++) {
            INFO(printable(c.text, 200), " by ", kPres[i]);
            CHECK(words(kPres[i], c.text) == c.words[i]);
        }
    }
}

TEST_CASE("tokenizer: ids of every kind")
{
    std::vector<Loaded> kinds = all_kinds();
    for (const golden::Case& c : golden::kCases) {
        for (size_t i = 0; i < kinds.size(); i++) {
            INFO(printable(c.text, 200), " by ", kinds[i].tokenizer.kind(), " ", i);
            CHECK(kinds[i].encoded(c.text) == c.ids[i][0]);
            CHECK(kinds[i].encoded(c.text, true) == (c.ids[i][1] ? c.ids[i][1] : c.ids[i][0]));
        }
    }
}

TEST_CASE("tokenizer: characters are of Unicode 15.1")
{
    CHECK(kind("a") == kLower);
    CHECK(kind("\xc3\xa9") == kLower);
    CHECK(kind("\xf0\xae\xaf\xb0") == kHan);     // U+2EBF0, new in 15.1
    CHECK(kind("\xf0\xae\xb9\x9d") == kHan);     // U+2EE5D, the last of that block
    CHECK(kind("\xf0\xae\xb9\x9e") == kOther);   // unassigned
    CHECK(kind("\xe1\xb2\x89") == kOther);       // U+1C89, a letter since 16.0
    CHECK(kind("\xf0\x91\xaf\xb0") == kOther);   // U+11BF0, a digit since 16.0
    CHECK(kind("\xf0\xb2\x8e\xb0") == kOther);   // U+323B0, a letter since 17.0
    CHECK(kind("\xf0\xb2\x8e\xaf") == kHan);     // U+323AF, the last letter before it
    CHECK(kind("\xd9\xa3") == kDigit);           // U+0663
    CHECK(kind("\xe2\x85\xa7") == kNumeral);     // U+2167
    CHECK(kind("\xc2\xbd") == kNumeral);         // U+00BD
    CHECK(kind("\xcc\x81") == kMark);            // U+0301
    CHECK(kind("\xe2\x82\xac") == kSymbol);      // U+20AC
    CHECK(kind("\xe2\x80\xa6") == kPunctuation); // U+2026
    CHECK(kind("`") == kSymbol);
    CHECK(kind("$") == kSymbol);
    for (const char* space : {" ", "\t", "\n", "\v", "\f", "\r", "\xc2\x85", "\xc2\xa0",
                              "\xe2\x80\x8a", "\xe2\x80\xa8", "\xe3\x80\x80"})
        CHECK(kind(space) == kSpace);
    CHECK(kind("\xe2\x80\x8b") == kOther); // U+200B
    CHECK(kind("\x1c") == kOther);
    CHECK(kind("") == kEndOfText);
    for (const char* broken :
         {"\xff", "\x80", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\xc3"}) {
        Char c = char_at(broken, broken + strlen(broken));
        CHECK(c.kind == kOther);
        CHECK(c.bytes == 1);
    }
}

TEST_CASE("tokenizer: any bytes come back")
{
    std::vector<Loaded> kinds = all_kinds();
    kinds.pop_back(); // phi-3 drops white space after special tokens
    const char* const bits[] = {
        "\xff",         "\xe4\xb8", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", " ",   "the",
        "\xe4\xb8\xad", "<|u|>",    "  x  ",    "\xc4\xa0",     "ab|cde",           "\n\n"};
    std::mt19937 rng(7);
    auto below = [&](uint32_t n) { return uint32_t(rng()) % n; };
    for (int i = 0; i < 3000; i++) {
        std::string text;
        for (uint32_t n = below(12); n > 0; n--) {
            if (below(2))
                text += char(below(256));
            else
                text += bits[below(uint32_t(std::size(bits)))];
        }
        if (text.find("\xe2\x96\x81") != text.npos)
            continue; // SentencePiece's own sign for a space
        for (const Loaded& t : kinds) {
            INFO(printable(text, 200), " by ", t.tokenizer.kind());
            CHECK(t.round_trip(text) == text);
        }
    }
}

TEST_CASE("tokenizer: only invalid bytes become bytes")
{
    Loaded spm(spm_builder());
    CHECK(spm.encoded("the\xffthe") == "1 304 258 302");
    CHECK(spm.encoded("\xe4 a") ==
          "1 259 231 305"); // the bytes of U+2581 do not complete the character
    Loaded bpe(bpe_builder("gpt-2"));
    CHECK(bpe.encoded("the\xffthe") == "116 256 255 116 256");
}

TEST_CASE("tokenizer: control tokens never come from text")
{
    const char* const texts = "<|user|> <unk> <s> </s> <0x41>";
    VocabBuilder spm = spm_builder();
    for (std::string whole : {"<|user|>", "<unk>", "<s>", "</s>", "<0x41>"})
        for (size_t n = 1; n < whole.size(); n++)
            spm.add(whole.substr(0, n), 1, 1000); // a merge path, byte by byte
    spm.add("<|u", 1, 1000);
    Loaded with_parts(spm);
    bool nearly = false;
    for (uint32_t id : with_parts.encode(texts, false, false)) {
        TokenType type = with_parts.tokenizer.type(id);
        CHECK((type == TokenType::normal || type == TokenType::byte));
        CHECK(id != uint32_t(3 + 'A'));
        nearly |= with_parts.tokenizer.text(id) == "<|user|";
    }
    CHECK(nearly); // only the last merge is missing
    CHECK(with_parts.round_trip(texts) == texts);
    int64_t user = with_parts.tokenizer.find("<|user|>");
    REQUIRE(user >= 0);
    CHECK(with_parts.encode("<|user|>", true, false) == std::vector<uint32_t>{uint32_t(user)});

    VocabBuilder bpe = bpe_builder("llama-bpe");
    bpe.add("zq", 3);
    bpe.merges.push_back("z q");
    bpe.add("secret", 3); // a whole word
    Loaded merged(bpe);
    for (uint32_t id : merged.encode("azq zq secret", false, false))
        CHECK(merged.tokenizer.type(id) == TokenType::normal);
    CHECK(merged.encode("secret", true, false).size() == 1);
}

TEST_CASE("tokenizer: the highest score merges first, the leftmost of equals")
{
    struct {
        float ab, bc;
        const char* expected;
    } cases[] = {{1, 2, "a|bc|"},       {2, 1, "ab|c|"},           {-1, 2, "a|bc|"},
                 {2, -1, "ab|c|"},      {-1, -2, "ab|c|"},         {-2, -1, "a|bc|"},
                 {0, -0.0f, "ab|c|"},   {-0.0f, 0, "ab|c|"},       {0, -1e-30f, "ab|c|"},
                 {-1e-30f, 0, "a|bc|"}, {1e-30f, 0, "ab|c|"},      {3, 3, "ab|c|"},
                 {-3, -3, "ab|c|"},     {NAN, -INFINITY, "a|bc|"}, {INFINITY, 1e38f, "ab|c|"}};
    for (auto& c : cases) {
        VocabBuilder b;
        b.model = "llama";
        b.rest.add_space_prefix = 0;
        for (const char* text : {"<unk>", "a", "b", "c"}) b.add(text);
        b.add("ab", 1, c.ab);
        b.add("bc", 1, c.bc);
        Loaded t(b);
        std::string out;
        for (uint32_t id : t.encode("abc", false, false))
            out += std::string(t.tokenizer.text(id)) + "|";
        INFO(c.ab, " ", c.bc);
        CHECK(out == c.expected);
    }
}

TEST_CASE("tokenizer: pieces")
{
    Loaded spm(spm_builder());
    char out[64];
    REQUIRE(spm.tokenizer.max_piece_bytes() <= sizeof out);
    auto piece = [&](const Loaded& t, const char* text, bool special) {
        int64_t id = t.tokenizer.find(text);
        REQUIRE(id >= 0);
        return std::string(out, t.tokenizer.piece(uint32_t(id), out, special));
    };
    CHECK(piece(spm, "\xe2\x96\x81the", false) == " the");
    CHECK(piece(spm, "<0xE4>", false) == "\xe4");
    CHECK(piece(spm, "<|user|>", false).empty());
    CHECK(piece(spm, "<|user|>", true) == "<|user|>");
    CHECK(piece(spm, "<unk>", false).empty());
    CHECK(piece(spm, "<|u|>", false) == "<|u|>");
    CHECK(piece(spm, "[pad]", false) == "[pad]");
    Loaded bpe(bpe_builder("gpt-2"));
    CHECK(piece(bpe, "\xc4\xa0the", false) == " the");
    CHECK(piece(bpe, "\xc3\x83\xc2\xa9", false) == "\xc3\xa9");
    CHECK(piece(bpe, "<|im_start|>", false).empty());
    CHECK(piece(bpe, "  x  ", false) == "  x  ");

    size_t before = g_allocations;
    for (uint32_t id = 0; id < spm.tokenizer.n_vocab(); id++) {
        spm.tokenizer.piece(id, out, true);
        spm.tokenizer.is_end(id);
    }
    CHECK(g_allocations == before);
}

TEST_CASE("tokenizer: decode takes back the prefixes that encode put")
{
    VocabBuilder b = spm_builder();
    b.add("\xe2\x96\x81\xe2\x96\x81q", 4, -1); // user-defined, but spaces merge into it
    Loaded t(b);
    CHECK(t.encode("a  q b").size() == 5);
    for (const char* text : {"the", " the", "  the", "", " ", "a<|u|>the", "a<|u|> the",
                             "<|u|> the<|u|>", "<|u|><|u|>a", "a  q b", "  q b"}) {
        INFO(text);
        CHECK(t.round_trip(text) == text);
        std::vector<uint32_t> ids = t.encode(text);
        CHECK(ids[0] == 1);
        CHECK(t.tokenizer.decode(ids.data(), ids.size()) == text);
        CHECK(t.tokenizer.decode(ids.data(), ids.size(), true) == std::string("<s>") + text);
    }
}

TEST_CASE("tokenizer: ends, BOS and EOS")
{
    VocabBuilder b = spm_builder();
    b.add("<end_of_turn>", 4);
    b.add("[EOS]", 1);
    b.add("plain", 1);
    b.add("<PRE>", 4);
    b.rest.eot = b.rest.eom = int64_t(b.tokens.size()) - 2; // "plain"
    b.add("later", 1);
    Loaded t(b);
    auto is_end = [&](const char* text) {
        return t.tokenizer.is_end(uint32_t(t.tokenizer.find(text)));
    };
    for (const char* text :
         {"</s>", "<|im_end|>", "<|endoftext|>", "<end_of_turn>", "[EOS]", "plain"})
        CHECK_MESSAGE(is_end(text), text);
    for (const char* text : {"<s>", "<unk>", "the", "<|u|>", "<|user|>", "<PRE>", "later"})
        CHECK_MESSAGE(!is_end(text), text);
    CHECK(!t.tokenizer.is_end(t.tokenizer.n_vocab()));
    CHECK(t.tokenizer.type(uint32_t(t.tokenizer.find("[EOS]"))) == TokenType::control);
    CHECK(t.tokenizer.type(uint32_t(t.tokenizer.find("<PRE>"))) == TokenType::control);
    CHECK(t.tokenizer.type(uint32_t(t.tokenizer.find("plain"))) == TokenType::normal);

    CHECK(t.tokenizer.bos() == 1);
    CHECK(t.tokenizer.eos() == 2);
    CHECK(t.tokenizer.adds_bos());
    CHECK(!t.tokenizer.adds_eos());
    CHECK(t.tokenizer.adds_space_prefix());
    CHECK(std::string(t.tokenizer.kind()) == "SentencePiece");
    CHECK(t.encode("", false, false).empty());

    Loaded gpt2(bpe_builder("gpt-2")), llama3(bpe_builder("llama-bpe"));
    CHECK(!gpt2.tokenizer.adds_bos());
    CHECK(llama3.tokenizer.adds_bos());
    CHECK(!llama3.tokenizer.adds_space_prefix());
    CHECK(llama3.tokenizer.eos() == -1);
    CHECK(std::string(llama3.tokenizer.kind()) == "BPE (llama-3)");
    VocabBuilder without = bpe_builder("llama-bpe");
    without.rest.bos = -1;
    CHECK(!Loaded(without).tokenizer.adds_bos()); // it wants one, but there is none
}

// The longest special token is matched first over the whole text; shorter ones match in what is
// left.
TEST_CASE("tokenizer: special tokens that overlap")
{
    VocabBuilder b = bpe_builder("gpt-2");
    for (const char* text : {"ABCD", "CDEFG", "AB", "A", "FGH", "XYX"}) b.add(text, 4);
    b.add("ABC", 3);
    Loaded t(b);
    auto texts = [&](const char* text, bool special) {
        std::string out;
        for (uint32_t id : t.encode(text, special, false))
            out += std::string(t.tokenizer.text(id)) + "|";
        return out;
    };
    CHECK(texts("ABCDEFG", false) == "AB|CDEFG|");
    CHECK(texts("ABCDEFGH", false) == "AB|CDEFG|H|");
    CHECK(texts("ABCDABCDEFG", false) == "ABCD|AB|CDEFG|");
    CHECK(texts("ABCFGH", false) == "AB|C|FGH|");
    CHECK(texts("ABCFGH", true) == "ABC|FGH|");
    CHECK(texts("ACDABCD", false) == "A|C|D|ABCD|");
    CHECK(texts("A", false) == "A|");
    CHECK(texts("BA", false) == "B|A|");
    CHECK(texts("XYXYX", false) == "XYX|Y|X|");
}

// The work must not grow with the square of the text.
TEST_CASE("tokenizer: long texts")
{
    std::vector<Loaded> kinds = all_kinds();
    kinds.pop_back(); // phi-3 drops most of them
    for (const char* part : {"a", " ", "\n", "the ", "\xff", "<|u|>", "ABAB", "1", "!"}) {
        std::string text;
        while (text.size() < 50000) text += part;
        for (const Loaded& t : kinds) CHECK(t.encode(text).size() > 100);
        CHECK(kinds[5].round_trip(text) == text);
    }
}
