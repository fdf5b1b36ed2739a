// Constrained sampling against a check of every token by itself.
#include "runtime/chat/constraint.h"
#include "tests/chat/grammar_bed.h"
#include "tests/text/sampler_bed.h"
#include "tests/text/vocab_builder.h"

#include <algorithm>

using namespace ks;

namespace
{

// Bytes, an end token, and some texts that share their beginnings.
struct Words {
    Tokenizer tokenizer;
    std::vector<uint32_t> memory;
    std::vector<uint64_t> constraint_memory;

    explicit Words(VocabBuilder builder)
    {
        for (const char* text :
             {"\"",   "\":", "\": ", "\",", "{\"",  "tr",  "true", "tru", "{",  "aa",
              "aaaa", "12",  "123",  "-1",  "null", "abc", "ab\"", "[[[", "]]", "}}"})
            builder.add(text);
        builder.rest.eot = int64_t(builder.tokens.size());
        builder.add("<|im_end|>", 4); // user_defined: it also has a text that a grammar may allow
        const VocabSource& source = builder.source();
        const uint64_t bytes = Tokenizer::bytes_needed(source).value();
        memory.resize(bytes / 4 + 1);
        REQUIRE(tokenizer.load(source, memory.data(), bytes).ok());
        constraint_memory.resize(Constraint::bytes_needed(source) / 8 + 1);
    }
    uint32_t n_vocab() const { return tokenizer.n_vocab() + 3; } // the model has more than names
    std::string piece(uint32_t id) const
    {
        std::string bytes(tokenizer.max_piece_bytes(), '\0');
        bytes.resize(tokenizer.piece(id, bytes.data()));
        return bytes;
    }
};

// The token with the highest logit that the grammar allows after a text; n_vocab if there is none.
uint32_t best_allowed(const Words& words, Texts& texts, const std::string& text,
                      const std::vector<float>& logits)
{
    uint32_t best = words.n_vocab();
    for (uint32_t id = 0; id < words.tokenizer.n_vocab(); id++) {
        if (best < logits.size() && logits[id] <= logits[best]) continue;
        const std::string piece = words.piece(id);
        if (words.tokenizer.is_end(id)
                ? texts.matches(text)
                : words.tokenizer.type(id) != TokenType::control && !piece.empty() &&
                      texts.walk(text + piece).first == text.size() + piece.size())
            best = id;
    }
    return best;
}

} // namespace

TEST_CASE("constraint: the best of the tokens that are allowed")
{
    const char* const grammars[] = {
        "root ::= \"true\" | \"tr\" [0-9]+ | [a-b]* \"c\"?",
        "root ::= \"{\" (pair (\",\" pair)*)? \"}\"\npair ::= \"\\\"\" c{0,5} \"\\\":\" (root | "
        "[0-9]+ | "
        "\"null\")\nc ::= [^\"\\\\\\x00-\\x1f]",
        "root ::= \"[\" root \"]\" | root root | \"a\"?",
        "root ::= [^x]{2,9}",
    };
    for (VocabBuilder builder : {bpe_builder("gpt-2"), spm_builder()}) {
        const Words words(builder);
        Words& memory = const_cast<Words&>(words);
        Constraint constraint(words.tokenizer, words.n_vocab(), memory.constraint_memory.data());
        for (const char* grammar : grammars) {
            Texts texts(parse_gbnf(grammar));
            REQUIRE_MESSAGE(texts.status().ok(), texts.status().message());
            for (uint64_t seed = 0; seed < 12; seed++) {
                SamplerOptions options;
                options.temperature = 0;
                TestSampler sampler(options, words.n_vocab());
                constraint.begin(texts.grammar());
                std::string text;
                for (uint64_t step = 0; step < 12; step++) {
                    const std::vector<float> logits =
                        random_logits(words.n_vocab(), seed * 100 + step, 3);
                    uint32_t id = 0;
                    const Status status = constraint.sample(sampler.sampler, logits.data(), &id);
                    const uint32_t best = best_allowed(words, texts, text, logits);
                    CAPTURE(grammar);
                    CAPTURE(text);
                    REQUIRE(status.ok() == (best < words.n_vocab()));
                    if (!status.ok()) break;
                    REQUIRE(id == best);
                    if (words.tokenizer.is_end(id)) break;
                    text += words.piece(id);
                }
                CHECK(sampler.sampler.state().n_draws == 0);
            }
        }
    }
}

