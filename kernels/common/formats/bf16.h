// bf16: one value per block, the upper 16 bits of a float.
#if !defined(GLSL) || defined(FORMAT_bf16)
STRUCT_BEGIN(format_bf16)
CONST uint ggml_type = 30u;
CONST uint block = 1u;
CONST uint half_words = 4u;
CONST uint half_byte = 0u;
CONST uint words = 0u;
CONST uint words_byte = 2u;
CONST uint permuted_word = 0xffffffffu;
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    return BITS_TO_FLOAT(TILE_HALF_BITS(tile_rows * k + r) << 16);
}
STRUCT_END
#endif
