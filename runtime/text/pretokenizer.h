// Pre-tokenizers split a text into words. Byte-level BPE never merges across word borders. The
// model's tokenizer defines each as a regular expression; here it is a hand-written scanner. The
// words equal llama.cpp's, whose expressions differ from the originals in rare cases.
// Together the words cover every byte of the text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ks
{

struct PreTokenizer {
    enum Kind {
        plain, // punctuation | gpt2 on the rest; then ASCII digits in groups of three
        gpt2,  // '(s|t|re|ve|m|ll|d) | ?letters | ?numbers | ?others | spaces(?!non-space) | spaces
        smollm, // every number character is a word; gpt2 on the text between
        llama3, // '(s|t|re|..) in any case | [^\r\n letter number]?letters | number{1,3} |
                // ?others[\r\n]* | spaces[\r\n] | ...
        qwen2,  // llama3 with single numbers
    };
    const char* name; // tokenizer.ggml.pre
    Kind kind;
    bool ignores_merges = false; // a word that is a token becomes it, whatever the merges say
    bool adds_bos = false;       // if the file does not say
};

const PreTokenizer* find_pre_tokenizer(std::string_view name); // null: unknown name
const char* pre_tokenizer_kind(PreTokenizer::Kind kind);       // "BPE (smollm)"

// Bytes of the word at `at` < end, at least one. Text before `at` has no influence.
size_t next_word(PreTokenizer::Kind kind, const char* at, const char* end);

} // namespace ks
