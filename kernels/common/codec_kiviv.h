// kiviv: blocks of 32 values of a row in 4 bits (kivi.h): for values. 5 bits per value: 40 bytes at d = 64, 80 at 128.
STRUCT_BEGIN(codec_kiviv)
CONST uint OF(kiviv, rotated) = 0u;
FN uint OF(kiviv, row_bytes)(uint d) { return kivi_row_bytes(d); }
FN float OF(kiviv, value)(WORDS_PARAM uint at, uint, uint i, uint d) { return kivi_row_value(WORDS at, i, d); }
FN void OF(kiviv, encode)(VALUES_PARAM ROW_PARAM uint d) { kivi_row_encode(VALUES ROW d); }
STRUCT_END
