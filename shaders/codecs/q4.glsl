// Readers of q4 rows: an octet at a time (octets.glsl), or a lane's octets (lane_rows.glsl).
#ifdef OCTETS

void q4_planes(uint at, uint first, uint d) { read_plane(at, first, 4u); }

void q4_octet(uint at, uint tail, uint first, uint d, out float octet[8])
{
    uint code[8];
    plane_octet(0u, first, 4u, code);
    float scale = row_f16(at, tail, q4_row_bytes(d), 4u * d + 16u * (first / 32u));
    [[unroll]] for (uint i = 0u; i < 8u; i++) octet[i] = scale * (float(code[i]) - 8.f);
}

#else

const uint q4_plane = 4u;
void q4_fill(uint which) {}

void q4_fetch(uint at, uint tail, uint j, uint d, inout uint words[max_words])
{
    fetch_plane(at, j, 4u, words);
    words[4] = WORD(at + d / 8u + n_octets * j / 8u);
}

void q4_lane(uint words[max_words], uint which, uint j, uint e, uint d, inout LaneOctet to)
{
    vec2 scales = unpackHalf2x16(words[4]);
    [[unroll]] for (uint k = 0u; k < 4u; k++) to.factors[k] = k < 2u ? scales.x : scales.y;
    [[unroll]] for (uint k = 0u; k < 8u; k++)
        to.values[k] = float(field_of(words[e], 4u * k, 4u)) - 8.f;
}

#endif
