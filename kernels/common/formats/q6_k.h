// q6_k: 256 values per block in 16 groups of 16, w = d * s * (q - 32) with q in 0..63, s in
// -128..127. 210 bytes a row (6.5625 bits per value).
//   half         d
//   word j       j = 0..31: byte i has the low four bits of q[128n + l] in its low nibble, of
//                q[128n + 64 + l] in its high nibble, with 64n + l = 4j + i
//   word 32 + j  j = 0..15: byte i has, from the lowest, the high two bits of q[128n + l],
//                q[128n + 32 + l], q[128n + 64 + l], q[128n + 96 + l], with 32n + l = 4j + i
//   word 48 + j  j = 0..3: byte i is s of group 4j + i, two's complement
#if !defined(GLSL) || defined(FORMAT_q6_k)
STRUCT_BEGIN(format_q6_k)
CONST uint ggml_type = 14u;
CONST uint block = 256u;
CONST uint half_words = 4u;
CONST uint half_byte = 208u;
CONST uint words = 52u;
CONST uint words_byte = 0u;
CONST uint permuted_word = 0xffffffffu;
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    uint n = k / 128u;
    uint part = (k & 127u) / 32u;
    uint byte_low = n * 64u + (k & 63u);
    uint byte_high = n * 32u + (k & 31u);
    uint low = (TILE_WORD(byte_low / 4u, r) >> (8u * (k & 3u) + 4u * (part / 2u))) & 15u;
    uint high = (TILE_WORD(32u + byte_high / 4u, r) >> (8u * (k & 3u) + 2u * part)) & 3u;
    uint g = k / 16u;
    int s = int(TILE_WORD(48u + g / 4u, r) << (24u - 8u * (g & 3u))) >> 24;
    float dl = TILE_HALF(r) * float(s);
    return dl * (float(low | high << 4) - 32.f);
}
STRUCT_END
#endif
