// Readers of polar rows: an octet at a time (octets.glsl), or a lane's octets (lane_rows.glsl).
#ifdef OCTETS

// Words with the 32 angles of level 1 of 64 dims: half of each of eight words. The last 64 dims of
// an odd number of such parts have four whole words instead.
uint angle_words(uint first, uint d) { return first / 128u < d / 128u ? 8u : 4u; }

void polar_planes(uint at, uint first, uint d)
{
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        if (i < angle_words(first, d)) planes[i] = WORD(at + first / 128u * 8u + i);
}

// An octet has one angle of level 4, one of level 3, two of level 2 and four of level 1.
void polar_octet(uint at, uint tail, uint first, uint d, out float octet[8])
{
    float top = row_f16(at, tail, polar_bytes(d), 2u * d + 16u * (first / 16u));
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
            octet[k] = low * polar_first_factor(angle, false);
            octet[k + 1u] = low * polar_first_factor(angle, true);
        }
    }
}

#else

const uint polar_plane = angle_plane;

void polar_fill(uint which)
{
    uint level = THREAD / 8u, code = THREAD % 4u;
    if (THREAD < 16u)
        levels[64u * which + THREAD] =
            vec2(polar_first_factor(THREAD, false), polar_first_factor(THREAD, true));
    else if (THREAD < 40u)
        levels[64u * which + THREAD] =
            vec2(polar_factor(level, code, false), polar_factor(level, code, true));
}

// An octet is half a block: one angle of level 3, two of level 2, four of level 1. The angles of
// level 1 lie in four words under one shift.
uint angle_of_octet(uint level, uint i) { return level == 2u ? 2u * i : i >> (level - 3u); }

// The word with the lane's angles of a level. The row's last word may be in the tail.
uint angle_word(uint at, uint tail, uint i, uint d, uint level)
{
    uint first = polar_bit(d, level, 0u) / 32u,
         last = polar_bit(d, level, d / 2u / (1u << (level - 1u)) - 1u) / 32u;
    if (first == last) return first < polar_bytes(d) / 4u ? WORD(at + first) : tail;
    return WORD(at + polar_bit(d, level, angle_of_octet(level, i)) / 32u);
}

// The words of a lane: four of level 1, one each of levels 2, 3 and 4, then the radii.
void polar_fetch(uint at, uint tail, uint j, uint d, inout uint words[max_words])
{
    uint i = octet_of_lane(angle_plane, j, 0u), radii = at + d / 16u + i / 4u;
    [[unroll]] for (uint w = 0u; w < 4u; w++)
        words[w] = WORD(at + (d == 64u ? 0u : i / 16u * 8u + 4u * (i & 1u)) + w);
    [[unroll]] for (uint level = 2u; level < 5u; level++)
        words[2u + level] = angle_word(at, tail, i, d, level);
    words[7] = WORD(radii);
    if (n_octets == 4u) words[8] = WORD(radii + 1u);
}

// The index of an angle's cosine and sine in `levels`.
uint polar_place(uint words[max_words], uint which, uint d, uint level, uint angle)
{
    return 64u * which + 8u * level +
           field_of(words[2u + level], polar_bit(d, level, angle) & 31u, 2u);
}

void polar_lane(uint words[max_words], uint which, uint j, uint e, uint d, inout LaneOctet to)
{
    uint i = octet_of_lane(angle_plane, j, e), first = octet_of_lane(angle_plane, j, 0u);
    float top = HALF_TO_FLOAT(field_of(n_octets == 4u && i / 4u != first / 4u ? words[8] : words[7],
                                       16u * (i / 2u & 1u), 16u));
    top *= levels[polar_place(words, which, d, 4u, i / 2u)][i & 1u];
    vec2 third = top * levels[polar_place(words, which, d, 3u, i)];
    [[unroll]] for (uint k = 0u; k < 2u; k++) {
        vec2 second = third[k] * levels[polar_place(words, which, d, 2u, 2u * i + k)];
        to.factors[2u * k] = second.x;
        to.factors[2u * k + 1u] = second.y;
    }
    [[unroll]] for (uint k = 0u; k < 4u; k++) {
        vec2 pair =
            levels[64u * which + field_of(words[k], 4u * (d == 64u ? i : i % 16u / 2u), 4u)];
        to.values[2u * k] = pair.x;
        to.values[2u * k + 1u] = pair.y;
    }
}

#endif
