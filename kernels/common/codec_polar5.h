// polar5: blocks of 32, angles of 4, 3, 3, 2 and 2 bits and a half per block (polar.h): a third less error than polar in fewer
// bits, 3.8125 per value: 31 bytes (30.5 and padding) at d = 64, 61 at 128.
STRUCT_BEGIN(codec_polar5)
CONST uint OF(polar5, rotated) = 1u;
FN uint OF(polar5, row_bytes)(uint d) { return polar_bytes(d, true); }
FN float OF(polar5, value)(WORDS_PARAM uint at, uint tail, uint i, uint d) { return polar_value(WORDS at, tail, i, d, true); }
FN void OF(polar5, encode)(VALUES_PARAM ROW_PARAM uint d) { polar_encode(VALUES ROW d, true); }
STRUCT_END
