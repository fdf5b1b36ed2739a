// kivi2: as kivi in 2 bits. 3 bits per value: 24 bytes for a row at d = 64, 48 at 128.
STRUCT_BEGIN(codec_kivi2)
CONST uint OF(kivi2, rotated) = 0u;
CONST uint OF(kivi2, group) = kivi_rows;
FN uint OF(kivi2, group_words)(uint d) { return kivi_group_words(2u, d); }
FN float OF(kivi2, value)(WORDS_PARAM uint at, uint r, uint i, uint d) { return kivi_group_value(WORDS at, r, i, d, 2u); }
FN void OF(kivi2, encode)(VALUES_PARAM ROW_PARAM uint d) { kivi_group_encode(VALUES ROW d, 2u); }
STRUCT_END
