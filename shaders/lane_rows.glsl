// Rows of a cache as eight lanes read them together: a lane has n_eights times eight dims of each row, which lie in the words that it asks
// for, and asks for the words of several rows before it uses those of the first. Heads of 64, 128 or 256 values. Before it is included:
// shaders/cache.glsl; FOUR(i), words 4 i to 4 i + 3 of the cache; head_dim.
const uint n_eights = head_dim / 64u;
const uint most_words = 32u; // of a row, that a lane asks for

// Where rows have a plane of 4 or 2 bits an eight is what one word of it has, or half a word; elsewhere neighbours. Neighbours with angles
// share words with those of the eight after the next.
const uint plane_of_angles = 1u;

// Lane j's eth eight, of those of a row.
uint eight_of_lane(uint plane, uint j, uint e)
{
    uint word = n_eights == 1u ? 0u : n_eights / 2u * j + e / 2u;
    if (n_eights != 1u && plane == 2u) return word / 4u * 8u + word % 4u + e % 2u * 4u;
    return plane == plane_of_angles ? j / 2u * 2u * n_eights + j % 2u + 2u * e : n_eights * j + e;
}

// An eight's kth dim.
uint dim_of_eight(uint plane, uint i, uint k)
{
    if (plane == 4u) return 64u * (i / 8u) + i % 8u + 8u * k;
    if (plane == 2u) return 64u * (i / 8u) + i % 4u + 32u * (i % 8u / 4u) + 4u * k;
    return 8u * i + k;
}

// The words of a plane that has a lane's fields: of 2 bits every second eight has one; and an eight's fields at the lower end.
void fetch_plane(uint at, uint j, uint plane, inout uint words[most_words])
{
    [[unroll]] for (uint e = 0u; e < n_eights; e += 4u / plane) {
        uint i = eight_of_lane(plane, j, e);
        words[e] = WORD(at + (plane == 4u ? i : i / 8u * 4u + i % 4u));
    }
}
uint fields_of_eight(uint words[most_words], uint j, uint e, uint plane)
{
    return plane == 4u ? words[e] : words[e - e % 2u] >> 16u * (eight_of_lane(2u, j, e) % 8u / 4u);
}

// What codes stand for: levels of turbo codecs; cosine and sine of polar ones, of 16 codes of level 1, then, 8 apart, of levels 2 to 4.
// Of keys, then of values.
shared vec2 levels[2u * 64u];

uint field_of(uint word, uint bit, uint bits) { return bitfieldExtract(word, int(bit), int(bits)); }

// Values of an eight: each pair's times its factor. Where they are no angles the first two have the same, and the others.
struct LaneEight {
    float values[8];
    float factors[4];
};

void same_factors(float factor, inout LaneEight to) { [[unroll]] for (uint k = 0u; k < 4u; k++) to.factors[k] = factor; }

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

// A barrier comes before the first row is read.
void fill_levels(uint format, uint which)
{
#define CASE(name) if (format == format_##name) name##_fill(which);
    FAST_CODECS(CASE)
#undef CASE
}

// Lane j's words of row r, of a pool with n_rows rows; of a codec without a reader, where its values are.
void fetch_row(uint format, uint n_rows, uint r, uint j, out uint words[most_words])
{
    uint at = r * (row_bytes(format, head_dim) / 4u), tail = row_tail(format, n_rows, r, head_dim);
    if (format == plain_f16 || format == plain_f32) {
        uint n = format == plain_f16 ? 1u : 2u; // times four words of an eight
        [[unroll]] for (uint i = 0u; i < n * n_eights; i++) {
            uvec4 four = FOUR((r * 8u + j) * n * n_eights + i);
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

// The ranges of a group's dims that are lane j's.
void fetch_ranges(uint format, uint r, uint j, out uint ranges[most_words])
{
    uint at = r / kivi_rows * group_words(format, head_dim), plane = plane_of(format);
    [[unroll]] for (uint i = 0u; i < 8u * n_eights; i++) ranges[i] = WORD(at + dim_of_eight(plane, eight_of_lane(plane, j, i / 8u), i % 8u));
}

// Lane j's eth octet of what it fetched. which: 0 of keys, 1 of values.
void decode_eight(uint format, uint words[most_words], uint ranges[most_words], uint which, uint j, uint e, out LaneEight to)
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
        [[unroll]] for (uint k = 0u; k < 8u; k++) to.values[k] = row_value(format, words[0], words[1], 8u * eight_of_lane(0u, j, e) + k, head_dim);
}
