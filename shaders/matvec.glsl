// Products of up to 8 tokens, those of this workgroup. A thread has one row in each of n_tiles
// tiles. n_splits threads share the units of 32 values of a row. A thread reads the values of x
// once for all its rows.
// The includer defines row_of_x(t), the row of x of token t or of another token, n_rows() of the
// weight, place_of(tile) in w, and put_vector(t, row, sum), which ignores missing tokens.
// With LANES, the threads of a subgroup read x together and exchange the values by shuffles. On a
// CPU, loading one value that all lanes need is as slow as loading a different value in each lane.
#include "shaders/units.glsl"

layout(constant_id = 1) const uint n_splits = 16u; // threads that share a row
// Tiles per thread. n_vec_tokens * n_tiles is at most 16.
layout(constant_id = 2) const uint n_tiles = 1u;

const uint max_matvec_tokens = 8u, max_sums = 16u, unit = 32u;
#ifdef LANES
const uint n_reads = unit / lanes;
#else
const uint n_reads = 1u;
#endif

uint x_row[max_matvec_tokens]; // where each token's row of x begins
uint x_at[max_matvec_tokens];  // where each token's unit begins
float x_read[max_matvec_tokens * 8u];

#define TOKENS [[unroll]] for (uint t = 0u; t < n_vec_tokens; t++)

// Value i of token t's unit, from the lane that read it.
#ifdef LANES
float shuffled_x(uint t, uint i)
{
    return subgroupShuffle(x_read[t * n_reads + i / lanes], i % lanes);
}
#else
float shuffled_x(uint t, uint i) { return 0.f; }
#endif

float x_value(uint t, uint i) { return lanes == 0u ? X_AT(x_at[t] + i) : shuffled_x(t, i); }

void read_x(uint k)
{
    TOKENS
    {
        x_at[t] = x_row[t] + k;
#ifdef LANES
        [[unroll]] for (uint j = 0u; j < n_reads; j++)
            x_read[t * n_reads + j] = X_AT(x_at[t] + j * lanes + gl_SubgroupInvocationID);
#endif
    }
}

// The product of a unit and token t's values. sums: the sums of these values over each half of the
// unit (half_sums).
float unit_product(uint t, vec2 sums)
{
    vec2 product = vec2(0.f);
    [[unroll]] for (uint i = 0u; i < unit; i++) product[i / 16u] += level(i) * x_value(t, i);
    float sum = has_groups ? dot(scale, product) : scale.x * (product.x + product.y);
    if (has_offset) sum += has_groups ? dot(offset, sums) : offset.x * (sums.x + sums.y);
    return sum;
}

// The sums of token t's values over each half of the unit.
vec2 half_sums(uint t)
{
    vec2 sums = vec2(0.f);
    if (!has_offset) return sums;
#ifdef LANES
    [[unroll]] for (uint j = 0u; j < n_reads; j++) sums[j * lanes / 16u] += x_read[t * n_reads + j];
    [[unroll]] for (uint apart = 1u; apart < lanes; apart *= 2u)
        sums += vec2(subgroupShuffleXor(sums.x, apart), subgroupShuffleXor(sums.y, apart));
#else
    [[unroll]] for (uint i = 0u; i < unit; i++) sums[i / 16u] += x_value(t, i);
#endif
    return sums;
}

// The product of the columns after the last whole unit. Only formats of single values have such
// columns.
float tail_product(uint t, uint tile, uint r)
{
    float sum = 0.f;
    for (uint k = a.cols / unit * unit; k < a.cols; k++)
        sum += value(block_at(tile, k), r, k % block) * X_AT(x_row[t] + k);
    return sum;
}

void multiply_vectors()
{
    // Neighbouring threads have neighbouring units. With LANES they have the same unit.
    uint r = THREAD % tile_rows, place = THREAD / tile_rows,
         n_places = n_threads / tile_rows / n_splits;
    uint split = lanes == 0u ? place % n_splits : place / n_places,
         row_place = lanes == 0u ? place / n_splits : place % n_places;
    uint first = (gl_WorkGroupID.x * n_places + row_place) * n_tiles,
         last = (n_rows() - 1u) / tile_rows;
    TOKENS x_row[t] = row_of_x(t) * a.cols;
    float sum[max_sums];
    [[unroll]] for (uint i = 0u; i < n_vec_tokens * n_tiles; i++) sum[i] = 0.f;
    // The splits of a row interleave its units. On a CPU each split has consecutive units.
    uint n_units = a.cols / unit, each = lanes == 0u ? 1u : (n_units + n_splits - 1u) / n_splits;
    uint begin = split * each, end = lanes == 0u ? n_units : min(begin + each, n_units);
    for (uint u = begin; u < end; u += lanes == 0u ? n_splits : 1u) {
        read_x(u * unit);
        vec2 sums[max_matvec_tokens];
        TOKENS sums[t] = half_sums(t);
        [[unroll]] for (uint i = 0u; i < n_tiles; i++) {
            load_unit(block_at(place_of(min(first + i, last)), u * unit), r,
                      u * unit % block / unit);
            TOKENS sum[t * n_tiles + i] += unit_product(t, sums[t]);
        }
    }
    if (block == 1u && split == 0u && a.cols % unit != 0u)
        [[unroll]] for (uint i = 0u; i < n_vec_tokens * n_tiles; i++)
            sum[i] +=
                tail_product(i / n_tiles, place_of(min(first + i % n_tiles, last)), r);
    if (n_splits > 1u) {
        [[unroll]] for (uint i = 0u; i < n_vec_tokens * n_tiles; i++)
            scratch[i * n_threads + split * (n_threads / n_splits) + row_place * tile_rows + r] =
                sum[i];
        barrier();
        if (split != 0u) return;
        [[unroll]] for (uint i = 0u; i < n_vec_tokens * n_tiles; i++)
            for (uint s = 1u; s < n_splits; s++)
                sum[i] +=
                    scratch[i * n_threads + s * (n_threads / n_splits) + row_place * tile_rows + r];
    }
    [[unroll]] for (uint i = 0u; i < n_vec_tokens * n_tiles; i++) {
        uint row = (first + i % n_tiles) * tile_rows + r;
        if (row < n_rows()) put_vector(i / n_tiles, row, sum[i]);
    }
}
