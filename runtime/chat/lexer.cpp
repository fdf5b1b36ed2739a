#include "runtime/chat/program.h"
#include "runtime/chat/text.h"

#include <cerrno>
#include <charconv>
#include <cstring>

namespace ks::jinja
{
namespace
{

constexpr size_t kMaxTokens = 200'000;

class Lexer
{
public:
    explicit Lexer(string_view source)
    {
        for (size_t i = 0; i < source.size(); i++) {
            bool cr = source[i] == '\r';
            if (cr && i + 1 < source.size() && source[i + 1] == '\n') i++;
            m_source += cr ? '\n' : source[i];
        }
        if (ends_with(m_source, "\n")) m_source.pop_back();
    }

    vector<Token> run()
    {
        try {
            while (m_at < m_source.size()) segment();
            add(kSign, "");
        } catch (Failure& failure) {
            failure.message = "line " + std::to_string(m_line) + ": " + failure.message;
            throw;
        }
        return move(m_tokens);
    }

private:
    char peek(size_t at) const { return at < m_source.size() ? m_source[at] : '\0'; }
    bool is_at(size_t at, string_view text) const
    {
        return m_source.compare(at, text.size(), text) == 0;
    }
    bool is_digit(size_t at) const { return peek(at) >= '0' && peek(at) <= '9'; }
    size_t skip_space(size_t at) const
    {
        return at + space_before(string_view(m_source).substr(at));
    }

    void move_to(size_t at)
    {
        m_line += uint32_t(
            std::count(m_source.begin() + ptrdiff_t(m_at), m_source.begin() + ptrdiff_t(at), '\n'));
        m_at = at;
    }

    void add(TokenKind kind, string text, Value number = {})
    {
        if (m_tokens.size() >= kMaxTokens) refuse("more than %zu tokens", kMaxTokens);
        m_tokens.push_back({kind, m_line, move(text), move(number)});
    }

    // Text up to a tag. '-' removes white space before the tag, no sign blanks of the tag's line.
    void add_data(size_t end, char sign)
    {
        string_view data = string_view(m_source).substr(m_at, end - m_at);
        size_t n_kept = data.size() - space_after(data), line = data.rfind('\n') + 1;
        if (sign == '-')
            data = data.substr(0, n_kept);
        else if (sign != '+' && (line > 0 || m_starts_line) && n_kept <= line)
            data = data.substr(0, line);
        if (!data.empty()) add(kData, string(data));
        move_to(end);
    }

    // The end of a tag at `at`, and what it swallows: '-' all white space, no sign one newline.
    bool close(size_t at, string_view closer, bool newline)
    {
        char sign = peek(at);
        bool has_sign = sign == '-' || (sign == '+' && closer != "}}");
        if (!is_at(min(at + has_sign, m_source.size()), closer)) return false;
        at += has_sign + closer.size();
        if (sign == '-') at = skip_space(at);
        if (!has_sign && newline && peek(at) == '\n') at++;
        move_to(at);
        m_starts_line = m_source[at - 1] == '\n';
        return true;
    }

    // Where a word of a tag ends, with the white space around it. npos: another word.
    size_t word(size_t at, string_view text) const
    {
        at = skip_space(at);
        return is_at(at, text) ? skip_space(at + text.size()) : string::npos;
    }

    void raw_block()
    {
        for (size_t open = m_at; (open = m_source.find("{%", open)) != string::npos; open++) {
            char sign = peek(open + 2);
            size_t end = word(open + 2 + (sign == '-' || sign == '+'), "endraw"), at = m_at;
            if (end == string::npos || !close(end, "%}", true)) continue;
            size_t after = m_at;
            bool starts_line = m_starts_line;
            m_at = at;
            m_starts_line = false;
            add_data(open, sign);
            m_at = after;
            m_starts_line = starts_line;
            return;
        }
        refuse("{%% raw %%} without {%% endraw %%}");
    }

    // Text, then a tag.
    void segment()
    {
        size_t open = m_at;
        do open = m_source.find('{', open);
        while (open != string::npos && !memchr("{%#", peek(open + 1), 3) && ++open);
        if (open == string::npos) return add_data(m_source.size(), '+');
        char kind = m_source[open + 1], sign = peek(open + 2);
        bool has_sign = sign == '-' || sign == '+';
        add_data(open, kind == '{' && !has_sign ? '+' : sign);
        size_t body = open + 2 + has_sign;
        if (kind == '#') {
            size_t end = m_source.find("#}", body);
            if (end == string::npos) refuse("a comment without an end");
            if (end > body && memchr("-+", m_source[end - 1], 2)) end--;
            close(end, "#}", true);
            return;
        }
        size_t raw = kind == '%' ? word(body, "raw") : string::npos;
        if (raw != string::npos && peek(raw) != '+' && close(raw, "%}", false)) return raw_block();
        add(kSign, kind == '{' ? "{{" : "{%");
        move_to(body);
        tag(kind == '{' ? "}}" : "%}");
    }

