// One pass of attention over the slots of one pool. A workgroup has some of a KV head's queries, which are (token, head of the
// group), and some of its slots. Of the slots of a tile: keys are decoded, logits taken, the running maxima moved; values
// decoded into the same place and added. What remains is a partial result (attention_fold).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(constant_id = 0) const uint k_format = 1u;
layout(constant_id = 1) const uint v_format = 1u;
layout(constant_id = 2) const uint head_dim = 64u;
layout(constant_id = 3) const uint flags = 0u; // 1: a table, 2: log-weights
const uint has_table = flags & 1u;

layout(push_constant) uniform Block { AttentionArgs a; SlotPass pass; } pushed;
ARGS(AttentionArgs, a)
ARGS(SlotPass, pass)
layout(binding = 0) buffer Partials { float partials[]; };       // (n_tokens * n_heads, n_splits, 4 + head_dim)
layout(binding = 1) readonly buffer Q { float q[]; };            // (n_tokens, n_heads * head_dim)
layout(binding = 2) readonly buffer K { uint k[]; };             // (pass.n_rows, head_dim)
layout(binding = 3) readonly buffer V { uint v[]; };             // (pass.n_rows, head_dim)
layout(binding = 4) readonly buffer Table { uint table[]; };     // slots
layout(binding = 5) readonly buffer Weights { float weights[]; }; // (slots, 2)
layout(binding = 6) readonly buffer View { uint view[]; };       // (n_kv_heads, view_words)

bool reads_values = false; // which of the two caches WORD is of
float x[1]; // nothing is encoded here
uint row[1];
#undef WORD
#define WORD(i) (reads_values ? v[i] : k[i])
#include "shaders/cache.glsl"
#include "shaders/slots.glsl"

const uint room = 2048u / head_dim, most_rows = 1024u / head_dim;
const uint n_slots = room > 32u ? 32u : room;           // of a tile
const uint n_rows = most_rows > 16u ? 16u : most_rows;  // queries of a workgroup

// Values of a thread: n_rows * head_dim are 1024 at most. Names, not an array: an array in registers would be indexed by a loop.
#define FOR_SUMS(F) F(sum0, 0u) F(sum1, 1u) F(sum2, 2u) F(sum3, 3u) F(sum4, 4u) F(sum5, 5u) F(sum6, 6u) F(sum7, 7u)

shared float tile[2048];             // (n_slots, head_dim)
shared float over[512], under[512];  // (n_rows, n_slots): logits and a, then weights of values; logits and b
shared float top[16], norm_top[16], norm[16], shrink[16]; // of rows
shared uint slots[32];

void decode_tile(uint format, uint n)
{
    for (uint i = THREAD; i < n * head_dim; i += n_threads) {
        uint r = row_of_slot(slots[i / head_dim]);
        tile[i] = r < pass.n_rows ? row_value(format, r, row_tail(format, pass.pool_rows, r, head_dim), i % head_dim, head_dim) : 0.f;
    }
}

// The logits of n slots, the first of which is the pass's nth.
void take_logits(Slots s, uint nth, uint n, uint first_row, uint group)
{
    for (uint i = THREAD; i < n_rows * n_slots; i += n_threads) {
        uint query = first_row + i / n_slots, slot = i % n_slots, t = query / group;
        over[i] = under[i] = none;
        if (slot >= n || t >= a.n_tokens || row_of_slot(slots[slot]) >= pass.n_rows || !sees(s, t, index_of(s, nth + slot))) continue;
        uint from = (t * a.n_heads + s.head * group + query % group) * head_dim;
        float sum = 0.f;
        for (uint d = 0u; d < head_dim; d++) sum += q[from + d] * tile[slot * head_dim + d];
        over[i] = under[i] = sum * a.scale * log2e;
        if ((flags & 2u) == 0u || pass.source == pass_chunk) continue;
        over[i] = max(none, over[i] + weights[2u * slots[slot]] * log2e);
        under[i] = max(none, under[i] + weights[2u * slots[slot] + 1u] * log2e);
    }
}