TEST_CASE("constraint: text without a choice is taken as the tokenizer writes it")
{
    for (VocabBuilder builder : {bpe_builder("gpt-2"), spm_builder()}) {
        const Words words(builder);
        Words& memory = const_cast<Words&>(words);
        Constraint constraint(words.tokenizer, words.n_vocab(), memory.constraint_memory.data());
        Texts texts(parse_gbnf("root ::= \"{\\\"truth\\\": true, \\\"n\\\": \" [0-9] \"]]}}\""));
        const std::string head = "{\"truth\": true, \"n\": ", tail = "]]}}";
        const auto text_of = [&](const std::vector<uint32_t>& ids) {
            std::string text;
            for (uint32_t id : ids) text += words.piece(id);
            return text;
        };
        std::vector<uint32_t> whole;
        words.tokenizer.text_encoder().encode(head, false, whole);
        REQUIRE(text_of(whole) == head);
        whole.pop_back(); // may merge with the digit
        constraint.begin(texts.grammar());
        CHECK(constraint.take_forced(0).empty());
        CHECK(constraint.take_forced(99) == whole);
        constraint.begin(texts.grammar());
        CHECK(constraint.take_forced(1).size() == 1);
        CHECK(constraint.take_forced(1).size() == 1);

        TestSampler sampler(SamplerOptions(), words.n_vocab());
        for (uint64_t seed = 0; seed < 20; seed++) {
            constraint.begin(texts.grammar());
            std::string text;
            size_t n_forced = 0;
            while (!constraint.is_complete()) {
                const std::string forced = text_of(constraint.take_forced(99));
                text += forced;
                n_forced += forced.size();
                REQUIRE(texts.walk(text).first == text.size());
                if (constraint.is_complete()) break;
                const std::vector<float> logits =
                    random_logits(words.n_vocab(), seed * 100 + text.size(), 3);
                uint32_t id = 0;
                REQUIRE(constraint.sample(sampler.sampler, logits.data(), &id).ok());
                text += words.piece(id);
            }
            CHECK(texts.matches(text));
            CHECK(text.substr(0, head.size()) == head);
            CHECK(n_forced >= text_of(whole).size() + 2); // and some of the tail
        }
    }
}

TEST_CASE("constraint: draws under the mask have the probabilities of what is allowed")
{
    const Words words(bpe_builder("gpt-2"));
    Words& memory = const_cast<Words&>(words);
    Constraint constraint(words.tokenizer, words.n_vocab(), memory.constraint_memory.data());
    Texts texts(parse_gbnf("root ::= [ab]"));
    SamplerOptions options;
    options.temperature = 1;
    TestSampler sampler(options, words.n_vocab());
    std::vector<float> logits(words.n_vocab(), 0.f);
    const auto a = uint32_t(words.tokenizer.find("a")), b = uint32_t(words.tokenizer.find("b"));
    logits[a] = std::log(3.f);
    int n_a = 0;
    for (int i = 0; i < 4000; i++) {
        uint32_t id = 0;
        constraint.begin(texts.grammar());
        REQUIRE(constraint.sample(sampler.sampler, logits.data(), &id).ok());
        REQUIRE((id == a || id == b));
        n_a += id == a;
        CHECK(constraint.is_complete());
    }
    CHECK(n_a > 2850);
    CHECK(n_a < 3150);
}

TEST_CASE("constraint: no token is allowed")
{
    const Words words(bpe_builder("gpt-2"));
    Words& memory = const_cast<Words&>(words);
    Constraint constraint(words.tokenizer, words.n_vocab(), memory.constraint_memory.data());
    const std::pair<const char*, const char*> cases[] = {
        {"root ::= \"a\" [^\\x00-\\U0010FFFF]", "allows no token"},
        {"root ::= (\"a\"? \"b\"?){9000} \"c\"", "too ambiguous"},
    };
    for (const auto& [grammar, message] : cases) {
        Texts texts(parse_gbnf(grammar));
        REQUIRE_MESSAGE(texts.status().ok(), texts.status().message());
        TestSampler sampler(SamplerOptions(), words.n_vocab());
        const std::vector<float> logits(words.n_vocab(), 0.f);
        constraint.begin(texts.grammar());
        uint32_t id = 0;
        Status status;
        for (int i = 0; i < 3 && status.ok(); i++)
            status = constraint.sample(sampler.sampler, logits.data(), &id);
        CHECK(status.code() == Code::unsupported);
        CHECK_MESSAGE(status.message().find(message) != std::string::npos, status.message());
    }
}
