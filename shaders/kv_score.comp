// Attention scores of one pass's slots, over the chunk's queries. A workgroup goes over tiles of
// slots of a KV head, and over the head's queries n_rows at a time. A thread has a slot and some of
// these queries.
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

layout(push_constant) uniform Block
{
    PassArgs a;
    SlotPass pass;
    ScoreDecay decay;
    uint first_query;
}
pushed;
DECLARE_ARGS(PassArgs, a)
DECLARE_ARGS(SlotPass, pass)
DECLARE_ARGS(ScoreDecay, decay)
DECLARE_ARGS(uint, first_query)
// Of the chunk's rows if the pass is over the chunk, else of all slots.
layout(binding = 0) buffer Scores { float scores[]; };
// (n_tokens, n_heads * head_dim), and behind them what slots.glsl says
layout(binding = 1) readonly buffer Q { uint q[]; };
layout(binding = 2) readonly buffer K { uint w[]; }; // (pass.n_rows, head_dim)
// Slots. With has_bias, their positions lie behind.
layout(binding = 3) readonly buffer Table { uint table[]; };
// (n_kv_heads, layout_words). With has_weights instead the log-weights of slots, (slots, 2).
layout(binding = 4) readonly buffer HeadLayout { uint head_layout[]; };
layout(binding = 5) readonly buffer Lse { float lse[]; }; // (n_tokens, n_heads)
#ifdef GENERAL
// The RoPE table of has_rope_on_read, or the phasors of has_bias.
layout(binding = 6) readonly buffer Angles { float angles[]; };
#endif

float x[1]; // cache.glsl names x and row, but nothing is encoded here
uint row[1];
AS_TEXELS(1, q)
AS_TEXELS(2, w)
#undef WORD
#define WORD(i) FETCH(w, i)
#define Q_WORD(i) FETCH(q, i)
#include "shaders/cache.glsl"
#include "shaders/octets.glsl"
#include "shaders/slots.glsl"
#include "shaders/logits.glsl"

shared float sums[n_threads];

// The score that a query's logit adds to a slot. score_sum: the slot's weight p. score_below: 1 if
// p is below the even share 1 / n_visible, else 0.
float score_of(Slots s, uint query, uint group, uint index, float logit)
{
    uint t = query / group, own = s.before + t;
    if (!sees(s, t, index)) return 0.f;
    uint first = max(s.oldest, a.window != 0u && own + 1u > a.window ? own + 1u - a.window : 0u);
    float n_visible = float(own + 1u - (first > a.n_pinned ? first - a.n_pinned : 0u));
    float p = power_of_two(logit * log2e - lse[t * a.n_heads + s.head * group + query % group]);
    // A single visible token has exactly the even share, whatever lse was rounded to.
    float score = kind == score_below ? (n_visible > 1.f && p * n_visible < 1.f ? 1.f : 0.f) : p;
    return score * power_of_two(float(a.n_tokens - 1u - t) * decay.log2_decay);
}

void main()
{
    LOAD_ARGS(a)
    LOAD_ARGS(pass)
    LOAD_ARGS(decay)
    LOAD_ARGS(first_query)
    uint slot = THREAD % n_slots, row0 = THREAD / n_slots * n_queries_each,
         group = a.n_heads / a.n_kv_heads;
    Slots s = find_slots(gl_WorkGroupID.y, 0u, a.n_tokens, true);
    uint count = min(count_slots(s), pass.first_slot + pass_slots),
         first_slot = pass.first_slot + gl_WorkGroupID.x * n_slots;
    uint first_of_all = first_query * group, end_query = a.n_tokens * group;
    for (uint nth = first_slot; nth < count; nth += gl_NumWorkGroups.x * n_slots) {
        uint n = min(n_slots, count - nth), index = index_of(s, nth + min(slot, n - 1u)),
             at = slot_of(s, index), r = row_of_slot(at);
        bool bound = slot < n && r < pass.n_rows;
        float b = 0.f, sum = 0.f;
#ifdef GENERAL
        b = max(masked_logit, log_weight(at, 1u));
#endif
        for (uint first = first_of_all; first < end_query; first += n_rows) {
            uint n_queries = min(n_rows, end_query - first);
            // If all queries fit at once, only the first tile reads them.
            if (nth == first_slot || end_query - first_of_all > n_rows) {
                barrier();
                read_queries(s.head, group, first, n_queries, s.before);
                barrier();
            }
            if (row0 >= n_queries) continue; // all threads of a subgroup, or none
            float product[4];
            dot_queries(bound ? r : 0u, s, index, row0, n_queries, product);
            [[unroll]] for (uint j = 0u; j < n_queries_each; j++)
                if (row0 + j < n_queries)
                    sum +=
                        score_of(s, first + row0 + j, group, index, logit_of(product[j]) + b);
        }
        sums[THREAD] = sum;
        barrier();
        if (THREAD < n && bound) {
            for (uint i = 1u; i < n_threads / n_slots; i++) sum += sums[i * n_slots + slot];
            scores[at] = decay.keep == 0.f ? sum : scores[at] * decay.keep + sum;
        }
        barrier();
    }
}
