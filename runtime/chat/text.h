// Characters as Python sees them.
#pragma once

#include "runtime/chat/value.h"
#include "runtime/text/unicode.h"

#include <algorithm>

namespace ks::jinja
{

inline bool starts_with(string_view text, string_view start)
{
    return text.substr(0, start.size()) == start;
}
inline bool ends_with(string_view text, string_view end)
{
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

void append_utf8(string* out, int32_t code); // an invalid one as U+FFFD
bool is_space(const Char& c);
Char next_char(string_view text, size_t at);
// The bytes of white space at the beginning and at the end.
size_t space_before(string_view text);
size_t space_after(string_view text);
// The bytes of the name at the beginning.
size_t name_bytes(string_view text);
size_t count_chars(string_view text);
// Where the n-th character behind `from` begins.
size_t char_offset(string_view text, size_t n, size_t from = 0);
// Where each character begins, and the end.
vector<size_t> char_starts(string_view text);

enum class Case { upper, lower, capitalized, title, words, swapped };
Text change_case(const Text& text, Case wanted);

} // namespace ks::jinja
