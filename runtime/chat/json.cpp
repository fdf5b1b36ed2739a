#include "runtime/chat/json.h"

#include "runtime/chat/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>

namespace ks::jinja
{

namespace
{

class Reader
{
public:
    Reader(string_view text, const JsonLimits& limits)
        : m_begin(text.data()), m_at(text.data()), m_end(text.data() + text.size()),
          m_limits(limits)
    {
    }

    Value document()
    {
        Value out = value(0);
        skip_space();
        if (m_at != m_end) wrong("the end");
        return out;
    }

private:
    [[noreturn]] void wrong(const char* expected)
    {
        refuse("JSON: %s expected at byte %zu, found '%s'", expected, size_t(m_at - m_begin),
               m_at == m_end ? "" : printable({m_at, 1}).c_str());
    }

    void skip_space()
    {
        while (m_at < m_end && strchr(" \t\r\n", *m_at) && *m_at) m_at++;
    }

    bool next_is(char c)
    {
        skip_space();
        if (m_at == m_end || *m_at != c) return false;
        m_at++;
        return true;
    }

    void expect(char c)
    {
        const char expected[] = {'\'', c, '\'', 0};
        if (!next_is(c)) wrong(expected);
    }

    bool word(string_view text)
    {
        if (string_view(m_at, size_t(m_end - m_at)).substr(0, text.size()) != text) return false;
        m_at += text.size();
        return true;
    }

    Value value(int depth)
    {
        if (depth > m_limits.depth) refuse("JSON: nested deeper than %d", m_limits.depth);
        if (++m_n_values > m_limits.values)
            refuse("JSON: more than %llu values", (unsigned long long)m_limits.values);
        if (next_is('{')) return object(depth);
        if (next_is('[')) return array(depth);
        if (next_is('"')) return literal();
        if (word("null")) return Value::none();
        if (word("true")) return true;
        if (word("false")) return false;
        return number();
    }

    Value array(int depth)
    {
        vector<Value> items;
        if (next_is(']')) return items;
        do items.push_back(value(depth + 1));
        while (next_is(','));
        expect(']');
        return items;
    }

    Value object(int depth)
    {
        Value out = Value::dict();
        if (next_is('}')) return out;
        do {
            expect('"');
            Value key = literal();
            expect(':');
            out.dict_object().set(key, value(depth + 1));
        } while (next_is(','));
        expect('}');
        return out;
    }

    uint32_t hex4()
    {
        uint32_t code = 0;
        const char* end = m_at + min<ptrdiff_t>(4, m_end - m_at);
        if (std::from_chars(m_at, end, code, 16).ptr != m_at + 4) wrong("four hex digits");
        m_at += 4;
        return code;
    }

    Value literal()
    {
        string out;
        while (m_at < m_end && *m_at != '"') {
            if (uint8_t(*m_at) < 0x20) wrong("a character");
            if (*m_at != '\\') {
                Char c = char_at(m_at, m_end);
                append_utf8(&out, c.code);
                m_at += c.bytes;
                continue;
            }
            if (++m_at == m_end) break;
            static const char kFrom[] = "\"\\/bfnrt", kTo[] = "\"\\/\b\f\n\r\t";
            char escape = *m_at;
            if (const char* found = escape ? strchr(kFrom, escape) : nullptr) {
                out += kTo[found - kFrom];
                m_at++;
                continue;
            }
            if (escape != 'u') wrong("an escape");
            m_at++;
            uint32_t code = hex4();
            if (code >> 10 == 0x36 && m_end - m_at >= 6 && m_at[0] == '\\' && m_at[1] == 'u') {
                const char* before = m_at;
                m_at += 2;
                uint32_t low = hex4();
                if (low >> 10 == 0x37)
                    code = 0x10000 + ((code & 0x3ff) << 10) + (low & 0x3ff);
                else
                    m_at = before;
            }
            append_utf8(&out, int32_t(code));
        }
        if (m_at == m_end) wrong("'\"'");
        m_at++;
        return Text(out);
    }

    Value number()
    {
        const char* at = m_at;
        auto digits = [&] {
            const char* first = at;
            while (at < m_end && *at >= '0' && *at <= '9') at++;
            return at - first;
        };
        if (at < m_end && *at == '-') at++;
        const char* first = at;
        ptrdiff_t n = digits();
        bool valid = n == 1 || (n > 1 && *first != '0'), whole = true;
        if (at < m_end && *at == '.') whole = false, at++, valid &= digits() > 0;
        if (at < m_end && (*at | 0x20) == 'e') {
            whole = false;
            if (++at < m_end && (*at == '+' || *at == '-')) at++;
            valid &= digits() > 0;
        }
        if (!valid) wrong("a value");
        int64_t integer = 0;
        double real = 0;
        if (whole && std::from_chars(m_at, at, integer).ec != std::errc())
            wrong("a number of at most 64 bits");
        if (!whole) real = strtod(string(m_at, at).c_str(), nullptr); // 1e999: infinite
        m_at = at;
        return whole ? Value(integer) : Value(real);
    }

    const char *m_begin, *m_at, *m_end;
    const JsonLimits& m_limits;
    uint64_t m_n_values = 0;
};

class Writer
{
public:
    explicit Writer(const WriteStyle& style) : m_style(style) {}

