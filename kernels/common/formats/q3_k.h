// q3_k: 256 values per block in 16 groups of 16, w = d * (s - 32) * (q - 4) with q in 0..7, s in
// 0..63. 110 bytes a row (3.4375 bits per value).
//   half         d
//   word j       j = 0..7: bit b of byte i is bit 2 of q[32b + 4j + i]
//   word 8 + j   j = 0..15: byte i has, two bits each from the lowest, the low bits of q[128n + l],
//                q[128n + 32 + l], q[128n + 64 + l], q[128n + 96 + l], with 32n + l = 4j + i
//   word 24, 25  nibbles: the low four bits of s; group g < 8 in byte g's low nibble, group g >= 8
//                in byte g - 8's high nibble
//   word 26      byte i has, from the lowest, the high two bits of s of groups i, 4 + i, 8 + i and
//                12 + i
#if !defined(GLSL) || defined(FORMAT_q3_k)
STRUCT_BEGIN(format_q3_k)
CONST uint ggml_type = 11u;
CONST uint block = 256u;
CONST uint half_words = 4u;
CONST uint half_byte = 108u;
CONST uint words = 27u;
CONST uint words_byte = 0u;
CONST uint permuted_word = 0xffffffffu;
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    uint byte = k / 128u * 32u + (k & 31u);
    uint low = (TILE_WORD(8u + byte / 4u, r) >> (8u * (byte & 3u) + 2u * ((k & 127u) / 32u))) & 3u;
    uint high = (TILE_WORD((k & 31u) / 4u, r) >> (8u * (k & 3u) + k / 32u)) & 1u;
    uint g = k / 16u;
    uint s_low = (TILE_WORD(24u + (g & 7u) / 4u, r) >> (8u * (g & 3u) + 4u * (g / 8u))) & 15u;
    uint s_high = (TILE_WORD(26u, r) >> (8u * (g & 3u) + 2u * (g / 4u))) & 3u;
    float dl = TILE_HALF(r) * (float(s_low | s_high << 4) - 32.f);
    return dl * (float(low | high << 2) - 4.f);
}
STRUCT_END
#endif
