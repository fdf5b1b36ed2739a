// q5_1: 32 values per block, w = d * q + m with q in 0..31. 6 words a row, 24 bytes (6 bits per
// value).
//   word 0       half2(d, m)
//   word 1       high bits, permuted: bit 8i + j is bit 4 of q[4j + i], so (word >> j) & 0x01010101
//                has bit 4 of q[4j .. 4j + 3]
//   word 2 + j   j = 0..3: byte i has the low bits of q[4j + i] in its low nibble, of
//                q[16 + 4j + i] in its high nibble
#if !defined(GLSL) || defined(FORMAT_q5_1)
STRUCT_BEGIN(format_q5_1)
CONST uint ggml_type = 7u;
CONST uint block = 32u;
CONST uint half_words = 0u;
CONST uint half_byte = 0u;
CONST uint words = 6u;
CONST uint words_byte = 0u;
CONST uint permuted_word = 1u;
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    uint dm = TILE_WORD(0u, r);
    uint low = (TILE_WORD(2u + (k & 15u) / 4u, r) >> (8u * (k & 3u) + (k & 16u) / 4u)) & 15u;
    uint high = (TILE_WORD(1u, r) >> (8u * (k & 3u) + k / 4u)) & 1u;
    return HALF_TO_FLOAT(dm & 0xffffu) * float(low | high << 4) + HALF_TO_FLOAT(dm >> 16);
}
STRUCT_END
#endif
