#include "runtime/chat/answer_calls.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace ks
{
namespace
{

using jinja::Kind;
using jinja::Value;

std::string_view trimmed(std::string_view text, std::string_view set = " \t\r\n")
{
    const size_t begin = std::min(text.find_first_not_of(set), text.size());
    return text.substr(begin, text.find_last_not_of(set) + 1 - begin);
}

// Without marks, and without the fence of a block of code around it.
std::string unfenced(std::string_view text)
{
    text = trimmed(text, "` \t\r\n");
    return unmarked(starts_with(text, "json\n") ? text.substr(5) : text);
}

size_t name_end(std::string_view text)
{
    return std::min(text.find_first_of(" \t\r\n<>{}[]()\"'=,:\xfe"), text.size());
}

using Holes = std::map<char, std::string_view>;

// Matches a pattern at the begin of *text and removes what it matched.
bool match(std::string_view pattern, std::string_view* text, Holes* holes)
{
    for (;;) {
        const size_t n_before = std::min(pattern.find('%'), pattern.size());
        if (!starts_with(*text, pattern.substr(0, n_before))) return false;
        pattern.remove_prefix(n_before);
        text->remove_prefix(n_before);
        if (pattern.empty()) return true;
        const char hole = pattern[1];
        pattern.remove_prefix(2);
        const std::string_view after = pattern.substr(0, pattern.find('%'));
        const size_t n = !after.empty() ? text->find(after)
                         : hole == 'n'  ? name_end(*text)
                                        : text->size();
        if (n == text->npos) return false;
        (*holes)[hole] = text->substr(0, n);
        text->remove_prefix(n);
    }
}

// Takes a text in quotes from the begin of *text. An argument of a call may have quotes inside: it
// ends before the next argument or the end of the call. `quote` is Python's or Gemma's.
std::string take_string(std::string_view* text, std::string_view quote, bool is_argument)
{
    const auto ends = [&](std::string_view rest) {
        if (!starts_with(rest, quote) || !is_argument) return starts_with(rest, quote);
        rest.remove_prefix(1);
        const size_t n = starts_with(rest, ", ") ? 2 + name_end(rest.substr(2)) : 0;
        return starts_with(rest, ")") || (n > 2 && starts_with(rest.substr(n), "="));
    };
    std::string out;
    size_t at = quote.size();
    for (; at < text->size() && !ends(text->substr(at)); at++) {
        const bool is_escape = (*text)[at] == '\\' && quote.size() == 1 && !is_argument;
        if (is_escape && ++at == text->size()) break;
        const char c = (*text)[at];
        out += is_escape && c == 'n' ? '\n' : is_escape && c == 't' ? '\t' : c;
    }
    text->remove_prefix(std::min(at + quote.size(), text->size()));
    return out;
}

// Python's notation as JSON, or Gemma's with its quote. A Python call becomes
// {NAME: {KEY: VALUE, ...}}.
std::string to_json(std::string_view text, bool is_call, std::string_view gemma_quote = "")
{
    const auto quoted = [](const std::string& word) { return jinja::write(Value(unmarked(word))); };
    const bool is_gemma = !gemma_quote.empty();
    std::string out;
    bool is_argument = false; // directly behind KEY=
    while (!text.empty()) {
        const char c = text[0];
        const std::string_view quote = is_gemma ? gemma_quote : text.substr(0, 1);
        if (is_gemma ? starts_with(text, quote) : c == '"' || c == '\'') {
            out += quoted(take_string(&text, quote, is_argument && c == '\''));
        } else if (c && strchr("[]{}:, \t\r\n)", c)) {
            out += c == ')' && is_call ? "}}" : std::string(1, c);
            text.remove_prefix(1);
        } else {
            const size_t n = std::min(text.find_first_of("[]{}():,=\"'\n", 1), text.size());
            const std::string word(trimmed(text.substr(0, n)));
            const char next = n < text.size() ? text[n] : 0;
            is_argument = is_call && next == '=';
            if (is_argument || (is_call && next == '('))
                out += is_argument ? quoted(word) + ":" : "{" + quoted(word) + ": {";
            else if (word == "True" || word == "False" || word == "None")
                out += word == "True" ? "true" : word == "False" ? "false" : "null";
            else if (is_gemma && (next == ':' || !jinja::parse_json(word).ok()))
                out += quoted(word);
            else
                out += word;
            text.remove_prefix(n + (is_call && (is_argument || next == '(')));
            continue;
        }
        is_argument = false;
    }
    return out;
}

// A value that is no text by the schema: in JSON, else in Python, else the text itself.
Value typed(std::string_view text, bool is_string)
{
    const std::string plain = unmarked(text);
    if (is_string) return Value(plain);
    for (const std::string& json : {plain, to_json(plain, false)}) {
        const Result<Value> value = jinja::parse_json(json);
        if (value.ok() && !value.value().is(Kind::text)) return value.value();
    }
    return Value(plain);
}

bool is_text(const Value* value)
{
    return value && value->is(Kind::text);
}

// `arguments`: a dict, or its JSON.
bool add_call(Call call, const Value& arguments, std::vector<Call>* calls)
{
    call.arguments = arguments;
    if (is_text(&arguments)) {
        const Result<Value> dict = jinja::parse_json(arguments.text().bytes);
        if (dict.ok()) call.arguments = dict.value();
    }
    call.name.resize(std::min((call.name + "\n").find(".call\n"), call.name.size())); // Llama's
    if (call.name.empty() || name_end(call.name) < call.name.size()) return false;
    calls->push_back(call);
    return calls->back().arguments.is(Kind::dict);
}

// {"name": NAME, "arguments": {...}, "id": ID}, with other names of keys too, or {NAME: {...}}.
bool add_object(const Value& object, std::vector<Call>* calls)
{
    const auto find = [&](std::initializer_list<const char*> keys) {
        const Value* found = nullptr;
        for (const char* key : keys) found = found ? found : object.find(key);
        return found;
    };
    const Value *name = find({"name", "tool_name", "function"}),
                *arguments = find({"arguments", "parameters"}), *id = find({"id", "tool_call_id"});
    if (object.is(Kind::dict) && !name && object.dict_object().items.size() == 1) {
        name = &object.dict_object().items[0].first;
        arguments = &object.dict_object().items[0].second;
    }
    if (!is_text(name) || !arguments) return false;
    return add_call({is_text(id) ? id->text().bytes : "", name->text().bytes}, *arguments, calls);
}

// A call, a list of calls, or a call on each line.
bool add_objects(std::string text, std::vector<Call>* calls)
{
    for (size_t at = 0; (at = text.find("}\n{", at)) != text.npos;) // never inside of a string
        text[at + 1] = ',';
    const Result<Value> list = jinja::parse_json("[" + text + "]");
    if (!list.ok()) return false;
    const std::vector<Value>* items = &list.value().list().items;
    if (items->size() == 1 && items->front().has_items()) items = &items->front().list().items;
    for (const Value& item : *items)
        if (!add_object(item, calls)) return false;
    return !calls->empty();
}

} // namespace

std::string mark_tokens(std::string_view text, const IsToken& is_token)
{
    std::string out;
    while (!text.empty()) {
        size_t n = is_token && ispunct(uint8_t(text[0])) ? std::min<size_t>(text.size(), 64) : 1;
        while (n > 1 && !is_token(text.substr(0, n))) n--;
        if (n > 1) out += kTokenMark;
        out += text.substr(0, n);
        text.remove_prefix(n);
    }
    return out;
}

std::string unmarked(std::string_view text)
{
    std::string out(text);
    out.erase(std::remove(out.begin(), out.end(), kTokenMark), out.end());
    return out;
}

CallReader::CallReader(const AnswerFormat& format, const IsToken& is_token, const Value* tools)
    : m_pair(mark_tokens(format.pair ? format.pair : "", is_token)),
      m_tools(tools && tools->has_items() ? tools->list().items : std::vector<Value>())
{
    for (const char* pattern : format.calls)
        if (pattern) m_patterns.push_back(mark_tokens(pattern, is_token));
}

bool CallReader::read(std::string_view text, bool is_closed, const std::string& name,
                      std::vector<Call>* calls) const
{
    for (const std::string& pattern : m_patterns) {
        try {
            if (read_pattern(pattern, text, is_closed, {"", name}, calls)) return true;
        } catch (const jinja::Failure&) { // values that are too large
        }
        calls->clear();
    }
    return false;
}

bool CallReader::read_pattern(std::string_view pattern, std::string_view text, bool is_closed,
                              Call call, std::vector<Call>* calls) const
{
    Holes holes;
    text.remove_prefix(std::min(text.find(pattern.substr(0, pattern.find('%'))), text.size()));
    if (!match(pattern, &text, &holes)) return false;
    call.id = unmarked(holes['i']);
    if (!holes['n'].empty()) call.name = unmarked(trimmed(holes['n']));
    if (!holes['f'].empty()) call.id = "functions." + call.name + ":" + std::string(holes['f']);
    switch (pattern[pattern.rfind('%') + 1]) {
    case 'j':
        return add_objects(unfenced(holes['j']), calls);
    case 'p':
        return add_objects(to_json(holes['p'], true), calls);
    case 'a':
        return add_call(call, Value(unfenced(holes['a'])), calls);
    case 'g':
        return add_call(call, Value(to_json(holes['g'], false, m_pair)), calls);
    default:
        return is_closed && read_pairs(text, &call) && add_call(call, call.arguments, calls);
    }
}

bool CallReader::read_pairs(std::string_view text, Call* call) const
{
    if (m_pair.find('%') == m_pair.npos)
        return read_tags(&text, 0, call, &call->arguments) && text.empty();
    for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
        Holes holes;
        if (!match(m_pair, &text, &holes)) return false;
        std::string_view value = holes['v'], lines = holes['l'];
        if (starts_with(lines, "\n")) lines.remove_prefix(1);
        if (!lines.empty()) value = lines.substr(0, lines.size() - (lines.back() == '\n'));
        if (starts_with(value, "<![CDATA[") && value.size() >= 12)
            value = value.substr(9, value.size() - 12);
        const std::string key = unmarked(trimmed(holes['k']));
        const std::string_view type = holes['t'];
        const bool string =
            type.empty() ? is_string(*call, key) : type == "true" || type == "string";
        call->arguments.dict_object().set(Value(key), typed(value, string));
    }
    return true;
}

