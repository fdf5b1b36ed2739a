// Reads rows while decoding, for heads of 64, 128 or 256 values. Eight lanes share a row. A lane
// has n_octets octets of it, and loads the words of several rows before it uses the first.
// The includer includes shaders/cache.glsl, and declares the constant head_dim and FOUR(i), words 4
// i to 4 i + 3 of the cache.
const uint n_octets = head_dim / 64u;
const uint max_words = 32u; // most words that a lane loads of a row

// A codec's `plane` says how octets lie in a row. 4 or 2: planes of so many bits, where an octet is
// the fields of one word or of half a word. angle_plane: an octet of angles shares its words with
// the octet after the next. 0: an octet is eight neighbouring values.
const uint angle_plane = 1u;

// The number, in the row, of lane j's octet e.
uint octet_of_lane(uint plane, uint j, uint e)
{
    uint word = n_octets == 1u ? 0u : n_octets / 2u * j + e / 2u;
    if (n_octets != 1u && plane == 2u) return word / 4u * 8u + word % 4u + e % 2u * 4u;
    return plane == angle_plane ? j / 2u * 2u * n_octets + j % 2u + 2u * e : n_octets * j + e;
}

// Dim k of octet i.
uint dim_of_octet(uint plane, uint i, uint k)
{
    if (plane == 4u) return 64u * (i / 8u) + i % 8u + 8u * k;
    if (plane == 2u) return 64u * (i / 8u) + i % 4u + 32u * (i % 8u / 4u) + 4u * k;
    return 8u * i + k;
}

// Loads the words of a plane with a lane's fields. In a plane of 2 bits two octets share a word.
void fetch_plane(uint at, uint j, uint plane, inout uint words[max_words])
{
    [[unroll]] for (uint e = 0u; e < n_octets; e += 4u / plane) {
        uint i = octet_of_lane(plane, j, e);
        words[e] = WORD(at + (plane == 4u ? i : i / 8u * 4u + i % 4u));
    }
}

// The fields of octet e, shifted to bit 0.
uint fields_of_octet(uint words[max_words], uint j, uint e, uint plane)
{
    return plane == 4u ? words[e] : words[e - e % 2u] >> 16u * (octet_of_lane(2u, j, e) % 8u / 4u);
}

// Tables of the values of codes: 64 entries for keys, then 64 for values. A turbo codec has its
// levels. polar has cosines and sines: 16 of level 1, then those of levels 2 to 4 at 16, 24 and 32.
shared vec2 levels[2u * 64u];

uint field_of(uint word, uint bit, uint bits) { return bitfieldExtract(word, int(bit), int(bits)); }

// An octet. Pair f is values[2 f] and values[2 f + 1], both times factors[f]. Only polar has four
// different factors. Others have one factor for each half.
struct LaneOctet {
    float values[8];
    float factors[4];
};

void same_factors(float factor, inout LaneOctet to)
{
    [[unroll]] for (uint k = 0u; k < 4u; k++) to.factors[k] = factor;
}

#include "shaders/codecs.glsl"

uint plane_of(uint format)
{
#define CASE(name) if (format == format_##name) return name##_plane;
    FAST_CODECS(CASE)
    FAST_GROUP_CODECS(CASE)
#undef CASE
    return 0u;
}

// Fills the table of keys (which = 0) or values (1). A barrier must follow.
void fill_levels(uint format, uint which)
{
#define CASE(name) if (format == format_##name) name##_fill(which);
    FAST_CODECS(CASE)
#undef CASE
}

// Loads lane j's words of row r, of a pool with n_rows rows. For a codec without a reader in
// codecs/, words[0] is the row and words[1] its tail.
void fetch_row(uint format, uint n_rows, uint r, uint j, out uint words[max_words])
{
    uint at = r * (row_bytes(format, head_dim) / 4u), tail = row_tail(format, n_rows, r, head_dim);
    if (format == plain_f16 || format == plain_f32) {
        uint n = format == plain_f16 ? 1u : 2u; // an octet has 4 n words
        [[unroll]] for (uint i = 0u; i < n * n_octets; i++) {
            uvec4 four = FOUR((r * 8u + j) * n * n_octets + i);
            [[unroll]] for (uint k = 0u; k < 4u; k++) words[4u * i + k] = four[k];
        }
        return;
    }
    words[0] = r;
    words[1] = tail;
#define CASE(name) if (format == format_##name) name##_fetch(at, tail, j, head_dim, words);
    FAST_CODECS(CASE)
#undef CASE
    at = r / kivi_rows * group_words(format, head_dim);
#define CASE(name) if (format == format_##name) name##_fetch(at, r % kivi_rows, j, head_dim, words);
    FAST_GROUP_CODECS(CASE)
#undef CASE
}

// Loads the ranges of lane j's dims of the group with row r.
void fetch_ranges(uint format, uint r, uint j, out uint ranges[max_words])
{
    uint at = r / kivi_rows * group_words(format, head_dim), plane = plane_of(format);
    [[unroll]] for (uint i = 0u; i < 8u * n_octets; i++)
        ranges[i] = WORD(at + dim_of_octet(plane, octet_of_lane(plane, j, i / 8u), i % 8u));
}

// Decodes lane j's octet e from its words. which: 0 for keys, 1 for values.
void decode_octet(uint format, uint words[max_words], uint ranges[max_words], uint which, uint j,
                  uint e, out LaneOctet to)
{
    same_factors(1.f, to);
#define CASE(name)                                     \
    if (format == format_##name) {                     \
        name##_lane(words, which, j, e, head_dim, to); \
        return;                                        \
    }
    FAST_CODECS(CASE)
#undef CASE
#define CASE(name)                            \
    if (format == format_##name) {            \
        name##_lane(words, ranges, j, e, to); \
        return;                               \
    }
    FAST_GROUP_CODECS(CASE)
#undef CASE
    [[unroll]] for (uint k = 0u; k < 8u; k += 2u) {
        vec2 two = unpackHalf2x16(words[4u * e + k / 2u]);
        to.values[k] = format == plain_f16 ? two.x : uintBitsToFloat(words[8u * e + k]);
        to.values[k + 1u] = format == plain_f16 ? two.y : uintBitsToFloat(words[8u * e + k + 1u]);
    }
    if (format >= first_codec)
        [[unroll]] for (uint k = 0u; k < 8u; k++)
            to.values[k] =
                row_value(format, words[0], words[1], 8u * octet_of_lane(0u, j, e) + k, head_dim);
}
