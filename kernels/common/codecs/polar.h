// polar: PolarQuant as published, with offline codes. Blocks of 16, angles of 4, 2, 2 and 2 bits,
// one f16 per block. 3.875 bits per value: 31 bytes at d = 64, 62 at 128.
//
// A block of 16 values becomes one radius and a tree of angles. Level 1 has the angle of each pair
// of values, in [0, 2 pi). Level l = 2, 3, 4 has the angle of each pair of radii of level l - 1, in
// [0, pi/2]. In a row after the Hadamard transform the angles are independent. Level 1 is uniform.
// Level l has a density of sin(2 psi)^(2^(l-1) - 1), for which the codes have the least squared
// error (Lloyd-Max).
// Angles are decided from squared radii: r1^2 tan^2 t < r2^2 for the thresholds t between codes. A
// block's radius is the root of the last squared radius, so the block's norm is kept. A block whose
// radius is 0 has codes of 0.
//   4-bit plane of d/2  level 1: in the low two bits the sector of 22.5 degrees in its quadrant,
//                       then the signs of x and y
//   f16                 a radius per block
//   per block           a byte: 4 angles of level 2, 2 bits each
//   per block           a nibble: 2 angles of level 3, 2 bits each
//   per block           2 bits: level 4
// Each line holds all of the row before the next line begins. Zeros fill the last byte. A decoded
// value is radius * (cosine or sine of level 4) * ... * (of level 1), from left to right.

// The first bit of the angles of level 2, 3 or 4. Level 5: the bit after the last angle.
FN uint polar_begin(uint d, uint level)
{
    uint n = d / 16u, begin = 2u * d + 16u * n;
    if (level > 2u) begin += 8u * n;
    if (level > 3u) begin += 4u * n;
    if (level > 4u) begin += 2u * n;
    return begin;
}

FN uint polar_bytes(uint d) { return (polar_begin(d, 5u) + 7u) / 8u; }

// tan^2 of the threshold after code q, of three in each level.
FN float polar_square(uint level, uint q)
{
    const float squares[9] = {0.260424824f, 1.f, 3.83987972f,  0.376433704f, 1.f,
                              2.65651027f,  0.499114027f, 1.f, 2.00355018f};
    return squares[3u * (level - 2u) + q];
}

// The cosine of code q's angle, or its sine: the angles of q and of 3 - q add to pi/2.
FN float polar_factor(uint level, uint q, bool sine)
{
    uint code = sine ? 3u - q : q;
    if (level == 2u) return one_of(code, 0.952407939f, 0.805676176f, 0.592356226f, 0.304826369f);
    if (level == 3u) return one_of(code, 0.910522747f, 0.781091117f, 0.624417062f, 0.413458978f);
    return one_of(code, 0.865717582f, 0.761021911f, 0.648726175f, 0.500532784f);
}

// Level 1: the cosines of 11.25, 33.75, 56.25 and 78.75 degrees.
FN float polar_first_factor(uint code, bool sine)
{
    uint sector = sine ? 3u - (code & 3u) : code & 3u;
    float v = one_of(sector, 0.98078528f, 0.831469612f, 0.555570233f, 0.195090322f);
    return (code & (sine ? 8u : 4u)) != 0u ? -v : v;
}

FN uint polar_first_code(float x, float y)
{
    float u = abs(x), v = abs(y);
    uint sector = v > 2.4142136f * u ? 3u : v > u ? 2u : v > 0.41421356f * u ? 1u : 0u;
    return sector | (x < 0.f ? 4u : 0u) | (y < 0.f ? 8u : 0u);
}

// The bit of angle j of a level in the row.
FN uint polar_bit(uint d, uint level, uint j) { return polar_begin(d, level) + 2u * j; }

FN uint polar_code(WORDS_PARAM uint at, uint tail, uint d, uint level, uint j)
{
    return row_field(WORDS at, tail, polar_bytes(d), polar_bit(d, level, j), 3u);
}

STRUCT_BEGIN(codec_polar)
CONST uint OF(polar, hadamard) = 1u;
FN uint OF(polar, row_bytes)(uint d) { return polar_bytes(d); }

FN float OF(polar, value)(WORDS_PARAM uint at, uint tail, uint i, uint d)
{
    uint bytes = polar_bytes(d);
    float v = HALF_TO_FLOAT(row_field(WORDS at, tail, bytes, 2u * d + 16u * (i / 16u), 0xffffu));
    for (uint level = 4u; level > 1u; level--)
        v *= polar_factor(level, polar_code(WORDS at, tail, d, level, i >> level),
                          (i >> (level - 1u) & 1u) != 0u);
    uint code = row_field(WORDS at, tail, bytes, plane_bit(i / 2u, d / 2u, 4u), 15u);
    return v * polar_first_factor(code, (i & 1u) != 0u);
}

FN void OF(polar, encode)(VALUES_PARAM ROW_PARAM uint d)
{
    clear_row(ROW polar_bytes(d));
    for (uint base = 0u; base < d; base += 16u) {
        // Squared radii as in a heap: level l begins at 16 >> l, the last one is at 1.
        float squares[16];
        for (uint j = 0u; j < 8u; j++) {
            float u = coded_value(VALUE(base + 2u * j)), v = coded_value(VALUE(base + 2u * j + 1u));
            squares[8u + j] = MUL(u, u) + MUL(v, v);
        }
        for (uint j = 7u; j > 0u; j--) squares[j] = squares[2u * j] + squares[2u * j + 1u];
        uint radius = half_root(squares[1], 1.f);
        if (radius == 0u) continue;
        put_field(ROW 2u * d + base, radius);
        for (uint j = 0u; j < 8u; j++) {
            uint code = polar_first_code(coded_value(VALUE(base + 2u * j)),
                                         coded_value(VALUE(base + 2u * j + 1u)));
            put_field(ROW plane_bit(base / 2u + j, d / 2u, 4u), code);
        }
        for (uint level = 2u, n = 4u; n > 0u; level++, n /= 2u)
            for (uint j = 0u; j < n; j++) {
                uint code = 0u, at = 2u * (n + j);
                for (uint q = 0u; q < 3u; q++)
                    code += polar_square(level, q) * squares[at] < squares[at + 1u] ? 1u : 0u;
                put_field(ROW polar_bit(d, level, (base >> level) + j), code);
            }
    }
}
STRUCT_END
