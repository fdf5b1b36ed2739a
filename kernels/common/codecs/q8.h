// q8: blocks of 32 values (the last may have 16), x = s * q with q in -127..127. 8.5 bits per
// value. For rows with or without the Hadamard transform.
//   byte i       q of dim i, two's complement
//   half d/2 + b the scale s of block b: the half nearest to the largest magnitude / 127
// A decoded row is encoded to the same codes again if s is a normal half.
STRUCT_BEGIN(codec_q8)
CONST uint OF(q8, hadamard) = 0u;
FN uint OF(q8, row_bytes)(uint d) { return d + 2u * ((d + 31u) / 32u); }

FN float OF(q8, value)(WORDS_PARAM uint at, uint tail, uint i, uint d)
{
    uint bytes = OF(q8, row_bytes)(d);
    int q = int(row_field(WORDS at, tail, bytes, 8u * i, 255u) << 24) >> 24;
    uint scale = row_field(WORDS at, tail, bytes, 8u * d + 16u * (i / 32u), 0xffffu);
    return HALF_TO_FLOAT(scale) * float(q);
}

FN void OF(q8, encode)(VALUES_PARAM ROW_PARAM uint d)
{
    clear_row(ROW OF(q8, row_bytes)(d));
    for (uint base = 0u; base < d; base += 32u) {
        uint end = base + 32u < d ? base + 32u : d;
        float top = 0.f;
        for (uint i = base; i < end; i++) {
            float magnitude = abs(coded_value(VALUE(i)));
            top = magnitude > top ? magnitude : top;
        }
        uint s = FLOAT_TO_HALF(top * (1.f / 127.f));
        for (uint i = base; i < end; i++) {
            float v = coded_value(VALUE(i));
            uint k = nearest_multiple(abs(v), HALF_TO_FLOAT(s), 127u);
            put_field(ROW 8u * i, (v < 0.f ? 0u - k : k) & 255u);
        }
        put_field(ROW 8u * d + base / 2u, s);
    }
}
STRUCT_END
