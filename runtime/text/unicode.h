// Character classes for the pre-tokenizers. Texts may hold any bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ks
{

// Classes of Unicode 15.1, independent of the version of utf8proc: the same text gives the same
// tokens everywhere.
enum class CharKind : uint8_t {
    letter,      // \p{L}
    number,      // \p{N}
    space,       // \s: the property White_Space
    punctuation, // \p{P}, and the ASCII symbols $ + < = > ^ | ~
    other,       // marks, other symbols, controls, unassigned code points, invalid UTF-8
    none,        // end of the text
};

struct Char {
    CharKind kind;
    uint8_t bytes;
};

// A byte that is not part of valid UTF-8 is a character of its own.
Char char_at(const char* at, const char* end);

// Bytes of the UTF-8 character at `at` < end, and its code point. 0: not valid UTF-8.
size_t utf8_char(const char* at, const char* end, int32_t* codepoint);

} // namespace ks
