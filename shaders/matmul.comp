// y = y_scale (x W^T), or y += y_scale (x W^T), in f32.
// Up to 8 tokens: matvec.glsl. More tokens (tiled): one workgroup per 32 rows and 32 tokens.
// A tiled workgroup decodes its weights once into shared memory.
// variants: FORMATS
// also with LANES
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef LANES
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#define SHARED_GRID
#include "shaders/util.glsl"

layout(constant_id = 0) const uint n_vec_tokens = 1u; // tokens of a workgroup, 8 at most; 0: tiled

layout(push_constant) uniform Block { MatmulArgs a; RowRange part; float y_scale; } pushed;
DECLARE_ARGS(MatmulArgs, a)
DECLARE_ARGS(RowRange, part)
DECLARE_ARGS(float, y_scale)
layout(binding = 0) buffer Y { float y[]; };          // (n_tokens, rows)
layout(binding = 1) readonly buffer W { uint w[]; };  // (part.n_rows, cols) in tiles
layout(binding = 2) readonly buffer X { float x[]; }; // (n_tokens, cols)

AS_TEXELS(1, w)
AS_TEXELS(2, x)
#undef WORD
#define WORD(i) FETCH(w, i)
#define X_AT(i) FETCH_FLOAT(x, i)
#include "shaders/product.glsl"

const uint side = 32u; // rows, tokens and columns of the tiles in shared memory
// matvec: (n_vec_tokens * n_tiles, n_threads) sums.
// tiled: weights, then activations, (side, side + 1) each.
shared float scratch[2u * side * (side + 1u)];

uint row_of_x(uint t) { return min(gl_WorkGroupID.y * n_vec_tokens + t, a.n_tokens - 1u); }
uint place_of(uint tile) { return tile; }
uint n_rows() { return part.n_rows; }
void put_vector(uint t, uint row, float sum)
{
    t += gl_WorkGroupID.y * n_vec_tokens;
    if (t < a.n_tokens) put(t, row, sum);
}
#include "shaders/matvec.glsl"

void multiply_tiles()
{
    const uint xs = side * (side + 1u);
    uint row0 = gl_WorkGroupID.x * side, t0 = gl_WorkGroupID.y * side;
    uint my_row = THREAD % 16u * 2u, my_t = THREAD / 16u * 4u;
    float sum[8];
    for (uint i = 0u; i < 8u; i++) sum[i] = 0.f;
    for (uint k0 = 0u; k0 < a.cols; k0 += side) {
        for (uint i = THREAD; i < side * side; i += n_threads) {
            uint r = row0 + i % side, k = k0 + i / side;
            scratch[i / side * (side + 1u) + i % side] =
                r < part.n_rows && k < a.cols
                    ? value(block_at(r / tile_rows, k), r % tile_rows, k % block)
                    : 0.f;
            uint t = t0 + i / side, kx = k0 + i % side;
            scratch[xs + i % side * (side + 1u) + i / side] =
                t < a.n_tokens && kx < a.cols ? x[t * a.cols + kx] : 0.f;
        }
        barrier();
        for (uint k = 0u; k < side; k++) {
            uint wk = k * (side + 1u) + my_row, xk = xs + k * (side + 1u) + my_t;
            float w0 = scratch[wk], w1 = scratch[wk + 1u];
            for (uint j = 0u; j < 4u; j++) {
                float v = scratch[xk + j];
                sum[j] += w0 * v;
                sum[4u + j] += w1 * v;
            }
        }
        barrier();
    }
    for (uint i = 0u; i < 8u; i++)
        if (t0 + my_t + i % 4u < a.n_tokens && row0 + my_row + i / 4u < part.n_rows)
            put(t0 + my_t + i % 4u, row0 + my_row + i / 4u, sum[i]);
}

void main()
{
    LOAD_ARGS(a)
    LOAD_ARGS(part)
    LOAD_ARGS(y_scale)
    load_grid();
    if (n_vec_tokens != 0u)
        multiply_vectors();
    else
        multiply_tiles();
}
