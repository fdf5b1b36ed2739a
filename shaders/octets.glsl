// An octet of a row at a time, eight neighbours, dims `first` to first + 7, a multiple of 8: what they have in common is read once. Before it
// is included: shaders/cache.glsl. Heads of a multiple of 64 values; others value by value.

// What a row has in planes for 64 dims from `first` on, read once for all of their eights: words of a plane of 4 bits, or of 2 bits and
// behind them those of one of 1 bit.
uint planes[8];

void read_plane(uint at, uint first, uint bits)
{
    [[unroll]] for (uint i = 0u; i < 2u * bits; i++) planes[i] = WORD(at + first / 64u * 2u * bits + i);
}

// Fields of eight dims: neighbours lie in neighbouring words, under one shift for as many.
void plane_eight(uint begin, uint first, uint bits, out uint code[8])
{
    uint n_words = 2u * bits, field = first % 64u / n_words;
    [[unroll]] for (uint i = 0u; i < 8u; i++) code[i] = planes[begin + i % n_words] >> bits * (field + i / n_words) & ((1u << bits) - 1u);
}

// The half of a row, at a bit that is a multiple of 16.
float row_half(uint at, uint tail, uint bytes, uint bit) { return HALF_TO_FLOAT(row_field(at, tail, bytes, bit, 0xffffu)); }

#define OCTETS
#include "shaders/codecs.glsl"
#undef OCTETS

// Octets of a row from the one at `first` on, in order; planes are read with the first of each 64 dims, or where begins says so.
void row_eight(uint format, uint r, uint tail, uint first, uint d, bool begins, out float eight[8])
{
    uint at = r * (row_bytes(format, d) / 4u);
    bool reads = begins || first % 64u == 0u;
    if (format >= first_codec && d % 64u == 0u) {
#define CASE(name)                                  \
    if (format == format_##name) {                  \
        if (reads) name##_planes(at, first, d);     \
        name##_eight(at, tail, first, d, eight);    \
        return;                                     \
    }
        FAST_CODECS(CASE)
#undef CASE
        at = r / kivi_rows * group_words(format, d);
#define CASE(name)                                                      \
    if (format == format_##name) {                                      \
        if (reads) name##_planes(at, r % kivi_rows, first, d);          \
        name##_eight(at, r % kivi_rows, first, d, eight);               \
        return;                                                         \
    }
        FAST_GROUP_CODECS(CASE)
#undef CASE
    }
    [[unroll]] for (uint i = 0u; i < 8u; i++) eight[i] = first + i < d ? row_value(format, r, tail, first + i, d) : 0.f;
}