    void value(const Value& v, int depth)
    {
        if (depth > kMaxDepth) refuse("a value is nested deeper than %d", kMaxDepth);
        check_text_bytes(out.size());
        use_steps(1);
        bool python = m_style.python;
        switch (v.kind) {
        case kNone:
            out += python ? "None" : "null";
            break;
        case kBoolean:
            out += v.integer ? (python ? "True" : "true") : python ? "False" : "false";
            break;
        case kInteger:
            out += std::to_string(v.integer);
            break;
        case kReal:
            out += write_number(v.real, python);
            break;
        case kText:
            literal(v.str());
            break;
        case kList:
        case kTuple:
            items(v, depth);
            break;
        case kDict:
            members(v, depth);
            break;
        default:
            if (!python) refuse("the value cannot be written as JSON");
            other(v, depth);
        }
    }

    string out;

private:
    void other(const Value& v, int depth)
    {
        if (v.is(kUndefined)) {
            out += "Undefined";
        } else if (v.is(kRange) || v.is(kView)) {
            out += v.list().view;
            out += '(';
            items(v, depth);
            out += ')';
        } else if (v.is(kNamespace)) {
            out += "<Namespace ";
            members(v, depth);
            out += '>';
        } else {
            refuse("a function or generator cannot be printed");
        }
    }

    // Before an item, and before the closing bracket.
    void line(int depth)
    {
        if (!m_style.lines) return;
        out += '\n';
        for (int i = 0; i < depth; i++) {
            out += m_style.indent;
            check_text_bytes(out.size());
        }
    }

    void items(const Value& v, int depth)
    {
        const vector<Value>& all = v.items();
        bool round = m_style.python && v.is(kTuple);
        out += round ? '(' : '[';
        for (size_t i = 0; i < all.size(); i++) {
            if (i) out += m_style.comma;
            line(depth + 1);
            value(all[i], depth + 1);
        }
        if (round && all.size() == 1) out += ',';
        if (!all.empty()) line(depth);
        out += round ? ')' : ']';
    }

    void members(const Value& v, int depth)
    {
        vector<std::pair<Value, Value>> all = v.members();
        if (m_style.sorted)
            std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
                if (!a.first.is(kText) || !b.first.is(kText))
                    return a.first.number() < b.first.number();
                return a.first.str() < b.first.str();
            });
        out += '{';
        for (size_t i = 0; i < all.size(); i++) {
            if (i) out += m_style.comma;
            line(depth + 1);
            const Value& key = all[i].first;
            bool quoted = !m_style.python && !key.is(kText);
            if (quoted && key.is(kTuple)) refuse("a tuple cannot be a key of JSON");
            if (quoted) out += '"';
            value(key, depth + 1);
            if (quoted) out += '"';
            out += m_style.colon;
            value(all[i].second, depth + 1);
        }
        if (!all.empty()) line(depth);
        out += '}';
    }

    template <class... T>
    void print(const char* format, T... numbers)
    {
        char text[16];
        out.append(text, size_t(snprintf(text, sizeof text, format, numbers...)));
    }

    void escaped(const Char& c, char quote)
    {
        bool python = m_style.python;
        static const char kFrom[] = "\n\r\t\b\f", kTo[] = "nrtbf";
        uint32_t code = uint32_t(c.code);
        if (code == uint8_t(quote) || code == '\\')
            out += '\\', out += char(code);
        else if (const char* found = code && code < 128 ? strchr(kFrom, int(code)) : nullptr;
                 found && found - kFrom < (python ? 3 : 5))
            out += '\\', out += kTo[found - kFrom];
        else if (python && (c.kind & (char_kind::kOther | char_kind::kSpace)) && code != ' ')
            print(code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
        else if (!python && m_style.ascii && code >= 0x10000)
            print("\\u%04x\\u%04x", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
        else if (!python && (code < 0x20 || (m_style.ascii && code >= 0x7f)))
            print("\\u%04x", code);
        else
            append_utf8(&out, int32_t(code));
    }

    void literal(const string& text)
    {
        use_steps(text.size() / 64);
        bool has_single = text.find('\'') != text.npos, has_double = text.find('"') != text.npos;
        char quote = m_style.python && (!has_single || has_double) ? '\'' : '"';
        out += quote;
        for (const char *at = text.data(), *end = at + text.size(); at < end;) {
            Char c = char_at(at, end);
            escaped(c, quote);
            at += c.bytes;
        }
        out += quote;
        check_text_bytes(out.size());
    }

    const WriteStyle& m_style;
};

} // namespace

Result<Value> parse_json(string_view text, const JsonLimits& limits)
{
    if (text.size() > limits.bytes)
        return fail(Code::invalid, "JSON of %zu bytes, at most %llu are read", text.size(),
                    (unsigned long long)limits.bytes);
    try {
        return Reader(text, limits).document();
    } catch (const Failure& failure) {
        return Status(Code::invalid, failure.message);
    }
}

string write(const Value& value, const WriteStyle& style)
{
    Writer writer(style);
    writer.value(value, 0);
    return move(writer.out);
}

string write_number(double number, bool python)
{
    if (std::isnan(number)) return python ? "nan" : "NaN";
    if (std::isinf(number)) return string(number < 0 ? "-" : "") + (python ? "inf" : "Infinity");
    char digits[40]; // the shortest that read back as the same number
    auto shortest = [&](std::chars_format format) {
        return string(digits, std::to_chars(digits, std::end(digits), number, format).ptr);
    };
    string out = shortest(std::chars_format::scientific);
    int exponent = atoi(out.c_str() + out.find('e') + 1);
    if (exponent < -4 || exponent >= 16) return out;
    out = shortest(std::chars_format::fixed);
    return out.find('.') == out.npos ? out + ".0" : out;
}

} // namespace ks::jinja
