// mxfp4: 32 values per block, w = 2^(e - 128) * level(q) with q in 0..15, e in 0..255. Levels are
// twice the values of E2M1: 0 1 2 3 4 6 8 12, negative if bit 3 of q is set. 17 bytes a row (4.25
// bits per value).
//   byte         e
//   word j       j = 0..3: byte i has q[4j + i] in its low nibble, q[16 + 4j + i] in its high
//                nibble
#if !defined(GLSL) || defined(FORMAT_mxfp4)
STRUCT_BEGIN(format_mxfp4)
CONST uint ggml_type = 39u;
CONST uint block = 32u;
CONST uint half_words = 2u;
CONST uint half_byte = 0u;
CONST uint words = 4u;
CONST uint words_byte = 1u;
CONST uint permuted_word = 0xffffffffu;
FN float mxfp4_scale(WORDS_PARAM uint at, uint r)
{
    uint e = TILE_BYTE(r);
    return BITS_TO_FLOAT(e < 2u ? 0x00200000u << e : (e - 1u) << 23); // subnormal below 2
}
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    uint q = (TILE_WORD((k & 15u) / 4u, r) >> (8u * (k & 3u) + (k & 16u) / 4u)) & 15u;
    return mxfp4_scale(WORDS at, r) * float(e2m1_level(q));
}
STRUCT_END
#endif
