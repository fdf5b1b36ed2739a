// y = y_scale (x W^T), or y += y_scale (x W^T), for more than 8 tokens with f16 activations
// (to_f16.comp).
// One workgroup per 64 rows and 64 tokens. 32 values of each are in shared memory at a time.
// Without MATRICES: the levels of weights are multiplied as pairs of f16. A sum over 16 values
// becomes f32 before it is scaled.
// With MATRICES: cooperative matrices multiply the dequantized weights in f16 and sum in f32.
// variants: QUANTISED
// also with MATRICES
// twin: none, int8 products are faster on CUDA devices
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#ifdef MATRICES
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#endif
#define SHARED_GRID
#include "shaders/util.glsl"

layout(push_constant) uniform Block { MatmulArgs a; RowRange part; float y_scale; } pushed;
DECLARE_ARGS(MatmulArgs, a)
DECLARE_ARGS(RowRange, part)
DECLARE_ARGS(float, y_scale)
layout(binding = 0) buffer Y { float y[]; };                // (n_tokens, rows)
layout(binding = 1) readonly buffer W { uint w[]; };        // (part.n_rows, cols) in tiles
layout(binding = 2) readonly buffer XF16 { uint x_f16[]; }; // to_f16.comp

#include "shaders/product.glsl"
#include "shaders/units.glsl"

const uint side = 64u, unit_words = 16u; // rows and tokens of a workgroup; words of 32 values
// Words of a row in shared memory: a multiple of 16 bytes without bank conflicts.
const uint stride = 20u;
// ws: weights, 32 values, two scales and two offsets per row. xs: activations, 32 values and two
// sums per token.
shared uint ws[side * stride], xs[side * stride];

float token_scale(uint t) { return uintBitsToFloat(x_f16[a.n_tokens * (a.cols / 2u) + t]); }

void load_weights(uint i, uint u)
{
    uint row = gl_WorkGroupID.x * side + i;
    if (row >= part.n_rows) return;
    load_unit(block_at(row / tile_rows, 32u * u), row % tile_rows, 32u * u % block / 32u);
#ifdef MATRICES
    [[unroll]] for (uint j = 0u; j < unit_words; j++) {
        vec2 pair = scale[j / 8u] * vec2(level(2u * j), level(2u * j + 1u));
        if (has_offset) pair += offset[j / 8u];
        ws[i * stride + j] = packHalf2x16(clamp(pair, -65504.f, 65504.f));
    }
#else
    [[unroll]] for (uint j = 0u; j < unit_words; j++)
        ws[i * stride + j] = packHalf2x16(vec2(level(2u * j), level(2u * j + 1u)));
    [[unroll]] for (uint j = 0u; j < 2u; j++) {
        ws[i * stride + unit_words + j] = floatBitsToUint(scale[j]);
        ws[i * stride + unit_words + 2u + j] = floatBitsToUint(has_offset ? offset[j] : 0.f);
    }
#endif
}

void load_tokens(uint i, uint u)
{
    uint t = gl_WorkGroupID.y * side + i;
    if (t >= a.n_tokens) return;
    vec2 sums = vec2(0.f);
    [[unroll]] for (uint j = 0u; j < unit_words; j++) {
        uint pair = x_f16[t * (a.cols / 2u) + u * unit_words + j];
        xs[i * stride + j] = pair;
        sums[j / 8u] += dot(unpackHalf2x16(pair), vec2(1.f));
    }
    [[unroll]] for (uint j = 0u; j < 2u; j++)
        xs[i * stride + unit_words + j] = floatBitsToUint(sums[j]);
}

// Half of the threads load weights, the others activations.
void load(uint u)
{
    if (THREAD < side)
        load_weights(THREAD, u);
    else
        load_tokens(THREAD - side, u);
}

#ifdef MATRICES
layout(constant_id = 0) const uint m = 16u; // tokens of a cooperative matrix
layout(constant_id = 1) const uint n = 16u; // rows of weights
layout(constant_id = 2) const uint depth = 16u;
layout(constant_id = 3) const uint width = 32u; // subgroup size

// A subgroup computes n_high * n_wide matrices: n_high along the tokens, n_wide along the rows.
const uint n_each = (side / m) * (side / n) * width / n_threads,
           n_wide = n_each < side / n ? n_each : side / n, n_high = n_each / n_wide;
shared float results[n_threads / width * m * n];

