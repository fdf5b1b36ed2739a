// Eight neighbouring values of a row at a time, dims `first` to first + 7, a multiple of 8: what they have in common is read once. Before it
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

void turbo_planes(uint at, uint first, uint d, uint ranks)
{
    read_plane(at, first, ranks == 8u ? 4u : 2u);
    if (ranks != 4u) return;
    planes[4] = WORD(at + d / 16u + first / 64u * 2u);
    planes[5] = WORD(at + d / 16u + first / 64u * 2u + 1u);
}

void turbo_eight(uint at, uint tail, uint first, uint d, uint ranks, out float eight[8])
{
    uint code[8], sign[8];
    plane_eight(0u, first, ranks == 8u ? 4u : 2u, code);
    if (ranks == 4u) plane_eight(4u, first, 1u, sign);
    float scale = turbo_scale(at, tail, d, ranks);
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        uint negative = ranks == 4u ? sign[i] : code[i] / ranks, rank = code[i] & (ranks - 1u);
        eight[i] = uintBitsToFloat(floatBitsToUint(scale * turbo_magnitude(ranks, rank)) ^ negative << 31);
    }
}

void q4_eight(uint at, uint tail, uint first, uint d, out float eight[8])
{
    uint code[8];
    plane_eight(0u, first, 4u, code);
    float scale = row_half(at, tail, q4_row_bytes(d), 4u * d + 16u * (first / 32u));
    [[unroll]] for (uint i = 0u; i < 8u; i++) eight[i] = scale * (float(code[i]) - 8.f);
}

void q8_eight(uint at, uint tail, uint first, uint d, out float eight[8])
{
    float scale = row_half(at, tail, q8_row_bytes(d), 8u * d + 16u * (first / 32u));
    [[unroll]] for (uint i = 0u; i < 8u; i++) eight[i] = scale * float(int(WORD(at + first / 4u + i / 4u) << 24u - 8u * (i % 4u)) >> 24);
}

void kivi_row_eight(uint at, uint first, uint d, out float eight[8])
{
    uint code[8], range = WORD(at + d / 8u + first / 32u);
    plane_eight(0u, first, 4u, code);
    [[unroll]] for (uint i = 0u; i < 8u; i++) eight[i] = kivi_decoded(code[i], range);
}

void kivi_group_eight(uint at, uint first, uint bits, out float eight[8])
{
    uint code[8];
    plane_eight(0u, first, bits, code);
    [[unroll]] for (uint i = 0u; i < 8u; i++) eight[i] = kivi_decoded(code[i], WORD(at + first + i));
}

// Angles of level 1: of 64 dims 32, which are half of eight words or, of the last 64 of an odd number, four.
uint angle_words(uint first, uint d) { return first / 128u < d / 128u ? 8u : 4u; }

void angle_planes(uint at, uint first, uint d)
{
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        if (i < angle_words(first, d)) planes[i] = WORD(at + first / 128u * 8u + i);
}

// One angle of level 4, one of level 3, two of level 2 and four of level 1 below it.
void polar_eight(uint at, uint tail, uint first, uint d, out float eight[8])
{
    float top = row_half(at, tail, polar_bytes(d), 2u * d + 16u * (first / 16u));
    top *= polar_factor(4u, polar_code(at, tail, d, 4u, first / 16u), (first / 8u & 1u) != 0u);
    uint third = polar_code(at, tail, d, 3u, first / 8u);
    [[unroll]] for (uint i = 0u; i < 8u; i += 4u) {
        uint second = polar_code(at, tail, d, 2u, (first + i) / 4u);
        float mid = top * polar_factor(3u, third, i != 0u);
        [[unroll]] for (uint k = i; k < i + 4u; k += 2u) {
            float low = mid * polar_factor(2u, second, k != i);
            uint angle;
            if (angle_words(first, d) == 8u)
                angle = planes[first % 16u / 2u + k / 2u] >> 4u * (first % 128u / 16u) & 15u;
            else
                angle = planes[k / 2u] >> 4u * (first % 64u / 8u) & 15u;
            eight[k] = low * polar_first_factor(angle, false);
            eight[k + 1u] = low * polar_first_factor(angle, true);
        }
    }
}

// Those of each codec.
#define q8_planes(at, first, d)
#define q4_planes(at, first, d) read_plane(at, first, 4u)
#define turbo4_planes(at, first, d) turbo_planes(at, first, d, 8u)
#define turbo3_planes(at, first, d) turbo_planes(at, first, d, 4u)
#define turbo2_planes(at, first, d) turbo_planes(at, first, d, 2u)
#define turbo2v_planes(at, first, d) turbo_planes(at, first, d, 2u)
#define polar_planes(at, first, d) angle_planes(at, first, d)
#define kiviv_planes(at, first, d) read_plane(at, first, 4u)
#define kivi_planes(at, r, first, d) read_plane(at + d + r * (d / 8u), first, 4u)
#define kivi2_planes(at, r, first, d) read_plane(at + d + r * (d / 16u), first, 2u)
#define turbo4_eight(at, tail, first, d, eight) turbo_eight(at, tail, first, d, 8u, eight)
#define turbo3_eight(at, tail, first, d, eight) turbo_eight(at, tail, first, d, 4u, eight)
#define turbo2_eight(at, tail, first, d, eight) turbo_eight(at, tail, first, d, 2u, eight)
#define turbo2v_eight(at, tail, first, d, eight) turbo_eight(at, tail, first, d, 2u, eight)
#define kiviv_eight(at, tail, first, d, eight) kivi_row_eight(at, first, d, eight)
#define kivi_eight(at, r, first, d, eight) kivi_group_eight(at, first, 4u, eight)
#define kivi2_eight(at, r, first, d, eight) kivi_group_eight(at, first, 2u, eight)

// Eights of a row from the one at `first` on, in order; planes are read with the first of each 64 dims, or where begins says so.
void row_eight(uint format, uint r, uint tail, uint first, uint d, bool begins, out float eight[8])
{
    uint nth = first_codec, at = r * (row_bytes(format, d) / 4u);
    bool reads = begins || first % 64u == 0u;
    if (format >= first_codec && d % 64u == 0u) {
#define CASE(name)                               \
    if (format == nth++) {                       \
        if (reads) { name##_planes(at, first, d); } \
        name##_eight(at, tail, first, d, eight); \
        return;                                  \
    }
        CODECS(CASE)
#undef CASE
        at = r / kivi_rows * group_words(format, d);
#define CASE(name)                                        \
    if (format == nth++) {                                \
        if (reads) { name##_planes(at, r % kivi_rows, first, d); } \
        name##_eight(at, r % kivi_rows, first, d, eight); \
        return;                                           \
    }
        GROUP_CODECS(CASE)
#undef CASE
    }
    [[unroll]] for (uint i = 0u; i < 8u; i++) eight[i] = first + i < d ? row_value(format, r, tail, first + i, d) : 0.f;
}
