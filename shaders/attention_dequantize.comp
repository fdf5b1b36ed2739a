// Dequantizes keys or values of some slots of a pool, once for all queries of a prompt. One thread
// per eight values.
// twin: the kernel dequantizes keys and values at once, to f16 and the residual
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "shaders/util.glsl"

layout(constant_id = 0) const uint format = 0u;
layout(constant_id = 1) const uint flags = 0u; // slots.glsl
layout(constant_id = 2) const uint head_dim = 64u;

layout(push_constant) uniform Block { PassArgs a; SlotPass pass; SplitPass splits; } pushed;
DECLARE_ARGS(PassArgs, a)
DECLARE_ARGS(SlotPass, pass)
DECLARE_ARGS(SplitPass, splits)
// (n_kv_heads * splits.dequantized, head_dim)
layout(binding = 0) writeonly buffer Y { float y[]; };
layout(binding = 1) readonly buffer From { uint w[]; };      // (pass.n_rows, head_dim)
layout(binding = 2) readonly buffer Table { uint table[]; }; // slots
// (n_kv_heads, layout_words)
layout(binding = 3) readonly buffer HeadLayout { uint head_layout[]; };

float x[1]; // cache.glsl names x and row, but nothing is encoded here
uint row[1];
#include "shaders/cache.glsl"
#include "shaders/octets.glsl"
#include "shaders/slots.glsl"

void main()
{
    LOAD_ARGS(a)
    LOAD_ARGS(pass)
    LOAD_ARGS(splits)
    Slots s = find_slots(gl_WorkGroupID.y, 0u, a.n_tokens, false);
    uint count = count_slots(s), n = min(splits.dequantized, count - min(pass.first_slot, count));
    const uint octets = head_dim / 8u; // coded heads are multiples of 16
    for (uint i = gl_GlobalInvocationID.x; i < n * octets; i += N_ALL_THREADS) {
        uint slot = i / octets, first = 8u * (i % octets),
             r = row_of_slot(slot_of(s, index_of(s, pass.first_slot + slot)));
        if (r >= pass.n_rows) continue;
        float values[8];
        row_octet(format, r, row_tail(format, pass.pool_rows, r, head_dim), first, head_dim, true,
                  values);
        [[unroll]] for (uint k = 0u; k < 8u; k++)
            y[(s.head * splits.dequantized + slot) * head_dim + first + k] = values[k];
    }
}
