// Malicious headers: refused with a sentence, or read as far as possible. No crash, no slow path.
#include "vocab_builder.h"

#include <cmath>
#include <limits>

using namespace ks;

namespace
{

Status refusal(VocabBuilder b)
{
    Result<uint64_t> bytes = Tokenizer::bytes_needed(b.source());
    REQUIRE(!bytes.ok());
    const std::string& message = bytes.status().message();
    CHECK(message.size() < 300);
    for (char c : message) CHECK((c >= 0x20 && c < 0x7f));
    Tokenizer t;
    CHECK(!t.load(b.source(), nullptr, 0).ok());
    return bytes.status();
}

// Checks that it loads and that every text survives a round trip.
void check_works(const VocabBuilder& b)
{
    Loaded t(b);
    for (const char* text :
         {"Hello, the world 123!", "  x  the\n\n", "<|im_start|>\xff\xe4\xb8 aaaa", ""})
        CHECK(t.round_trip(text) == text);
    std::string piece(t.tokenizer.max_piece_bytes(), ' ');
    for (uint32_t id = 0; id < t.tokenizer.n_vocab(); id++) {
        CHECK(t.tokenizer.piece(id, &piece[0], true) <= piece.size());
        CHECK(
            (t.tokenizer.type(id) >= TokenType::normal && t.tokenizer.type(id) <= TokenType::byte));
    }
    std::vector<uint32_t> ids = t.encode("a", true);
    for (uint32_t id : ids) CHECK(id < t.tokenizer.n_vocab());
}

} // namespace

TEST_CASE("tokenizer source: refused")
{
    VocabBuilder b = bpe_builder("gpt-2");
    b.model = "bert";
    CHECK(refusal(b).code() == Code::unsupported);
    CHECK(refusal(b).message().find("bert") != std::string::npos);
    b.model = std::string(1 << 20, '\n');
    CHECK(refusal(b).code() == Code::unsupported);
    b = bpe_builder("hyperclovax");
    CHECK(refusal(b).code() == Code::unsupported);
    CHECK(refusal(b).message().find("hyperclovax") != std::string::npos);
    CHECK(refusal(b).message().find("qwen2") != std::string::npos);
    for (const char* pre : {"gpt-2 phi-2", " ", "gpt-2 ", "gpt", "llama"}) {
        b.pre = pre;
        CHECK(refusal(b).code() == Code::unsupported);
    }
    b.pre = std::string(1 << 20, 'p');
    CHECK(refusal(b).code() == Code::unsupported);

    for (VocabBuilder good : {bpe_builder("gpt-2"), spm_builder()}) {
        b = good;
        b.tokens.clear();
        CHECK(refusal(b).code() == Code::invalid);
        b = good;
        b.types.resize(5);
        CHECK(refusal(b).code() == Code::invalid);
        b = good;
        b.tokens.push_back("more");
        CHECK(refusal(b).code() == Code::invalid);
        b = good;
        b.scores.resize(5);
        CHECK(refusal(b).code() == Code::invalid);
    }
    b = bpe_builder("gpt-2");
    b.merges.clear();
    CHECK(refusal(b).code() == Code::invalid);
}

TEST_CASE("tokenizer source: odd but readable")
{
    for (VocabBuilder good : {bpe_builder("smollm"), spm_builder()}) {
        const size_t last = good.tokens.size() - 1;
        VocabBuilder b = good;
        check_works(b);
        b.types.resize(1000, 1);
        check_works(b);
        b.types.clear();
        Loaded(b).encode("<0x41>\xff", true);
        b = good;
        for (size_t i = 259; i <= last; i++)
            b.types[i] = i % 3 == 0 ? 99 : i % 3 == 1 ? -1 : std::numeric_limits<int32_t>::max();
        check_works(b);
        const std::string long_text(1 << 20, 'a'),
            cases[] = {"\xff\xfe\xc0",         "\xe2\x96", "",
                       std::string("a\0b", 3), long_text,  b.tokens[270]};
        for (const std::string& text : cases) {
            for (int type : {1, 3, 4, 6}) {
                b = good;
                b.tokens[last] = text;
                b.types[last] = type;
                check_works(b);
            }
        }
        for (int64_t id : {int64_t(last) + 1, int64_t(-1), int64_t(-100), int64_t(1) << 31,
                           std::numeric_limits<int64_t>::max()}) {
            b = good;
            b.rest.bos = b.rest.eos = b.rest.eot = b.rest.eom = b.rest.unknown = id;
            b.rest.add_bos = b.rest.add_eos = 1;
            check_works(b);
        }
    }
}

