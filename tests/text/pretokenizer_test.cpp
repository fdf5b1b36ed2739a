// Every pre-tokenizer on strange lines, against ids of scripts/pretokenizer_oracle.py, and on
// long runs of one class.
#include "golden_pretokenizers.h"
#include "vocab_builder.h"

#include <iterator>

using namespace ks;

namespace
{

VocabBuilder strange_builder(const std::string& pre)
{
    VocabBuilder b;
    b.pre = pre;
    b.model = pre == "gemma4" ? "gemma4" : "gpt2";
    char name[8];
    for (unsigned i = 0; i < 256; i++) {
        snprintf(name, sizeof name, "<0x%02X>", i);
        if (b.model == "gemma4")
            b.add(name, 6);
        else
            b.add(byte_letter(uint8_t(i)));
    }
    auto add = [&](auto& tokens, auto& merges) {
        for (const char* token : tokens) b.add(token);
        b.merges.assign(std::begin(merges), std::end(merges));
    };
    if (b.model == "gemma4")
        add(golden::kRawTokens, golden::kRawMerges);
    else
        add(golden::kPreTokens, golden::kPreMerges);
    b.add("<|end|>", 3);
    b.rest.bos = int64_t(b.tokens.size()) - 1;
    return b;
}

std::vector<std::string> names_of(const golden::PreTokenizerCase& c)
{
    std::vector<std::string> names(1);
    for (const char* p = c.names; *p; p++) {
        if (*p == ' ')
            names.emplace_back();
        else
            names.back() += *p;
    }
    return names;
}

} // namespace

TEST_CASE("pre-tokenizer: ids of strange lines")
{
    size_t n_names = 0;
    for (const golden::PreTokenizerCase& c : golden::kPreTokenizerCases) {
        for (const std::string& name : names_of(c)) {
            n_names++;
            Loaded t(strange_builder(name));
            CHECK_MESSAGE(t.tokenizer.adds_bos() == c.adds_bos, name);
            for (size_t i = 0; i < std::size(golden::kStrangeLines); i++) {
                std::string ids;
                for (uint32_t id : t.encode(golden::kStrangeLines[i], false, false))
                    ids += (ids.empty() ? "" : " ") + std::to_string(id);
                CHECK_MESSAGE(ids == c.ids[i], name, ", line ", i);
                CHECK(t.round_trip(golden::kStrangeLines[i]) == golden::kStrangeLines[i]);
            }
        }
    }
    CHECK(n_names > 70);
}

TEST_CASE("pre-tokenizer: letters with case and marks as Hugging Face has them")
{
    auto words = [](const char* pre, std::string_view text) {
        std::string out;
        WordSplitter splitter(*find_pre_tokenizer(pre), text);
        for (std::string_view word = splitter.next(); !word.empty(); word = splitter.next())
            out.append(out.empty() ? "" : "|").append(word);
        return out;
    };
    CHECK(words("gpt-4o", "HelloWorld HTTPServer's ABCd's") == "Hello|World| HTTPServer's| ABCd's");
    CHECK(words("tekken", "HelloWorld HTTPServer's") == "Hello|World| HTTPServer|'s");
    CHECK(words("gpt-4o", "\xc3\x89"
                          "cole\xd0\x94\xd0\xbe\xd0\xbc") == "\xc3\x89"
                                                             "cole|\xd0\x94\xd0\xbe\xd0\xbc");
    CHECK(words("gpt-4o", "e\xcc\x81"
                          "A \xcc\x81\n12345//\n/x") == "e\xcc\x81|A| \xcc\x81|\n|123|45|//\n/|x");
    CHECK(words("gpt-4o", "\xe4\xb8\xad"
                          "ABC") == "\xe4\xb8\xad|ABC");
    CHECK(words("tiny_aya", "1234567 1234a") == "1|234|567| |123|4|a");
    CHECK(words("kimi-k2", "ab\xe4\xb8\xad"
                           "Cd") == "ab|\xe4\xb8\xad|Cd");
    CHECK(words("hunyuan-dense", "12345#include <x>  y") == "123|45|#include| <|x|>| | y");
    CHECK(words("seed-coder", "a;\n\nb") == "a|;|\n\n|b");
    CHECK(words("qwen35", "a\xcc\x81"
                          "b 12") == "a\xcc\x81"
                                     "b| |1|2");
}

// A scanner that looks back or ahead over a whole run at each of its characters would take hours.
TEST_CASE("pre-tokenizer: long runs take linear time")
{
    for (const golden::PreTokenizerCase& c : golden::kPreTokenizerCases) {
        const PreTokenizer& pre = *find_pre_tokenizer(names_of(c)[0]);
        for (std::string unit :
             {" ", "\n", "a", "A", "1", "!", "'", "\xcc\x81", "\xe4\xb8\xad", "\xd9\xa3", "\xff",
              "\xe4\xb8\xad"
              "A",
              " \t"}) {
            std::string text = "x \n";
            for (int i = 0; i < 1 << 17; i++) text += unit;
            text += "\xe4\xb8\xad"
                    "a1 ";
            size_t at = 0;
            WordSplitter splitter(pre, text);
            for (std::string_view word = splitter.next(); !word.empty(); word = splitter.next()) {
                REQUIRE(word.data() == text.data() + at);
                at += word.size();
            }
            CHECK(at == text.size());
        }
    }
}
