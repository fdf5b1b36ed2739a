// Pre-tokenizers cut a text into words; byte-level BPE never merges across their borders. Each is a regular expression
// in the model's own tokenizer and a hand-written scanner here. The words are those of llama.cpp, whose expressions
// differ from the originals in corners; all of a text's bytes are in its words.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ks
{

struct PreTokenizer {
    enum Kind {
        plain,  // punctuation | gpt2 on the rest; then numbers, in threes of ASCII digits
        gpt2,   // '(s|t|re|ve|m|ll|d) | ?letters | ?numbers | ?others | spaces(?!non-space) | spaces
        smollm, // every number is a word; gpt2 on what stands between
        llama3, // '(s|t|re|..) in any case | [^\r\n letter number]?letters | number{1,3} | ?others[\r\n]* | spaces[\r\n] | ...
        qwen2,  // the same with single numbers
    };
    const char* name; // tokenizer.ggml.pre
    Kind kind;
    bool ignores_merges = false; // a word that is a token becomes it, whatever the merges say
    bool adds_bos = false;       // where the file does not say
};

const PreTokenizer* find_pre_tokenizer(std::string_view name); // null: none of that name
const char* pre_tokenizer_kind(PreTokenizer::Kind kind);       // "BPE (smollm)"

// Bytes of the word at `at` < end, at least one. What stands before `at` does not matter.
size_t next_word(PreTokenizer::Kind kind, const char* at, const char* end);

} // namespace ks
