// Character classes for the pre-tokenizers. Texts may hold any bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ks
{

// Classes of Unicode 15.1, independent of the version of utf8proc: the same text gives the same
// tokens everywhere. One bit each, so that a set of classes is a mask.
namespace char_kind
{
enum CharKind : uint16_t {
    kEndOfText = 0,
    kUpper = 1,                                   // \p{Lu} \p{Lt}
    kLower = 2,                                   // \p{Ll}
    kCaseless = 4,                                // \p{Lm} \p{Lo} without \p{Han}
    kHan = 8,                                     // \p{Lm} \p{Lo} with \p{Han}
    kMark = 16,                                   // \p{M}
    kDigit = 32,                                  // \p{Nd}
    kSpace = 64,                                  // \s: the property White_Space
    kPunctuation = 128,                           // \p{P}
    kSymbol = 256,                                // \p{S}
    kNumeral = 512,                               // \p{Nl} \p{No}
    kOther = 1024,                                // controls, unassigned code points, invalid UTF-8
    kLetter = kUpper | kLower | kCaseless | kHan, // \p{L}
    kNumber = kDigit | kNumeral,                  // \p{N}
    kNotWord = kMark | kPunctuation | kSymbol | kOther, // [^\s\p{L}\p{N}]
};

constexpr CharKind ascii_kind(int c)
{
    if (c >= 'a' && c <= 'z') return kLower;
    if (c >= 'A' && c <= 'Z') return kUpper;
    if (c >= '0' && c <= '9') return kDigit;
    if (c == ' ' || (c >= 9 && c <= 13)) return kSpace;
    if (c < ' ' || c == 0x7f) return kOther;
    return c == '$' || c == '+' || (c >= '<' && c <= '>') || c == '^' || c == '`' || c == '|' ||
                   c == '~'
               ? kSymbol
               : kPunctuation;
}

struct AsciiKinds {
    CharKind of[128] = {};
    constexpr AsciiKinds()
    {
        for (int c = 0; c < 128; c++) of[c] = ascii_kind(c);
    }
};
inline constexpr AsciiKinds kAscii;
} // namespace char_kind
using char_kind::CharKind;

struct Char {
    int32_t code; // -1: no valid UTF-8
    CharKind kind;
    uint8_t bytes;
};

Char char_beyond_ascii(const char* at, const char* end);

// A byte that is not part of valid UTF-8 is a character of its own.
inline Char char_at(const char* at, const char* end)
{
    if (at == end) return {-1, char_kind::kEndOfText, 0};
    return *at & 0x80 ? char_beyond_ascii(at, end) : Char{*at, char_kind::kAscii.of[int(*at)], 1};
}

// Bytes of the UTF-8 character at `at` < end, and its code point. 0: not valid UTF-8.
size_t utf8_char(const char* at, const char* end, int32_t* codepoint);

} // namespace ks
