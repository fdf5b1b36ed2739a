// Pre-tokenizers split a text into words. Byte-level BPE never merges across word borders. The
// model's tokenizer defines each as a sequence of regular expressions; here each expression is a
// list of rules. The words equal llama.cpp's, except where its expressions lack letter case.
// Together the words cover every byte of the text.
#pragma once

#include "runtime/text/unicode.h"

#include <cstddef>
#include <string_view>

namespace ks
{

// A piece of text that one pass splits. Positions only grow, so runs are measured once.
struct Scanner {
    const char* at = nullptr;
    const char* end = nullptr;
    Char c = {}; // the character at `at`
    // The last measured run of white space: its end, its last character and the end of its last
    // newline.
    const char *spaces_end = nullptr, *last_space = nullptr, *newlines_end = nullptr;
    const char* digits_end = nullptr; // of the last measured run of digits
    bool groups_digits = false;       // whether that run is cut into groups
    const char* match_end = nullptr;  // of a match that begins at `at`; null: not known

    void measure_spaces();
    const char* skip(const char* from, unsigned kinds, unsigned most = ~0u) const;
};

// Bytes of the match at the scanner's position, 0 if the rule does not match.
using Rule = size_t (*)(Scanner&);

struct PreTokenizer {
    static constexpr int kMaxPasses = 6;
    const char* names; // tokenizer.ggml.pre, separated by spaces
    const char* kind;  // "BPE (gpt-2)"
    // Each pass cuts every piece of the previous one into matches and the text between them. The
    // first rule that matches counts. Lists and rules end with null.
    const Rule* passes[kMaxPasses + 1];
    bool ignores_merges = false; // a word that is a token becomes it, whatever the merges say
    bool adds_bos = false;       // if the file does not say
    // Tokens are UTF-8 with U+2581 for a space, not letters for bytes.
    bool raw = false;
};

const PreTokenizer* find_pre_tokenizer(std::string_view name); // null: unknown name

class WordSplitter
{
public:
    WordSplitter(const PreTokenizer& pre, std::string_view text);
    std::string_view next(); // empty at the end of the text

private:
    const PreTokenizer& m_pre;
    Scanner m_scanners[PreTokenizer::kMaxPasses];
    const char* m_ends[PreTokenizer::kMaxPasses + 1]; // of the text, then of each pass's piece
    int m_n_passes = 0;
};

} // namespace ks
