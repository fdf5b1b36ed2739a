// q4_k: 256 values per block in 8 groups of 32, w = d * s * q - dmin * m with q in 0..15, s and m
// in 0..63. 36 words a row, 144 bytes (4.5 bits per value).
//   word 0       half2(d, dmin)
//   word 1       byte i: s of group i in the low six bits, bits 4-5 of s of group 4 + i above
//   word 2       byte i: m of group i in the low six bits, bits 4-5 of m of group 4 + i above
//   word 3       byte i: bits 0-3 of s (low nibble) and of m (high nibble) of group 4 + i
//   word 4 + j   j = 0..31: byte i has q[64n + l] in its low nibble, q[64n + 32 + l] in its high
//                nibble, with 32n + l = 4j + i
#if !defined(GLSL) || defined(FORMAT_q4_k)
STRUCT_BEGIN(format_q4_k)
CONST uint ggml_type = 12u;
CONST uint block = 256u;
CONST uint half_words = 0u;
CONST uint half_byte = 0u;
CONST uint words = 36u;
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
    uint q = (TILE_WORD(4u + byte / 4u, r) >> (8u * (byte & 3u) + 4u * (g & 1u))) & 15u;
    return dl * float(q) - ml;
}
STRUCT_END
#endif
