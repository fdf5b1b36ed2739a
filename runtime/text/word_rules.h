// The rules that pre-tokenizers are made of. Each is an alternative of a regular expression, in the
// comment above it.
#pragma once

#include "runtime/text/pretokenizer.h"

#include <algorithm>
#include <iterator>

namespace ks::rules
{

using namespace char_kind;

struct Range {
    int32_t first, last;
};
inline constexpr Range kNoRange[] = {{-2, -2}};

inline bool is_newline(const char* p)
{
    return *p == '\r' || *p == '\n';
}

inline bool is_ascii_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// 's|'t|'m|'d|'re|'ve|'ll
inline size_t contraction_at(const char* p, const char* end, bool any_case)
{
    auto letter = [&](int i) {
        char c = p[i];
        return any_case && c >= 'A' && c <= 'Z' ? char(c | 0x20) : c;
    };
    if (end - p < 2 || *p != '\'') return 0;
    char first = letter(1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    if (end - p < 3) return 0;
    char second = letter(2);
    return (second == 'e' && (first == 'r' || first == 'v')) || (first == 'l' && second == 'l') ? 3
                                                                                                : 0;
}

template <bool any_case>
size_t contraction(Scanner& s)
{
    return contraction_at(s.at, s.end, any_case);
}

// kinds{1,most}
template <unsigned kinds, unsigned most = ~0u>
size_t run(Scanner& s)
{
    return s.c.kind & kinds ? size_t(s.skip(s.at, kinds, most) - s.at) : 0;
}

// What may follow a run: nothing, [\r\n]*, [\r\n/]* or [\r\n/]?
enum Tail { no_tail, newlines_tail, slashes_tail, one_slash_tail };

// ?kinds+tail, after an optional space
template <unsigned kinds, Tail tail = no_tail>
size_t spaced(Scanner& s)
{
    const char *begin = s.at + (*s.at == ' '), *q = s.skip(begin, kinds);
    if (q == begin) return 0;
    for (int i = 0; tail != no_tail && q < s.end && (tail != one_slash_tail || i == 0); i++) {
        if (!is_newline(q) && (tail == newlines_tail || *q != '/')) break;
        q++;
    }
    return size_t(q - s.at);
}

// Where a word begins whose first character may be one of [^\r\n no_lead].
inline const char* behind_lead(const Scanner& s, unsigned no_lead)
{
    return s.c.kind & no_lead || is_newline(s.at) ? s.at : s.at + s.c.bytes;
}

// [^\r\n no_lead]?letters+
template <unsigned letters = kLetter, unsigned no_lead = kLetter | kNumber>
size_t word(Scanner& s)
{
    const char *lead = behind_lead(s, no_lead), *q = s.skip(lead, letters);
    if (q == lead) q = s.skip(s.at, letters);
    return size_t(q - s.at);
}

// upper*lower+, where `both` belongs to either class; null if it does not match
inline const char* lower_word(const Scanner& s, const char* p, unsigned both)
{
    const char* last = nullptr; // the end of the last character that lower+ may match
    for (Char c = char_at(p, s.end); c.kind & (kUpper | both); c = char_at(p, s.end)) {
        p += c.bytes;
        if (c.kind & both) last = p;
    }
    const char* q = s.skip(p, kLower | both);
    return q == p ? last : q;
}

// [^\r\n\p{L}\p{N}]?upper*lower+ | [^\r\n\p{L}\p{N}]?upper+lower*, each with an optional
// contraction behind it
template <unsigned both, bool suffix>
size_t cased_word(Scanner& s)
{
    if (s.c.kind & kNumber) return 0;
    const char *lead = behind_lead(s, kLetter | kNumber), *q = lower_word(s, lead, both);
    if (!q) q = lower_word(s, s.at, both);
    if (!q && (q = s.skip(lead, kUpper)) == lead) return 0;
    return size_t(q - s.at) + (suffix ? contraction_at(q, s.end, true) : 0);
}

// [^\r\n\p{L}\p{N}]?(\p{L}\p{M}*( \p{L}\p{M}*)*)+
inline size_t phrase(Scanner& s)
{
    const char *p = behind_lead(s, kLetter | kNumber), *begin = p;
    for (;;) {
        const char* q = p + (p > begin && p < s.end && *p == ' ');
        const char* letter = s.skip(q, kLetter, 1);
        if (letter == q) break;
        p = s.skip(letter, kMark);
    }
    return p == begin ? 0 : size_t(p - s.at);
}

// \s*[\r\n]+
inline size_t newlines(Scanner& s)
{
    s.measure_spaces();
    return s.newlines_end > s.at ? size_t(s.newlines_end - s.at) : 0;
}

// \s+(?!\S)|\s+
inline size_t spaces(Scanner& s)
{
    s.measure_spaces();
    if (s.spaces_end <= s.at) return 0;
    bool word_follows = s.spaces_end != s.end && s.last_space > s.at;
    return size_t((word_follows ? s.last_space : s.spaces_end) - s.at);
}

// \s+$
inline size_t last_spaces(Scanner& s)
{
    s.measure_spaces();
    return s.spaces_end == s.end ? size_t(s.end - s.at) : 0;
}

// \s{512}(?!\S)|\s{256}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s
inline size_t halved_spaces(Scanner& s)
{
    for (unsigned n = 512; n > 0; n /= 2) {
        const char *q = s.skip(s.at, kSpace, n), *next = s.skip(q, kSpace, 1);
        bool whole = q != s.at && s.skip(s.at, kSpace, n - 1) != q;
        if (whole && (next != q || q == s.end)) return size_t(q - s.at);
    }
    return s.c.kind == kSpace ? s.c.bytes : 0;
}

// [\r\n]
inline size_t one_newline(Scanner& s)
{
    return is_newline(s.at);
}

// [^\n]+|\n+
inline size_t line(Scanner& s)
{
    const bool newline = *s.at == '\n';
    return size_t(std::find_if(s.at, s.end, [&](char c) { return (c == '\n') != newline; }) - s.at);
}

// [\p{P}$+<=>^~|]+, with backticks if asked for
template <bool backticks>
size_t punctuation(Scanner& s)
{
    const char* q = s.at;
    for (Char c = s.c; c.kind == kPunctuation ||
                       (c.kind == kSymbol && c.bytes == 1 && (backticks || c.code != '`'));
         c = char_at(q, s.end))
        q += c.bytes;
    return size_t(q - s.at);
}

// [!-/:-@\[-`{-~][A-Za-z]+
inline size_t marked_letters(Scanner& s)
{
    if (s.c.bytes != 1 || !(s.c.kind & (kPunctuation | kSymbol))) return 0;
    const char* q = std::find_if_not(s.at + 1, s.end, is_ascii_letter);
    return q == s.at + 1 ? 0 : size_t(q - s.at);
}

inline bool is_ascii_digit(char c)
{
    return c >= '0' && c <= '9';
}

// [0-9]{3}
inline size_t three_digits(Scanner& s)
{
    return s.end - s.at >= 3 && std::all_of(s.at, s.at + 3, is_ascii_digit) ? 3 : 0;
}

// Groups of three, counted from the end of a run of digits. With `border`, (digits{3})*\b follows
// each: a run before a letter or a mark is not grouped.
template <unsigned digits, bool border = false>
size_t digits_from_right(Scanner& s)
{
    if (!(s.c.kind & digits)) return 0;
    unsigned n = 3;
    if (s.at >= s.digits_end) {
        s.digits_end = s.at;
        Char c = s.c;
        size_t length = 0;
        for (; c.kind & digits; c = char_at(s.digits_end, s.end), length++) s.digits_end += c.bytes;
        bool joiner = c.code == '_' || c.code == 0x200c || c.code == 0x200d;
        s.groups_digits = !border || !(c.kind & (kLetter | kMark) || joiner);
        n = unsigned((length - 1) % 3 + 1);
    }
    return s.groups_digits ? size_t(s.skip(s.at, digits, n) - s.at) : 0;
}

template <const auto& ranges>
bool is_in(const Char& c)
{
    auto range = std::lower_bound(std::begin(ranges), std::end(ranges), c.code,
                                  [](const Range& r, int32_t code) { return r.last < code; });
    return range != std::end(ranges) && c.code >= range->first && c.kind != kSpace;
}

// [ranges]+
template <const auto& ranges>
size_t in_ranges(Scanner& s)
{
    const char* q = s.at;
    for (Char c = s.c; is_in<ranges>(c); c = char_at(q, s.end)) q += c.bytes;
    return size_t(q - s.at);
}

// \s?[kinds that are not in the ranges, or are if `inside`]+
template <unsigned kinds, const auto& ranges = kNoRange, bool inside = false>
size_t after_space(Scanner& s)
{
    const char *begin = s.at + (s.c.kind == kSpace ? s.c.bytes : 0), *q = begin;
    for (Char c = char_at(q, s.end); c.kind & kinds && is_in<ranges>(c) == inside;
         c = char_at(q, s.end))
        q += c.bytes;
    return q == begin ? 0 : size_t(q - s.at);
}

// ?[^\s ranges]+, after an optional space
template <const auto& ranges>
size_t not_in_ranges(Scanner& s)
{
    const char *begin = s.at + (*s.at == ' '), *q = begin;
    for (Char c = char_at(q, s.end); c.kind & ~unsigned(kSpace) && !is_in<ranges>(c);
         c = char_at(q, s.end))
        q += c.bytes;
    return q == begin ? 0 : size_t(q - s.at);
}

} // namespace ks::rules
