// turbo2: 4 levels, the row's norm kept (turbo.h): for keys. 2 bits per value and 16 for the row: 18 bytes at d = 64, 34 at 128.
STRUCT_BEGIN(codec_turbo2)
CONST uint OF(turbo2, rotated) = 1u;
CONST uint OF(turbo2, ranks) = 2u;
FN uint OF(turbo2, row_bytes)(uint d) { return turbo_bytes(2u, d); }
FN float OF(turbo2, level)(uint code) { return turbo_level(2u, code); }
FN uint OF(turbo2, code)(WORDS_PARAM uint at, uint tail, uint i, uint d) { return turbo_code(WORDS at, tail, i, d, 2u); }
FN float OF(turbo2, scale)(WORDS_PARAM uint at, uint tail, uint d) { return turbo_scale(WORDS at, tail, d, 2u); }
FN float OF(turbo2, value)(WORDS_PARAM uint at, uint tail, uint i, uint d)
{
    return OF(turbo2, scale)(WORDS at, tail, d) * OF(turbo2, level)(OF(turbo2, code)(WORDS at, tail, i, d));
}
FN void OF(turbo2, encode)(VALUES_PARAM ROW_PARAM uint d) { turbo_encode(VALUES ROW d, 2u, false); }
STRUCT_END
