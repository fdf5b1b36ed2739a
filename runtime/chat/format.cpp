// printf formats (%), str.format and strftime.
#include "runtime/chat/interpreter.h"

#include <cmath>
#include <cstring>

namespace ks::jinja
{

Text padded(const Text& text, int64_t width, char align, const Text& fill)
{
    int64_t missing = width - int64_t(count_chars(text.bytes));
    if (missing <= 0) return text;
    if (count_chars(fill.bytes) != 1) refuse("one character expected to fill with");
    int64_t left = align == '<' ? 0 : align == '>' ? missing : missing / 2 + (missing & width & 1);
    Text out = repeated(fill, left).text();
    out.append(text);
    out.append(repeated(fill, missing - left).text());
    return out;
}

Text write_time(string_view format, const std::tm& now)
{
    Text out;
    for (size_t at = 0, end; at < format.size(); at = end) {
        end = at + 1; // of a literal character or a directive
        if (format[at] == '%')
            end = min(format.find_first_not_of("-_0^#EO", end), format.size() - 1) + 1;
        string directive(format.substr(at, end - at));
        char text[128];
        bool known = directive.size() > 1 && directive.back() > 0;
        if (known) directive.assign(text, strftime(text, sizeof text, directive.c_str(), &now));
        out.add(directive);
        use_steps(1);
    }
    return out;
}

namespace
{

// Flags, width and precision, as in C.
struct Spec {
    string flags;
    int width = 0, precision = -1;
};

int read_number(const string& text, size_t* at)
{
    int64_t n = 0;
    for (; *at < text.size() && isdigit(uint8_t(text[*at])); ++*at)
        n = min<int64_t>(n * 10 + text[*at] - '0', INT32_MAX);
    check_text_bytes(uint64_t(n));
    return int(n);
}

Spec read_spec(const string& text, size_t* at)
{
    Spec spec;
    size_t end = min(text.find_first_not_of("-+ #0", *at), text.size());
    spec.flags = text.substr(*at, end - *at);
    spec.width = read_number(text, &(*at = end));
    if (*at < text.size() && text[*at] == '.') spec.precision = read_number(text, &++*at);
    return spec;
}

string print_number(const Spec& spec, char type, const Value& value)
{
    bool real = memchr("eEfFgG", type, 6);
    if (!value.is_number() || !(fabs(value.number()) < 9e18 || real || !value.is(kReal)))
        refuse("%s cannot be formatted as a number", type_name(value));
    if (!real && !memchr("dxXo", type, 4))
        refuse("an unknown format '%s'", printable({&type, 1}).c_str());
    string format = "%" + spec.flags + (real ? "*.*" : "*.*ll") + type, out;
    auto print = [&](size_t n) {
        if (real)
            return snprintf(out.data(), n, format.c_str(), spec.width, spec.precision,
                            value.number());
        long long number = value.is(kReal) ? int64_t(value.real) : value.integer;
        return snprintf(out.data(), n, format.c_str(), spec.width, spec.precision, number);
    };
    out.resize(size_t(print(0)));
    print(out.size() + 1);
    return out;
}

// Pieces keep their authors. A text made in another way is by the first author of its parts.
Value with_authors(const Text& out, bool plain, const Text& format, Values parts)
{
    if (plain) return out;
    parts.insert(parts.begin(), format);
    return Text(out.bytes, author_in(parts));
}

} // namespace

Value format_percent(const Text& format, const Value& values)
{
    Values all = values.is(kTuple) ? items_of(values) : Values{values};
    const string& s = format.bytes;
    Text out;
    size_t at = 0, used = 0, percent;
    bool plain = true;
    while ((percent = s.find('%', at)) != s.npos) {
        out.append(format, at, percent - at);
        at = percent + 1;
        const Value* value = nullptr;
        if (s[at] == '(') {
            string key = s.substr(at + 1, s.find(')', at) - at - 1);
            value = values.find(key);
            at = min(at + key.size() + 2, s.size());
        }
        Spec spec = read_spec(s, &at);
        char type = s[at];
        if (at++ >= s.size()) refuse("an incomplete format");
        plain &= at == percent + 2 && memchr("%sd", type, 3);
        if (type == '%') {
            out.append(format, percent, 1);
            continue;
        }
        if (!value && used < all.size()) value = &all[used++];
        if (!value) refuse("too few values for the format");
        if (type != 's' && type != 'r')
            out.add(print_number(spec, type == 'i' ? 'd' : type, *value));
        else
            out.append(padded(type == 's' ? text_of(*value) : repr_of(*value), spec.width,
                              spec.flags == "-" ? '<' : '>', " "));
    }
    out.append(format, at);
    if (used < all.size() && !values.is(kDict)) refuse("more values than the format has places");
    return with_authors(out, plain, format, all);
}

Value format_braces(const Text& format, const Values& values, Dict& named)
{
    const string& s = format.bytes;
    Text out;
    bool plain = author_in(format) == kByTemplate;
    size_t next = 0;
    for (size_t at = 0; at < s.size();) {
        bool brace = s[at] == '{' || s[at] == '}';
        if (!brace || s[at + 1] == s[at]) {
            out.append(format, at, 1);
            at += brace ? 2 : 1;
            continue;
        }
        size_t end = s.find('}', at);
        if (s[at] == '}' || end == s.npos) refuse("a single brace in a format");
        Text field = format.part(at + 1, end - at - 1);
        string key = field.bytes.substr(0, field.bytes.find_first_of(":!"));
        size_t i = key.empty()                ? next++
                   : isdigit(uint8_t(key[0])) ? size_t(atoi(key.c_str()))
                                              : kAll;
        const Value* value = i < values.size() ? &values[i] : named.find(key);
        if (!value) refuse("the format names a value that is missing");
        plain &= key.size() == field.size();
        // [[fill]align][flags][width][.precision][type]
        size_t colon = min(field.bytes.find(':'), field.size()), spec_at = colon + 1;
        string text = field.bytes + "  ";
        size_t align_at = spec_at + (memchr("<>^", text[spec_at + 1], 3) ? 1 : 0);
        char align = memchr("<>^", text[align_at], 3) ? text[align_at]
                     : value->is_number()             ? '>'
                                                      : '<';
        if (align == text[align_at]) spec_at = align_at + 1;
        Spec spec = read_spec(text, &spec_at);
        Text body =
            starts_with(field.bytes.substr(key.size()), "!r") ? repr_of(*value) : text_of(*value);
        int width = spec.width;
        if (spec.flags.empty()) spec.width = 0;
        if (value->is_number() && text[spec_at] > ' ')
            body = print_number(spec, text[spec_at], *value);
        out.append(
            padded(body, width, align, align_at > colon + 1 ? field.part(colon + 1, 1) : " "));
        at = end + 1;
    }
    Values all = values;
    for (const auto& item : named.items) all.push_back(item.second);
    return with_authors(out, plain, format, all);
}

} // namespace ks::jinja
