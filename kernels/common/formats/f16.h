// f16: one value per block.
#if !defined(GLSL) || defined(FORMAT_f16)
STRUCT_BEGIN(format_f16)
CONST uint ggml_type = 1u;
CONST uint block = 1u;
CONST uint half_words = 4u;
CONST uint half_byte = 0u;
CONST uint words = 0u;
CONST uint words_byte = 2u;
CONST uint permuted_word = 0xffffffffu;
FN float value(WORDS_PARAM uint at, uint r, uint k) { return TILE_HALF(tile_rows * k + r); }
STRUCT_END
#endif
