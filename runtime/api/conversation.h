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
    const ChatFormat& format() const { return m_format; }

    // What the session has to read for the prompt. The session does not change until read(). Fails
    // if the template does, or with no_fit if the prompt and a token more do not fit.
    Result<PromptStep> prompt(const ChatRequest& request);
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

private:
    Conversation(Session& session, ChatFormat format)
        : m_session(&session), m_format(std::move(format))
    {
    }
    Result<PromptStep> step_to(jinja::Text prompt);
    void follow_session();

    Session* m_session = nullptr;
    ChatFormat m_format;
    ChatHistory m_history, m_next; // m_next: after the step
    std::string m_prompt_tail;
};

} // namespace ks
