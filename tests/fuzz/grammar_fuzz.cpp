// Any text as a grammar, a JSON schema or a pattern, and any bytes as an answer: the parsers refuse
// or succeed, and every token that is chosen continues the answer.
#include "runtime/chat/constraint.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/loaded.h"

#include <memory>

using namespace ks;

namespace
{

struct Chooser {
    static constexpr uint32_t kMaxVocab = 2048;
    std::unique_ptr<uint64_t[]> memory{new uint64_t[1 << 18]};
    std::unique_ptr<uint64_t[]> sampler_memory{
        new uint64_t[Sampler::bytes_needed(kMaxVocab) / 8 + 1]};
    Constraint constraint;
    explicit Chooser(const Tokenizer& tokenizer)
        : constraint(tokenizer, tokenizer.n_vocab(), memory.get())
    {
        KS_CHECK(tokenizer.n_vocab() <= kMaxVocab, "%u tokens", tokenizer.n_vocab());
    }
};

// Answers with logits from the input, then checks the text with a matcher of its own.
void answer(const Grammar& grammar, Chooser& chooser, const Tokenizer& tokenizer,
            std::string_view noise)
{
    static std::unique_ptr<uint64_t[]> memory(new uint64_t[Matcher::bytes_needed() / 8 + 1]);
    SamplerOptions options;
    options.temperature = noise.size() % 2 ? 0.f : 1.f;
    Sampler sampler(options, tokenizer.n_vocab(), chooser.sampler_memory.get());
    std::vector<float> logits(tokenizer.n_vocab());
    Matcher matcher(grammar, memory.get());
    chooser.constraint.begin(grammar);
    for (size_t step = 0; step < 8; step++) {
        for (size_t i = 0; i < logits.size(); i++)
            logits[i] = noise.empty() ? 0 : float(int8_t(noise[(i * 7 + step) % noise.size()]));
        uint32_t id = 0;
        const Status status = chooser.constraint.sample(sampler, logits.data(), &id);
        if (!status.ok()) return check_sentence(status);
        if (tokenizer.is_end(id)) {
            KS_CHECK(matcher.can_end(), "token %u ends the answer", id);
            return;
        }
        std::string piece(tokenizer.max_piece_bytes(), '\0');
        piece.resize(tokenizer.piece(id, piece.data()));
        KS_CHECK(!piece.empty(), "token %u has no text", id);
        for (char c : piece) {
            const uint16_t state = matcher.step(0, uint8_t(c));
            KS_CHECK(state < Matcher::kFull, "state %u after token %u", state, id);
            matcher.advance(state);
        }
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    static const std::vector<FuzzTokenizer>& tokenizers = fuzz_tokenizers();
    static Chooser choosers[] = {Chooser(tokenizers[0].tokenizer),
                                 Chooser(tokenizers[5].tokenizer)};
    const Deadline deadline;
    Input in = input_of(data, size);
    const uint8_t choice = in.byte();
    const std::string_view text = in.text();
    std::string pattern = "{\"pattern\": \"";
    for (char c : text) pattern += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
    Result<Grammar> grammar = choice % 4 == 0   ? parse_gbnf(text)
                              : choice % 4 == 1 ? parse_json_schema(pattern + "\"}")
                                                : parse_json_schema(text);
    if (!grammar.ok()) {
        check_sentence(grammar.status());
        return 0;
    }
    g_accepted++;
    const Grammar& made = grammar.value();
    KS_CHECK(made.nodes.size() <= Grammar::kMaxNodes && made.rules.size() <= Grammar::kMaxRules,
             "%zu nodes, %zu rules", made.nodes.size(), made.rules.size());
    for (const GrammarNode& node : made.nodes)
        KS_CHECK(node.next < made.nodes.size(), "node %u of %zu", node.next, made.nodes.size());
    const uint32_t which = choice >> 7;
    answer(made, choosers[which], tokenizers[which ? 5 : 0].tokenizer, in.rest);
    return 0;
}

std::vector<std::string> fuzz_seeds()
{
    const std::string end(1, '\0');
    std::vector<std::string> seeds;
    for (const char* text : {"root ::= \"a\" [b-d\\x41-\\u00e9]* ( x | . {2,5} )+ # comment\nx ::= "
                             "\"\\n\" | root \"!\" |\n"
                             "  [^a-c]{1,3}? y\ny ::= \"\"",
                             "root ::= item+\nitem ::= \"- \" [^\\r\\n\\U0001F600]{1,9} \"\\n\"",
                             "root ::= \"x\" root \"x\" | \"x\" root | root \"x\" | \"x\""})
        seeds.push_back(std::string(1, '\0') + text + end + "\x01\x7f" + "noise");
    for (const char* text : {"^[a-c\\d]+(?:x|\\.)*?$", "a{2,3}|^b\\S\\W[^\\s\\x41]$", "\\u00e9."})
        seeds.push_back("\x81" + std::string(text) + end + "more noise");
    for (const char* text :
         {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":-3,"
          "\"maximum\":"
          "120},\"b\":{\"enum\":[1,null,\"x\"]}},\"required\":[\"a\"],\"additionalProperties\":{"
          "\"type\":[\"number\",\"null\"]}}",
          "{\"$defs\":{\"n\":{\"properties\":{\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/"
          "n\"},{\"type\":"
          "\"null\"}]}}}},\"allOf\":[{\"$ref\":\"#/$defs/n\"},{\"required\":[\"next\"]}]}",
          "{\"oneOf\":[{\"type\":\"array\",\"prefixItems\":[{\"const\":\"a\"}],\"items\":{"
          "\"minLength\":1,"
          "\"maxLength\":9},\"minItems\":2,\"maxItems\":7},{\"type\":\"string\",\"format\":\"date-"
          "time\"}]}"})
        seeds.push_back("\x02" + std::string(text) + end + "\x05\x60noise");
    return seeds;
}
