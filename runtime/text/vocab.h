// The tables of a vocabulary, in planned memory: texts, types, lookup by text, merges, and special
// tokens, which are matched before everything else.
#pragma once

#include "runtime/base/status.h"
#include "runtime/text/vocab_source.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ks
{

enum class TokenType : uint8_t {
    normal = 1,
    unknown = 2,
    control = 3,
    user_defined = 4,
    unused = 5,
    byte = 6
};

class Vocab
{
public:
    static constexpr uint32_t kNone = 0xffffffff;

    static Result<uint64_t> bytes_needed(const VocabSource& source);
    Status load(const VocabSource& source, void* memory, uint64_t bytes);

    uint32_t size() const { return m_n_tokens; }
    std::string_view text(uint32_t id) const
    {
        return {m_texts + m_offsets[id], m_offsets[id + 1] - m_offsets[id]};
    }
    TokenType type(uint32_t id) const { return TokenType(m_flags[id] & kTypeMask); }
    bool is_end(uint32_t id) const { return m_flags[id] & kEnd; }
    void mark_end(uint32_t id)
    {
        if (!is_end(id)) m_flags[id] |= kEnd; // sessions in other threads read the flags
    }
    // Whether a control token is part of the answer's text: the channels of gpt-oss.
    bool is_rendered(uint32_t id) const { return m_flags[id] & kRendered; }
    const uint32_t* suppressed() const { return m_suppressed; } // (n_suppressed)
    uint32_t n_suppressed() const { return m_n_suppressed; }
    // Whether white space after the token is dropped.
    bool strips_right(uint32_t id) const { return m_flags[id] & kStripsRight; }
    uint32_t longest() const { return m_longest; } // bytes of the longest text, at least 1

    static uint64_t hash(std::string_view text); // the top bits give the first probe in the table
    uint32_t find(std::string_view text) const;  // the first match; kNone if there is none
    // Finds only tokens that plain text may become by merging: no control, unknown or byte tokens.
    uint32_t find_mergeable(std::string_view text) const;
    // kNone: BPE without a token for the byte.
    uint32_t byte_id(uint8_t byte) const { return m_byte_ids[byte]; }
    // SentencePiece: the merge priority. A higher score has a lower rank.
    uint32_t rank(uint32_t id) const { return m_ranks[id]; }
    // SentencePiece: whether any token contains this byte directly before U+2581. If not, no token
    // crosses that border.
    bool joins_space(uint8_t byte) const { return m_joins_space[byte / 32] >> byte % 32 & 1; }
    // BPE: the merged token and the rank of the merge; kNone if the pair does not merge.
    uint32_t find_merge(uint32_t left, uint32_t right, uint32_t* rank) const;

    // Special tokens are matched before the rest of a text is encoded, longer ones first.
    struct Special {
        uint32_t id;
        uint32_t
            shorter;    // index of the longest special token that is a prefix of this one, or kNone
        uint32_t order; // matching priority, 0 first
    };
    const Special& special(uint32_t index) const { return m_specials[index]; }
    uint32_t n_specials() const { return m_n_specials; }
    // Index of the longest special token at `at` < end, or kNone.
    uint32_t find_special(const char* at, const char* end) const;

private:
    static constexpr uint8_t kTypeMask = 15, kRendered = 32, kStripsRight = 64, kEnd = 128;
    // Tokens or merges. An entry of a hash table is a 24-bit index and 8 bits of the hash.
    static constexpr uint32_t kMaxItems = (1 << 24) - 1;

    struct Merge {
        uint32_t left, right, result; // the index of a merge is its rank; kNone: not a token
    };
    // Open addressing. An entry is an index with the low 8 bits of the hash on top, or kNone if
    // free. 2^bits entries, at most 2/3 used.
    struct Slots {
        uint32_t* slots;
        uint32_t bits;
        template <class Same>
        uint32_t& at(uint64_t hash, Same same, uint64_t& n_steps) const;
        template <class Same>
        uint32_t find(uint64_t hash, Same same) const;
    };
    // Texts whose meaning depends on the other tokens of the vocabulary.
    struct Exceptions {
        bool end_is_rendered; // <|end|> ends a message, not the answer
        bool s_is_text;       // </s> is a tag of HTML
    };
    struct Layout {
        bool sentence_piece;
        uint64_t n_tokens, n_merges, n_specials, n_suppressed, texts_bytes;
        uint32_t longest;
        Exceptions exceptions;
        uint64_t bytes() const;
    };

    static Result<Layout> measure(const VocabSource& source);
    static Exceptions exceptions_of(const VocabSource& source);
    static uint8_t flags_of(const VocabSource& source, uint64_t index, std::string_view text,
                            const Exceptions& exceptions);
    static uint32_t slot_bits(uint64_t n);
    void place(const Layout& layout, void* memory);
    void copy_tokens(const VocabSource& source, const Exceptions& exceptions);
    void note_spaces(std::string_view text);
    Status fill_lookup();
    Status fill_merges(const VocabSource& source);
    void fill_specials(const VocabSource& source);
    void fill_byte_ids(const VocabSource& source);
    bool is_special(uint32_t id) const;

    uint32_t m_n_tokens = 0, m_n_merges = 0, m_n_specials = 0, m_n_suppressed = 0, m_longest = 1;
    uint32_t* m_offsets = nullptr;    // (n_tokens + 1)
    uint32_t* m_ranks = nullptr;      // (n_tokens), SentencePiece only
    Merge* m_merges = nullptr;        // (n_merges), BPE only
    Special* m_specials = nullptr;    // (n_specials), sorted by text
    uint32_t* m_suppressed = nullptr; // (n_suppressed)
    // (65536 / 32) bits: whether a special token begins with these two bytes.
    uint32_t* m_special_begins = nullptr;
    uint8_t* m_flags = nullptr; // (n_tokens): TokenType and flag bits
    char* m_texts = nullptr;
    Slots m_lookup = {nullptr, 0}, m_merge_lookup = {nullptr, 0};
    uint32_t m_byte_ids[256];
    uint32_t m_joins_space[256 / 32] = {};
};

// U+2581: a space in the texts of SentencePiece.
constexpr std::string_view kSpaceSign = "\xe2\x96\x81";

// Byte-level BPE writes every byte as a letter: itself if printable in Latin-1, else a letter from
// U+0100 on.
std::string byte_letter(uint8_t byte);   // in UTF-8
int byte_of_letter(int32_t codepoint);   // -1: the letter encodes no byte
int byte_of_name(std::string_view text); // of "<0x0A>"; -1: not of this form

} // namespace ks