TEST_CASE("tokenizer source: SentencePiece without scores, bytes or sense")
{
    const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
    for (float score : {nan, -nan, inf, -inf, -0.0f}) {
        VocabBuilder b = spm_builder();
        for (size_t i = 0; i < b.scores.size(); i += 1 + (score == inf)) b.scores[i] = score;
        check_works(b);
    }
    VocabBuilder b = spm_builder();
    b.scores.clear();
    check_works(b);
    for (const char* text : {"<0x-1>", "<0xGG>", "<0x1FF>", "<0x>", "<0x0a>"}) {
        b = spm_builder();
        b.tokens.back() = text;
        b.types.back() = 6;
        check_works(b);
    }
    b = spm_builder();
    for (size_t i = 3; i < 259; i++) b.tokens[i] = "no byte " + std::to_string(i), b.types[i] = 1;
    Loaded t(b);
    CHECK(t.encoded("a\xe6\xb0\xb4g\xff") == "1 305 0 266 0"); // one unknown token per character
    VocabBuilder one;
    one.model = "llama";
    one.add("", 2);
    Loaded only(one);
    CHECK(only.encode("abc", true).size() == 4);
    CHECK(only.tokenizer.bos() == -1);
}

TEST_CASE("tokenizer source: merges that lead nowhere")
{
    for (std::string merge :
         {"zq qz", "z z", "hi", "", " ", "  ", "\xff \xfe", "a", " a", "a ", "h e"}) {
        VocabBuilder b = bpe_builder("qwen2");
        b.merges[0] = merge;
        b.merges.push_back(merge);
        check_works(b);
    }
    VocabBuilder b = bpe_builder("qwen2");
    b.merges[0] = "h " + std::string(1 << 20, 'i');
    check_works(b);
    // Of two merges of the same pair, the first wins.
    b = bpe_builder("gpt-2");
    b.merges = {"a b", "b c", "a b"};
    b.add("ab");
    b.add("bc");
    Loaded t(b);
    CHECK(t.round_trip("abc") == "abc");
    CHECK(t.encode("abc")[0] == uint32_t(t.tokenizer.find("ab")));
}

TEST_CASE("tokenizer source: texts that were made to collide")
{
    VocabBuilder b;
    b.model = "llama";
    for (int i = 0; b.tokens.size() < 300; i++) {
        std::string text = "c" + std::to_string(i);
        if (Vocab::hash(text) >> 55 == 0) b.add(text);
    }
    Result<uint64_t> bytes = Tokenizer::bytes_needed(b.source());
    REQUIRE(bytes.ok());
    std::vector<uint32_t> memory(bytes.value() / 4 + 1);
    Tokenizer t;
    Status status = t.load(b.source(), memory.data(), bytes.value());
    CHECK(status.code() == Code::invalid);
    CHECK(status.message().find("collide") != std::string::npos);
}

TEST_CASE("tokenizer source: duplicates")
{
    VocabBuilder b = spm_builder();
    b.add("the", 1, 5);
    b.add("<|u|>", 4);
    b.add("<|u|>", 3);
    check_works(b);
    Loaded t(b);
    CHECK(t.tokenizer.find("the") == 302);
    VocabBuilder same;
    same.model = "llama";
    for (int i = 0; i < 20000; i++) same.add("same", i % 7);
    Loaded many(same);
    CHECK(many.encode("same same", true).size() > 0);
    VocabBuilder nested; // every token is a prefix of the next one
    nested.model = "llama";
    for (size_t i = 1; i < 1500; i++) nested.add(std::string(i, 'a'), 4);
    Loaded chain(nested);
    CHECK(chain.encode(std::string(4000, 'a'), true, false).size() == 3);
}
