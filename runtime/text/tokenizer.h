// Text to token ids and back. The tables live in planned memory; load() copies everything it needs
// from the header of the model file. Texts may hold any bytes: invalid UTF-8 is encoded byte by
// byte.
#pragma once

#include "runtime/base/status.h"
#include "runtime/text/encoder.h"
#include "runtime/text/pretokenizer.h"
#include "runtime/text/vocab_source.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ks
{

struct EncodeOptions {
    bool add_bos = true; // add what the model wants around a text: BOS before it, EOS after it
    bool parse_special = false; // parse control tokens in the text; never set it for user text
};

// A rendered chat template: who wrote which byte decides what may become a special token. A control
// token is found only where the template wrote all of its bytes. So is a user-defined token that is
// a marker; other user-defined tokens, runs of line breaks for instance, are found everywhere.
constexpr char kTemplateAuthor = 'f';
struct AuthoredText {
    std::string_view text;
    std::string_view authors; // a letter for each byte of the text
    std::string_view markup;  // what the template writes: user-defined tokens in it are markers
    bool after_special;       // a special token or nothing stands before the text
};

// The end of a part of a text that was encoded on its own.
struct EncodedPart {
    size_t text_end;   // in bytes
    size_t tokens_end; // tokens of this and the earlier parts
    bool special;      // one special token
};

class Tokenizer
{
public:
    // Checks the source and counts the bytes that load() needs. Fails with invalid or unsupported
    // and the reason.
    static Result<uint64_t> bytes_needed(const VocabSource& source);
    // memory: 4-byte aligned, must outlive this object.
    Status load(const VocabSource& source, void* memory, uint64_t bytes);

    uint32_t n_vocab() const { return m_vocab.size(); }
    // Appends to `out`. Working memory grows with the text. A byte without a token is dropped: some
    // byte-level BPE vocabularies lack rare control characters and bytes that never occur in UTF-8.
    void encode(std::string_view text, const EncodeOptions& options,
                std::vector<uint32_t>& out) const;
    // Adds neither BOS nor EOS. `parts` receives the parts: special tokens and the texts between
    // them.
    void encode(const AuthoredText& text, std::vector<uint32_t>& out,
                std::vector<EncodedPart>& parts) const;
    // Encodes texts without special tokens. The tokenizer must outlive it.
    Encoder text_encoder() const { return Encoder(m_vocab, m_pre); }
    // Writes the bytes of one token to `out`, which has max_piece_bytes(). Control and unknown
    // tokens have none unless `special`. A leading space of the token is always kept.
    size_t piece(uint32_t id, char* out, bool special = false) const;
    size_t max_piece_bytes() const { return m_vocab.longest(); }
    // Inverse of encode(). It removes the space that encode() adds before a text and after a
    // special token (adds_space_prefix()). Use piece() to print tokens one by one.
    std::string decode(const uint32_t* ids, size_t n, bool special = false) const;
    std::string_view text(uint32_t id) const; // as in the file
    TokenType type(uint32_t id) const;
    int64_t find(std::string_view token_text) const; // -1: no such token
    // Whether encode() drops white space after the token.
    bool strips_right(uint32_t id) const { return m_vocab.strips_right(id); }

    int64_t bos() const { return m_bos; } // -1: none
    int64_t eos() const { return m_eos; }
    bool adds_bos() const { return m_adds_bos; }
    bool adds_eos() const { return m_adds_eos; }
    bool adds_space_prefix() const { return m_adds_space_prefix; }
    // eos, eot, eom, eos_token_ids and the well-known end texts (<|im_end|>, <|eot_id|>,
    // <end_of_turn>, ...).
    bool is_end(uint32_t id) const;
    void mark_end(uint32_t id) { m_vocab.mark_end(id); }
    // Tokens that a model must not produce.
    const uint32_t* suppressed() const { return m_vocab.suppressed(); }
    uint32_t n_suppressed() const { return m_vocab.n_suppressed(); }
    // "SentencePiece", "BPE (smollm)", ...
    const char* kind() const { return m_pre ? m_pre->kind : "SentencePiece"; }

private:
    // A special token in a text and the bytes it covers, including the white space that it strips.
    struct Cut {
        size_t begin, end;
        uint32_t id;
    };
    // Whether a special token may begin at a byte of the text.
    using IsAllowed = std::function<bool(uint32_t id, size_t begin)>;
    std::vector<Cut> cut_specials(std::string_view text, const IsAllowed& is_allowed) const;
    void encode_parts(std::string_view text, bool after_special, const IsAllowed& is_allowed,
                      std::vector<uint32_t>& out, std::vector<EncodedPart>* parts) const;
    bool is_marker(uint32_t id, std::string_view markup) const;

    Vocab m_vocab;
    const PreTokenizer* m_pre = nullptr; // null: SentencePiece
    int64_t m_bos = -1, m_eos = -1;
    bool m_adds_bos = false, m_adds_eos = false, m_adds_space_prefix = false;
};

} // namespace ks
