// What the polar codecs share. A block of 16 (or 32) values becomes one radius and a tree of angles: level 1 has the angle of
// each pair of values, in [0, 2 pi), level l > 1 that of each pair of radii of level l - 1, in [0, pi/2]. Of a rotated row
// these are independent, level 1 uniform and level l with a density of sin(2 psi)^(2^(l-1) - 1), for which the codes have the
// least squared error (Lloyd-Max). Blocks of 16 have 4 levels, of 32 have 5; where d is an odd number of 16s the last block
// of a codec of 32s is one of 16.
// Angles are decided from squared radii: r1^2 tan^2 t < r2^2 for the thresholds t between codes. A block's radius is the root
// of the last of them, so that its norm is kept. A block whose radius is 0 has codes of 0.
//   4-bit plane of d/2  level 1: sector of 22.5 degrees in its quadrant in the low two bits, then the signs of x and y
//   halves              a radius per block
//   per 16 values       a byte: 4 angles of level 2, 2 bits each; fine: then for all 16s a nibble, their high bits
//                       a nibble: 2 angles of level 3, 2 bits each; fine: then for all 16s 2 bits, their high bits
//                       2 bits: level 4
//   per 32 values       2 bits: level 5
// each of these for all of the row before the next; zeros up to a whole byte. A decoded value is
// radius * (cosine or sine of level 5) * ... * (of level 1), from left to right.
// polar has blocks of 16, polar5 ("fine") blocks of 32 with 3 bits for the angles of levels 2 and 3.

// Where the angles of level 2 to 5 begin, in bits.
FN uint polar_begin(uint d, bool fine, uint level)
{
    uint n = d / 16u, begin = 2u * d + 16u * (fine ? (n + 1u) / 2u : n);
    if (level > 2u) begin += (fine ? 12u : 8u) * n;
    if (level > 3u) begin += (fine ? 6u : 4u) * n;
    if (level > 4u) begin += 2u * n;
    return begin;
}

FN uint polar_bytes(uint d, bool fine)
{
    uint bits = fine ? polar_begin(d, true, 5u) + 2u * (d / 32u) : polar_begin(d, false, 5u);
    return (bits + 7u) / 8u;
}

FN bool polar_is_fine(bool fine, uint level) { return fine && level < 4u; }

// tan^2 of the threshold after code q: three of each level, or seven of levels 2 and 3.
FN float polar_square(bool fine, uint level, uint q)
{
    const float coarse[12] = {0.260424824f, 1.f, 3.83987972f, 0.376433704f, 1.f, 2.65651027f,
                              0.499114027f, 1.f, 2.00355018f, 0.611673895f, 1.f, 1.63485806f};
    const float finer[14] = {0.0853411358f, 0.250598015f, 0.526586392f, 1.f, 1.89902363f, 3.9904546f,  11.7176786f,
                             0.169298925f,  0.358699867f, 0.618461055f, 1.f, 1.61691669f, 2.78784603f, 5.90671203f};
    return polar_is_fine(fine, level) ? finer[7u * (level - 2u) + q] : coarse[3u * (level - 2u) + q];
}

// The cosine of code q's angle, or its sine: the angles of q and of the last code less q add to pi/2.
FN float polar_factor(bool fine, uint level, uint q, bool sine)
{
    uint code = polar_is_fine(fine, level) ? (sine ? 7u - q : q) : sine ? 3u - q : q;
    if (polar_is_fine(fine, level))
        return level == 2u ? one_of(code, 0.98229586f, 0.928666007f, 0.853435344f, 0.760164567f, 0.649730583f, 0.521198727f, 0.370917035f, 0.187336177f)
                           : one_of(code, 0.953088222f, 0.890125635f, 0.821894218f, 0.747340082f, 0.664441721f, 0.569640145f, 0.455715212f, 0.302692652f);
    if (level == 2u) return one_of(code, 0.952407939f, 0.805676176f, 0.592356226f, 0.304826369f);
    if (level == 3u) return one_of(code, 0.910522747f, 0.781091117f, 0.624417062f, 0.413458978f);
    if (level == 4u) return one_of(code, 0.865717582f, 0.761021911f, 0.648726175f, 0.500532784f);
    return one_of(code, 0.826179835f, 0.74587232f, 0.666088945f, 0.563406497f);
}

