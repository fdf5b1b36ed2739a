// turbo4: 16 levels, the row's norm kept (turbo.h). 4 bits per value and 16 for the row: 34 bytes at d = 64, 66 at 128.
STRUCT_BEGIN(codec_turbo4)
CONST uint OF(turbo4, rotated) = 1u;
CONST uint OF(turbo4, ranks) = 8u;
FN uint OF(turbo4, row_bytes)(uint d) { return turbo_bytes(8u, d); }
FN float OF(turbo4, level)(uint code) { return turbo_level(8u, code); }
FN uint OF(turbo4, code)(WORDS_PARAM uint at, uint tail, uint i, uint d) { return turbo_code(WORDS at, tail, i, d, 8u); }
FN float OF(turbo4, scale)(WORDS_PARAM uint at, uint tail, uint d) { return turbo_scale(WORDS at, tail, d, 8u); }
FN float OF(turbo4, value)(WORDS_PARAM uint at, uint tail, uint i, uint d)
{
    return OF(turbo4, scale)(WORDS at, tail, d) * OF(turbo4, level)(OF(turbo4, code)(WORDS at, tail, i, d));
}
FN void OF(turbo4, encode)(VALUES_PARAM ROW_PARAM uint d) { turbo_encode(VALUES ROW d, 8u, false); }
STRUCT_END
