// q2_0: 64 values per block, w = d * (q - 1) with q in 0..3. 18 bytes a row (2.25 bits per value).
//   half         d
//   word j       j = 0..3: permuted, bits 8i + 2n and 8i + 2n + 1 are q[16j + 4n + i], so
//                (word >> 2n) & 0x03030303 has q[16j + 4n .. 16j + 4n + 3]
#if !defined(GLSL) || defined(FORMAT_q2_0)
STRUCT_BEGIN(format_q2_0)
CONST uint ggml_type = 42u;
CONST uint block = 64u;
CONST uint half_words = 4u;
CONST uint half_byte = 0u;
CONST uint words = 4u;
CONST uint words_byte = 2u;
CONST uint permuted_word = permuted_pairs;
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    uint q = (TILE_WORD(k / 16u, r) >> (8u * (k & 3u) + (k & 15u) / 4u * 2u)) & 3u;
    return TILE_HALF(r) * (float(q) - 1.f);
}
STRUCT_END
#endif
