// What kind of character stands in a text, for the pre-tokenizers. Texts may hold any bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ks
{

// Kinds are those of Unicode 15.1, whatever version utf8proc has: the same text gives the same tokens everywhere.
enum class CharKind : uint8_t {
    letter,      // \p{L}
    number,      // \p{N}
    space,       // \s: the property White_Space
    punctuation, // \p{P}, and the ASCII symbols $ + < = > ^ | ~
    other,       // marks, other symbols, controls, what is unassigned or no UTF-8
    none,        // the text is over
};

struct Char {
    CharKind kind;
    uint8_t bytes;
};

// A byte that belongs to no character in UTF-8 is a character of its own.
Char char_at(const char* at, const char* end);

// Bytes of the UTF-8 character at `at` < end, and which one it is; 0 where there is none.
size_t utf8_char(const char* at, const char* end, int32_t* codepoint);

} // namespace ks
