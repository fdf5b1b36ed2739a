// Rows of a cache as eight lanes read them together: a lane has n_eights times eight dims of each row, which lie in the words that it asks
// for, and asks for the words of several rows before it uses those of the first. Heads of 64, 128 or 256 values. Before it is included:
// shaders/cache.glsl; FOUR(i), words 4 i to 4 i + 3 of the cache; head_dim.
const uint n_eights = head_dim / 64u;
const uint most_words = 32u; // of a row, that a lane asks for

// Where rows have a plane of 4 or 2 bits an eight is what one word of it has, or half a word; elsewhere neighbours. Neighbours with angles
// share words with those of the eight after the next.
const uint plane_of_angles = 1u;
#define q8_plane 0u
#define q4_plane 4u
#define turbo4_plane 4u
#define turbo3_plane 2u
#define turbo2_plane 2u
#define turbo2v_plane 2u
#define polar_plane plane_of_angles
#define kiviv_plane 4u
#define kivi_plane 4u
#define kivi2_plane 2u

uint plane_of(uint format)
{
    uint nth = first_codec;
#define CASE(name) if (format == nth++) return name##_plane;
    CODECS(CASE)
    GROUP_CODECS(CASE)
#undef CASE
    return 0u;
}

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

void fill_turbo(uint which, uint ranks)
{
    if (THREAD < 2u * ranks) levels[64u * which + THREAD] = vec2(turbo_level(ranks, THREAD), 0.f);
}

void polar_fill(uint which)
{
    uint level = THREAD / 8u, code = THREAD % 4u;
    if (THREAD < 16u) levels[64u * which + THREAD] = vec2(polar_first_factor(THREAD, false), polar_first_factor(THREAD, true));
    else if (THREAD < 40u) levels[64u * which + THREAD] = vec2(polar_factor(level, code, false), polar_factor(level, code, true));
}

// Values of an eight: each pair's times its factor. Where they are no angles the first two have the same, and the others.
struct LaneEight {
    float values[8];
    float factors[4];
};

void same_factors(float factor, inout LaneEight to) { [[unroll]] for (uint k = 0u; k < 4u; k++) to.factors[k] = factor; }

void turbo_fetch(uint at, uint tail, uint j, uint d, uint ranks, inout uint words[most_words])
{
    uint plane = ranks == 8u ? 4u : 2u;
    fetch_plane(at, j, plane, words);
    if (ranks == 4u)
        [[unroll]] for (uint e = 0u; e < n_eights; e += 2u) {
            uint i = eight_of_lane(plane, j, e);
            words[4u + e / 2u] = WORD(at + d / 16u + i / 8u * 2u + i % 2u);
        }
    words[6] = tail;
}

void turbo_lane(uint words[most_words], uint which, uint j, uint e, uint ranks, inout LaneEight to)
{
    uint plane = ranks == 8u ? 4u : 2u, i = eight_of_lane(plane, j, e), bits = ranks == 4u ? 2u : plane;
    uint fields = fields_of_eight(words, j, e, plane), signs = words[4u + e / 2u] >> (16u * (i % 8u / 4u) + i % 4u / 2u);
    same_factors(HALF_TO_FLOAT(words[6] & 0xffffu), to);
    [[unroll]] for (uint k = 0u; k < 8u; k++) {
        uint code = field_of(fields, bits * k, bits);
        if (ranks == 4u) code |= field_of(signs, 2u * k, 1u) << 2u;
        to.values[k] = levels[64u * which + code].x;
    }
}

void q4_fetch(uint at, uint tail, uint j, uint d, inout uint words[most_words])
{
    fetch_plane(at, j, 4u, words);
    words[4] = WORD(at + d / 8u + n_eights * j / 8u);
}

void q4_lane(uint words[most_words], uint which, uint j, uint e, uint d, inout LaneEight to)
{
    vec2 scales = unpackHalf2x16(words[4]);
    [[unroll]] for (uint k = 0u; k < 4u; k++) to.factors[k] = k < 2u ? scales.x : scales.y;
    [[unroll]] for (uint k = 0u; k < 8u; k++) to.values[k] = float(field_of(words[e], 4u * k, 4u)) - 8.f;
}

void q8_fetch(uint at, uint tail, uint j, uint d, inout uint words[most_words])
{
    [[unroll]] for (uint i = 0u; i < 2u * n_eights; i++) words[i] = WORD(at + 2u * n_eights * j + i);
    words[8] = WORD(at + d / 4u + n_eights * j / 8u) >> 16u * (n_eights * j / 4u % 2u);
}

