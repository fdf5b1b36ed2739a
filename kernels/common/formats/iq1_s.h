// iq1_s: 256 values per block in 8 groups of 32, w = d * (2s + 1) * (q + e / 8) with s in 0..7 and
// e -1 or 1. Eight q are an entry of the grid. 50 bytes a row (1.5625 bits per value).
//   half         d
//   word j       j = 0..7: byte l is the low byte of the entry of values 32j + 8l .. 32j + 8l + 7
//   word 8 + j   j = 0..3: half i is of group 2j + i. Its bits 3l .. 3l + 2 are the high bits of
//                entry l, its bits 12 .. 14 are s, bit 15 is set if e is -1
#if !defined(GLSL) || defined(FORMAT_iq1_s)
STRUCT_BEGIN(format_iq1_s)
CONST uint ggml_type = 19u;
CONST uint block = 256u;
CONST uint half_words = 4u;
CONST uint half_byte = 0u;
CONST uint words = 12u;
CONST uint words_byte = 2u;
CONST uint permuted_word = 0xffffffffu;
LARGE_GRID(IQ1_GRID, 1024u)
FN uint grid_levels(WORDS_PARAM uint at, uint r, uint j)
{
    uint n = j / 8u, l = (j & 7u) / 2u;
    uint low = TILE_WORD(n, r) >> (8u * l) & 255u;
    uint head = TILE_WORD(8u + n / 2u, r) >> (16u * (n & 1u));
    return iq1_levels(grid_entry(low | (head >> (3u * l) & 7u) << 8), j, head >> 15 & 1u);
}
FN float grid_scale(WORDS_PARAM uint at, uint r, uint g)
{
    uint s = TILE_WORD(8u + g / 4u, r) >> (16u * (g / 2u & 1u) + 12u) & 7u;
    return TILE_HALF(r) * 0.125f * float(2u * s + 1u);
}
FN float value(WORDS_PARAM uint at, uint r, uint k)
{
    int q = int(grid_levels(WORDS at, r, k / 4u) << (24u - 8u * (k & 3u))) >> 24;
    return grid_scale(WORDS at, r, k / 16u) * float(q);
}
STRUCT_END
#endif
