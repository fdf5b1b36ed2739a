// q8_0: 32 values per block, w = d * q with q in -128..127. 34 bytes a row (8.5 bits per value).
//   half         d
//   word j       j = 0..7: byte i is q[4j + i], two's complement
#if !defined(GLSL) || defined(FORMAT_q8_0)
STRUCT_BEGIN(format_q8_0)
CONST uint ggml_type = 8u;
CONST uint block = 32u;
CONST uint half_words = 4u;
CONST uint half_byte = 0u;
CONST uint words = 8u;
CONST uint words_byte = 2u;
CONST uint permuted_word = 0xffffffffu;
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    int q = int(TILE_WORD(k / 4u, r) << (24u - 8u * (k & 3u))) >> 24;
    return TILE_HALF(r) * float(q);
}
STRUCT_END
#endif
