// iq4_xs: 256 values per block in 8 groups of 32, w = d * (s - 32) * level(q) with q in 0..15, s in
// 0..63. 34 words a row, 136 bytes (4.25 bits per value).
//   word 0       d in the low half; above, two bits per group from the lowest: the high bits of s
//   word 1       nibble g is the low four bits of s of group g
//   word 2 + j   j = 0..31: byte i has q[32g + l] in its low nibble, q[32g + 16 + l] in its high
//                nibble, with 16g + l = 4j + i
#if !defined(GLSL) || defined(FORMAT_iq4_xs)
STRUCT_BEGIN(format_iq4_xs)
CONST uint ggml_type = 23u;
CONST uint block = 256u;
CONST uint half_words = 0u;
CONST uint half_byte = 0u;
CONST uint words = 34u;
CONST uint words_byte = 0u;
CONST uint permuted_word = 0xffffffffu;
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    uint g = k / 32u;
    uint head = TILE_WORD(0u, r);
    uint s = (TILE_WORD(1u, r) >> (4u * g) & 15u) | (head >> (16u + 2u * g) & 3u) << 4;
    uint q = (TILE_WORD(2u + g * 4u + (k & 15u) / 4u, r) >> (8u * (k & 3u) + (k & 16u) / 4u)) & 15u;
    float dl = HALF_TO_FLOAT(head & 0xffffu) * (float(s) - 32.f);
    return dl * float(iq4_level(q));
}
STRUCT_END
#endif
