// What the writers of all endpoints have in common.
#pragma once

#include "tools/json.h"
#include "tools/serve/requests.h"

namespace ks::serve
{

Json timings_json(const AnswerState& state);
Json knapsack_json(const AnswerState& state);
Json usage_json(const AnswerState& state);
// The entries of `logprobs.content`.
Json logprobs_json(const TokenReports& tokens);
Json sampling_json(const SamplerOptions& sampling);
Json progress_json(const AnswerState& state);
const char* finish_reason(const AnswerState& state);

// Writes events, or one answer at the end.
class EventWriter : public AnswerWriter
{
public:
    EventWriter(std::shared_ptr<Exchange> exchange, bool streams)
        : m_exchange(std::move(exchange)), m_streams(streams)
    {
    }
    void begin(const AnswerState& state) override;
    void fail(const HttpError& error) override;
    // A comment: proxies and clients close streams that are silent for long.
    void keep_alive() override
    {
        if (m_begun) m_exchange->write(": \n\n");
    }

protected:
    virtual void first_events(const AnswerState&) {}
    // `name`: of the event; null: without one.
    void send(const Json& data, const char* name = nullptr);
    void finish() { m_exchange->finish(); }

    const std::shared_ptr<Exchange> m_exchange;
    const bool m_streams;
    bool m_begun = false; // the head of the stream was sent
};

// The parts of an answer, for an endpoint that answers as a whole.
struct WholeAnswer {
    std::string content, reasoning;
    Json calls = Json::array();
    uint32_t n_calls = 0;
    bool has_begun = false;
    TokenReports tokens;

    void add(const AnswerEvent& event, const TokenReports& more);
};

// Endpoints. Each reads the body and makes a task; an error means that there is none.
HttpError chat_task(Request& request, Task* task);
HttpError completions_task(Request& request, Task* task); // of OpenAI
HttpError native_task(Request& request, Task* task);      // of llama.cpp
HttpError messages_task(Request& request, Task* task);    // of Anthropic
HttpError responses_task(Request& request, Task* task);
std::string anthropic_error(const HttpError& error); // the body of an answer

} // namespace ks::serve
