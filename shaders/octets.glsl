// Reads octets of a row: dims `first` to first + 7, where `first` is a multiple of 8. Heads whose
// size is not a multiple of 64 are read value by value. shaders/cache.glsl must be included before.

// The words of a row's planes for 64 dims, read once for their eight octets. They are a plane of 4
// bits, or a plane of 2 bits and behind it a plane of 1 bit.
uint planes[8];

void read_plane(uint at, uint first, uint bits)
{
    [[unroll]] for (uint i = 0u; i < 2u * bits; i++)
        planes[i] = WORD(at + first / 64u * 2u * bits + i);
}

// The fields of an octet. Neighbouring fields lie in neighbouring words under the same shift.
void plane_octet(uint begin, uint first, uint bits, out uint code[8])
{
    uint n_words = 2u * bits, field = first % 64u / n_words;
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        code[i] = planes[begin + i % n_words] >> bits * (field + i / n_words) & ((1u << bits) - 1u);
}

// The f16 value at a bit of the row. `bit` is a multiple of 16.
float row_f16(uint at, uint tail, uint bytes, uint bit)
{
    return HALF_TO_FLOAT(row_field(at, tail, bytes, bit, 0xffffu));
}

#define OCTETS
#include "shaders/codecs.glsl"
#undef OCTETS

// The octet at `first`. The planes are read with the first octet of each 64 dims, or if `begins`.
// Callers that go through a row in order read them once.
void row_octet(uint format, uint r, uint tail, uint first, uint d, bool begins, out float octet[8])
{
    uint at = r * (row_bytes(format, d) / 4u);
    bool reads = begins || first % 64u == 0u;
    if (format >= first_codec && d % 64u == 0u) {
#define CASE(name)                                  \
    if (format == format_##name) {                  \
        if (reads) name##_planes(at, first, d);     \
        name##_octet(at, tail, first, d, octet);    \
        return;                                     \
    }
        FAST_CODECS(CASE)
#undef CASE
        at = r / kivi_rows * group_words(format, d);
#define CASE(name)                                                      \
    if (format == format_##name) {                                      \
        if (reads) name##_planes(at, r % kivi_rows, first, d);          \
        name##_octet(at, r % kivi_rows, first, d, octet);               \
        return;                                                         \
    }
        FAST_GROUP_CODECS(CASE)
#undef CASE
    }
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        octet[i] = first + i < d ? row_value(format, r, tail, first + i, d) : 0.f;
}
