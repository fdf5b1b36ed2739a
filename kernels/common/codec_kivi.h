// kivi: every dim of 32 rows in 4 bits, with a range of its own (kivi.h): for keys, whose channels differ by far more than a
// channel's values do. 5 bits per value: 40 bytes for a row at d = 64, 80 at 128.
STRUCT_BEGIN(codec_kivi)
CONST uint OF(kivi, rotated) = 0u;
CONST uint OF(kivi, group) = kivi_rows;
FN uint OF(kivi, group_words)(uint d) { return kivi_group_words(4u, d); }
FN float OF(kivi, value)(WORDS_PARAM uint at, uint r, uint i, uint d) { return kivi_group_value(WORDS at, r, i, d, 4u); }
FN void OF(kivi, encode)(VALUES_PARAM ROW_PARAM uint d) { kivi_group_encode(VALUES ROW d, 4u); }
STRUCT_END