    void tag(string_view closer)
    {
        string brackets; // that are open
        bool prints = closer == "}}";
        while (true) {
            size_t begin = m_at;
            if (brackets.empty() && close(begin, closer, !prints))
                return add(kSign, string(closer));
            move_to(skip_space(m_at));
            if (m_at == m_source.size()) refuse("a tag without an end");
            if (m_at != begin) continue;
            if (is_digit(m_at))
                number();
            else if (size_t n = name_bytes(string_view(m_source).substr(m_at)))
                add(kName, m_source.substr(m_at, n)), move_to(m_at + n);
            else if (peek(m_at) == '\'' || peek(m_at) == '"')
                literal(m_source[m_at]);
            else
                sign(&brackets);
        }
    }

    void sign(string* brackets)
    {
        static const char kOpen[] = "([{", kClose[] = ")]}";
        char c = m_source[m_at];
        size_t n = 1;
        for (const char* two : {"//", "**", "==", "!=", ">=", "<="})
            if (is_at(m_at, two)) n = 2;
        if (n == 1 && (!c || !strchr("+-/*%~[](){}><=.:|,;", c)))
            refuse("unexpected '%s'", printable({&c, 1}).c_str());
        if (strchr(kOpen, c)) *brackets += kClose[strchr(kOpen, c) - kOpen];
        if (strchr(kClose, c)) {
            if (brackets->empty() || brackets->back() != c) refuse("unexpected '%c'", c);
            brackets->pop_back();
        }
        add(kSign, m_source.substr(m_at, n));
        move_to(m_at + n);
    }

    void number()
    {
        char letter = char(peek(m_at + 1) | 0x20);
        int base = peek(m_at) != '0' ? 10
                   : letter == 'x'   ? 16
                   : letter == 'o'   ? 8
                   : letter == 'b'   ? 2
                                     : 10;
        size_t at = m_at + (base == 10 ? 0 : 2);
        string text;
        auto has_digit = [&](size_t i) {
            return base == 16 ? isxdigit(uint8_t(peek(i))) : is_digit(i);
        };
        auto digits = [&] { // with single '_' between them
            for (; has_digit(at) || (peek(at) == '_' && has_digit(at + 1)); at++)
                if (peek(at) != '_') text += peek(at);
        };
        digits();
        bool after_dot = m_at > 0 && m_source[m_at - 1] == '.', whole = true;
        auto part = [&](size_t n) { // of a float: a sign of n bytes and digits
            if (after_dot || base != 10 || !is_digit(at + n)) return;
            text.append(m_source, at, n);
            at += n;
            digits();
            whole = false;
        };
        if (peek(at) == '.') part(1);
        if ((peek(at) | 0x20) == 'e') part(peek(at + 1) == '-' || peek(at + 1) == '+' ? 2 : 1);
        char* end = nullptr;
        errno = 0;
        int64_t integer = strtoll(text.c_str(), &end, base);
        bool padded = base == 10 && text[0] == '0' && text.find_first_not_of('0') != text.npos;
        if (whole && (errno || *end || text.empty() || padded))
            refuse("an integer of at most 64 bits expected");
        add(kNumber, "", whole ? Value(integer) : strtod(text.c_str(), nullptr));
        move_to(at);
    }

    void literal(char quote)
    {
        static const char kFrom[] = "ntrabfv\\'\"\n", kTo[] = "\n\t\r\a\b\f\v\\'\"";
        string text;
        size_t at = m_at + 1;
        for (; peek(at) != quote || at >= m_source.size(); at++) {
            if (at >= m_source.size()) refuse("a string without an end");
            char c = peek(at + 1);
            if (m_source[at] != '\\') {
                text += m_source[at];
            } else if (const char* found = c ? strchr(kFrom, c) : nullptr) {
                if (c != '\n') text += kTo[found - kFrom];
                at++;
            } else if (int n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0; n > 0) {
                at = code_point(at + 2, n, 16, &text);
            } else if (c >= '0' && c <= '7') {
                n = 1;
                while (n < 3 && peek(at + 1 + size_t(n)) >= '0' && peek(at + 1 + size_t(n)) <= '7')
                    n++;
                at = code_point(at + 1, n, 8, &text);
            } else {
                text += '\\';
            }
        }
        add(kLiteral, move(text));
        move_to(at + 1);
    }

    // Returns the last digit's place.
    size_t code_point(size_t at, int n_digits, int base, string* out)
    {
        uint32_t code = 0;
        const char* first = m_source.data() + min(at, m_source.size());
        const char* end = min<const char*>(first + n_digits, m_source.data() + m_source.size());
        if (std::from_chars(first, end, code, base).ptr != first + n_digits)
            refuse("an escape without %d digits", n_digits);
        append_utf8(out, int32_t(code));
        return at + size_t(n_digits) - 1;
    }

    string m_source;
    size_t m_at = 0;
    uint32_t m_line = 1;
    bool m_starts_line = true; // what was swallowed last ended in a newline
    vector<Token> m_tokens;
};

} // namespace

vector<Token> tokenize(string_view source)
{
    return Lexer(source).run();
}

} // namespace ks::jinja
