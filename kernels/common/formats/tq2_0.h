// tq2_0: 256 values per block, w = d * (q - 1) with q in 0..3. 66 bytes a row (2.0625 bits per
// value).
//   half         d
//   word j       j = 0..15: byte i has, two bits each from the lowest, q[128n + l],
//                q[128n + 32 + l], q[128n + 64 + l], q[128n + 96 + l], with 32n + l = 4j + i
#if !defined(GLSL) || defined(FORMAT_tq2_0)
STRUCT_BEGIN(format_tq2_0)
CONST uint ggml_type = 35u;
CONST uint block = 256u;
CONST uint half_words = 4u;
CONST uint half_byte = 64u;
CONST uint words = 16u;
CONST uint words_byte = 0u;
CONST uint permuted_word = 0xffffffffu;
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    uint byte = k / 128u * 32u + (k & 31u);
    uint q = (TILE_WORD(byte / 4u, r) >> (8u * (byte & 3u) + 2u * ((k & 127u) / 32u))) & 3u;
    return TILE_HALF(r) * (float(q) - 1.f);
}
STRUCT_END
#endif
