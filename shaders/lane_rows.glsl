// Reads rows while decoding. Eight lanes share a row; a lane has n_octets octets of it and loads the words of several rows before it
// uses the first. Heads of 64, 128 or 256 values. Before it: shaders/cache.glsl, the constant head_dim, and FOUR(i), words 4 i to
// 4 i + 3 of the cache.
const uint n_octets = head_dim / 64u;
const uint most_words = 32u; // that a lane loads of a row

// In a plane of 4 or 2 bits an octet is the fields of one word or of half a word; otherwise eight neighbours. Octets of angles share words
// with the octet after the next.
const uint plane_of_angles = 1u;

// The octet of a row that is lane j's octet e.
uint octet_of_lane(uint plane, uint j, uint e)
{
    uint word = n_octets == 1u ? 0u : n_octets / 2u * j + e / 2u;
    if (n_octets != 1u && plane == 2u) return word / 4u * 8u + word % 4u + e % 2u * 4u;
    return plane == plane_of_angles ? j / 2u * 2u * n_octets + j % 2u + 2u * e : n_octets * j + e;
}

// Dim k of octet i.
uint dim_of_octet(uint plane, uint i, uint k)
{
    if (plane == 4u) return 64u * (i / 8u) + i % 8u + 8u * k;
    if (plane == 2u) return 64u * (i / 8u) + i % 4u + 32u * (i % 8u / 4u) + 4u * k;
    return 8u * i + k;
}

// Loads the words of a plane with a lane's fields; in 2 bits two octets share one. fields_of_octet shifts an octet's fields to bit 0.
void fetch_plane(uint at, uint j, uint plane, inout uint words[most_words])
{
    [[unroll]] for (uint e = 0u; e < n_octets; e += 4u / plane) {
        uint i = octet_of_lane(plane, j, e);
        words[e] = WORD(at + (plane == 4u ? i : i / 8u * 4u + i % 4u));
    }
}
uint fields_of_octet(uint words[most_words], uint j, uint e, uint plane)
{
    return plane == 4u ? words[e] : words[e - e % 2u] >> 16u * (octet_of_lane(2u, j, e) % 8u / 4u);
}

// Tables of code values, of keys, then of values: the levels of turbo codecs; or polar's cosine and sine, of 16 codes of level 1, then
// of levels 2 to 4, 8 entries apart.
shared vec2 levels[2u * 64u];

uint field_of(uint word, uint bit, uint bits) { return bitfieldExtract(word, int(bit), int(bits)); }

// An octet: pair f has the values values[2 f] and values[2 f + 1], times factors[f]. Only polar has four different factors; others have
// one for each half.
struct LaneOctet {
    float values[8];
    float factors[4];
};

void same_factors(float factor, inout LaneOctet to)
{
    [[unroll]] for (uint k = 0u; k < 4u; k++) to.factors[k] = factor;
}

#define LANES_OF_ROWS
#include "shaders/codecs.glsl"
#undef LANES_OF_ROWS

uint plane_of(uint format)
{
#define CASE(name) if (format == format_##name) return name##_plane;
    FAST_CODECS(CASE)
    FAST_GROUP_CODECS(CASE)
#undef CASE
    return 0u;
}

// Fills a cache's table. A barrier must follow.
void fill_levels(uint format, uint which)
{
#define CASE(name) if (format == format_##name) name##_fill(which);
    FAST_CODECS(CASE)
#undef CASE
}

// Loads lane j's words of row r, of a pool with n_rows rows. For a codec without a reader: the row and its tail.
void fetch_row(uint format, uint n_rows, uint r, uint j, out uint words[most_words])
{
    uint at = r * (row_bytes(format, head_dim) / 4u), tail = row_tail(format, n_rows, r, head_dim);
    if (format == plain_f16 || format == plain_f32) {
        uint n = format == plain_f16 ? 1u : 2u; // times four words per octet
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

// Loads the ranges of lane j's dims of a group.
void fetch_ranges(uint format, uint r, uint j, out uint ranges[most_words])
{
    uint at = r / kivi_rows * group_words(format, head_dim), plane = plane_of(format);
    [[unroll]] for (uint i = 0u; i < 8u * n_octets; i++)
        ranges[i] = WORD(at + dim_of_octet(plane, octet_of_lane(plane, j, i / 8u), i % 8u));
}

// Decodes lane j's octet e from its words. which: 0 for keys, 1 for values.
void decode_octet(uint format, uint words[most_words], uint ranges[most_words], uint which, uint j,
                  uint e, out LaneOctet to)
{
    same_factors(1.f, to);
#define CASE(name) if (format == format_##name) { name##_lane(words, which, j, e, head_dim, to); return; }
    FAST_CODECS(CASE)
#undef CASE
#define CASE(name) if (format == format_##name) { name##_lane(words, ranges, j, e, to); return; }
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
