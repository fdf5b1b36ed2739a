// q5_0: 32 values per block, w = d * (q - 16) with q in 0..31. 22 bytes a row (5.5 bits per value).
//   half         d
//   word 0       high bits, permuted: bit 8i + j is bit 4 of q[4j + i], so (word >> j) & 0x01010101
//                has bit 4 of q[4j .. 4j + 3]
//   word 1 + j   j = 0..3: byte i has the low bits of q[4j + i] in its low nibble, of
//                q[16 + 4j + i] in its high nibble
#if !defined(GLSL) || defined(FORMAT_q5_0)
STRUCT_BEGIN(format_q5_0)
CONST uint ggml_type = 6u;
CONST uint block = 32u;
CONST uint half_words = 4u;
CONST uint half_byte = 0u;
CONST uint words = 5u;
CONST uint words_byte = 2u;
CONST uint permuted_word = 0u;
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    uint low = (TILE_WORD(1u + (k & 15u) / 4u, r) >> (8u * (k & 3u) + (k & 16u) / 4u)) & 15u;
    uint high = (TILE_WORD(0u, r) >> (8u * (k & 3u) + k / 4u)) & 1u;
    return TILE_HALF(r) * (float(low | high << 4) - 16.f);
}
STRUCT_END
#endif
