// turbo4, turbo3, turbo2 (TurboQuant): 16, 8 and 4 levels, one scale for a row. 4, 3 and 2 bits per
// value, and 16 bits for the row: 34, 26 and 18 bytes at d = 64, 66, 50 and 34 at 128. turbo2v is
// turbo2 with the scale of the least squared error. It is for values, which need no exact norm.
//
// x = g * c. c is one of the levels that code a normal variable with the least squared error
// (Lloyd-Max). The values of a row after the Hadamard transform, divided by their root mean square,
// are nearly normal. The low bits of a code are the rank of the level's magnitude among `ranks` (8,
// 4 or 2). The bit above them is the sign (1: negative). Thresholds t are the middles between
// magnitudes. The rank is the number of thresholds with t^2 (sum of x^2) < x^2 d.
//   ranks 8: a 4-bit plane of codes
//   ranks 4: a 2-bit plane of ranks, then a 1-bit plane of signs
//   ranks 2: a 2-bit plane of codes
//   then the half g: sqrt(sum of x^2 / sum of c^2), which keeps the row's norm. For the least
//   squared error it is (sum of x c) / (sum of c^2).
// A decoded row is encoded to the same codes again if the norm of its levels is near sqrt(d)
// (within 12, 9 and 11%). After the Hadamard transform it is.
FN float turbo_magnitude(uint ranks, uint rank)
{
    if (ranks == 2u) return (rank & 1u) != 0u ? 1.5104176f : 0.45278003f;
    if (ranks == 4u) return one_of(rank, 0.24509418f, 0.75600528f, 1.3439093f, 2.1519457f);
    return one_of(rank, 0.12839503f, 0.3880483f, 0.65675912f, 0.94234046f, 1.2562312f, 1.6180464f,
                  2.0690172f, 2.7325896f);
}

FN float turbo_level(uint ranks, uint code)
{
    float v = turbo_magnitude(ranks, code & (ranks - 1u));
    return code >= ranks ? -v : v;
}

// The square of the threshold between a rank and the next.
FN float turbo_square(uint ranks, uint rank)
{
    float t = 0.5f * (turbo_magnitude(ranks, rank) + turbo_magnitude(ranks, rank + 1u));
    return t * t;
}

FN uint turbo_bytes(uint ranks, uint d)
{
    return (ranks == 8u ? d / 2u : ranks == 4u ? d / 8u * 3u : d / 4u) + 2u;
}

FN uint turbo_code(WORDS_PARAM uint at, uint tail, uint i, uint d, uint ranks)
{
    uint bytes = turbo_bytes(ranks, d);
    if (ranks == 8u) return row_field(WORDS at, tail, bytes, plane_bit(i, d, 4u), 15u);
    uint code = row_field(WORDS at, tail, bytes, plane_bit(i, d, 2u), 3u);
    if (ranks == 2u) return code;
    return code | row_field(WORDS at, tail, bytes, 2u * d + plane_bit(i, d, 1u), 1u) << 2;
}

FN float turbo_scale(WORDS_PARAM uint at, uint tail, uint d, uint ranks)
{
    uint bytes = turbo_bytes(ranks, d);
    return HALF_TO_FLOAT(row_field(WORDS at, tail, bytes, 8u * bytes - 16u, 0xffffu));
}

FN void turbo_encode(VALUES_PARAM ROW_PARAM uint d, uint ranks, bool least_squares)
{
    float sums[8], squares[8], products[8]; // of x^2, of c^2, of x c
    for (uint j = 0u; j < 8u; j++) sums[j] = squares[j] = products[j] = 0.f;
    for (uint i = 0u; i < d; i++) {
        float v = coded_value(VALUE(i));
        sums[i & 7u] += MUL(v, v);
    }
    float sum = sum_of_octet(sums);
    clear_row(ROW turbo_bytes(ranks, d));
    for (uint i = 0u; i < d; i++) {
        float v = coded_value(VALUE(i)), square = v * v * float(d);
        uint rank = 0u;
        for (uint t = 0u; t + 1u < ranks; t++)
            rank += turbo_square(ranks, t) * sum < square ? 1u : 0u;
        uint code = v < 0.f ? rank + ranks : rank;
        put_field(ROW plane_bit(i, d, ranks == 8u ? 4u : 2u), ranks == 4u ? rank : code);
        if (ranks == 4u) put_field(ROW 2u * d + plane_bit(i, d, 1u), code >> 2);
        float c = turbo_magnitude(ranks, rank);
        squares[i & 7u] += MUL(c, c);
        products[i & 7u] += MUL(abs(v), c);
    }
    float square = sum_of_octet(squares);
    uint g = least_squares ? half_quotient(sum_of_octet(products), square) : half_root(sum, square);
    if (g == 0u) clear_row(ROW turbo_bytes(ranks, d));
    put_field(ROW 8u * turbo_bytes(ranks, d) - 16u, g);
}

#define TURBO_CODEC(NAME, RANKS, LEAST_SQUARES)                              \
    STRUCT_BEGIN(codec_##NAME)                                               \
    CONST uint OF(NAME, hadamard) = 1u;                                      \
    CONST uint OF(NAME, ranks) = RANKS;                                      \
    FN uint OF(NAME, row_bytes)(uint d) { return turbo_bytes(RANKS, d); }    \
    FN float OF(NAME, scale)(WORDS_PARAM uint at, uint tail, uint d)         \
    {                                                                        \
        return turbo_scale(WORDS at, tail, d, RANKS);                        \
    }                                                                        \
    FN float OF(NAME, value)(WORDS_PARAM uint at, uint tail, uint i, uint d) \
    {                                                                        \
        return turbo_scale(WORDS at, tail, d, RANKS) *                       \
               turbo_level(RANKS, turbo_code(WORDS at, tail, i, d, RANKS));  \
    }                                                                        \
    FN void OF(NAME, encode)(VALUES_PARAM ROW_PARAM uint d)                  \
    {                                                                        \
        turbo_encode(VALUES ROW d, RANKS, LEAST_SQUARES);                    \
    }                                                                        \
    STRUCT_END

TURBO_CODEC(turbo4, 8u, false)
TURBO_CODEC(turbo3, 4u, false)
TURBO_CODEC(turbo2, 2u, false)
TURBO_CODEC(turbo2v, 2u, true)
