// turbo3: 8 levels, the row's norm kept (turbo.h). 3 bits per value and 16 for the row: 26 bytes at d = 64, 50 at 128.
STRUCT_BEGIN(codec_turbo3)
CONST uint OF(turbo3, rotated) = 1u;
CONST uint OF(turbo3, ranks) = 4u;
FN uint OF(turbo3, row_bytes)(uint d) { return turbo_bytes(4u, d); }
FN float OF(turbo3, level)(uint code) { return turbo_level(4u, code); }
FN uint OF(turbo3, code)(WORDS_PARAM uint at, uint tail, uint i, uint d) { return turbo_code(WORDS at, tail, i, d, 4u); }
FN float OF(turbo3, scale)(WORDS_PARAM uint at, uint tail, uint d) { return turbo_scale(WORDS at, tail, d, 4u); }
FN float OF(turbo3, value)(WORDS_PARAM uint at, uint tail, uint i, uint d)
{
    return OF(turbo3, scale)(WORDS at, tail, d) * OF(turbo3, level)(OF(turbo3, code)(WORDS at, tail, i, d));
}
FN void OF(turbo3, encode)(VALUES_PARAM ROW_PARAM uint d) { turbo_encode(VALUES ROW d, 4u, false); }
STRUCT_END
