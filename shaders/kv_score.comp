// What one pass's slots were worth to the chunk's queries. A workgroup takes tiles of slots of a KV head in turn: keys are decoded,
// and the threads of a slot share its queries.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(constant_id = 0) const uint k_format = 1u;
layout(constant_id = 1) const uint kind = 0u; // score_sum or score_below
layout(constant_id = 2) const uint head_dim = 64u;
layout(constant_id = 3) const uint flags = 0u; // 1: a table, 2: log-weights
const uint has_table = flags & 1u;

layout(push_constant) uniform Block { KvScoreArgs s; AttentionArgs a; SlotPass pass; ScoreDecay decay; } pushed;
ARGS(KvScoreArgs, s)
ARGS(AttentionArgs, a)
ARGS(SlotPass, pass)
ARGS(ScoreDecay, decay)
layout(binding = 0) buffer Signal { float signal[]; };           // of the chunk's rows if the pass is theirs, else of all slots
layout(binding = 1) readonly buffer Q { float q[]; };            // (n_tokens, n_heads * head_dim)
layout(binding = 2) readonly buffer K { uint w[]; };             // (pass.n_rows, head_dim)
layout(binding = 3) readonly buffer Table { uint table[]; };     // slots
layout(binding = 4) readonly buffer Weights { float weights[]; }; // (slots, 2)
layout(binding = 5) readonly buffer View { uint view[]; };       // (n_kv_heads, view_words)
layout(binding = 6) readonly buffer Lse { float lse[]; };        // (n_tokens, n_heads)

float x[1]; // nothing is encoded here
uint row[1];
#include "shaders/cache.glsl"
#include "shaders/slots.glsl"

const uint room = 2048u / head_dim;
const uint n_slots = room > 32u ? 32u : room > 16u ? 16u : room > 8u ? 8u : 4u; // of a tile
const uint n_shares = n_threads / n_slots;

shared float tile[2048]; // (n_slots, head_dim)
shared float sums[n_threads];
shared uint slots[32];

// Of the queries of token t, all heads of the group.
float ask(Slots of, uint t, uint slot, uint index, float logweight)
{
    uint group = a.n_heads / a.n_kv_heads, own = of.before + t;
    uint first = max(of.oldest, a.window != 0u && own + 1u > a.window ? own + 1u - a.window : 0u);
    float n_visible = float(own + 1u - (first > a.n_pinned ? first - a.n_pinned : 0u)), sum = 0.f;
    for (uint h = of.head * group; h < (of.head + 1u) * group; h++) {
        float logit = 0.f;
        for (uint d = 0u; d < head_dim; d++) logit += q[(t * a.n_heads + h) * head_dim + d] * tile[slot * head_dim + d];
        float p = power_of_two((logit * a.scale + logweight) * log2e - lse[t * a.n_heads + h]);
        // Alone, a token has exactly its even share, whatever lse was rounded to.
        sum += kind == score_below ? (n_visible > 1.f && p * n_visible < 1.f ? 1.f : 0.f) : p;
    }
    return sum;
}

void main()
{
    TAKE(s)
    TAKE(a)
    TAKE(pass)
    TAKE(decay)
    uint slot = THREAD % n_slots, share = THREAD / n_slots;
    Slots of = find_slots(gl_WorkGroupID.y, 0u, a.n_tokens, true);
    uint count = count_slots(of);
    for (uint nth = gl_WorkGroupID.x * n_slots; nth < count; nth += gl_NumWorkGroups.x * n_slots) {
        uint n = min(n_slots, count - nth), index = index_of(of, nth + slot);
        if (THREAD < n) slots[THREAD] = slot_of(of, index);
        barrier();
        for (uint i = THREAD; i < n * head_dim; i += n_threads) {
            uint r = row_of_slot(slots[i / head_dim]);
            tile[i] = r < pass.n_rows ? row_value(k_format, r, row_tail(k_format, pass.pool_rows, r, head_dim), i % head_dim, head_dim) : 0.f;
        }
        barrier();
        bool bound = slot < n && row_of_slot(slots[slot]) < pass.n_rows;
        float sum = 0.f;
        if (bound) {
            float b = (flags & 2u) != 0u && pass.source != pass_chunk ? max(none, weights[2u * slots[slot] + 1u]) : 0.f;
            for (uint t = s.first_query + share; t < a.n_tokens; t += n_shares)
                if (sees(of, t, index)) sum += ask(of, t, slot, index, b) * power_of_two(float(a.n_tokens - 1u - t) * decay.log_of_two);
        }
        sums[THREAD] = sum;
        barrier();
        if (share == 0u && bound) {
            for (uint i = 1u; i < n_shares; i++) sum += sums[i * n_slots + slot];
            signal[slots[slot]] = pass.source == pass_chunk ? sum : signal[slots[slot]] * decay.keep + sum;
        }
        barrier();
    }
}
