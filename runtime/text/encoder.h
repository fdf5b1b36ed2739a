// Encodes text without special tokens by merging adjacent pairs.
#pragma once

#include "runtime/text/pretokenizer.h"
#include "runtime/text/vocab.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ks
{

// Reuses its working memory between calls. The memory grows with the longest word.
class Encoder
{
public:
    Encoder(const Vocab& vocab, const PreTokenizer* pre)
        : m_vocab(vocab), m_pre(pre) {} // pre null: SentencePiece
    // Reserves the memory for texts of n bytes, so that encode() allocates nothing.
    void reserve(size_t n)
    {
        m_symbols.reserve(n + 1);
        m_pairs.reserve(3 * n); // a merge adds two
        m_text.reserve(3 * n + 3);
    }
    // space_prefix: a space is added before the text (SentencePiece only).
    void encode(std::string_view text, bool space_prefix, std::vector<uint32_t>& out);

private:
    struct Symbol {
        const char* text;
        uint32_t bytes; // 0: merged into the previous symbol
        uint32_t id;    // kNone: not a token
        uint32_t previous, next;
    };
    // A pair that can merge. It is stale if its two symbols no longer have `bytes` bytes together.
    struct Pair {
        uint64_t order; // rank in the high bits, then left: lowest first, leftmost on ties
        uint32_t right, bytes, id;
        // Puts the lowest order on top of a heap.
        bool operator<(const Pair& other) const { return order > other.order; }
    };

    void encode_bpe(std::string_view word, std::vector<uint32_t>& out);
    void encode_raw_bpe(std::string_view word, std::vector<uint32_t>& out);
    void encode_sentence_piece(std::string_view text, bool space_prefix,
                               std::vector<uint32_t>& out);
    void encode_part(std::string_view text, bool space_prefix, std::vector<uint32_t>& out);
    void put_space_signs(std::string_view text); // appends to m_text
    void add_characters(std::string_view text);
    void merge_ranked();
    void add_symbol(const char* text, size_t bytes, uint32_t id);
    template <class Find>
    void merge(Find find);
    template <class Find>
    void add_pair(uint32_t left, uint32_t right, Find find);

    const Vocab& m_vocab;
    const PreTokenizer* m_pre;
    std::vector<Symbol> m_symbols;
    std::vector<Pair> m_pairs; // a heap
    std::string m_text;
};

} // namespace ks
