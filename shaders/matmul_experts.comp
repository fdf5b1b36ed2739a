// y[t, j] = scales[e] W[e] x + bias[e] for the expert e = ids[t, j], in f32.
// One workgroup per rows and per choice or, with several tokens, per block of up to eight choices
// of one expert (list_experts.comp).
// variants: FORMATS
// also with LANES
// twin: kernels/cuda/matmul_experts.cu also has int8 kernels, and takes both weights at once
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef LANES
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#define SHARED_GRID
#include "shaders/util.glsl"

layout(constant_id = 0) const uint n_vec_tokens = 1u; // choices of a workgroup: 1, or 8 of a list

layout(push_constant) uniform Block { ExpertsArgs a; ExpertsPart part; } pushed;
DECLARE_ARGS(ExpertsArgs, a)
DECLARE_ARGS(ExpertsPart, part)
layout(binding = 0) writeonly buffer Y { float y[]; };          // (n_tokens * n_used, rows)
layout(binding = 1) readonly buffer W { uint w[]; };            // (part.n_rows, cols) in tiles
layout(binding = 2) readonly buffer X { float x[]; };           // rows of cols values
layout(binding = 3) readonly buffer List { uint list[]; };      // ids, or the list
layout(binding = 4) readonly buffer Scales { float scales[]; }; // (n_experts), only if has_scales
layout(binding = 5) readonly buffer Bias { float bias[]; };     // (n_experts, rows), if has_bias

AS_TEXELS(1, w)
AS_TEXELS(2, x)
#undef WORD
#define WORD(i) FETCH(w, i)
#define X_AT(i) FETCH_FLOAT(x, i)
#include "kernels/common/formats.h"

const bool listed = n_vec_tokens > 1u;
shared float scratch[16u * n_threads]; // (n_vec_tokens * n_tiles, n_threads) sums

uint expert, first_choice, n_choices; // of this workgroup

uint block_at(uint tile, uint k)
{
    return (tile * (a.cols / block) + k / block) * (half_words + tile_rows * words);
}

uint choice(uint t)
{
    return listed ? list[3u * part.max_blocks + first_choice + min(t, n_choices - 1u)]
                  : first_choice;
}
uint row_of_x(uint t) { return a.per_choice != 0u ? choice(t) : choice(t) / a.n_used; }
// Another tile, where this one is not bound.
uint place_of(uint tile)
{
    int place = int(expert * (a.rows / tile_rows) + tile) - int(part.first_row / tile_rows);
    return uint(clamp(place, 0, int(part.n_rows / tile_rows) - 1));
}
uint n_rows() { return a.rows; }
void put_vector(uint t, uint row, float sum)
{
    if (t >= n_choices || expert * a.rows + row - part.first_row >= part.n_rows) return;
    if (part.has_scales != 0u) sum *= scales[expert];
    if (part.has_bias != 0u) sum += bias[expert * a.rows + row];
    y[choice(t) * a.rows + row] = sum;
}
#include "shaders/matvec.glsl"

void main()
{
    LOAD_ARGS(a)
    LOAD_ARGS(part)
    load_grid();
    uint at = gl_WorkGroupID.y;
    expert = list[listed ? 3u * at : at];
    first_choice = listed ? list[3u * at + 1u] : at;
    n_choices = listed ? list[3u * at + 2u] : 1u;
    uint first = expert * a.rows;
    if (n_choices == 0u || first + a.rows <= part.first_row ||
        first >= part.first_row + part.n_rows)
        return;
    multiply_vectors();
}
