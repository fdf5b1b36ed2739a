// Stores the keys or values of a chunk in the cache. One thread per value of a plain row, one
// thread per coded row.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(constant_id = 0) const uint format = 0u;
layout(constant_id = 1) const uint head_dim = 64u;
layout(constant_id = 2) const uint has_table = 0u;

layout(push_constant) uniform Block { KvWriteArgs a; CachePart part; } pushed;
DECLARE_ARGS(KvWriteArgs, a)
DECLARE_ARGS(CachePart, part)
// (n_kv_heads * n_rows, head_dim) in any format
layout(binding = 0) buffer To { uint w[]; };
// (n_tokens, n_kv_heads * head_dim)
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer Table { uint table[]; }; // slots
// (n_kv_heads, layout_words)
layout(binding = 3) readonly buffer HeadLayout { uint head_layout[]; };

uint from = 0u; // the head's first value in x
uint row[head_dim + 4u];
#undef VALUE
#define VALUE(i) x[from + (i)]
#include "shaders/store.glsl"

// The row for head i % n_kv_heads of token i / n_kv_heads.
uint row_of(uint i)
{
    uint h = i % a.n_kv_heads, t = i / a.n_kv_heads,
         index = head_layout[h * layout_words + layout_n_held] + t;
    if (a.staged != 0u) return h * a.n_rows + t;
    if (has_table != 0u) return table[head_layout[h * layout_words + layout_table_begin] + index];
    return ring_slot(h, index, a.n_rows, a.n_pinned);
}

void main()
{
    LOAD_ARGS(a)
    LOAD_ARGS(part)
    uint n = a.n_tokens * a.n_kv_heads;
    if (format >= first_codec) {
        for (uint i = gl_GlobalInvocationID.x; i < n; i += N_ALL_THREADS) {
            uint r = row_of(i) - part.first_row;
            from = i * head_dim;
            if (r < part.n_rows) encode_row(format, part.pool_rows, r, head_dim);
        }
        return;
    }
    for (uint i = gl_GlobalInvocationID.x; i < n * head_dim; i += N_ALL_THREADS) {
        uint r = row_of(i / head_dim) - part.first_row;
        from = i / head_dim * head_dim;
        if (r < part.n_rows) store_value(format, r, i % head_dim, head_dim);
    }
}
