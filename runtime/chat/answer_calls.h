// Formats of answers, and the notations of their tool calls.
#pragma once

#include "runtime/chat/json.h"

#include <functional>

namespace ks
{

// The markers and notations of one format; null where it has none.
struct AnswerFormat {
    const char* name = nullptr;
    const char* marks[2] = {};   // texts of a template that choose the format
    const char* thought[2] = {}; // begin and end
    const char* begins[3] = {};  // of a call
    const char* ends[3] = {};    // of a call; none: the next call or the end of the answer
    // Patterns of a call; the first that fits counts. %n name, %i id, %f N of the id
    // functions.NAME:N, %s anything, %a arguments in JSON, %g in Gemma's notation, %j calls in
    // JSON, %p in Python. Without arguments or calls: pairs follow.
    const char* calls[4] = {};
    // %k key, %v value, %l value on lines of its own, %t type. Without holes: what stands before
    // each tag (tags in tags), or the quote of Gemma's notation.
    const char* pair = nullptr;
    const char* drops[5] = {};  // markers that are no part of anything
    const char* header[2] = {}; // begin and end of a message's head, which names its recipient
    uint8_t id_letters = 0;     // of an id; 0: of any, and call_ and 24 letters for a random one

    bool has(std::string_view token) const; // in a marker
};

// Whether a text is a control or user-defined token of the vocabulary.
using IsToken = std::function<bool(std::string_view)>;

// In texts with marks, kTokenMark stands before each such token. UTF-8 never has this byte.
constexpr char kTokenMark = '\xfe';
std::string mark_tokens(std::string_view text, const IsToken& is_token);
std::string unmarked(std::string_view text);

inline bool starts_with(std::string_view text, std::string_view begin)
{
    return text.substr(0, begin.size()) == begin;
}

struct Call {
    std::string id, name;
    jinja::Value arguments = jinja::Value::dict();
};

// Reads the marked text of calls. False: the text is no call.
class CallReader
{
public:
    CallReader(const AnswerFormat& format, const IsToken& is_token, const jinja::Value* tools);

    bool has_tools() const { return !m_tools.empty(); }
    // `is_closed`: a marker ended the text. `name`: the recipient, if the text does not name it.
    bool read(std::string_view text, bool is_closed, const std::string& name,
              std::vector<Call>* calls) const;

private:
    bool read_pattern(std::string_view pattern, std::string_view text, bool is_closed, Call call,
                      std::vector<Call>* calls) const;
    bool read_pairs(std::string_view text, Call* call) const;
    bool read_tags(std::string_view* text, int depth, const Call* call, jinja::Value* out) const;
    bool is_string(const Call& call, std::string_view key) const;

    std::vector<std::string> m_patterns;
    std::string m_pair;
    std::vector<jinja::Value> m_tools;
};

} // namespace ks