void q8_lane(uint words[most_words], uint which, uint j, uint e, uint d, inout LaneEight to)
{
    same_factors(HALF_TO_FLOAT(words[8] & 0xffffu), to);
    [[unroll]] for (uint k = 0u; k < 8u; k++) to.values[k] = float(bitfieldExtract(int(words[2u * e + k / 4u]), int(8u * (k % 4u)), 8));
}

void kivi_fetch_row(uint at, uint j, uint d, inout uint words[most_words])
{
    fetch_plane(at, j, 4u, words);
    uint ranges = at + d / 8u + eight_of_lane(4u, j, 0u) / 8u * 2u;
    [[unroll]] for (uint b = 0u; b < 2u; b++) words[4u + b] = WORD(ranges + b);
}

// Each half of an eight has a range.
void kivi_lane_row(uint words[most_words], uint e, inout LaneEight to)
{
    same_factors(1.f, to);
    [[unroll]] for (uint k = 0u; k < 8u; k++) to.values[k] = kivi_decoded(field_of(words[e], 4u * k, 4u), words[4u + k / 4u]);
}

// Keys of one group have one range for each dim, which a lane keeps while rows are of that group.
void kivi_lane_group(uint words[most_words], uint ranges[most_words], uint j, uint e, uint bits, inout LaneEight to)
{
    uint fields = fields_of_eight(words, j, e, bits);
    same_factors(1.f, to);
    [[unroll]] for (uint k = 0u; k < 8u; k++) to.values[k] = kivi_decoded(field_of(fields, bits * k, bits), ranges[8u * e + k]);
}

// An eight is half a block of 16: one angle of level 3, two of level 2, four of level 1 below it, which are under one shift in four words.
uint angle_of_eight(uint level, uint i) { return level == 2u ? 2u * i : i >> (level - 3u); }

// The word that has a level's angles of the lane; it may be the bytes that fill none.
uint angle_word(uint at, uint tail, uint i, uint d, uint level)
{
    uint first = polar_bit(d, level, 0u) / 32u, last = polar_bit(d, level, d / 2u / (1u << (level - 1u)) - 1u) / 32u;
    if (first == last) return first < polar_bytes(d) / 4u ? WORD(at + first) : tail;
    return WORD(at + polar_bit(d, level, angle_of_eight(level, i)) / 32u);
}

// Words: four of level 1; of levels 2, 3 and 4; radii.
void polar_fetch(uint at, uint tail, uint j, uint d, inout uint words[most_words])
{
    uint i = eight_of_lane(plane_of_angles, j, 0u), radii = at + d / 16u + i / 4u;
    [[unroll]] for (uint w = 0u; w < 4u; w++) words[w] = WORD(at + (d == 64u ? 0u : i / 16u * 8u + 4u * (i & 1u)) + w);
    [[unroll]] for (uint level = 2u; level < 5u; level++) words[2u + level] = angle_word(at, tail, i, d, level);
    words[7] = WORD(radii);
    if (n_eights == 4u) words[8] = WORD(radii + 1u);
}

// Where an angle's cosine and sine are.
uint polar_place(uint words[most_words], uint which, uint d, uint level, uint angle)
{
    return 64u * which + 8u * level + field_of(words[2u + level], polar_bit(d, level, angle) & 31u, 2u);
}

void polar_lane(uint words[most_words], uint which, uint j, uint e, uint d, inout LaneEight to)
{
    uint i = eight_of_lane(plane_of_angles, j, e), first = eight_of_lane(plane_of_angles, j, 0u);
    float top = HALF_TO_FLOAT(field_of(n_eights == 4u && i / 4u != first / 4u ? words[8] : words[7], 16u * (i / 2u & 1u), 16u));
    top *= levels[polar_place(words, which, d, 4u, i / 2u)][i & 1u];
    vec2 third = top * levels[polar_place(words, which, d, 3u, i)];
    [[unroll]] for (uint k = 0u; k < 2u; k++) {
        vec2 second = third[k] * levels[polar_place(words, which, d, 2u, 2u * i + k)];
        to.factors[2u * k] = second.x;
        to.factors[2u * k + 1u] = second.y;
    }
    [[unroll]] for (uint k = 0u; k < 4u; k++) {
        vec2 pair = levels[64u * which + field_of(words[k], 4u * (d == 64u ? i : i % 16u / 2u), 4u)];
        to.values[2u * k] = pair.x;
        to.values[2u * k + 1u] = pair.y;
    }
}

