#include "runtime/chat/json.h"
#include "runtime/chat/pattern.h"
#include "runtime/chat/text.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace ks
{
namespace
{

class Gbnf : public PatternParser
{
public:
    Gbnf(GrammarBuilder& builder, std::string_view text) : PatternParser(builder, text) {}

    Grammar document()
    {
        for (skip(1); m_at < m_end; skip(1)) {
            const uint32_t rule = find_rule(name());
            skip(0);
            if (m_builder.defined(rule)) wrong("a rule that is not defined yet");
            if (m_end - m_at < 3 || memcmp(m_at, "::=", 3) != 0) wrong("'::='");
            m_at += 3;
            skip(1);
            m_builder.define(rule, alternatives(0));
            if (m_at < m_end && peek() != '\n') wrong("the end of the line");
        }
        return m_builder.build(find_rule("root"));
    }

private:
    std::string where() const override
    {
        return "line " + std::to_string(1 + std::count(m_begin, m_at, '\n'));
    }
    // White space and comments. In groups a line may end, and where the next one begins with '|'.
    void skip(int depth) override
    {
        const char* line_end = nullptr;
        for (; m_at < m_end && (isspace(uint8_t(*m_at)) || *m_at == '#'); m_at++) {
            if (*m_at == '#') m_at = std::find(m_at, m_end, '\n');
            if (m_at == m_end) break;
            if (*m_at == '\n' && !line_end) line_end = m_at;
        }
        if (depth == 0 && line_end && peek() != '|') m_at = line_end;
    }
    bool is_end(int) const override { return m_at == m_end || peek() == ')' || peek() == '\n'; }
    static bool is_name(char c) { return isalnum(uint8_t(c)) || c == '-' || c == '_'; }

    std::string name()
    {
        const char* begin = m_at;
        while (m_at < m_end && is_name(*m_at)) m_at++;
        if (m_at == begin) wrong("the name of a rule");
        return {begin, m_at};
    }
    uint32_t find_rule(const std::string& name)
    {
        auto [at, is_new] = m_rules.insert({name, 0});
        if (is_new) at->second = m_builder.add_rule(name);
        return at->second;
    }

    Expr element(int depth) override
    {
        if (take('"')) return literal();
        if (take('[')) return m_builder.chars(char_class());
        if (take('.')) return m_builder.chars({{0, GrammarBuilder::kMaxCode}});
        if (take('(')) return group(depth);
        if (is_name(peek())) return m_builder.call(find_rule(name()));
        if (peek() == '<') wrong("text, not a token,");
        wrong("a text, a class, a group or a rule");
    }
    Expr literal()
    {
        std::string text;
        while (!take('"')) {
            const uint32_t code = character()[0].first;
            if (code >= 0xd800 && code < 0xe000) wrong("no surrogate");
            jinja::append_utf8(&text, int32_t(code));
        }
        return m_builder.text(text);
    }

    std::unordered_map<std::string, uint32_t> m_rules;
};

} // namespace

Result<Grammar> parse_gbnf(std::string_view text)
{
    if (text.size() > Grammar::kMaxBytes)
        return fail(Code::invalid, "grammar: %zu bytes, at most %u were expected", text.size(),
                    Grammar::kMaxBytes);
    try {
        GrammarBuilder builder;
        return Gbnf(builder, text).document();
    } catch (const jinja::Failure& failure) {
        return Status(Code::invalid, "grammar: " + failure.message);
    }
}

} // namespace ks
