// A conversation in a session: messages go through the chat template, and the session reads what it
// does not hold yet.
#pragma once

#include "runtime/api/session.h"
#include "runtime/chat/chat_format.h"
#include "runtime/chat/chat_history.h"

namespace ks
{

class Conversation
{
public:
    Conversation() = default; // call open()
    // The template: `chosen` (a name, or a text in Jinja), or that of the model if empty. The
    // tokens that end an answer become end tokens of the session. The session must outlive the
    // conversation.
    static Result<Conversation> open(Session& session, std::string_view chosen);
    // Another conversation with this template, in a session that is empty or not known.
    Conversation in_session(Session& session) const;
    const ChatFormat& format() const { return m_format; }

    // What the session has to read for the prompt. The session does not change until read(). Fails
    // if the template does, or with no_fit if the prompt and a token more do not fit.
    // keeps_answers: where the session cannot go back, a generated answer stays although the
    // request has another.
    Result<PromptStep> prompt(const ChatRequest& request, bool keeps_answers = true);
    // The same where the session holds the conversation up to its last answer. If rendering it
    // needs too much memory, older messages are removed; the session keeps their tokens.
    Result<PromptStep> continue_prompt(ChatRequest& request);
    // The same for one more user message. The session may hold a text of unknown messages.
    Result<PromptStep> next_turn(const char* system, std::string_view user, const std::tm& now);
    // The session was loaded from a file.
    void load() { m_history.load(m_session->n_tokens()); }
    // What the template wrote behind the last message of the last prompt.
    const std::string& prompt_tail() const { return m_prompt_tail; }
    // Goes back and reads. The tokens before the first user message are pinned. If reading is
    // interrupted, the session holds the tokens that were kept.
    Status read(const PromptStep& step);
    // The parts of read(), for a program that steps several sessions: begin(), the tokens of the
    // step, and end(). end_early(): reading stopped, and the session keeps whole messages.
    Status begin(const PromptStep& step);
    void end() { m_history = std::move(m_next); }
    Status end_early();
    // Tokens of the prompt of the last step, also of one that did not fit.
    uint32_t n_prompt_tokens() const { return m_next.n_tokens(); }

    // The text of the session, to go on with it after Session::load() or Session::copy().
    std::string save_history() const { return m_history.save(); }
    bool load_history(std::string_view saved); // false: it is not of the session's text
    void copy_history(const Conversation& other) { m_history = other.m_history; }

private:
    Conversation(Session& session, ChatFormat format)
        : m_session(&session), m_format(std::move(format))
    {
    }
    Result<PromptStep> step_to(jinja::Text prompt, std::string_view answer_begin = {},
                               bool keeps_answers = true);
    void follow_session();

    Session* m_session = nullptr;
    ChatFormat m_format;
    ChatHistory m_history, m_next; // m_next: after the step
    std::string m_prompt_tail;
};

} // namespace ks
