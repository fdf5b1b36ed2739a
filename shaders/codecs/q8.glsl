// Readers of q8 rows: an octet at a time (octets.glsl), or a lane's octets (lane_rows.glsl).
#ifdef OCTETS

void q8_octet(uint at, uint tail, uint first, uint d, out float octet[8])
{
    float scale = row_f16(at, tail, q8_row_bytes(d), 8u * d + 16u * (first / 32u));
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        octet[i] = scale * float(int(WORD(at + first / 4u + i / 4u) << 24u - 8u * (i % 4u)) >> 24);
}

void q8_planes(uint at, uint first, uint d) {}

#else

const uint q8_plane = 0u;
void q8_fill(uint which) {}

void q8_fetch(uint at, uint tail, uint j, uint d, inout uint words[max_words])
{
    [[unroll]] for (uint i = 0u; i < 2u * n_octets; i++)
        words[i] = WORD(at + 2u * n_octets * j + i);
    words[8] = WORD(at + d / 4u + n_octets * j / 8u) >> 16u * (n_octets * j / 4u % 2u);
}

void q8_lane(uint words[max_words], uint which, uint j, uint e, uint d, inout LaneOctet to)
{
    same_factors(HALF_TO_FLOAT(words[8] & 0xffffu), to);
    [[unroll]] for (uint k = 0u; k < 8u; k++)
        to.values[k] = float(bitfieldExtract(int(words[2u * e + k / 4u]), int(8u * (k % 4u)), 8));
}

#endif
