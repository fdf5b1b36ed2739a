#include "runtime/chat/text.h"

#include <cstring>
#include <utf8proc.h>

namespace ks::jinja
{

void append_utf8(string* out, int32_t code)
{
    utf8proc_uint8_t bytes[4];
    auto n = utf8proc_encode_char(utf8proc_codepoint_valid(code) ? code : 0xfffd, bytes);
    out->append(bytes, bytes + n);
}

bool is_space(const Char& c)
{
    return c.kind == char_kind::kSpace || (c.code >= 0x1c && c.code < 0x20);
}

Char next_char(string_view text, size_t at)
{
    return char_at(text.data() + at, text.data() + text.size());
}

size_t space_before(string_view text)
{
    size_t n = 0;
    while (n < text.size()) {
        Char c = next_char(text, n);
        if (!is_space(c)) break;
        n += c.bytes;
    }
    return n;
}

size_t space_after(string_view text)
{
    size_t end = text.size();
    while (end > 0) {
        size_t begin = end - 1;
        while (begin > 0 && (text[begin] & 0xc0) == 0x80) begin--;
        if (!is_space(next_char(text.substr(0, end), begin))) break;
        end = begin;
    }
    return text.size() - end;
}

size_t name_bytes(string_view text)
{
    constexpr int kPart = char_kind::kLetter | char_kind::kDigit | char_kind::kMark;
    size_t n = 0;
    while (n < text.size()) {
        Char c = next_char(text, n);
        if (!(c.kind & kPart) && c.code != '_') break;
        n += c.bytes;
    }
    return n;
}

size_t count_chars(string_view text)
{
    return size_t(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

size_t char_offset(string_view text, size_t n, size_t from)
{
    use_steps(n / 64);
    for (; from < text.size(); from++)
        if ((text[from] & 0xc0) != 0x80 && n-- == 0) break;
    return from;
}

vector<size_t> char_starts(string_view text)
{
    use_steps(text.size() / 16);
    vector<size_t> starts;
    for (size_t i = 0; i < text.size(); i++)
        if ((text[i] & 0xc0) != 0x80) starts.push_back(i);
    starts.push_back(text.size());
    return starts;
}

static string mapped(int32_t code, bool upper)
{
    string out;
    if (upper && code == 0xdf) return "SS";
    append_utf8(&out, upper ? utf8proc_toupper(code) : utf8proc_tolower(code));
    if (!upper && code == 0x130) append_utf8(&out, 0x307); // i with a combining dot
    return out;
}

Text change_case(const Text& text, Case wanted)
{
    Text out;
    use_steps(text.size() / 16);
    bool begins = wanted != Case::swapped; // a word
    for (size_t at = 0; at < text.size();) {
        Char c = next_char(text.bytes, at);
        bool letter = c.kind & char_kind::kLetter;
        bool upper = wanted == Case::upper || (begins && wanted != Case::lower) ||
                     (wanted == Case::swapped && c.kind == char_kind::kLower);
        out.add(mapped(c.code, upper), text.authors[at]);
        begins = wanted == Case::title
                     ? is_space(c) || (c.code > 0 && c.code < 128 && strchr("-({[<", c.code))
                     : wanted == Case::words && !letter;
        at += c.bytes;
    }
    return out;
}

} // namespace ks::jinja
