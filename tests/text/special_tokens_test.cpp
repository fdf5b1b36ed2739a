// Gemma 4's raw BPE, and tokens whose meaning depends on the vocabulary or on lists of ids.
#include "vocab_builder.h"

#include <iterator>

using namespace ks;

TEST_CASE("tokenizer: the raw BPE of Gemma 4")
{
    VocabBuilder b;
    b.model = "gemma4";
    b.pre = "default"; // means nothing here
    for (const char* text : {"<pad>", "<bos>", "</s>", "<|tool_response>"}) b.add(text, 3);
    for (unsigned i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", i);
        b.add(name, 6);
    }
    const char* const tokens[] = {"\xe2\x96\x81",
                                  "a",
                                  "b",
                                  "\n",
                                  "\xe2\x96\x81"
                                  "a",
                                  "ab",
                                  "\n\n",
                                  "<|channel>"};
    for (const char* text : tokens) b.add(text, text[0] == '<' ? 4 : 1);
    b.merges = {"\xe2\x96\x81 a", "a b"};
    b.rest.bos = 1;
    b.rest.add_bos = 0; // as in old files
    Loaded t(b);
    CHECK(t.tokenizer.adds_bos());
    CHECK(std::string(t.tokenizer.kind()) == "BPE (gemma4)");
    CHECK(t.encoded("ab a") == "1 265 264");
    CHECK(t.encoded("\n\n\n\n\na") == "1 263 263 263 263 263 261");
    CHECK(t.encoded("\n\na") == "1 266 261");
    CHECK(t.encoded("\xc3\xa9\xff"
                    "c") == "1 199 173 259 103");
    CHECK(t.encoded("<|channel>") == "1 267"); // user-defined: visible and read in any text
    CHECK(t.encoded("<bos>").find("1 1") != 0);
    CHECK(t.encoded("</s>", true).find("1 2") != 0); // a tag of HTML
    CHECK(!t.tokenizer.is_end(2));
    CHECK(t.tokenizer.is_end(3));
    for (std::string text : {"a  b\n\n \xff\xc3\xa9 c", " ab", ""})
        CHECK(t.round_trip(text) == text);
}

TEST_CASE("tokenizer: ends and channels that depend on other tokens")
{
    auto with = [](std::vector<const char*> texts) {
        VocabBuilder b = bpe_builder("gpt-4o");
        for (const char* text : texts) b.add(text, 3);
        return Loaded(b);
    };
    auto id = [](const Loaded& t, const char* text) { return uint32_t(t.tokenizer.find(text)); };
    CHECK(with({"<|end|>", "<|return|>"}).tokenizer.is_end(id(with({"<|end|>"}), "<|end|>")));
    for (std::vector<const char*> texts :
         {std::vector<const char*>{"<|end|>", "<|return|>", "<|call|>", "<|channel|>"},
          {"<|end|>", "<|flush|>", "<|calls|>", "<|start|>"}}) {
        Loaded t = with(texts);
        CHECK(!t.tokenizer.is_end(id(t, "<|end|>")));
        CHECK(t.tokenizer.is_end(id(t, texts[1])));
        CHECK(t.tokenizer.is_end(id(t, texts[2])));
        for (const char* text : {texts[0], texts[3]}) {
            uint32_t token = id(t, text);
            CHECK(t.tokenizer.decode(&token, 1) == text);   // part of the answer
            CHECK(t.encode(text, false, false).size() > 1); // never of a user's text
            CHECK(t.encode(text, true, false).size() == 1);
        }
        uint32_t hidden = id(t, texts[1]);
        CHECK(t.tokenizer.decode(&hidden, 1).empty());
    }
    Loaded s = with({"</s>", "[e~["});
    CHECK(s.tokenizer.is_end(id(s, "</s>")));
    CHECK(s.tokenizer.is_end(id(s, "[e~[")));
    Loaded plamo = with({"</s>", "<|plamo:eos|>"});
    CHECK(!plamo.tokenizer.is_end(id(plamo, "</s>")));
    CHECK(plamo.tokenizer.type(id(plamo, "</s>")) == TokenType::normal);
}

TEST_CASE("tokenizer: lists of ids")
{
    VocabBuilder b = bpe_builder("qwen2");
    const int32_t ends[] = {300, -1, 301, 1 << 30}, never[] = {7, -5, 9, 1 << 30, 7};
    b.rest.more_eos = {reinterpret_cast<const uint8_t*>(ends), std::size(ends)};
    b.rest.suppress = {reinterpret_cast<const uint8_t*>(never), std::size(never)};
    Loaded t(b);
    CHECK(t.tokenizer.is_end(300));
    CHECK(t.tokenizer.is_end(301));
    CHECK(!t.tokenizer.is_end(302));
    const uint32_t* ids = t.tokenizer.suppressed();
    CHECK(std::vector<uint32_t>(ids, ids + t.tokenizer.n_suppressed()) ==
          std::vector<uint32_t>{7, 9, 7});
}
