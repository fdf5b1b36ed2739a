// f32: one value per block, one word a row.
#if !defined(GLSL) || defined(FORMAT_f32)
STRUCT_BEGIN(format_f32)
CONST uint ggml_type = 0u;
CONST uint block = 1u;
CONST uint half_words = 0u;
CONST uint half_byte = 0u;
CONST uint words = 1u;
CONST uint words_byte = 0u;
CONST uint permuted_word = 0xffffffffu;
FN float value(WORDS_PARAM uint at, uint r, uint k) { return BITS_TO_FLOAT(TILE_WORD(k, r)); }
STRUCT_END
#endif
