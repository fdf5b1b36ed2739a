// Rows of a cache in any format: 0 (f32), 1 (f16) or a codec's number (kernels/common/codecs.h).
// The includer defines WORD(i), word i of the cache that is read, VALUE(i), value i of the row to
// encode, and an array `row` of words, which receives codes.
#include "kernels/common/codecs.h"

const uint plain_f32 = 0u;
const uint plain_f16 = 1u;
const uint first_codec = 2u;
#define CASE(name, number) const uint format_##name = number;
CODECS(CASE)
GROUP_CODECS(CASE)
#undef CASE

// Words of a group of rows that are coded together. 0: rows are coded by themselves.
uint group_words(uint format, uint d)
{
#define CASE(name, number) if (format == format_##name) return name##_group_words(d);
    GROUP_CODECS(CASE)
#undef CASE
    return 0u;
}

// Formats are specialisation constants: all branches but one are gone before the shader is
// compiled.
uint row_bytes(uint format, uint d)
{
#define CASE(name, number) if (format == format_##name) return name##_row_bytes(d);
    CODECS(CASE)
#undef CASE
    return format == plain_f16 ? 2u * d : 4u * d;
}

// The last bytes of row r, which fill no whole word. The tails of all n_rows rows lie behind the
// words of all rows.
uint row_tail(uint format, uint n_rows, uint r, uint d)
{
    uint bytes = row_bytes(format, d), n = bytes % 4u;
    if (n == 0u || group_words(format, d) != 0u) return 0u;
    uint at = n_rows * (bytes - n) + r * n, shift = 8u * (at % 4u);
    uint tail = WORD(at / 4u) >> shift;
    if (n == 3u && shift > 8u) tail |= WORD(at / 4u + 1u) << (32u - shift);
    return tail & ((1u << 8u * n) - 1u);
}

// Value i of row r. tail: row_tail of the row.
float row_value(uint format, uint r, uint tail, uint i, uint d)
{
    if (format == plain_f32) return uintBitsToFloat(WORD(r * d + i));
    if (format == plain_f16)
        return HALF_TO_FLOAT(WORD((r * d + i) / 2u) >> 16u * ((r * d + i) & 1u));
    uint at = r * (row_bytes(format, d) / 4u);
#define CASE(name, number) if (format == format_##name) return name##_value(at, tail, i, d);
    CODECS(CASE)
#undef CASE
    at = r / kivi_rows * group_words(format, d);
#define CASE(name, number) \
    if (format == format_##name) return name##_value(at, r % kivi_rows, i, d);
    GROUP_CODECS(CASE)
#undef CASE
    return 0.f;
}
