// Answers given to a parser piece by piece, and what came out.
#pragma once

#include "runtime/chat/answer.h"

#include <algorithm>
#include <doctest/doctest.h>
#include <regex>
#include <set>

namespace ks
{

inline jinja::Value json(std::string_view text)
{
    Result<jinja::Value> value = jinja::parse_json(text);
    KS_CHECK(value.ok(), "%s", value.status().message().c_str());
    return value.value();
}

// Gemma's template sorts the arguments.
inline std::string sorted(const jinja::Value& arguments)
{
    jinja::WriteStyle style;
    style.sorted = true;
    return jinja::write(arguments, style);
}

// What a parser has given out: the sums of its events.
struct Parts {
    std::string reasoning, content;
    std::vector<std::string> calls; // NAME and arguments

    bool operator==(const Parts& other) const
    {
        return reasoning == other.reasoning && content == other.content && calls == other.calls;
    }
};

inline std::string shown(const Parts& parts)
{
    std::string out = "reasoning '" + parts.reasoning + "' content '" + parts.content + "'";
    for (const std::string& call : parts.calls) out += " " + call;
    return out;
}

inline void add(const AnswerEvents& events, Parts* parts)
{
    for (const AnswerEvent& event : events) {
        if (event.kind == AnswerEvent::Kind::reasoning) parts->reasoning += event.text;
        if (event.kind == AnswerEvent::Kind::content) parts->content += event.text;
        if (event.kind == AnswerEvent::Kind::call) {
            CHECK(event.index == parts->calls.size());
            CHECK(!event.id.empty());
            parts->calls.push_back(event.name + sorted(json(event.text)));
        }
    }
}

// The parts that a message has.
inline Parts parts_of(const jinja::Value& message)
{
    Parts parts;
    const jinja::Value *reasoning = message.find("reasoning_content"),
                       *calls = message.find("tool_calls");
    if (reasoning) parts.reasoning = reasoning->text().bytes;
    parts.content = message.find("content")->text().bytes;
    for (size_t i = 0; calls && i < calls->list().items.size(); i++) {
        const jinja::Value* function = calls->list().items[i].find("function");
        parts.calls.push_back(function->find("name")->text().bytes +
                              sorted(*function->find("arguments")));
    }
    return parts;
}

inline bool is_prefix(const Parts& some, const Parts& all)
{
    return starts_with(all.reasoning, some.reasoning) && starts_with(all.content, some.content) &&
           some.calls.size() <= all.calls.size() &&
           std::equal(some.calls.begin(), some.calls.end(), all.calls.begin());
}

// The texts in an answer that look like special tokens.
inline std::set<std::string> tokens_in(const std::string& text)
{
    std::set<std::string> out;
    static const std::regex kToken(
        "<\\|[^<>|]*\\|?>|<[^<>|]*\\|>|\\[[A-Z_/]+\\]|</?[a-z:]*(think|tool_call)(:[a-z]+)?>"
        "|<\\|\"\\|>|\\]<\\]minimax\\[>\\[|<｜[^<>]*｜>");
    for (std::sregex_iterator at(text.begin(), text.end(), kToken), end; at != end; ++at)
        out.insert(at->str());
    return out;
}

struct Answer {
    const AnswerFormat* format;
    std::string prompt_tail;
    const jinja::Value* tools = nullptr;
    std::set<std::string> tokens = {}; // texts of the vocabulary's special tokens

    AnswerParser parser() const
    {
        AnswerOptions options{prompt_tail, tools};
        if (!tokens.empty())
            options.is_token = [this](std::string_view t) { return tokens.count(std::string(t)); };
        return {*format, options};
    }

    // Text in pieces of n bytes, where special tokens are pieces of their own. `early`: what was
    // out before each piece, and before finish().
    Parts parse(std::string_view text, size_t n, std::vector<Parts>* early = nullptr) const
    {
        AnswerParser p = parser();
        Parts parts;
        const auto note = [&] {
            if (early) early->push_back(parts);
        };
        for (size_t at = 0; at < text.size();) {
            size_t bytes = std::min(n, text.size() - at);
            bool is_token = false;
            for (const std::string& token : tokens) {
                if (starts_with(text.substr(at), token)) is_token = true, bytes = token.size();
                if (is_token) break;
                const size_t next = text.substr(at, bytes + token.size()).find(token);
                bytes = std::min(bytes, next);
            }
            note();
            AnswerEvents events;
            p.feed(text.substr(at, bytes), is_token, &events);
            add(events, &parts);
            at += bytes;
        }
        note();
        AnswerEvents events;
        p.finish(&events);
        add(events, &parts);
        const Result<jinja::Value> message = p.message();
        REQUIRE(message.ok());
        const auto valid = [](const Parts& all) { // as UTF-8
            return json(jinja::write(jinja::Value(shown(all)))).text().bytes;
        };
        CHECK(valid(parts_of(message.value())) == valid(parts));
        return parts;
    }
};

} // namespace ks