void main()
{
    LOAD_ARGS(a)
    LOAD_ARGS(part)
    LOAD_ARGS(y_scale)
    load_grid();
    uint row0 = gl_SubgroupID * n_wide % (side / n),
         t0 = gl_SubgroupID * n_wide / (side / n) * n_high;
    coopmat<float, gl_ScopeSubgroup, m, n, gl_MatrixUseAccumulator> sum[n_high * n_wide];
    [[unroll]] for (uint i = 0u; i < n_high * n_wide; i++)
        sum[i] = coopmat<float, gl_ScopeSubgroup, m, n, gl_MatrixUseAccumulator>(0.f);
    // Rows and tokens beyond the end stay zero.
    for (uint i = THREAD; i < side * stride; i += n_threads) ws[i] = xs[i] = 0u;
    barrier();
    for (uint u = 0u; u < a.cols / 32u; u++) {
        load(u);
        barrier();
        [[unroll]] for (uint k = 0u; k < 32u; k += depth)
            [[unroll]] for (uint i = 0u; i < n_high; i++) {
                coopmat<float16_t, gl_ScopeSubgroup, m, depth, gl_MatrixUseA> tokens;
                coopMatLoad(tokens, xs, (t0 + i) * m * stride + k / 2u, stride,
                            gl_CooperativeMatrixLayoutRowMajor);
                [[unroll]] for (uint j = 0u; j < n_wide; j++) {
                    coopmat<float16_t, gl_ScopeSubgroup, depth, n, gl_MatrixUseB> rows;
                    coopMatLoad(rows, ws, (row0 + j) * n * stride + k / 2u, stride,
                                gl_CooperativeMatrixLayoutColumnMajor);
                    sum[i * n_wide + j] = coopMatMulAdd(tokens, rows, sum[i * n_wide + j]);
                }
            }
        barrier();
    }
    uint scratch = gl_SubgroupID * m * n;
    [[unroll]] for (uint i = 0u; i < n_high * n_wide; i++) {
        coopMatStore(sum[i], results, scratch, n, gl_CooperativeMatrixLayoutRowMajor);
        barrier();
        for (uint e = gl_SubgroupInvocationID; e < m * n; e += width) {
            uint t = gl_WorkGroupID.y * side + (t0 + i / n_wide) * m + e / n;
            uint row = gl_WorkGroupID.x * side + (row0 + i % n_wide) * n + e % n;
            if (t < a.n_tokens && row < part.n_rows)
                put(t, row, results[scratch + e] * token_scale(t));
        }
        barrier();
    }
}

#else
// A thread computes every sixteenth row of every eighth token.
void main()
{
    LOAD_ARGS(a)
    LOAD_ARGS(part)
    LOAD_ARGS(y_scale)
    load_grid();
    uint my_row = THREAD % 16u, my_t = THREAD / 16u;
    float sum[32];
    [[unroll]] for (uint i = 0u; i < 32u; i++) sum[i] = 0.f;
    // Rows and tokens beyond the end stay zero.
    for (uint i = THREAD; i < side * stride; i += n_threads) ws[i] = xs[i] = 0u;
    barrier();
    for (uint u = 0u; u < a.cols / 32u; u++) {
        load(u);
        barrier();
        for (uint which = 0u; which < 2u; which++) {
            f16vec2 products[32];
            [[unroll]] for (uint i = 0u; i < 32u; i++) products[i] = f16vec2(0.f);
            [[unroll]] for (uint k = 0u; k < unit_words / 2u; k++) {
                uint at = which * (unit_words / 2u) + k;
                f16vec2 levels_of[4];
                [[unroll]] for (uint i = 0u; i < 4u; i++)
                    levels_of[i] = unpackFloat2x16(ws[(my_row + 16u * i) * stride + at]);
                [[unroll]] for (uint j = 0u; j < 8u; j++) {
                    f16vec2 pair = unpackFloat2x16(xs[(my_t + 8u * j) * stride + at]);
                    [[unroll]] for (uint i = 0u; i < 4u; i++)
                        products[8u * i + j] += levels_of[i] * pair;
                }
            }
            [[unroll]] for (uint i = 0u; i < 32u; i++) {
                uint of_row = (my_row + 16u * (i / 8u)) * stride + unit_words,
                     of_t = (my_t + 8u * (i % 8u)) * stride + unit_words;
                sum[i] += uintBitsToFloat(ws[of_row + which]) *
                          (float(products[i].x) + float(products[i].y));
                if (has_offset)
                    sum[i] += uintBitsToFloat(ws[of_row + 2u + which]) *
                              uintBitsToFloat(xs[of_t + which]);
            }
        }
        barrier();
    }
    [[unroll]] for (uint i = 0u; i < 32u; i++) {
        uint row = gl_WorkGroupID.x * side + my_row + 16u * (i / 8u),
             t = gl_WorkGroupID.y * side + my_t + 8u * (i % 8u);
        if (row < part.n_rows && t < a.n_tokens) put(t, row, sum[i] * token_scale(t));
    }
}
#endif
