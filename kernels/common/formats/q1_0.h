// q1_0: 128 values per block, w = d if q is 1, -d if q is 0. 18 bytes a row (1.125 bits per value).
//   half         d
//   word j       j = 0..3: permuted, bit 8i + n is q[32j + 4n + i], so (word >> n) & 0x01010101 has
//                q[32j + 4n .. 32j + 4n + 3]
#if !defined(GLSL) || defined(FORMAT_q1_0)
STRUCT_BEGIN(format_q1_0)
CONST uint ggml_type = 41u;
CONST uint block = 128u;
CONST uint half_words = 4u;
CONST uint half_byte = 0u;
CONST uint words = 4u;
CONST uint words_byte = 2u;
CONST uint permuted_word = permuted_bits;
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    uint q = (TILE_WORD(k / 32u, r) >> (8u * (k & 3u) + (k & 31u) / 4u)) & 1u;
    float d = TILE_HALF(r);
    return q != 0u ? d : -d;
}
STRUCT_END
#endif
