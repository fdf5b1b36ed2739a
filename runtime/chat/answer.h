// Answers of a model, taken apart while they stream: reasoning, content and tool calls.
#pragma once

#include "runtime/chat/answer_calls.h"

namespace ks
{

// By the marks in a template's text. A format without calls if there are none.
const AnswerFormat& find_answer_format(std::string_view template_text);

struct AnswerEvent {
    enum class Kind : uint8_t { content, reasoning, call };
    Kind kind;
    std::string text;   // of a call: its arguments as JSON
    uint32_t index = 0; // of a call, from 0
    std::string id, name;
};
using AnswerEvents = std::vector<AnswerEvent>;

struct AnswerOptions {
    std::string_view prompt_tail;        // what the generation prompt added
    const jinja::Value* tools = nullptr; // the list of the request, or null
    IsToken is_token = {};               // empty: every marker is text
    uint64_t seed = 0;                   // of the ids: another one for each answer
    bool goes_on = false; // the prompt has the begin of the content: white space is kept
};

// What an event has given out is never taken back, and does not depend on how the answer is split
// into pieces. Whole characters go out if the answer is valid UTF-8.
class AnswerParser
{
public:
    AnswerParser(const AnswerFormat& format, const AnswerOptions& options);

    // `is_token`: the piece is the text of one control or user-defined token.
    void feed(std::string_view piece, bool is_token, AnswerEvents* events);
    // The end of the answer: gives out what was held back.
    void finish(AnswerEvents* events);
    // The text of a token that is a marker; other control tokens are no part of an answer.
    bool has_marker(std::string_view text) const;
    bool has_markers() const { return !m_markers.empty(); } // else all is content
    bool has_calls() const { return !m_calls.empty(); }
    // {role, content, reasoning_content?, tool_calls?}; arguments are dicts.
    Result<jinja::Value> message() const;

private:
    enum class State : uint8_t { content, thought, header, call };
    enum class Role : uint8_t {
        thought_begin,
        thought_end,
        call_begin,
        call_end,
        dropped,
        header_begin,
        header_end,
    };
    struct Marker {
        std::string text;
        Role role;
    };
    bool may_match(const Marker& marker, size_t at) const;
    const Marker* find_marker(bool is_last, size_t* at) const;
    void parse(bool is_last, AnswerEvents* events);
    void enter(const Marker& marker, size_t at, AnswerEvents* events);
    void enter_body(std::string_view marked_header);
    void end_call(size_t at, size_t marker_bytes, AnswerEvents* events);
    void put(bool is_thought, std::string_view marked_text, AnswerEvents* events);
    std::string make_id(const Call& call, uint32_t index) const;

    const AnswerFormat& m_format;
    const uint64_t m_seed;
    const CallReader m_reader;
    std::vector<Marker> m_markers;

    State m_state = State::content;
    bool m_in_prompt = true;
    bool m_in_text = false;            // content since the last marker
    bool m_after_call = false;         // the last marker ended a call
    std::string m_text;                // of the answer, not yet given out
    size_t m_scanned = 0;              // bytes of m_text without a marker
    std::string m_recipient;           // of the message that is a call
    bool m_is_first[2] = {true, true}; // nothing was given out: of the content, of the thought
    std::string m_blank[2];            // white space that is dropped at the end
    std::string m_out[2];              // content and reasoning
    std::vector<Call> m_calls;
};

} // namespace ks
