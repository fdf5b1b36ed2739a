// Readers of turbo rows: an octet at a time (octets.glsl), or a lane's octets (lane_rows.glsl).
#ifdef OCTETS

void turbo_planes(uint at, uint first, uint d, uint ranks)
{
    read_plane(at, first, ranks == 8u ? 4u : 2u);
    if (ranks != 4u) return;
    planes[4] = WORD(at + d / 16u + first / 64u * 2u);
    planes[5] = WORD(at + d / 16u + first / 64u * 2u + 1u);
}

void turbo_octet(uint at, uint tail, uint first, uint d, uint ranks, out float octet[8])
{
    uint code[8], sign[8];
    plane_octet(0u, first, ranks == 8u ? 4u : 2u, code);
    if (ranks == 4u) plane_octet(4u, first, 1u, sign);
    float scale = turbo_scale(at, tail, d, ranks);
    [[unroll]] for (uint i = 0u; i < 8u; i++) {
        uint negative = ranks == 4u ? sign[i] : code[i] / ranks, rank = code[i] & (ranks - 1u);
        octet[i] =
            uintBitsToFloat(floatBitsToUint(scale * turbo_magnitude(ranks, rank)) ^ negative << 31);
    }
}

#define TURBO(NAME, RANKS)                                                                         \
    void NAME##_planes(uint at, uint first, uint d)                                                \
    {                                                                                              \
        turbo_planes(at, first, d, RANKS);                                                         \
    }                                                                                              \
    void NAME##_octet(uint at, uint tail, uint first, uint d, out float octet[8])                  \
    {                                                                                              \
        turbo_octet(at, tail, first, d, RANKS, octet);                                             \
    }

#else

void fill_turbo(uint which, uint ranks)
{
    if (THREAD < 2u * ranks) levels[64u * which + THREAD] = vec2(turbo_level(ranks, THREAD), 0.f);
}

void turbo_fetch(uint at, uint tail, uint j, uint d, uint ranks, inout uint words[max_words])
{
    uint plane = ranks == 8u ? 4u : 2u;
    fetch_plane(at, j, plane, words);
    if (ranks == 4u)
        [[unroll]] for (uint e = 0u; e < n_octets; e += 2u) {
            uint i = octet_of_lane(plane, j, e);
            words[4u + e / 2u] = WORD(at + d / 16u + i / 8u * 2u + i % 2u);
        }
    words[6] = tail;
}

void turbo_lane(uint words[max_words], uint which, uint j, uint e, uint ranks, inout LaneOctet to)
{
    uint plane = ranks == 8u ? 4u : 2u, i = octet_of_lane(plane, j, e),
         bits = ranks == 4u ? 2u : plane;
    uint fields = fields_of_octet(words, j, e, plane),
         signs = words[4u + e / 2u] >> (16u * (i % 8u / 4u) + i % 4u / 2u);
    same_factors(HALF_TO_FLOAT(words[6] & 0xffffu), to);
    [[unroll]] for (uint k = 0u; k < 8u; k++) {
        uint code = field_of(fields, bits * k, bits);
        if (ranks == 4u) code |= field_of(signs, 2u * k, 1u) << 2u;
        to.values[k] = levels[64u * which + code].x;
    }
}

#define TURBO(NAME, RANKS)                                                                         \
    const uint NAME##_plane = RANKS == 8u ? 4u : 2u;                                               \
    void NAME##_fill(uint which)                                                                   \
    {                                                                                              \
        fill_turbo(which, RANKS);                                                                  \
    }                                                                                              \
    void NAME##_fetch(uint at, uint tail, uint j, uint d, inout uint words[max_words])            \
    {                                                                                              \
        turbo_fetch(at, tail, j, d, RANKS, words);                                                 \
    }                                                                                              \
    void NAME##_lane(uint words[max_words], uint which, uint j, uint e, uint, inout LaneOctet to) \
    {                                                                                              \
        turbo_lane(words, which, j, e, RANKS, to);                                                 \
    }

#endif

TURBO(turbo4, 8u)
TURBO(turbo3, 4u)
TURBO(turbo2, 2u)
TURBO(turbo2v, 2u)
#undef TURBO
