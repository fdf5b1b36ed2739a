// One answer: the prompt is read in chunks, then tokens are chosen one by one.
#pragma once

#include "tools/generate.h"
#include "tools/serve/task.h"

namespace ks::serve
{

using TextRange = std::pair<uint32_t, uint32_t>; // positions: begin and end

class Generation
{
public:
    // conversation: of a chat, which has begun the step; else null, and step.ids are the prompt.
    // messages: where those of the prompt lie in the text.
    Generation(Session& session, Conversation* conversation, Task task, PromptStep step,
               AnswerState state, std::vector<TextRange> messages = {});

    Task& task() { return m_task; }
    const AnswerState& state() const { return m_state; }
    bool reads_prompt() const { return m_n_read < m_step.ids.size(); }
    bool at_begin() const { return !reads_prompt() && m_n_fed == 0; } // of the answer
    size_t n_unread() const { return m_step.ids.size() - m_n_read; }

    StepInput next_input();
    // After a step that this input was part of. True: the answer is complete, or it failed.
    bool after_step(const StepInput& in);
    // Gives out the end of the answer, or its error.
    void deliver();
    // Nobody waits for the answer. The text keeps what was read.
    void cancel();
    bool failed() const { return bool(m_error); }
    // Tokens of the answer that the session has not read.
    std::vector<uint32_t> unread_ids() const
    {
        return {m_state.ids.begin() + int64_t(m_n_fed), m_state.ids.end()};
    }
    // The message of a complete answer.
    const jinja::Value& message() const { return m_message; }
    Clock::time_point begun() const { return m_begun; }

private:
    void make_sink();
    void begin_answer();
    bool choose();
    bool push(uint32_t id);
    void report(uint32_t id);
    bool end(StopReason why);
    bool fail(const HttpError& error);
    void give(const AnswerEvent& event);
    void give_call();
    void take_numbers();
    void take_held();

    Session& m_session;
    Conversation* m_conversation;
    Task m_task;
    PromptStep m_step;
    std::vector<uint8_t> m_mask;
    std::vector<TextRange> m_messages;
    size_t m_n_read = 0, m_n_fed = 0; // of the prompt; of the answer
    AnswerState m_state;
    std::unique_ptr<Sampler> m_sampler;
    std::unique_ptr<Constraint> m_constraint;
    std::unique_ptr<TokenSink> m_sink;
    TokenReports m_reports; // not yet given out
    HttpError m_error;
    std::string m_json; // of a call
    jinja::Value m_message = jinja::Value::none();
    Clock::time_point m_begun, m_read;
    double m_last_sign = 0; // of life, while the prompt is read: milliseconds
};

// The share of the text, over all layers and heads that evict, that was given up.
double forgotten_share(const Session& session);

} // namespace ks::serve
