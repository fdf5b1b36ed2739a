// Generates an answer token by token, for `run` and `chat`.
#pragma once

#include "tools/program.h"

#include "runtime/text/detokenizer.h"

#include <functional>

namespace ks
{

enum class Stop { length, eos, string, interrupted };
const char* stop_name(Stop stop);

struct Generated {
    std::vector<uint32_t> ids; // without the end token; the last one may not have been fed
    Stop stop = Stop::length;
    double seconds = 0;
    uint64_t allocations = 0; // on the heap, after the first token
};

// Turns tokens into text. Each token yields the bytes that no stop string can take back.
class TokenText
{
public:
    TokenText(const Tokenizer& tokenizer, const std::vector<std::string>& stops)
        : m_tokenizer(tokenizer), m_detokenizer(tokenizer.max_piece_bytes(), stops),
          m_piece(tokenizer.max_piece_bytes(), 0)
    {
    }
    std::string_view push(uint32_t id)
    {
        return m_detokenizer.feed({m_piece.data(), m_tokenizer.piece(id, m_piece.data())});
    }
    std::string_view finish() { return m_detokenizer.flush(); }
    bool stopped() const { return m_detokenizer.stopped_by() != nullptr; }

private:
    const Tokenizer& m_tokenizer;
    Detokenizer m_detokenizer;
    std::string m_piece;
};

using Emit = std::function<void(std::string_view)>;

// Samples from the session's logits until `limit` tokens, an end token, a stop string or Ctrl-C.
// The caller reserves `out.ids`, so that generating allocates nothing.
Status generate(Session& session, Sampler& sampler, TokenText& text, uint64_t limit,
                const Emit& emit, Generated& out);

// Writes text to standard output and flushes. On a terminal control characters become '?'.
void write_text(std::string_view text);

} // namespace ks
