// Moves rows of the cache: copies rows of equal formats, encodes plain rows as coded rows.
// One thread per row, or one workgroup per group of rows that are coded together.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(constant_id = 0) const uint format = 0u; // the format of `to`
layout(constant_id = 1) const uint head_dim = 64u;
layout(constant_id = 2) const uint from_format = 0u;

layout(push_constant) uniform Block { KvMoveArgs a; CachePart to; CachePart part; } pushed;
DECLARE_ARGS(KvMoveArgs, a)
DECLARE_ARGS(CachePart, to)
DECLARE_ARGS(CachePart, part)
layout(binding = 0) buffer To { uint w[]; };                 // (to.n_rows, head_dim)
layout(binding = 1) readonly buffer From { uint from[]; };   // (part.n_rows, head_dim)
layout(binding = 2) readonly buffer Moves { uint moves[]; }; // (n_moves, 2): from, to

uint source = 0u; // the row that is read
uint row[head_dim + 4u];
float source_value(uint i);
#undef WORD
#define WORD(i) from[i]
#undef VALUE
#define VALUE(i) source_value(i)
#include "shaders/store.glsl"

float source_value(uint i) { return row_value(from_format, source, 0u, i, head_dim); }

shared uint ranges[codec_max_dim];

// The dims with a field in word j of a plane (kernels/common/codecs.h): the first dim, and the step
// between them.
uvec2 dims_of_word(uint j, uint bits)
{
    uint base = min(j / (2u * bits), head_dim / 64u) * 64u, n = min(64u, head_dim - base);
    uint at = j - base * bits / 32u;
    if (n < 64u) {
        if (n >= 32u && at >= bits) {
            base += 32u;
            at -= bits;
            n = 16u;
        }
        n = n >= 32u ? 32u : 16u;
    }
    return uvec2(base + at, n * bits / 32u);
}

// Moves one group. Its moves begin at `move`. The source is a group of the same format, or plain
// rows from anywhere.
void move_group(uint move, uint words)
{
    uint group = (moves[2u * move + 1u] - to.first_row) / kivi_rows, begin = group * words,
         max_code = words > 3u * head_dim ? 15u : 3u;
    uint bits = max_code == 15u ? 4u : 2u, row_words = bits * head_dim / 32u;
    bool here = moves[2u * move + 1u] - to.first_row < to.n_rows, same = from_format == format;
    source = moves[2u * move] - part.first_row;
    if (!here || (same && source >= part.n_rows)) return;
    for (uint i = THREAD; same && i < words; i += n_threads)
        w[begin + i] = from[source / kivi_rows * words + i];
    if (same) return;
    for (uint i = THREAD; i < head_dim; i += n_threads) {
        float min_value = 0.f, max_value = 0.f;
        for (uint r = 0u; r < kivi_rows; r++) {
            source = moves[2u * (move + r)] - part.first_row;
            float v = coded_value(source_value(i));
            min_value = r == 0u || v < min_value ? v : min_value;
            max_value = r == 0u || v > max_value ? v : max_value;
        }
        w[begin + i] = ranges[i] = kivi_range(min_value, max_value, max_code);
    }
    barrier();
    for (uint j = THREAD; j < kivi_rows * row_words; j += n_threads) {
        uint codes = 0u, r = j / row_words;
        uvec2 dims = dims_of_word(j % row_words, bits);
        source = moves[2u * (move + r)] - part.first_row;
        for (uint k = 0u; k < 32u / bits; k++) {
            uint i = dims.x + k * dims.y;
            codes |= kivi_code(coded_value(source_value(i)), ranges[i], max_code) << bits * k;
        }
        w[begin + head_dim + j] = codes;
    }
}

void main()
{
    LOAD_ARGS(a)
    LOAD_ARGS(to)
    LOAD_ARGS(part)
    uint words = group_words(format, head_dim);
    if (words != 0u) {
        move_group(gl_WorkGroupID.x * kivi_rows, words);
        return;
    }
    for (uint i = gl_GlobalInvocationID.x; i < a.n_moves; i += N_ALL_THREADS) {
        uint r = moves[2u * i + 1u] - to.first_row;
        source = moves[2u * i] - part.first_row;
        if (source >= part.n_rows || r >= to.n_rows) continue;
        if (format < first_codec) {
            for (uint k = 0u; k < head_dim; k++) store_value(format, r, k, head_dim);
        } else if (from_format < first_codec) {
            encode_row(format, to.pool_rows, r, head_dim);
        } else {
            uint n_words = row_bytes(format, head_dim) / 4u;
            for (uint k = 0u; k < n_words; k++) row[k] = from[source * n_words + k];
            row[n_words] = row_tail(format, part.pool_rows, source, head_dim);
            store_row(format, to.pool_rows, r, head_dim);
        }
    }
}