// Takes tags in tags from *text: lists are of <item>. `call` has the schema of the outermost ones,
// else null.
bool CallReader::read_tags(std::string_view* text, int depth, const Call* call, Value* out) const
{
    Value dict = Value::dict();
    std::vector<Value> items;
    bool is_list = depth > 0;
    const auto at_tag = [&] {
        const std::string_view rest = trimmed(*text);
        return starts_with(rest, m_pair + "<") && !starts_with(rest, m_pair + "</");
    };
    while (at_tag()) {
        Holes holes;
        *text = trimmed(*text);
        if (depth > 32 || !match(m_pair + "<%k>", text, &holes)) return false;
        const std::string name(holes['k']), close = m_pair + "</" + name + ">";
        const bool string = call && is_string(*call, name), is_nested = !string && at_tag();
        Value value;
        if (is_nested && !read_tags(text, depth + 1, nullptr, &value)) return false;
        if (!match((is_nested ? "" : "%v") + close, text, &holes)) return false;
        if (!is_nested) value = typed(holes['v'], string);
        is_list &= name == "item";
        items.push_back(value);
        dict.dict_object().set(Value(unmarked(name)), value);
    }
    *text = trimmed(*text);
    *out = is_list ? Value(items) : dict;
    return true;
}

// Whether the schema of an argument wants a text.
bool CallReader::is_string(const Call& call, std::string_view key) const
{
    for (const Value& tool : m_tools) {
        const Value *function = tool.find("function"), *at = function ? function : &tool;
        const Value* name = at->find("name");
        if (!is_text(name) || name->text().bytes != call.name) continue;
        for (std::string_view step :
             std::initializer_list<std::string_view>{"parameters", "properties", key, "type"})
            at = at ? at->find(step) : nullptr;
        return at && jinja::write(*at).find("\"string\"") != std::string::npos; // or a list
    }
    return false;
}

} // namespace ks
