// What one pass's slots were worth to the chunk's queries. A workgroup takes tiles of slots of a KV head in turn, and its queries
// some at a time; a thread has a slot and some of these queries.
// also with LANES
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#ifdef LANES
#extension GL_KHR_shader_subgroup_shuffle : require
#else
#define GENERAL
#endif
#include "shaders/util.glsl"

layout(constant_id = 0) const uint k_format = 1u;
layout(constant_id = 1) const uint kind = 0u; // score_sum or score_below
layout(constant_id = 2) const uint head_dim = 64u;
layout(constant_id = 3) const uint flags = 0u; // slots.glsl

layout(push_constant) uniform Block { PassArgs a; SlotPass pass; ScoreDecay decay; uint first_query; } pushed;
DECLARE_ARGS(PassArgs, a)
DECLARE_ARGS(SlotPass, pass)
DECLARE_ARGS(ScoreDecay, decay)
DECLARE_ARGS(uint, first_query)
layout(binding = 0) buffer Scores { float scores[]; };           // of the chunk's rows if the pass is theirs, else of all slots
layout(binding = 1) readonly buffer Q { uint q[]; };             // (n_tokens, n_heads * head_dim), and what slots.glsl says
layout(binding = 2) readonly buffer K { uint w[]; };             // (pass.n_rows, head_dim)
layout(binding = 3) readonly buffer Table { uint table[]; };     // slots; with waves their positions behind
layout(binding = 4) readonly buffer View { uint head_layout[]; };       // (n_kv_heads, layout_words); with weights (slots, 2)
layout(binding = 5) readonly buffer Lse { float lse[]; };        // (n_tokens, n_heads)
#ifdef GENERAL
layout(binding = 6) readonly buffer Angles { float angles[]; };  // turns, or waves
#endif

float x[1]; // nothing is encoded here
uint row[1];
#ifdef LANES
AS_TEXELS(1, q_texels)
AS_TEXELS(2, k_texels)
#undef WORD
#define WORD(i) TEXEL(k_texels, i)
#define Q_WORD(i) TEXEL(q_texels, i)
#else
#define Q_WORD(i) q[i]
#endif
#include "shaders/cache.glsl"
#include "shaders/octets.glsl"
#include "shaders/slots.glsl"
#include "shaders/lanes.glsl"
#include "shaders/logits.glsl"

shared float sums[n_threads];

// What a logit of the head's query tells of the slot.
float shuffled_from(Slots of, uint query, uint group, uint index, float logit)
{
    uint t = query / group, own = of.before + t;
    if (!sees(of, t, index)) return 0.f;
    uint first = max(of.oldest, a.window != 0u && own + 1u > a.window ? own + 1u - a.window : 0u);
    float n_visible = float(own + 1u - (first > a.n_pinned ? first - a.n_pinned : 0u));
    float p = power_of_two(logit * log2e - lse[t * a.n_heads + of.head * group + query % group]);
    // Alone, a token has exactly its even share, whatever lse was rounded to.
    float said = kind == score_below ? (n_visible > 1.f && p * n_visible < 1.f ? 1.f : 0.f) : p;
    return said * power_of_two(float(a.n_tokens - 1u - t) * decay.log2_decay);
}

void main()
{
    LOAD_ARGS(a)
    LOAD_ARGS(pass)
    LOAD_ARGS(decay)
    LOAD_ARGS(first_query)
    uint slot = THREAD % n_slots, row0 = THREAD / n_slots * n_queried,
         group = a.n_heads / a.n_kv_heads;
    Slots of = find_slots(gl_WorkGroupID.y, 0u, a.n_tokens, true);
    uint count = min(count_slots(of), pass.first_slot + pass_slots),
         first_slot = pass.first_slot + gl_WorkGroupID.x * n_slots;
    uint first_of_all = first_query * group, end_query = a.n_tokens * group;
    for (uint nth = first_slot; nth < count; nth += gl_NumWorkGroups.x * n_slots) {
        uint n = min(n_slots, count - nth), index = index_of(of, nth + min(slot, n - 1u)),
             at = slot_of(of, index), r = row_of_slot(at);
        bool bound = slot < n && r < pass.n_rows;
        float b = 0.f, sum = 0.f;
#ifdef GENERAL
        b = max(masked_logit, log_weight(at, 1u));
#endif
        for (uint first = first_of_all; first < end_query; first += n_rows) {
            uint mine = min(n_rows, end_query - first);
            if (nth == first_slot || end_query - first_of_all > n_rows) { // else they are there
                barrier();
                read_queries(of.head, group, first, mine, of.before);
                barrier();
            }
            if (row0 >= mine) continue; // all threads of a subgroup, or none
            float product[4];
            key_products(bound ? r : 0u, of, index, row0, mine, product);
            [[unroll]] for (uint j = 0u; j < n_queried; j++)
                if (row0 + j < mine)
                    sum +=
                        shuffled_from(of, first + row0 + j, group, index, product[j] * a.scale + b);
        }
        sums[THREAD] = sum;
        barrier();
        if (THREAD < n && bound) {
            for (uint i = 1u; i < n_threads / n_slots; i++) sum += sums[i * n_slots + slot];
            scores[at] = pass.source == pass_chunk ? sum : scores[at] * decay.keep + sum;
        }
        barrier();
    }
}
