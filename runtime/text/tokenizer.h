// Text to token ids and back. The tables live in memory that the plan has counted; the model file's header is not
// needed after load().
#pragma once

#include "runtime/base/status.h"
#include "runtime/text/vocab_source.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ks
{

enum class TokenType : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct EncodeOptions {
    bool add_bos = true;        // add a BOS where the model wants one
    bool parse_special = false; // control tokens in the text become those tokens; user text never does this
};

class Tokenizer
{
public:
    // Checks the source and counts the bytes that load() will fill. invalid / unsupported with the reason.
    static Result<uint64_t> bytes_needed(const VocabSource& source);
    Status load(const VocabSource& source, void* memory, uint64_t bytes);

    uint32_t n_vocab() const;
    // Any bytes: what is not UTF-8 becomes byte tokens. Appends to out.
    void encode(std::string_view text, const EncodeOptions& options, std::vector<uint32_t>& out) const;
    // The bytes of one token; control tokens have none unless `special`. Written to out (at least max_piece_bytes()).
    size_t piece(uint32_t id, char* out, bool special = false) const;
    size_t max_piece_bytes() const;
    std::string decode(const uint32_t* ids, size_t n, bool special = false) const;
    std::string_view text(uint32_t id) const; // as in the file
    TokenType type(uint32_t id) const;
    int64_t find(std::string_view token_text) const; // -1: no such token

    int64_t bos() const; // -1: none
    int64_t eos() const;
    bool adds_bos() const;
    bool adds_space_prefix() const;
    // The whole set: eos, eot, eom and the well-known end texts (<|im_end|>, <|eot_id|>, <end_of_turn>, ...).
    bool is_end(uint32_t id) const;
    const char* kind() const; // "BPE (smollm)", "SentencePiece"
};

} // namespace ks
