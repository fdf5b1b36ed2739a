// q4_1: 32 values per block, w = d * q + m with q in 0..15. 5 words a row, 20 bytes (5 bits per
// value).
//   word 0       half2(d, m)
//   word 1 + j   j = 0..3: byte i has q[4j + i] in its low nibble, q[16 + 4j + i] in its high
//                nibble
#if !defined(GLSL) || defined(FORMAT_q4_1)
STRUCT_BEGIN(format_q4_1)
CONST uint ggml_type = 3u;
CONST uint block = 32u;
CONST uint half_words = 0u;
CONST uint half_byte = 0u;
CONST uint words = 5u;
CONST uint words_byte = 0u;
CONST uint permuted_word = 0xffffffffu;
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    uint dm = TILE_WORD(0u, r);
    uint q = (TILE_WORD(1u + (k & 15u) / 4u, r) >> (8u * (k & 3u) + (k & 16u) / 4u)) & 15u;
    return HALF_TO_FLOAT(dm & 0xffffu) * float(q) + HALF_TO_FLOAT(dm >> 16);
}
STRUCT_END
#endif