// Those of each codec.
#define turbo4_fetch(at, tail, j, d, words) turbo_fetch(at, tail, j, d, 8u, words)
#define turbo3_fetch(at, tail, j, d, words) turbo_fetch(at, tail, j, d, 4u, words)
#define turbo2_fetch(at, tail, j, d, words) turbo_fetch(at, tail, j, d, 2u, words)
#define turbo2v_fetch(at, tail, j, d, words) turbo_fetch(at, tail, j, d, 2u, words)
#define kiviv_fetch(at, tail, j, d, words) kivi_fetch_row(at, j, d, words)
#define kivi_fetch(at, r, j, d, words) fetch_plane(at + d + r * (d / 8u), j, 4u, words)
#define kivi2_fetch(at, r, j, d, words) fetch_plane(at + d + r * (d / 16u), j, 2u, words)
#define turbo4_lane(words, which, j, e, d, to) turbo_lane(words, which, j, e, 8u, to)
#define turbo3_lane(words, which, j, e, d, to) turbo_lane(words, which, j, e, 4u, to)
#define turbo2_lane(words, which, j, e, d, to) turbo_lane(words, which, j, e, 2u, to)
#define turbo2v_lane(words, which, j, e, d, to) turbo_lane(words, which, j, e, 2u, to)
#define kiviv_lane(words, which, j, e, d, to) kivi_lane_row(words, e, to)
#define kivi_lane(words, ranges, j, e, to) kivi_lane_group(words, ranges, j, e, 4u, to)
#define kivi2_lane(words, ranges, j, e, to) kivi_lane_group(words, ranges, j, e, 2u, to)
#define q8_fill(which)
#define q4_fill(which)
#define turbo4_fill(which) fill_turbo(which, 8u)
#define turbo3_fill(which) fill_turbo(which, 4u)
#define turbo2_fill(which) fill_turbo(which, 2u)
#define turbo2v_fill(which) fill_turbo(which, 2u)
#define kiviv_fill(which)

// A barrier comes before the first row is read.
void fill_levels(uint format, uint which)
{
    uint nth = first_codec;
#define CASE(name) if (format == nth++) { name##_fill(which); }
    CODECS(CASE)
#undef CASE
}

// Lane j's words of row r, of a pool with n_rows rows.
void fetch_row(uint format, uint n_rows, uint r, uint j, out uint words[most_words])
{
    uint nth = first_codec, at = r * (row_bytes(format, head_dim) / 4u);
    if (format == plain_f16 || format == plain_f32) {
        uint n = format == plain_f16 ? 1u : 2u; // times four words of an eight
        [[unroll]] for (uint i = 0u; i < n * n_eights; i++) {
            uvec4 four = FOUR((r * 8u + j) * n * n_eights + i);
            [[unroll]] for (uint k = 0u; k < 4u; k++) words[4u * i + k] = four[k];
        }
        return;
    }
#define CASE(name)                                                                        \
    if (format == nth++) {                                                                \
        name##_fetch(at, row_tail(format, n_rows, r, head_dim), j, head_dim, words); \
        return;                                                                           \
    }
    CODECS(CASE)
#undef CASE
    at = r / kivi_rows * group_words(format, head_dim);
#define CASE(name)                                               \
    if (format == nth++) {                                       \
        name##_fetch(at, r % kivi_rows, j, head_dim, words); \
        return;                                                  \
    }
    GROUP_CODECS(CASE)
#undef CASE
}

// The ranges of a group's dims that are lane j's.
void fetch_ranges(uint format, uint r, uint j, out uint ranges[most_words])
{
    uint at = r / kivi_rows * group_words(format, head_dim), plane = plane_of(format);
    [[unroll]] for (uint i = 0u; i < 8u * n_eights; i++) ranges[i] = WORD(at + dim_of_eight(plane, eight_of_lane(plane, j, i / 8u), i % 8u));
}

// Lane j's eth eight of what it fetched. which: 0 of keys, 1 of values.
void decode_eight(uint format, uint words[most_words], uint ranges[most_words], uint which, uint j, uint e, out LaneEight to)
{
    uint nth = first_codec;
    same_factors(1.f, to);
    [[unroll]] for (uint k = 0u; k < 8u; k += 2u) {
        vec2 two = unpackHalf2x16(words[4u * e + k / 2u]);
        to.values[k] = format == plain_f16 ? two.x : uintBitsToFloat(words[8u * e + k]);
        to.values[k + 1u] = format == plain_f16 ? two.y : uintBitsToFloat(words[8u * e + k + 1u]);
    }
#define CASE(name) if (format == nth++) { name##_lane(words, which, j, e, head_dim, to); }
    CODECS(CASE)
#undef CASE
#define CASE(name) if (format == nth++) { name##_lane(words, ranges, j, e, to); }
    GROUP_CODECS(CASE)
#undef CASE
}
