// A question to the model, and the writer of its answer in the form of an endpoint.
#pragma once

#include "tools/serve/exchange.h"

#include "runtime/chat/answer.h"
#include "runtime/chat/chat_format.h"
#include "runtime/chat/grammar.h"
#include "runtime/text/sampler.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace ks::serve
{

using Clock = std::chrono::steady_clock;

inline double ms_between(Clock::time_point begin, Clock::time_point end)
{
    return std::chrono::duration<double, std::milli>(end - begin).count();
}

inline double seconds_since(Clock::time_point begin)
{
    return ms_between(begin, Clock::now()) / 1e3;
}

// A token of the answer with log probabilities of the whole vocabulary.
struct TokenReport {
    struct Choice {
        uint32_t id;
        float logprob;
        std::string bytes;
    };
    Choice chosen;
    std::vector<Choice> top; // most probable first
};
using TokenReports = std::vector<TokenReport>;

enum class StopReason { none, eos, word, length, calls };

// What is known of an answer. Later calls know more.
struct AnswerState {
    std::string conversation; // 16 hex digits
    uint32_t seat = 0, slots = 0, context = 0;
    uint32_t n_prompt = 0, n_cached = 0; // tokens of the prompt, and of them not read again
    uint32_t n_read = 0;                 // of the prompt so far
    const char* from = "text";           // where the cached tokens were: seat, disk or text
    std::vector<uint32_t> ids;           // of the answer
    double prompt_ms = 0, answer_ms = 0;
    StopReason stop = StopReason::none;
    std::string stop_word;
    uint32_t n_text = 0; // tokens that the session has read
    double forgotten = 0;
    std::vector<double> held; // for each message, the share of it that is still held
    std::string rung;
    uint32_t n_climbs = 0;
    uint64_t seed = 0;
};

// Called by the engine's thread.
class AnswerWriter
{
public:
    virtual ~AnswerWriter() = default;
    // A seat is granted and reads the prompt. A stream sends its head now.
    virtual void begin(const AnswerState& state) = 0;
    virtual void progress(const AnswerState&) {} // a chunk of the prompt was read
    virtual void keep_alive() {}                 // nothing was given out for some seconds
    // A piece of the answer. `tokens`: those since the last call, if they were asked for.
    virtual void give(const AnswerEvent& event, const TokenReports& tokens,
                      const AnswerState& state) = 0;
    // The answer is complete. `tokens`: those that gave no text.
    virtual void end(const AnswerState& state, const TokenReports& tokens) = 0;
    virtual void fail(const HttpError& error) = 0;
};

struct Task {
    std::shared_ptr<Exchange> exchange;
    std::unique_ptr<AnswerWriter> writer;

    // The prompt is a conversation, or else a text in tokens.
    bool is_chat = false;
    ChatRequest chat;
    std::vector<uint32_t> ids;

    SamplerOptions sampling;
    uint64_t most_tokens = ~0ull; // of the answer
    std::vector<std::string> stops;
    bool ignore_eos = false;
    bool constrained = false;
    Grammar grammar;          // of the answer, if constrained
    bool plain_tools = false; // the template knows no tools: messages describe them
    bool is_call = false;     // the grammar is that of one call as JSON: {"name", "arguments"}
    int n_logprobs = -1;      // alternatives of each token; -1: no report
    bool wants_progress = false, wants_timings = false; // in each event
    double most_ms = 0;                                 // of generating; 0: no limit

    std::string hint;  // names the conversation; "" if the client does not
    int64_t seat = -1; // that the client asks for

    Clock::time_point arrived = Clock::now();
};

} // namespace ks::serve
