// q4: blocks of 32 values (the last may have 16), x = s * (q - 8) with q in 0..15. 4.5 bits per
// value. Meant for rows after the Hadamard transform.
//   4-bit plane  q
//   half d/4 + b the scale s of block b: the half nearest to m / -8. m is the value of largest
//                magnitude, the first of several
STRUCT_BEGIN(codec_q4)
CONST uint OF(q4, hadamard) = 1u;
FN uint OF(q4, row_bytes)(uint d) { return d / 2u + 2u * ((d + 31u) / 32u); }

FN float OF(q4, value)(WORDS_PARAM uint at, uint tail, uint i, uint d)
{
    uint bytes = OF(q4, row_bytes)(d);
    uint q = row_field(WORDS at, tail, bytes, plane_bit(i, d, 4u), 15u);
    uint scale = row_field(WORDS at, tail, bytes, 4u * d + 16u * (i / 32u), 0xffffu);
    return HALF_TO_FLOAT(scale) * (float(q) - 8.f);
}

FN void OF(q4, encode)(VALUES_PARAM ROW_PARAM uint d)
{
    clear_row(ROW OF(q4, row_bytes)(d));
    for (uint base = 0u; base < d; base += 32u) {
        uint end = base + 32u < d ? base + 32u : d;
        float top = 0.f;
        for (uint i = base; i < end; i++) {
            float v = coded_value(VALUE(i));
            top = abs(v) > abs(top) ? v : top;
        }
        uint s = FLOAT_TO_HALF(abs(top) * 0.125f);
        bool top_negative = top < 0.f;
        for (uint i = base; i < end; i++) {
            float v = coded_value(VALUE(i));
            uint k = nearest_multiple(abs(v), HALF_TO_FLOAT(s), 8u);
            // The side of the largest magnitude has eight levels, the other side has seven.
            bool below = (v < 0.f) == top_negative;
            put_field(ROW plane_bit(i, d, 4u), below ? 8u - k : k < 8u ? 8u + k : 15u);
        }
        put_field(ROW 4u * d + base / 2u, s != 0u && !top_negative ? s | 0x8000u : s);
    }
}
STRUCT_END
