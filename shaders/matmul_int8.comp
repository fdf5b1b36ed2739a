// y = y_scale (x W^T), or y += y_scale (x W^T), with int8 activations (quantize.comp) and integer
// dot products of four values.
// Up to 8 tokens (matvec): one workgroup per tile of eight rows, sixteen threads per row.
// More tokens (tiled): one workgroup per 64 rows and 64 tokens. Two groups of 32 values of each are
// in shared memory at a time.
// variants: QUANTISED
// twin: none of its own, kernels/cuda/matmul.cu has the int8 kernels beside the f32 kernels
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_spirv_intrinsics : require
#define SHARED_GRID
#define SMALL_GRIDS
#include "shaders/util.glsl"

layout(constant_id = 0) const uint n_vec_tokens = 1u; // tokens of a workgroup, 8 at most; 0: tiled

layout(push_constant) uniform Block { MatmulArgs a; RowRange part; float y_scale; } pushed;
DECLARE_ARGS(MatmulArgs, a)
DECLARE_ARGS(RowRange, part)
DECLARE_ARGS(float, y_scale)
layout(binding = 0) buffer Y { float y[]; };               // (n_tokens, rows)
layout(binding = 1) readonly buffer W { uint w[]; };       // (part.n_rows, cols) in tiles
layout(binding = 2) readonly buffer Acts { uint acts[]; }; // (cols / 32, n_tokens, act_words)

#include "shaders/product.glsl"
#include "shaders/units.glsl"

// OpSDotKHR, the dot product of two words of four signed bytes. Older compilers do not know the
// GLSL extension for it.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019],
                  id = 4450)
int dot_bytes(uint x, uint y, spirv_literal int packed_bytes);

const uint side = 64u;       // rows and tokens of a tiled workgroup
const uint groups = 2u;      // groups of 32 values in shared memory at a time
// Quads of a group. Weights: two of levels, one of two scales and two offsets. Activations: two of
// values, one of two scales and two sums.
const uint group_quads = 3u;
// matvec: ws has (n_vec_tokens, n_threads) sums.
shared uvec4 ws[groups * side * group_quads], xs[groups * side * group_quads];

int dot_quads(uvec4 p, uvec4 q)
{
    return dot_bytes(p.x, q.x, 0) + dot_bytes(p.y, q.y, 0) + dot_bytes(p.z, q.z, 0) +
           dot_bytes(p.w, q.w, 0);
}

uvec4 quad_of_acts(uint at) { return uvec4(acts[at], acts[at + 1u], acts[at + 2u], acts[at + 3u]); }

// The levels of one half of a unit.
uvec4 quad_of_levels(uint which)
{
    return uvec4(levels(4u * which), levels(4u * which + 1u), levels(4u * which + 2u),
                 levels(4u * which + 3u));
}

void multiply_vectors()
{
    uint r = THREAD % tile_rows, split = THREAD / tile_rows, tile = gl_WorkGroupID.x,
         first_token = gl_WorkGroupID.y * n_vec_tokens;
    const uint n_splits = n_threads / tile_rows;
    float sum[8];
    [[unroll]] for (uint t = 0u; t < n_vec_tokens; t++) sum[t] = 0.f;
    for (uint u = split; u < a.cols / 32u; u += n_splits) {
        load_unit(block_at(tile, 32u * u), r, 32u * u % block / 32u);
        uvec4 first = quad_of_levels(0u), second = quad_of_levels(1u);
        [[unroll]] for (uint t = 0u; t < n_vec_tokens; t++) {
            uint at = (u * a.n_tokens + min(first_token + t, a.n_tokens - 1u)) * act_words;
            vec4 scales = uintBitsToFloat(quad_of_acts(at + 8u));
            int sums[2] = int[2](dot_quads(first, quad_of_acts(at)),
                                 dot_quads(second, quad_of_acts(at + 4u)));
            sum[t] += dot(scale * scales.xy, vec2(sums[0], sums[1]));
            if (has_offset) sum[t] += dot(offset, scales.zw);
        }
    }
    [[unroll]] for (uint t = 0u; t < n_vec_tokens; t++)
        ws[(t * n_threads + THREAD) / 4u][THREAD & 3u] = floatBitsToUint(sum[t]);
    barrier();
    for (uint i = THREAD; i < n_vec_tokens * tile_rows; i += n_threads) {
        uint t = i / tile_rows, row = tile * tile_rows + i % tile_rows;
        float total = 0.f;
        for (uint j = i % tile_rows; j < n_threads; j += tile_rows)
            total += uintBitsToFloat(ws[(t * n_threads + j) / 4u][j & 3u]);
        if (first_token + t < a.n_tokens && row < part.n_rows) put(first_token + t, row, total);
    }
}

// Thread i loads group i / side of row i % side and of token i % side.
void load_groups(uint first_unit)
{
    uint i = THREAD % side, u = first_unit + THREAD / side, row = gl_WorkGroupID.x * side + i,
         t = gl_WorkGroupID.y * side + i;
    uint to = THREAD * group_quads;
    [[unroll]] for (uint j = 0u; j < group_quads; j++) ws[to + j] = xs[to + j] = uvec4(0u);
    if (u >= a.cols / 32u) return;
    if (row < part.n_rows) {
        load_unit(block_at(row / tile_rows, 32u * u), row % tile_rows, 32u * u % block / 32u);
        ws[to] = quad_of_levels(0u);
        ws[to + 1u] = quad_of_levels(1u);
        ws[to + 2u] = floatBitsToUint(vec4(scale, has_offset ? offset : vec2(0.f)));
    }
    if (t < a.n_tokens)
        [[unroll]] for (uint j = 0u; j < group_quads; j++)
            xs[to + j] = quad_of_acts((u * a.n_tokens + t) * act_words + 4u * j);
}

// A thread computes every sixteenth row of every eighth token.
void multiply_tiles()
{
    uint my_row = THREAD % 16u, my_t = THREAD / 16u;
    float sum[32];
    [[unroll]] for (uint i = 0u; i < 32u; i++) sum[i] = 0.f;
    for (uint u = 0u; u < a.cols / 32u; u += groups) {
        load_groups(u);
        barrier();
        for (uint n = 0u; n < 2u * groups; n++) {
            uint from = n / 2u * side * group_quads, which = n & 1u;
            uvec4 q[4];
            vec2 scales[4];
            [[unroll]] for (uint i = 0u; i < 4u; i++) {
                uint at = from + (my_row + 16u * i) * group_quads;
                q[i] = ws[at + which];
                scales[i] = uintBitsToFloat(uvec2(ws[at + 2u][which], ws[at + 2u][2u + which]));
            }
            [[unroll]] for (uint j = 0u; j < 8u; j++) {
                uint at = from + (my_t + 8u * j) * group_quads;
                uvec4 v = xs[at + which];
                vec2 act = uintBitsToFloat(uvec2(xs[at + 2u][which], xs[at + 2u][2u + which]));
                [[unroll]] for (uint i = 0u; i < 4u; i++) {
                    sum[8u * i + j] += scales[i].x * act.x * float(dot_quads(q[i], v));
                    if (has_offset) sum[8u * i + j] += scales[i].y * act.y;
                }
            }
        }
        barrier();
    }
    [[unroll]] for (uint i = 0u; i < 32u; i++) {
        uint row = gl_WorkGroupID.x * side + my_row + 16u * (i / 8u),
             t = gl_WorkGroupID.y * side + my_t + 8u * (i % 8u);
        if (row < part.n_rows && t < a.n_tokens) put(t, row, sum[i]);
    }
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
