// q2_k: 256 values per block in 16 groups of 16, w = d * s * q - dmin * m with q in 0..3, s and m
// in 0..15. 21 words a row, 84 bytes (2.625 bits per value).
//   word j       j = 0..3: byte i has s of group 4j + i in its low nibble, m in its high nibble
//   word 4 + j   j = 0..15: byte i has, two bits each from the lowest, q[128n + l],
//                q[128n + 32 + l], q[128n + 64 + l], q[128n + 96 + l], with 32n + l = 4j + i
//   word 20      half2(d, dmin)
#if !defined(GLSL) || defined(FORMAT_q2_k)
STRUCT_BEGIN(format_q2_k)
CONST uint ggml_type = 10u;
CONST uint block = 256u;
CONST uint half_words = 0u;
CONST uint half_byte = 0u;
CONST uint words = 21u;
CONST uint words_byte = 0u;
CONST uint permuted_word = 0xffffffffu;
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    uint byte = k / 128u * 32u + (k & 31u);
    uint q = (TILE_WORD(4u + byte / 4u, r) >> (8u * (byte & 3u) + 2u * ((k & 127u) / 32u))) & 3u;
    uint group = k / 16u;
    uint sm = (TILE_WORD(group / 4u, r) >> (8u * (group & 3u))) & 255u;
    uint dm = TILE_WORD(20u, r);
    float dl = HALF_TO_FLOAT(dm & 0xffffu) * float(sm & 15u);
    float ml = HALF_TO_FLOAT(dm >> 16) * float(sm >> 4);
    return dl * float(q) - ml;
}
STRUCT_END
#endif
