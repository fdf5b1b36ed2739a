// Turns a stretch of text without special tokens into tokens, by merging pairs of neighbours.
#pragma once

#include "runtime/text/pretokenizer.h"
#include "runtime/text/vocab.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ks
{

// Keeps its working memory from one text to the next. It grows with the longest word.
class Encoder
{
public:
    Encoder(const Vocab& vocab, const PreTokenizer* pre) : m_vocab(vocab), m_pre(pre) {} // pre null: SentencePiece
    // space_prefix: the text begins with a space of the model's own (SentencePiece only).
    void encode(std::string_view text, bool space_prefix, std::vector<uint32_t>& out);

private:
    struct Symbol {
        const char* text;
        uint32_t bytes; // 0: merged into the one before
        uint32_t id;    // kNone: no token
        uint32_t previous, next;
    };
    // A pair that can merge. It is out of date where the two no longer have these bytes.
    struct Pair {
        uint64_t order; // rank, then left: lowest first, leftmost among equals
        uint32_t right, bytes, id;
        bool operator<(const Pair& other) const { return order > other.order; } // for a heap with the lowest on top
    };

    void encode_bpe(std::string_view word, std::vector<uint32_t>& out);
    void encode_sentence_piece(std::string_view text, bool space_prefix, std::vector<uint32_t>& out);
    void encode_part(std::string_view text, bool space_prefix, std::vector<uint32_t>& out);
    void add_symbol(const char* text, size_t bytes, uint32_t id);
    template <class Find> void merge(Find find);
    template <class Find> void add_pair(uint32_t left, uint32_t right, Find find);

    const Vocab& m_vocab;
    const PreTokenizer* m_pre;
    std::vector<Symbol> m_symbols;
    std::vector<Pair> m_pairs; // a heap
    std::string m_text;
};

} // namespace ks
