// kivi2v: as kiviv in 2 bits. 3 bits per value: 24 bytes at d = 64, 48 at 128.
STRUCT_BEGIN(codec_kivi2v)
CONST uint OF(kivi2v, rotated) = 0u;
FN uint OF(kivi2v, row_bytes)(uint d) { return kivi_row_bytes(2u, d); }
FN float OF(kivi2v, value)(WORDS_PARAM uint at, uint, uint i, uint d) { return kivi_row_value(WORDS at, i, d, 2u); }
FN void OF(kivi2v, encode)(VALUES_PARAM ROW_PARAM uint d) { kivi_row_encode(VALUES ROW d, 2u); }
STRUCT_END
