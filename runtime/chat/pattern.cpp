#include "runtime/chat/pattern.h"

#include "runtime/chat/value.h"
#include "runtime/text/unicode.h"

#include <cctype>
#include <cstring>

namespace ks
{

using Expr = GrammarBuilder::Expr;
using Ranges = GrammarBuilder::Ranges;

void PatternParser::wrong(const char* expected) const
{
    const std::string found = m_at < m_end ? "'" + printable({m_at, 1}) + "'" : "the end";
    jinja::refuse("%s: %s expected, found %s", where().c_str(), expected, found.c_str());
}

bool PatternParser::take(char c)
{
    const bool found = m_at < m_end && *m_at == c;
    m_at += found;
    return found;
}

Expr PatternParser::alternatives(int depth)
{
    if (depth > 64) wrong("at most 64 nested groups");
    std::vector<Expr> ways, parts;
    for (;;) {
        skip(depth);
        const bool ends = is_end(depth);
        if (ends || peek() == '|') {
            ways.push_back(way(std::move(parts), depth));
            parts.clear();
            if (ends) return m_builder.alt(std::move(ways));
            m_at++;
            skip(1);
        } else {
            parts.push_back(repeated(element(depth), depth));
        }
    }
}

Expr PatternParser::group(int depth)
{
    Expr inside = alternatives(depth + 1);
    if (!take(')')) wrong("')'");
    return inside;
}

Expr PatternParser::repeated(Expr part, int depth)
{
    constexpr uint32_t kMost = 100'000;
    for (;;) {
        skip(depth);
        uint32_t least = 0, most = GrammarBuilder::kUnlimited;
        if (take('+')) {
            least = 1;
        } else if (take('?')) {
            most = 1;
        } else if (take('{')) {
            least = most = number(10, 0, kMost);
            if (take(',')) most = peek() == '}' ? GrammarBuilder::kUnlimited : number(10, 0, kMost);
            if (most < least) wrong("an upper limit that is not below the lower one");
            if (!take('}')) wrong("'}'");
        } else if (!take('*')) {
            return part;
        }
        part = m_builder.repeat(std::move(part), least, most);
        if (m_has_lazy) take('?');
    }
}

// n_digits 0: at least one digit.
uint32_t PatternParser::number(int base, int n_digits, uint32_t most)
{
    uint64_t value = 0;
    for (int n = 0; n < n_digits || n_digits == 0; n++, m_at++) {
        const char c = char(tolower(peek()));
        const int digit = isdigit(uint8_t(c)) ? c - '0' : isxdigit(uint8_t(c)) ? c - 'a' + 10 : 16;
        if (digit >= base && n > 0 && n_digits == 0) break;
        if (digit >= base) wrong(base == 10 ? "a number" : "a hexadecimal digit");
        value = value * uint64_t(base) + uint64_t(digit);
        if (value > most) wrong("a smaller number");
    }
    return uint32_t(value);
}

Ranges PatternParser::character()
{
    int32_t code = 0;
    const size_t n = m_at < m_end ? utf8_char(m_at, m_end, &code) : 0;
    if (n == 0) wrong("a character in UTF-8");
    m_at += n;
    if (code == '\\') {
        constexpr char kNames[] = "ntrxuU", kCodes[] = "\n\t\r";
        const char c = peek();
        const size_t at = c ? std::string_view(kNames).find(c) : std::string_view::npos;
        Ranges ranges;
        if (at == std::string_view::npos && !ispunct(uint8_t(c)) && !letter(c, ranges))
            wrong("an escape that is known");
        m_at++;
        if (!ranges.empty()) return ranges;
        code = at == std::string_view::npos ? c
               : at < 3                     ? kCodes[at]
                        : int32_t(number(16, 2 << (at - 3), GrammarBuilder::kMaxCode));
    }
    return {{uint32_t(code), uint32_t(code)}};
}

Ranges PatternParser::char_class()
{
    Ranges ranges;
    const bool is_negated = take('^');
    while (!take(']')) {
        Ranges next = character();
        if (peek() == '-' && m_end - m_at > 1 && m_at[1] != ']') {
            m_at++;
            const Ranges last = character();
            if (next.size() != 1 || last[0].second < next[0].first)
                wrong("a range in ascending order");
            next[0].second = last[0].second;
        }
        ranges.insert(ranges.end(), next.begin(), next.end());
    }
    return is_negated ? negated(ranges) : ranges;
}

} // namespace ks
