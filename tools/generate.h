// Generates an answer token by token, for `run` and `chat`.
#pragma once

#include "tools/program.h"

#include "runtime/api/conversation.h"
#include "runtime/chat/answer.h"
#include "runtime/chat/constraint.h"
#include "runtime/text/detokenizer.h"

#include <functional>
#include <memory>

namespace ks
{

enum class Stop { length, eos, string, interrupted };
const char* stop_name(Stop stop);

struct Generated {
    std::vector<uint32_t> ids; // without the end token; the last ones may not have been fed
    Stop stop = Stop::length;
    double seconds = 0;
    uint64_t allocations = 0; // on the heap, after the first token
};

// Receives the tokens of an answer.
class TokenSink
{
public:
    virtual ~TokenSink() = default;
    virtual void push(uint32_t id) = 0;
    virtual void finish() = 0;
    // The stop string that ended the answer, or null.
    virtual const std::string* stopped_by() const = 0;
    bool stopped() const { return stopped_by() != nullptr; }
};

using Emit = std::function<void(std::string_view)>;

// Emits the text of the tokens that no stop string can take back.
class TextSink : public TokenSink
{
public:
    TextSink(const Tokenizer& tokenizer, const std::vector<std::string>& stops, Emit emit)
        : m_tokenizer(tokenizer), m_detokenizer(tokenizer.max_piece_bytes(), stops),
          m_piece(tokenizer.max_piece_bytes(), 0), m_emit(std::move(emit))
    {
    }
    void push(uint32_t id) override
    {
        m_emit(m_detokenizer.feed({m_piece.data(), m_tokenizer.piece(id, m_piece.data())}));
    }
    void finish() override { m_emit(m_detokenizer.flush()); }
    const std::string* stopped_by() const override { return m_detokenizer.stopped_by(); }

private:
    const Tokenizer& m_tokenizer;
    Detokenizer m_detokenizer;
    std::string m_piece;
    Emit m_emit;
};

// Emits reasoning, content and tool calls. Stop strings end the content.
class AnswerSink : public TokenSink
{
public:
    using Show = std::function<void(const AnswerEvent&)>;
    // format: null: that of the template. goes_on: the prompt has the begin of the answer.
    AnswerSink(const Conversation& conversation, const Tokenizer& tokenizer,
               const jinja::Value& tools, const std::vector<std::string>& stops, uint64_t seed,
               Show show, const AnswerFormat* format = nullptr, bool goes_on = false);
    void push(uint32_t id) override;
    void finish() override;
    const std::string* stopped_by() const override { return m_detokenizer.stopped_by(); }
    jinja::Value message() const; // of the assistant

private:
    void give(const AnswerEvents& events);
    void give_content(std::string_view text);

    const Tokenizer& m_tokenizer;
    jinja::Value m_tools; // the parser refers to it
    AnswerParser m_parser;
    Detokenizer m_detokenizer;
    std::string m_piece, m_content;
    Show m_show;
};

// Samples from the session's logits until `limit` tokens, an end token, a stop string or Ctrl-C.
// The caller reserves `out.ids`, so that generating text allocates nothing. With a constraint, null
// if there is none, the answer also ends where its grammar allows nothing more.
Status generate(Session& session, Sampler& sampler, Constraint* constraint, TokenSink& sink,
                uint64_t limit, Generated& out);

// Lowers the logits of all end tokens to -infinity.
void ban_end_tokens(const Model& model, SamplerOptions& sampling);

// For answers of a grammar; null if the session has no memory for it.
std::unique_ptr<Constraint> constraint_of(const Session& session, const Grammar& grammar);

// Writes text to standard output and flushes. On a terminal control characters become '?'.
void write_text(std::string_view text);

} // namespace ks
