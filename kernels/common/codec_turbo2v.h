// turbo2v: turbo2 with the scale of the least squared error: for values, whose sums need no norm.
STRUCT_BEGIN(codec_turbo2v)
CONST uint OF(turbo2v, rotated) = 1u;
CONST uint OF(turbo2v, ranks) = 2u;
FN uint OF(turbo2v, row_bytes)(uint d) { return turbo_bytes(2u, d); }
FN float OF(turbo2v, level)(uint code) { return turbo_level(2u, code); }
FN uint OF(turbo2v, code)(WORDS_PARAM uint at, uint tail, uint i, uint d) { return turbo_code(WORDS at, tail, i, d, 2u); }
FN float OF(turbo2v, scale)(WORDS_PARAM uint at, uint tail, uint d) { return turbo_scale(WORDS at, tail, d, 2u); }
FN float OF(turbo2v, value)(WORDS_PARAM uint at, uint tail, uint i, uint d)
{
    return OF(turbo2v, scale)(WORDS at, tail, d) * OF(turbo2v, level)(OF(turbo2v, code)(WORDS at, tail, i, d));
}
FN void OF(turbo2v, encode)(VALUES_PARAM ROW_PARAM uint d) { turbo_encode(VALUES ROW d, 2u, true); }
STRUCT_END
