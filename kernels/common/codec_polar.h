// polar: PolarQuant as published, offline codes: blocks of 16, angles of 4, 2, 2 and 2 bits and a half per block (polar.h).
// 3.875 bits per value: 31 bytes at d = 64, 62 at 128.
STRUCT_BEGIN(codec_polar)
CONST uint OF(polar, rotated) = 1u;
FN uint OF(polar, row_bytes)(uint d) { return polar_bytes(d, false); }
FN float OF(polar, value)(WORDS_PARAM uint at, uint tail, uint i, uint d) { return polar_value(WORDS at, tail, i, d, false); }
FN void OF(polar, encode)(VALUES_PARAM ROW_PARAM uint d) { polar_encode(VALUES ROW d, false); }
STRUCT_END
