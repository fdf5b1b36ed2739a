#include "runtime/chat/pattern.h"

#include <cstring>

namespace ks
{

using Expr = GrammarBuilder::Expr;
using Ranges = GrammarBuilder::Ranges;

Expr json_chars(GrammarBuilder& builder, const Ranges& ranges)
{
    constexpr char kCodes[] = "\"\\\b\f\n\r\t", kNames[] = "\"\\bfnrt";
    const Ranges plain = {{' ', '!'}, {'#', '['}, {']', GrammarBuilder::kMaxCode}};
    std::vector<Expr> ways = {builder.chars(GrammarBuilder::intersection(ranges, plain))};
    for (size_t i = 0; kCodes[i]; i++) {
        const auto code = uint32_t(kCodes[i]);
        if (!GrammarBuilder::intersection(ranges, {{code, code}}).empty())
            ways.push_back(builder.text({'\\', kNames[i]}));
    }
    return builder.alt(std::move(ways));
}

namespace
{

class Regex : public PatternParser
{
public:
    Regex(GrammarBuilder& builder, std::string_view text) : PatternParser(builder, text)
    {
        m_has_lazy = true;
    }
    Expr whole()
    {
        Expr all = alternatives(0);
        if (m_at < m_end) wrong("the end");
        return all;
    }

private:
    std::string where() const override
    {
        return "'" + printable({m_begin, size_t(m_end - m_begin)}) + "' byte " +
               std::to_string(m_at - m_begin);
    }
    bool is_end(int) const override { return m_at == m_end || peek() == ')'; }

    Expr element(int depth) override
    {
        if (take('[')) return json_chars(m_builder, char_class());
        if (take('.')) {
            const Ranges line_ends = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
            return json_chars(m_builder, GrammarBuilder::complement(line_ends));
        }
        if (take('(')) {
            if (take('?') && !take(':')) wrong("no look-around and no name, but ':',");
            return group(depth);
        }
        if (!strchr("^$*+?{}", peek())) return json_chars(m_builder, character());
        const bool begins = m_at == m_begin || m_at[-1] == '|',
                   ends = m_at + 1 == m_end || m_at[1] == '|';
        m_begins |= peek() == '^' && begins;
        m_ends |= peek() == '$' && ends;
        if (depth > 0 || !((peek() == '^' && begins) || (peek() == '$' && ends)))
            wrong("a character, a class, a group, or '^' and '$' at the ends");
        m_at++;
        return m_builder.text("");
    }

    // Anything may stand where an end of the text has no anchor.
    Expr way(std::vector<Expr> parts, int depth) override
    {
        const Expr any = m_builder.repeat(json_chars(m_builder, {{0, GrammarBuilder::kMaxCode}}), 0,
                                          depth ? 0 : GrammarBuilder::kUnlimited);
        if (!m_begins) parts.insert(parts.begin(), any);
        if (!m_ends) parts.push_back(any);
        if (depth == 0) m_begins = m_ends = false;
        return m_builder.seq(std::move(parts));
    }

    // Beyond ASCII the classes of letters differ between implementations.
    bool letter(char c, Ranges& ranges) override
    {
        constexpr char kLetters[] = "dws";
        const Ranges classes[] = {{{'0', '9'}},
                                  {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                                  {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}}};
        const char* at = c ? strchr(kLetters, c | 0x20) : nullptr;
        if (!at) return false;
        m_ascii = true;
        ranges = c & 0x20 ? classes[at - kLetters] : negated(classes[at - kLetters]);
        return true;
    }
    Ranges negated(const Ranges& ranges) override
    {
        return GrammarBuilder::intersection(GrammarBuilder::complement(ranges),
                                            {{0, m_ascii ? '~' : GrammarBuilder::kMaxCode}});
    }

    bool m_begins = false, m_ends = false; // the alternative has this anchor
    bool m_ascii = false;                  // a class of letters was read
};

} // namespace

Expr parse_regex(GrammarBuilder& builder, std::string_view pattern)
{
    return Regex(builder, pattern).whole();
}

} // namespace ks
