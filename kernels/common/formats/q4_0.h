// q4_0: 32 values per block, w = d * (q - 8) with q in 0..15. 18 bytes a row (4.5 bits per value).
//   half         d
//   word j       j = 0..3: byte i has q[4j + i] in its low nibble, q[16 + 4j + i] in its high
//                nibble
#if !defined(GLSL) || defined(FORMAT_q4_0)
STRUCT_BEGIN(format_q4_0)
CONST uint ggml_type = 2u;
CONST uint block = 32u;
CONST uint half_words = 4u;
CONST uint half_byte = 0u;
CONST uint words = 4u;
CONST uint words_byte = 2u;
CONST uint permuted_word = 0xffffffffu;
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    uint q = (TILE_WORD((k & 15u) / 4u, r) >> (8u * (k & 3u) + (k & 16u) / 4u)) & 15u;
    return TILE_HALF(r) * (float(q) - 8.f);
}
STRUCT_END
#endif
