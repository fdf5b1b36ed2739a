// iq1_m: 256 values per block in 16 groups of 16, w = d * (2s + 1) * (q + e / 8) with s in 0..7 and
// e -1 or 1. Eight q are an entry of the grid and share an e. 14 words a row, 56 bytes (1.75 bits
// per value).
//   word j       j = 0..7: byte l is the low byte of the entry of values 32j + 8l .. 32j + 8l + 7
//   word 8 + j   j = 0..3: nibble l is of the values 64j + 8l .. 64j + 8l + 7. It has the high bits
//                of the entry in its low three bits, and bit 3 is set if e is -1
//   word 12 + j  half i has s of groups 8j + 4i .. 8j + 4i + 3 in its low 12 bits, and four bits of
//                d, the lowest in word 12, half 0
#if !defined(GLSL) || defined(FORMAT_iq1_m)
STRUCT_BEGIN(format_iq1_m)
CONST uint ggml_type = 29u;
CONST uint block = 256u;
CONST uint half_words = 0u;
CONST uint half_byte = 0u;
CONST uint words = 14u;
CONST uint words_byte = 0u;
CONST uint permuted_word = 0xffffffffu;
LARGE_GRID(IQ1_GRID, 1024u)
FN uint grid_levels(WORDS_PARAM uint at, uint r, uint j)
{
    uint low = TILE_WORD(j / 8u, r) >> (4u * (j & 6u)) & 255u;
    uint head = TILE_WORD(8u + j / 16u, r) >> (2u * (j & 14u)) & 15u;
    return iq1_levels(grid_entry(low | (head & 7u) << 8), j, head >> 3);
}
FN float grid_scale(WORDS_PARAM uint at, uint r, uint g)
{
    uint a = TILE_WORD(12u, r), b = TILE_WORD(13u, r);
    uint d = (a >> 12 & 15u) | (a >> 24 & 0xf0u) | (b >> 4 & 0xf00u) | (b >> 16 & 0xf000u);
    uint s = (g < 8u ? a : b) >> (16u * (g / 4u & 1u) + 3u * (g & 3u)) & 7u;
    return HALF_TO_FLOAT(d) * 0.125f * float(2u * s + 1u);
}
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    int q = int(grid_levels(WORDS at, r, k / 4u) << (24u - 8u * (k & 3u))) >> 24;
    return grid_scale(WORDS at, r, k / 16u) * float(q);
}
STRUCT_END
#endif