// Moves a row's maxima; over becomes the weights of values.
void take_row(uint r)
{
    float new_top = top[r], new_norm_top = norm_top[r];
    for (uint i = r * n_slots; i < (r + 1u) * n_slots; i++) {
        new_top = max(new_top, over[i]);
        new_norm_top = max(new_norm_top, under[i]);
    }
    shrink[r] = power_of_two(top[r] - new_top);
    norm[r] *= power_of_two(norm_top[r] - new_norm_top);
    for (uint i = r * n_slots; i < (r + 1u) * n_slots; i++) {
        over[i] = over[i] > 0.5f * none ? power_of_two(over[i] - new_top) : 0.f;
        norm[r] += under[i] > 0.5f * none ? power_of_two(under[i] - new_norm_top) : 0.f;
    }
    top[r] = new_top;
    norm_top[r] = new_norm_top;
}

uint partial_of(uint head, uint group, uint query)
{
    return (((query / group) * a.n_heads + head * group + query % group) * pass.n_splits + gl_WorkGroupID.z) * (4u + head_dim);
}

// What earlier passes found of value i, which is dim i % head_dim of query i / head_dim.
float earlier(uint head, uint group, uint first_row, uint n, uint i)
{
    if (pass.continues == 0u || i / head_dim >= n) return 0.f;
    return partials[partial_of(head, group, first_row + i / head_dim) + 4u + i % head_dim];
}

float add_values(float sum, uint i, uint n)
{
    uint r = min(i / head_dim, n_rows - 1u), d = i % head_dim;
    sum *= shrink[r];
    for (uint slot = 0u; slot < n; slot++) sum += over[r * n_slots + slot] * tile[slot * head_dim + d];
    return sum;
}

void main()
{
    TAKE(a)
    TAKE(pass)
    uint group = a.n_heads / a.n_kv_heads, first_row = gl_WorkGroupID.x * n_rows, head = gl_WorkGroupID.y, split = gl_WorkGroupID.z;
    uint mine = min(n_rows, a.n_tokens * group - first_row), end_token = (first_row + mine - 1u) / group + 1u;
    Slots s = find_slots(head, first_row / group, end_token, false);
    uint count = count_slots(s), each = (count + pass.n_splits - 1u) / pass.n_splits;
    uint begin = min(split * each, count), end = min(begin + each, count);

    // Value d of query r is with thread (r * head_dim + d) % n_threads.
#define BEGIN(sum, j) float sum = earlier(head, group, first_row, mine, THREAD + j * n_threads);
    FOR_SUMS(BEGIN)
    uint at = partial_of(head, group, first_row + THREAD); // maxima of numerator and denominator, the denominator; then the numerator
    if (THREAD < n_rows) {
        bool has = pass.continues != 0u && THREAD < mine;
        top[THREAD] = has ? partials[at] : none;
        norm_top[THREAD] = has ? partials[at + 1u] : none;
        norm[THREAD] = has ? partials[at + 2u] : 0.f;
    }
    for (uint nth = begin; nth < end; nth += n_slots) {
        uint n = min(n_slots, end - nth);
        if (THREAD < n) slots[THREAD] = slot_of(s, index_of(s, nth + THREAD));
        barrier();
        reads_values = false;
        decode_tile(k_format, n);
        barrier();
        take_logits(s, nth, n, first_row, group);
        barrier();
        if (THREAD < n_rows) take_row(THREAD);
        reads_values = true;
        decode_tile(v_format, n);
        barrier();
#define ADD(sum, j) sum = add_values(sum, THREAD + j * n_threads, n);
        FOR_SUMS(ADD)
        barrier();
    }
    if (THREAD < mine) {
        partials[at] = top[THREAD];
        partials[at + 1u] = norm_top[THREAD];
        partials[at + 2u] = norm[THREAD];
    }
#define END(sum, j) \
    if ((THREAD + j * n_threads) / head_dim < mine) \
        partials[partial_of(head, group, first_row + (THREAD + j * n_threads) / head_dim) + 4u + (THREAD + j * n_threads) % head_dim] = sum;
    FOR_SUMS(END)
}
