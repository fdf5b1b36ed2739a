// kivi, kivi2 (KIVI) are for keys. Channels of keys differ by far more than the values of a
// channel. So each dim of 32 rows has a range, with codes of 4 or 2 bits. That is 5 and 3 bits per
// value: 40 and 24 bytes for a row at d = 64, 80 and 48 at 128. kiviv is for values: each block of
// 32 dims of a row has a range, with codes of 4 bits. 40 bytes at d = 64, 80 at 128.
//
// 32 values with one range are x = least + scale * q with q in 0..most (15 or 3).
//   least  the half nearest to the least value
//   scale  the half nearest to (the largest value - least) / most, 0 where that is not above 0
// A range is a word: the scale in its low 16 bits, least above. The product scale * q is exact, so
// the sum is rounded once on all machines.
// Decoded values are encoded to the same range and codes again if least is below some 4000 scales.
FN float kivi_scale(uint range) { return HALF_TO_FLOAT(range & 0xffffu); }
FN float kivi_least(uint range) { return HALF_TO_FLOAT(range >> 16); }

FN uint kivi_range(float least, float top, uint most)
{
    uint m = FLOAT_TO_HALF(least);
    if ((m & 0x7fffu) == 0u) m = 0u;
    float spread = top - HALF_TO_FLOAT(m);
    float inverse = most == 15u ? 1.f / 15.f : 1.f / 3.f;
    return m << 16 | (spread > 0.f ? FLOAT_TO_HALF(spread * inverse) : 0u);
}

FN uint kivi_code(float x, uint range, uint most)
{
    float above = x - kivi_least(range);
    return above > 0.f ? nearest_multiple(above, kivi_scale(range), most) : 0u;
}

FN float kivi_decoded(uint code, uint range)
{
    return kivi_least(range) + kivi_scale(range) * float(code);
}

// Rows of values: a plane of 4 bits, then the word of each block's range. A block is 32 dims, the
// last may be 16.
STRUCT_BEGIN(codec_kiviv)
CONST uint OF(kiviv, hadamard) = 0u;
FN uint OF(kiviv, row_bytes)(uint d) { return d / 2u + 4u * ((d + 31u) / 32u); }

FN float OF(kiviv, value)(WORDS_PARAM uint at, uint, uint i, uint d)
{
    uint bit = plane_bit(i, d, 4u);
    return kivi_decoded((WORD(at + bit / 32u) >> (bit & 31u)) & 15u, WORD(at + d / 8u + i / 32u));
}

FN void OF(kiviv, encode)(VALUES_PARAM ROW_PARAM uint d)
{
    clear_row(ROW OF(kiviv, row_bytes)(d));
    for (uint base = 0u; base < d; base += 32u) {
        uint end = base + 32u < d ? base + 32u : d;
        float least = coded_value(VALUE(base)), top = least;
        for (uint i = base + 1u; i < end; i++) {
            float v = coded_value(VALUE(i));
            least = v < least ? v : least;
            top = v > top ? v : top;
        }
        uint range = kivi_range(least, top, 15u);
        for (uint i = base; i < end; i++)
            put_field(ROW plane_bit(i, d, 4u), kivi_code(coded_value(VALUE(i)), range, 15u));
        ROW_WORD(d / 8u + base / 32u) = range;
    }
}
STRUCT_END

// Groups of keys: 32 rows have one range for each dim. A group is d words of ranges, then for each
// row a plane of `bits` bits.
CONST uint kivi_rows = 32u;
FN uint kivi_group_words(uint bits, uint d) { return d + bits * d; }

FN float kivi_group_value(WORDS_PARAM uint at, uint r, uint i, uint d, uint bits)
{
    uint bit = plane_bit(i, d, bits), most = (1u << bits) - 1u;
    uint word = WORD(at + d + r * (bits * d / 32u) + bit / 32u);
    return kivi_decoded((word >> (bit & 31u)) & most, WORD(at + i));
}

FN void kivi_group_encode(VALUES_PARAM ROW_PARAM uint d, uint bits)
{
    uint most = (1u << bits) - 1u;
    clear_row(ROW 4u * kivi_group_words(bits, d));
    for (uint i = 0u; i < d; i++) {
        float least = coded_value(VALUE(i)), top = least;
        for (uint r = 1u; r < kivi_rows; r++) {
            float v = coded_value(VALUE(r * d + i));
            least = v < least ? v : least;
            top = v > top ? v : top;
        }
        uint range = kivi_range(least, top, most);
        ROW_WORD(i) = range;
        for (uint r = 0u; r < kivi_rows; r++)
            put_field(ROW 32u * (d + r * (bits * d / 32u)) + plane_bit(i, d, bits),
                      kivi_code(coded_value(VALUE(r * d + i)), range, most));
    }
}

#define KIVI_CODEC(NAME, BITS)                                                  \
    STRUCT_BEGIN(codec_##NAME)                                                  \
    CONST uint OF(NAME, hadamard) = 0u;                                         \
    CONST uint OF(NAME, group) = kivi_rows;                                     \
    FN uint OF(NAME, group_words)(uint d) { return kivi_group_words(BITS, d); } \
    FN float OF(NAME, value)(WORDS_PARAM uint at, uint r, uint i, uint d)       \
    {                                                                           \
        return kivi_group_value(WORDS at, r, i, d, BITS);                       \
    }                                                                           \
    FN void OF(NAME, encode)(VALUES_PARAM ROW_PARAM uint d)                     \
    {                                                                           \
        kivi_group_encode(VALUES ROW d, BITS);                                  \
    }                                                                           \
    STRUCT_END

KIVI_CODEC(kivi, 4u)
KIVI_CODEC(kivi2, 2u)
