// Text to token ids and back. The tables live in memory that the plan has counted; the model file's header is not
// needed after load(). Texts may hold any bytes: what is not UTF-8 becomes tokens byte by byte.
#pragma once

#include "runtime/base/status.h"
#include "runtime/text/pretokenizer.h"
#include "runtime/text/vocab.h"
#include "runtime/text/vocab_source.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ks
{

struct EncodeOptions {
    bool add_bos = true;        // add what the model wants around a text: a BOS before it, an EOS behind it
    bool parse_special = false; // control tokens in the text become those tokens; user text never does this
};

class Tokenizer
{
public:
    // Checks the source and counts the bytes that load() will fill. invalid / unsupported with the reason.
    static Result<uint64_t> bytes_needed(const VocabSource& source);
    Status load(const VocabSource& source, void* memory, uint64_t bytes); // memory: 4-byte aligned, lives as long as this

    uint32_t n_vocab() const { return m_vocab.size(); }
    // Appends to out. Working memory grows with the text. A byte that the vocabulary has no token for is left out: some
    // byte-level BPE vocabularies lack rare control characters and what never occurs in UTF-8.
    void encode(std::string_view text, const EncodeOptions& options, std::vector<uint32_t>& out) const;
    // The bytes of one token; control and unknown tokens have none unless `special`. Written to out (at least
    // max_piece_bytes()). A token that begins with a space keeps it, wherever it stands.
    size_t piece(uint32_t id, char* out, bool special = false) const;
    size_t max_piece_bytes() const { return m_vocab.longest(); }
    // The text that encode() would have been given: without the space that it puts before a text and behind a special
    // token (adds_space_prefix()). To show tokens one by one as they come, use piece().
    std::string decode(const uint32_t* ids, size_t n, bool special = false) const;
    std::string_view text(uint32_t id) const; // as in the file
    TokenType type(uint32_t id) const;
    int64_t find(std::string_view token_text) const;                          // -1: no such token
    bool strips_right(uint32_t id) const { return m_vocab.strips_right(id); } // encode() drops white space behind it

    int64_t bos() const { return m_bos; } // -1: none
    int64_t eos() const { return m_eos; }
    bool adds_bos() const { return m_adds_bos; }
    bool adds_eos() const { return m_adds_eos; }
    bool adds_space_prefix() const { return m_adds_space_prefix; }
    // The whole set: eos, eot, eom and the well-known end texts (<|im_end|>, <|eot_id|>, <end_of_turn>, ...).
    bool is_end(uint32_t id) const;
    const char* kind() const { return m_pre ? pre_tokenizer_kind(m_pre->kind) : "SentencePiece"; } // else "BPE (smollm)", ...

private:
    // A special token in a text, and the bytes that it takes up: its own, and the white space that it swallows.
    struct Cut {
        size_t begin, end;
        uint32_t id;
    };
    std::vector<Cut> cut_specials(std::string_view text, bool with_control) const;

    Vocab m_vocab;
    const PreTokenizer* m_pre = nullptr; // null: SentencePiece
    int64_t m_bos = -1, m_eos = -1;
    bool m_adds_bos = false, m_adds_eos = false, m_adds_space_prefix = false;
};

} // namespace ks
