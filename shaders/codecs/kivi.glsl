// Readers of kivi rows and groups: an octet at a time (octets.glsl), or a lane's octets
// (lane_rows.glsl).
#ifdef OCTETS

void kiviv_planes(uint at, uint first, uint d) { read_plane(at, first, 4u); }

void kiviv_octet(uint at, uint tail, uint first, uint d, out float octet[8])
{
    uint code[8], range = WORD(at + d / 8u + first / 32u);
    plane_octet(0u, first, 4u, code);
    [[unroll]] for (uint i = 0u; i < 8u; i++) octet[i] = kivi_decoded(code[i], range);
}

void kivi_group_octet(uint at, uint first, uint bits, out float octet[8])
{
    uint code[8];
    plane_octet(0u, first, bits, code);
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        octet[i] = kivi_decoded(code[i], WORD(at + first + i));
}

#define KIVI(NAME, BITS)                                                                           \
    void NAME##_planes(uint at, uint r, uint first, uint d)                                        \
    {                                                                                              \
        read_plane(at + d + r * (BITS * d / 32u), first, BITS);                                    \
    }                                                                                              \
    void NAME##_octet(uint at, uint r, uint first, uint d, out float octet[8])                     \
    {                                                                                              \
        kivi_group_octet(at, first, BITS, octet);                                                  \
    }

#else

const uint kiviv_plane = 4u;
void kiviv_fill(uint which) {}

void kiviv_fetch(uint at, uint tail, uint j, uint d, inout uint words[max_words])
{
    fetch_plane(at, j, 4u, words);
    uint ranges = at + d / 8u + octet_of_lane(4u, j, 0u) / 8u * 2u;
    [[unroll]] for (uint b = 0u; b < 2u; b++) words[4u + b] = WORD(ranges + b);
}

// words[4] is the range of an octet's first four values, words[5] of the others.
void kiviv_lane(uint words[max_words], uint which, uint j, uint e, uint d, inout LaneOctet to)
{
    same_factors(1.f, to);
    [[unroll]] for (uint k = 0u; k < 8u; k++)
        to.values[k] = kivi_decoded(field_of(words[e], 4u * k, 4u), words[4u + k / 4u]);
}

// Keys of a group share one range per dim. A lane keeps the ranges while its rows are in the group.
void kivi_lane_group(uint words[max_words], uint ranges[max_words], uint j, uint e, uint bits,
                     inout LaneOctet to)
{
    uint fields = fields_of_octet(words, j, e, bits);
    same_factors(1.f, to);
    [[unroll]] for (uint k = 0u; k < 8u; k++)
        to.values[k] = kivi_decoded(field_of(fields, bits * k, bits), ranges[8u * e + k]);
}

#define KIVI(NAME, BITS)                                                                           \
    const uint NAME##_plane = BITS;                                                                \
    void NAME##_fetch(uint at, uint r, uint j, uint d, inout uint words[max_words])               \
    {                                                                                              \
        fetch_plane(at + d + r * (BITS * d / 32u), j, BITS, words);                                \
    }                                                                                              \
    void NAME##_lane(uint words[max_words], uint ranges[max_words], uint j, uint e,              \
                     inout LaneOctet to)                                                           \
    {                                                                                              \
        kivi_lane_group(words, ranges, j, e, BITS, to);                                            \
    }

#endif

KIVI(kivi, 4u)
KIVI(kivi2, 2u)
#undef KIVI