// Level 1: the cosines of 11.25, 33.75, 56.25 and 78.75 degrees.
FN float polar_first_factor(uint code, bool sine)
{
    float v = one_of(sine ? 3u - (code & 3u) : code & 3u, 0.98078528f, 0.831469612f, 0.555570233f, 0.195090322f);
    return (code & (sine ? 8u : 4u)) != 0u ? -v : v;
}

FN uint polar_first_code(float x, float y)
{
    float u = abs(x), v = abs(y);
    uint sector = v > 2.4142136f * u ? 3u : v > u ? 2u : v > 0.41421356f * u ? 1u : 0u;
    return sector | (x < 0.f ? 4u : 0u) | (y < 0.f ? 8u : 0u);
}

// The bit of angle j of a level in the row, of its low two bits or of the high one.
FN uint polar_bit(uint d, bool fine, uint level, uint j, bool high)
{
    uint n = d / 2u >> (level - 1u); // angles of the level
    return polar_begin(d, fine, level) + (high ? 2u * n + j : 2u * j);
}

FN uint polar_code(WORDS_PARAM uint at, uint tail, uint d, bool fine, uint level, uint j)
{
    uint bytes = polar_bytes(d, fine), code = row_field(WORDS at, tail, bytes, polar_bit(d, fine, level, j, false), 3u);
    if (!polar_is_fine(fine, level)) return code;
    return code | row_field(WORDS at, tail, bytes, polar_bit(d, fine, level, j, true), 1u) << 2;
}

FN float polar_value(WORDS_PARAM uint at, uint tail, uint i, uint d, bool fine)
{
    uint bytes = polar_bytes(d, fine), levels = fine && i / 32u < d / 32u ? 5u : 4u;
    float v = HALF_TO_FLOAT(row_field(WORDS at, tail, bytes, 2u * d + 16u * (i / (fine ? 32u : 16u)), 0xffffu));
    for (uint level = levels; level > 1u; level--)
        v *= polar_factor(fine, level, polar_code(WORDS at, tail, d, fine, level, i >> level), (i >> (level - 1u) & 1u) != 0u);
    uint code = row_field(WORDS at, tail, bytes, plane_bit(i / 2u, d / 2u, 4u), 15u);
    return v * polar_first_factor(code, (i & 1u) != 0u);
}

FN void polar_encode(VALUES_PARAM ROW_PARAM uint d, bool fine)
{
    clear_row(ROW polar_bytes(d, fine));
    for (uint base = 0u, size; base < d; base += size) {
        size = fine && base + 32u <= d ? 32u : 16u;
        float squares[32]; // of radii: those of level l begin at (size >> (l - 1)) as in a heap, the last is at 1
        for (uint j = 0u; j < size / 2u; j++) {
            float u = coded_value(VALUE(base + 2u * j)), v = coded_value(VALUE(base + 2u * j + 1u));
            squares[size / 2u + j] = MUL(u, u) + MUL(v, v);
        }
        for (uint j = size / 2u - 1u; j > 0u; j--) squares[j] = squares[2u * j] + squares[2u * j + 1u];
        uint radius = half_root(squares[1], 1.f);
        if (radius == 0u) continue;
        put_field(ROW 2u * d + base / (fine ? 2u : 1u), radius);
        for (uint j = 0u; j < size / 2u; j++) {
            uint code = polar_first_code(coded_value(VALUE(base + 2u * j)), coded_value(VALUE(base + 2u * j + 1u)));
            put_field(ROW plane_bit(base / 2u + j, d / 2u, 4u), code);
        }
        for (uint level = 2u, n = size / 4u; n > 0u; level++, n /= 2u) {
            uint most = polar_is_fine(fine, level) ? 7u : 3u;
            for (uint j = 0u; j < n; j++) {
                uint code = 0u, at = 2u * (n + j);
                for (uint q = 0u; q < most; q++) code += polar_square(fine, level, q) * squares[at] < squares[at + 1u] ? 1u : 0u;
                put_field(ROW polar_bit(d, fine, level, (base >> level) + j, false), code & 3u);
                if (code > 3u) put_field(ROW polar_bit(d, fine, level, (base >> level) + j, true), 1u);
            }
        }
    }
}
