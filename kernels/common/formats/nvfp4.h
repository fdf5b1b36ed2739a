// nvfp4: 64 values per block in 4 groups of 16, w = s * level(q) with q in 0..15. Levels are those
// of mxfp4. s is half the value of a byte x with four bits of an exponent E above three of a
// mantissa m: 2^(E - 7) * (1 + m / 8), m / 512 if E is 0, and 0 if x is 127. Bit 7 is ignored. 9
// words a row, 36 bytes (4.5 bits per value).
//   word 0       byte i is x of group i
//   word 1 + j   j = 0..7: byte i has q[8j - 4n + i] in its low nibble, q[8j - 4n + 8 + i] in its
//                high nibble, n = j mod 2
#if !defined(GLSL) || defined(FORMAT_nvfp4)
STRUCT_BEGIN(format_nvfp4)
CONST uint ggml_type = 40u;
CONST uint block = 64u;
CONST uint half_words = 0u;
CONST uint half_byte = 0u;
CONST uint words = 9u;
CONST uint words_byte = 0u;
CONST uint permuted_word = 0xffffffffu;
FN float nvfp4_scale(WORDS_PARAM uint at, uint r, uint group)
{
    uint x = TILE_WORD(0u, r) >> (8u * group) & 255u;
    uint exponent = x >> 3 & 15u, mantissa = x & 7u;
    if (x == 127u) return 0.f;
    if (exponent == 0u) return float(mantissa) * (1.f / 1024.f);
    return BITS_TO_FLOAT((exponent + 119u) << 23 | mantissa << 20);
}
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    uint word = 1u + k / 16u * 2u + (k & 7u) / 4u;
    uint q = (TILE_WORD(word, r) >> (8u * (k & 3u) + 4u * (k / 8u & 1u))) & 15u;
    return nvfp4_scale(WORDS at, r, k / 16u) * float(e2m1_level(q));
}
STRUCT_END
#endif
