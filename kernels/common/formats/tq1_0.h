// tq1_0: 256 values per block, w = d * (q - 1) with q in 0..2. Five q share a byte x, four in the
// last word: digit n is (x * 3^n mod 256) * 3 / 256. 54 bytes a row (1.6875 bits per value).
//   half         d
//   word j       j = 0..7: digit n of byte i is q[32n + 4j + i]
//   word 8 + j   j = 0..3: digit n of byte i is q[160 + 16n + 4j + i]
//   word 12      digit n of byte i is q[240 + 4n + i], n = 0..3
#if !defined(GLSL) || defined(FORMAT_tq1_0)
STRUCT_BEGIN(format_tq1_0)
CONST uint ggml_type = 34u;
CONST uint block = 256u;
CONST uint half_words = 4u;
CONST uint half_byte = 52u;
CONST uint words = 13u;
CONST uint words_byte = 0u;
CONST uint permuted_word = 0xffffffffu;
// Digit n of each byte.
FN uint tq1_digits(uint word, uint n)
{
    uint power = n == 4u ? 81u : 0x1b090301u >> (8u * n) & 255u;
    uint even = ((word & 0x00ff00ffu) * power & 0x00ff00ffu) * 3u;
    uint odd = ((word >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu) * 3u;
    return (even >> 8 & 0x00030003u) | (odd & 0x03000300u);
}
// The bytes q of values 4j .. 4j + 3.
FN uint tq1_levels(WORDS_PARAM uint at, uint r, uint j)
{
    uint word = j < 40u ? j & 7u : j < 60u ? 8u + (j & 3u) : 12u;
    return tq1_digits(TILE_WORD(word, r), j < 40u ? j / 8u : j < 60u ? j / 4u - 10u : j - 60u);
}
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    uint q = tq1_levels(WORDS at, r, k / 4u) >> (8u * (k & 3u)) & 3u;
    return TILE_HALF(r) * (float(q) - 1.f);
}
STRUCT_END
#endif
