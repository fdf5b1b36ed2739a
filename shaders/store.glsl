// Writes rows of a cache with the words `w`. Neighbouring threads may share a word, so bytes and
// f16 values are stored by atomics.
#include "shaders/cache.glsl"

void store_bits(uint at, uint shift, uint mask, uint bits)
{
    atomicAnd(w[at], ~(mask << shift));
    atomicOr(w[at], bits << shift);
}

// Stores the codes in `row` as row r of n_rows.
void store_row(uint format, uint n_rows, uint r, uint d)
{
    uint bytes = row_bytes(format, d), words = bytes / 4u, n_tail = bytes % 4u;
    for (uint i = 0u; i < words; i++) w[r * words + i] = row[i];
    for (uint i = 0u; i < n_tail; i++) {
        uint at = n_rows * words * 4u + r * n_tail + i;
        store_bits(at / 4u, 8u * (at % 4u), 255u, row[words] >> 8u * i & 255u);
    }
}

// Encodes VALUE(0) .. VALUE(d - 1) as row r of n_rows. `format` is a codec.
void encode_row(uint format, uint n_rows, uint r, uint d)
{
#define CASE(name, number) if (format == format_##name) name##_encode(d);
    CODECS(CASE)
#undef CASE
    store_row(format, n_rows, r, d);
}

// Stores value i of row r of a plain cache. In f16 with an even d, the call for an even i stores
// the pair (i, i + 1).
void store_value(uint format, uint r, uint i, uint d)
{
    uint at = r * d + i;
    if (format == plain_f32)
        w[at] = floatBitsToUint(VALUE(i));
    else if (d % 2u != 0u)
        store_bits(at / 2u, 16u * (at % 2u), 0xffffu, FLOAT_TO_HALF(VALUE(i)));
    else if (i % 2u == 0u)
        w[at / 2u] = FLOAT_TO_HALF(VALUE(i)) | FLOAT_TO_HALF(VALUE(i + 1u)) << 16;
}
