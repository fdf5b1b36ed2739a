#include "runtime/chat/answer.h"

#include "runtime/base/rng.h"
#include "runtime/text/detokenizer.h"

#include <algorithm>
#include <cstring>

namespace ks
{

using jinja::Value;

namespace
{

constexpr size_t kMaxCallBytes = 2 << 20, kMaxHeaderBytes = 512;
constexpr const char* kBlank[] = {" \t\r\n", "\r\n"}; // around content, around thoughts

} // namespace

AnswerParser::AnswerParser(const AnswerFormat& format, const AnswerOptions& options)
    : m_format(format), m_seed(options.seed), m_reader(format, options.is_token, options.tools)
{
    const auto add = [&](const char* text, Role role) {
        if (text) m_markers.push_back({mark_tokens(text, options.is_token), role});
    };
    add(format.thought[0], Role::thought_begin);
    add(format.thought[1], Role::thought_end);
    add(format.header[0], Role::header_begin);
    add(format.header[1], Role::header_end);
    for (const char* text : format.begins) add(text, Role::call_begin);
    for (const char* text : format.ends) add(text, Role::call_end);
    for (const char* text : format.drops) add(text, Role::dropped);

    m_text = mark_tokens(options.prompt_tail, options.is_token);
    parse(true, nullptr);
    m_in_prompt = m_in_text = m_after_call = false;
    if (options.goes_on) m_is_first[0] = false;
    if (m_state == State::call) m_state = State::content;
    if (m_state != State::header) m_text.clear();
    m_scanned = 0;
}

// Whether a marker at m_text[at] would count.
bool AnswerParser::may_match(const Marker& marker, size_t at) const
{
    if (m_state == State::thought) return marker.role == Role::thought_end;
    if (m_state == State::header) return marker.role == Role::header_end;
    if (m_state == State::call)
        return marker.role == (m_format.ends[0] ? Role::call_end : Role::call_begin) &&
               marker.text != "{";
    const bool is_first = !m_in_text && m_text.find_first_not_of(kBlank[0]) >= at;
    if (marker.role == Role::thought_begin || marker.role == Role::thought_end)
        return is_first || m_in_prompt || marker.text[0] == kTokenMark;
    if (marker.text == "{") return is_first && m_out[0].empty() && m_reader.has_tools();
    if (marker.role == Role::call_end) return is_first && m_after_call;
    return marker.role != Role::header_end;
}

// The first marker of m_text, the longest there. Null: the bytes from *at on may still become one.
const AnswerParser::Marker* AnswerParser::find_marker(bool is_last, size_t* at) const
{
    for (*at = m_scanned; *at < m_text.size(); ++*at) {
        const std::string_view rest = std::string_view(m_text).substr(*at);
        const Marker* found = nullptr;
        for (const Marker& marker : m_markers) {
            const bool is_open = !is_last && starts_with(marker.text, rest) && marker.text != rest;
            if ((!is_open && !starts_with(rest, marker.text)) || !may_match(marker, *at)) continue;
            if (is_open) return nullptr;
            if (!found || marker.text.size() > found->text.size()) found = &marker;
        }
        if (found) return found;
    }
    return nullptr;
}

void AnswerParser::parse(bool is_last, AnswerEvents* events)
{
    for (;;) {
        size_t n = 0;
        const Marker* marker = find_marker(is_last, &n);
        if (m_state == State::content || m_state == State::thought) {
            if (!marker && !is_last) n -= open_character(m_text.substr(0, n));
            put(m_state == State::thought, m_text.substr(0, n), events);
            m_text.erase(0, n);
            n = 0;
        } else if (!marker) {
            m_scanned = n;
            if (m_text.size() > (m_state == State::call ? kMaxCallBytes : kMaxHeaderBytes))
                end_call(m_text.size(), 0, events);
        }
        if (!marker) return;
        enter(*marker, n, events);
    }
}

// Passes a marker at m_text[at].
void AnswerParser::enter(const Marker& marker, size_t at, AnswerEvents* events)
{
    const size_t n = marker.text.size();
    if (m_state == State::call) return end_call(at, marker.role == Role::call_end ? n : 0, events);
    m_in_text = false;
    m_after_call &= marker.role == Role::call_end;
    m_scanned = marker.role == Role::call_begin ? n : 0;
    if (marker.role == Role::call_begin) { // it is part of the call's text
        m_recipient.clear();
        m_state = State::call;
        return;
    }
    if (marker.role == Role::header_end) {
        enter_body(m_text.substr(0, at));
    } else if (marker.role == Role::header_begin || marker.role == Role::thought_begin) {
        m_state = marker.role == Role::header_begin ? State::header : State::thought;
    } else {
        m_state = State::content;
        m_is_first[1] = true; // of the next thought
        m_blank[1].clear();
    }
    m_text.erase(0, at + n);
}

// The body of a message: a thought, content or a call, by its channel or recipient.
void AnswerParser::enter_body(std::string_view marked_header)
{
    const std::string header = unmarked(marked_header);
    const size_t to = header.find("to=");
    m_recipient = to == header.npos ? header : header.substr(to + 3);
    m_recipient.resize(std::min(m_recipient.find_first_of(" <\n"), m_recipient.size()));
    if (starts_with(m_recipient, "functions.")) m_recipient.erase(0, strlen("functions."));
    m_state = State::call;
    if (m_recipient == "self" || (m_recipient.empty() && header.find("analysis") != header.npos))
        m_state = State::thought;
    else if (m_recipient.empty() || m_recipient == "user" || m_recipient == "all")
        m_state = State::content;
}

// m_text[0, at) is a call, or else content.
void AnswerParser::end_call(size_t at, size_t marker_bytes, AnswerEvents* events)
{
    std::vector<Call> calls;
    m_after_call = m_state == State::call && !m_in_prompt &&
                   m_reader.read(m_text.substr(0, at), marker_bytes > 0, m_recipient, &calls);
    m_state = State::content;
    if (!m_after_call) put(false, m_text.substr(0, at + marker_bytes), events);
    m_text.erase(0, at + marker_bytes);
    m_scanned = 0;
    for (Call& call : calls) {
        const auto index = uint32_t(m_calls.size());
        call.id = make_id(call, index);
        events->push_back(
            {AnswerEvent::Kind::call, jinja::write(call.arguments), index, call.id, call.name});
        m_calls.push_back(call);
    }
}

void AnswerParser::put(bool is_thought, std::string_view marked_text, AnswerEvents* events)
{
    if (m_in_prompt) return;
    const char* blank = kBlank[is_thought];
    std::string text = m_blank[is_thought] + unmarked(marked_text);
    if (m_is_first[is_thought]) text.erase(0, std::min(text.find_first_not_of(blank), text.size()));
    const size_t end = text.find_last_not_of(blank) + 1;
    m_blank[is_thought] = text.substr(end);
    text.resize(end);
    if (text.empty()) return;
    if (is_thought && m_is_first[1] && !m_out[1].empty()) text.insert(0, "\n"); // between thoughts
    m_is_first[is_thought] = false;
    m_in_text |= !is_thought;
    m_out[is_thought] += text;
    events->push_back({AnswerEvent::Kind(is_thought), text, 0, "", ""});
}

// The model's id if the format allows it, else a random one.
std::string AnswerParser::make_id(const Call& call, uint32_t index) const
{
    static const char kLetters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const size_t n = m_format.id_letters;
    const bool fits = call.id.size() == n && call.id.find_first_not_of(kLetters) == call.id.npos;
    if (n == 0 ? !call.id.empty() : fits) return call.id;
    std::string id = n ? "" : "call_";
    for (uint32_t i = 0; i < (n ? n : 24); i++)
        id += kLetters[philox({index, i, 0, 0}, m_seed)[0] % strlen(kLetters)];
    return id;
}

bool AnswerParser::has_marker(std::string_view text) const
{
    return std::any_of(m_markers.begin(), m_markers.end(), [&](const Marker& marker) {
        return marker.text.find(text) != marker.text.npos;
    });
}

void AnswerParser::feed(std::string_view piece, bool is_token, AnswerEvents* events)
{
    if (is_token && piece.find_first_not_of(kBlank[0]) != piece.npos) m_text += kTokenMark;
    for (char c : piece) m_text += c == kTokenMark ? "\xef\xbf\xbd" : std::string(1, c);
    parse(false, events);
}

void AnswerParser::finish(AnswerEvents* events)
{
    parse(true, events);
    if (m_state == State::call) end_call(m_text.size(), 0, events);
    m_text.clear();
}

Result<Value> AnswerParser::message() const
{
    const auto quoted = [](std::string_view text) { return jinja::write(Value(text)); };
    try {
        std::string json = R"({"role": "assistant", "content": )" + quoted(m_out[0]);
        if (!m_out[1].empty()) json += R"(, "reasoning_content": )" + quoted(m_out[1]);
        for (const Call& call : m_calls)
            json += (&call == &m_calls[0] ? R"(, "tool_calls": [{"id": )" : R"(, {"id": )") +
                    quoted(call.id) + R"(, "type": "function", "function": {"name": )" +
                    quoted(call.name) + R"(, "arguments": )" + jinja::write(call.arguments) + "}}";
        return jinja::parse_json(json + (m_calls.empty() ? "}" : "]}"));
    } catch (const jinja::Failure& failure) {
        return Status(Code::no_fit, failure.message);
    }
}

} // namespace ks
