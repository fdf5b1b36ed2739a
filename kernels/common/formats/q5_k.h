// q5_k: 256 values per block in 8 groups of 32, w = d * s * q - dmin * m with q in 0..31, s and m
// in 0..63. 44 words a row, 176 bytes (5.5 bits per value).
//   word 0       half2(d, dmin)
//   word 1       byte i: s of group i in the low six bits, bits 4-5 of s of group 4 + i above
//   word 2       byte i: m of group i in the low six bits, bits 4-5 of m of group 4 + i above
//   word 3       byte i: bits 0-3 of s (low nibble) and of m (high nibble) of group 4 + i
//   word 4 + j   j = 0..7: bit g of byte i is bit 4 of q[32g + 4j + i]
//   word 12 + j  j = 0..31: byte i has the low bits of q[64n + l] in its low nibble, of
//                q[64n + 32 + l] in its high nibble, with 32n + l = 4j + i
#if !defined(GLSL) || defined(FORMAT_q5_k)
STRUCT_BEGIN(format_q5_k)
CONST uint ggml_type = 13u;
CONST uint block = 256u;
CONST uint half_words = 0u;
CONST uint half_byte = 0u;
CONST uint words = 44u;
CONST uint words_byte = 0u;
CONST uint permuted_word = 0xffffffffu;
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    uint g = k / 32u;
    uint shift = 8u * (g & 3u);
    uint a = TILE_WORD(1u, r) >> shift, b = TILE_WORD(2u, r) >> shift;
    uint c = TILE_WORD(3u, r) >> shift;
    uint s = g < 4u ? a & 63u : (c & 15u) | (a >> 2 & 48u);
    uint m = g < 4u ? b & 63u : (c >> 4 & 15u) | (b >> 2 & 48u);
    uint dm = TILE_WORD(0u, r);
    float dl = HALF_TO_FLOAT(dm & 0xffffu) * float(s);
    float ml = HALF_TO_FLOAT(dm >> 16) * float(m);
    uint byte = k / 64u * 32u + (k & 31u);
    uint low = (TILE_WORD(12u + byte / 4u, r) >> (8u * (byte & 3u) + 4u * (g & 1u))) & 15u;
    uint high = (TILE_WORD(4u + (k & 31u) / 4u, r) >> (8u * (k & 3u) + g)) & 1u;
    return dl * float(low | high << 4) - ml;
}
STRUCT_END
#endif
