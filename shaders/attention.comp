// One pass of attention over the slots of one pool. A workgroup has some of a KV head's queries, which are (token, head of the
// group), and some of its slots. Of the slots of a tile: logits are taken, a thread having a slot and some of the queries; the
// running maxima are moved; values are added, a thread having two dims of some of the queries, or, of a few queries and values in
// codes, eight dims of some of the slots. What remains is a partial result (attention_combine).
// also with LANES SUMS
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#if defined(LANES) || defined(SUMS)
#extension GL_KHR_shader_subgroup_shuffle : require
#else
#define GENERAL
#endif
#include "shaders/util.glsl"

layout(constant_id = 0) const uint k_format = 1u;
layout(constant_id = 1) const uint v_format = 1u;
layout(constant_id = 2) const uint head_dim = 64u;
layout(constant_id = 3) const uint flags = 0u; // slots.glsl

layout(push_constant) uniform Block { PassArgs a; SlotPass pass; SplitPass splits; } pushed;
DECLARE_ARGS(PassArgs, a)
DECLARE_ARGS(SlotPass, pass)
DECLARE_ARGS(SplitPass, splits)
layout(binding = 0) buffer Partials { float partials[]; };       // (n_tokens * n_heads, n_splits, 4 + head_dim)
layout(binding = 1) readonly buffer Q { uint q[]; };             // (n_tokens, n_heads * head_dim), and what slots.glsl says
layout(binding = 2) readonly buffer K { uint k[]; };             // (pass.n_rows, head_dim), or (n_kv_heads * splits.dequantized, head_dim)
layout(binding = 3) readonly buffer V { uint v[]; };             // as K
layout(binding = 4) readonly buffer Table { uint table[]; };     // slots; with waves their positions behind
layout(binding = 5) readonly buffer View { uint head_layout[]; };       // (n_kv_heads, layout_words); with weights (slots, 2)
#ifdef GENERAL
layout(binding = 6) readonly buffer Angles { float angles[]; };  // turns, or waves
#endif

bool reads_values = false; // which of the two caches WORD is of
float x[1]; // nothing is encoded here
uint row[1];
#undef WORD
#ifdef LANES
AS_TEXELS(1, q_texels)
AS_TEXELS(2, k_texels)
AS_TEXELS(3, v_texels)
#define WORD(i) (reads_values ? TEXEL(v_texels, i) : TEXEL(k_texels, i))
#define Q_WORD(i) TEXEL(q_texels, i)
#else
#define WORD(i) (reads_values ? v[i] : k[i])
#define Q_WORD(i) q[i]
#endif
#include "shaders/cache.glsl"
#include "shaders/octets.glsl"
#include "shaders/slots.glsl"
#include "shaders/lanes.glsl"
#include "shaders/logits.glsl"

const uint n_pairs = (head_dim + 1u) / 2u;                          // of dims
// of threads that have all pairs; each has every n_sets-th query
const uint n_sets = n_pairs >= n_threads ? 1u : n_threads / n_pairs;
const uint n_chunks = (n_pairs + n_threads - 1u) / n_threads;        // pairs of a thread
const uint n_each = (n_rows + n_sets - 1u) / n_sets;                 // queries of a thread

shared float num_logit[n_rows * n_slots]; // logits, and log-weights a, then weights of values
shared float top[n_rows], norm[n_rows], shrink[n_rows];
#ifdef GENERAL
// logits and log-weights b; the denominator's maxima
shared float den_logit[n_rows * n_slots], norm_top[n_rows];
#endif
shared uint rows[n_slots]; // of the slots, or unbound

const uint unbound = ~0u;

// Where the row of the pass's nth slot is read.
uint row_to_read(Slots s, uint nth, uint at)
{
    uint r = row_of_slot(at);
    if (r >= pass.n_rows) return unbound;
    return splits.dequantized != 0u ? s.head * splits.dequantized + nth - pass.first_slot : r;
}

// The logits of n slots, the first of which is the pass's nth.
void take_logits(Slots s, uint nth, uint n, uint first_row, uint mine, uint group)
{
    uint slot = THREAD % n_slots, row0 = THREAD / n_slots * n_queried;
    if (row0 >= mine) return; // all threads of a subgroup, or none
    uint index = index_of(s, nth + min(slot, n - 1u)), at = slot_of(s, index),
         r = row_to_read(s, nth + min(slot, n - 1u), at);
    bool bound = slot < n && r != unbound;
    float product[4];
    key_products(bound ? r : 0u, s, index, row0, mine, product);
    [[unroll]] for (uint j = 0u; j < n_queried; j++) {
        uint i = (row0 + j) * n_slots + slot, t = (first_row + row0 + j) / group;
        if (row0 + j >= n_rows) continue;
        bool there = bound && row0 + j < mine && sees(s, t, index);
#ifdef GENERAL
        num_logit[i] = there
                           ? max(masked_logit, (product[j] * a.scale + log_weight(at, 0u)) * log2e)
                           : masked_logit;
        den_logit[i] = there
                           ? max(masked_logit, (product[j] * a.scale + log_weight(at, 1u)) * log2e)
                           : masked_logit;
#else
        num_logit[i] = there ? max(masked_logit, product[j] * a.scale * log2e) : masked_logit;
#endif
    }
}

// Threads that share a row's slots: neighbours in a subgroup, which tell each other the best and the sum of what they have.
#ifdef SUMS
const uint n_sharing = 8u;
#define SHARING_THREAD (gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID)
#define SHUFFLE_XOR(x, apart) subgroupShuffleXor(x, apart)
#else
const uint n_sharing = 1u;
#define SHARING_THREAD THREAD
#define SHUFFLE_XOR(x, apart) x
#endif

// Moves a row's maxima; over becomes the weights of values.
#ifdef GENERAL
void take_row(uint r, uint)
{
    float new_top = top[r], new_norm_top = norm_top[r];
    for (uint i = r * n_slots; i < (r + 1u) * n_slots; i++) {
        new_top = max(new_top, num_logit[i]);
        new_norm_top = max(new_norm_top, den_logit[i]);
    }
    shrink[r] = power_of_two(top[r] - new_top);
    float sum = norm[r] * power_of_two(norm_top[r] - new_norm_top);
    for (uint i = r * n_slots; i < (r + 1u) * n_slots; i++) {
        num_logit[i] =
            num_logit[i] > 0.5f * masked_logit ? power_of_two(num_logit[i] - new_top) : 0.f;
        sum += den_logit[i] > 0.5f * masked_logit ? power_of_two(den_logit[i] - new_norm_top) : 0.f;
    }
    top[r] = new_top;
    norm_top[r] = new_norm_top;
    norm[r] = sum;
}
#else
void take_row(uint r, uint nth)
{
    float new_top = top[r], sum = 0.f;
    for (uint i = r * n_slots + nth; i < (r + 1u) * n_slots; i += n_sharing)
        new_top = max(new_top, num_logit[i]);
    [[unroll]] for (uint apart = 1u; apart < n_sharing; apart *= 2u)
        new_top = max(new_top, SHUFFLE_XOR(new_top, apart));
    if (nth == 0u) {
        shrink[r] = power_of_two(top[r] - new_top);
        sum = norm[r] * shrink[r];
    }
    for (uint i = r * n_slots + nth; i < (r + 1u) * n_slots; i += n_sharing) {
        num_logit[i] =
            num_logit[i] > 0.5f * masked_logit ? power_of_two(num_logit[i] - new_top) : 0.f;
        sum += num_logit[i];
    }
    [[unroll]] for (uint apart = 1u; apart < n_sharing; apart *= 2u) sum += SHUFFLE_XOR(sum, apart);
    if (nth != 0u) return;
    top[r] = new_top;
    norm[r] = sum;
}
#endif

uint partial_of(uint head, uint group, uint query)
{
    return (((query / group) * a.n_heads + head * group + query % group) * splits.n_splits +
            gl_WorkGroupID.z) *
           (4u + head_dim);
}

vec2 value_pair(uint r, uint d)
{
    if (v_format == plain_f16 && head_dim % 2u == 0u)
        return unpackHalf2x16(WORD((r * head_dim + d) / 2u));
    uint tail = row_tail(v_format, pass.pool_rows, r, head_dim);
    float second = d + 1u < head_dim ? row_value(v_format, r, tail, d + 1u, head_dim) : 0.f;
    return vec2(row_value(v_format, r, tail, d, head_dim), second);
}

// Of values in codes and a few queries, threads share the slots, each with eight dims of all queries: codes are decoded once. Those of q8,
// the first codec, are bytes: it costs less to read them again.
const bool in_codes = v_format > first_codec && head_dim % 64u == 0u;
const uint n_few = n_rows < 4u ? n_rows : 4u;
const uint n_octets = (head_dim + 7u) / 8u,
           n_sharers = n_octets < n_threads ? n_threads / n_octets : 1u;
float few[32];

void begin_octets(uint head, uint group, uint first_row, uint mine)
{
    [[unroll]] for (uint i = 0u; i < n_few; i++) {
        uint from = partial_of(head, group, first_row + min(i, mine - 1u));
        bool has = splits.continues != 0u && THREAD < n_octets && i < mine &&
                   partials[from] > 0.5f * masked_logit;
        [[unroll]] for (uint k = 0u; k < 8u; k++)
            few[8u * i + k] = has ? partials[from + 4u + 8u * THREAD + k] : 0.f;
    }
}

void add_octets(uint n, uint mine)
{
    if (THREAD / n_octets >= n_sharers) return;
    [[unroll]] for (uint i = 0u; i < n_few; i++)
        if (i < mine)
            [[unroll]] for (uint k = 0u; k < 8u; k++) few[8u * i + k] *= shrink[i];
    for (uint slot = THREAD / n_octets; slot < n; slot += n_sharers) {
        uint r = rows[slot];
        if (r == unbound) continue;
        float values[8];
        row_octet(v_format, r, row_tail(v_format, pass.pool_rows, r, head_dim),
                  8u * (THREAD % n_octets), head_dim, true, values);
        [[unroll]] for (uint i = 0u; i < n_few; i++)
            if (i < mine)
                [[unroll]] for (uint k = 0u; k < 8u; k++)
                    few[8u * i + k] += num_logit[i * n_slots + slot] * values[k];
    }
}

// What the threads have of each query, one after another, in the place of the queries.
void end_octets(uint head, uint group, uint first_row, uint mine)
{
    [[unroll]] for (uint i = 0u; i < n_few; i++) {
        if (i >= mine) continue;
        barrier();
        [[unroll]] for (uint k = 0u; k < 8u; k++) queries[8u * THREAD + k] = few[8u * i + k];
        barrier();
        for (uint d = THREAD; d < head_dim; d += n_threads) {
            float sum = 0.f;
            for (uint sharer = 0u; sharer < n_sharers; sharer++)
                sum += queries[8u * n_octets * sharer + d];
            partials[partial_of(head, group, first_row + i) + 4u + d] = sum;
        }
    }
}

void main()
{
    LOAD_ARGS(a)
    LOAD_ARGS(pass)
    LOAD_ARGS(splits)
    uint group = a.n_heads / a.n_kv_heads, first_row = gl_WorkGroupID.x * n_rows,
         head = gl_WorkGroupID.y, split = gl_WorkGroupID.z;
    uint mine = min(n_rows, a.n_tokens * group - first_row),
         end_token = (first_row + mine - 1u) / group + 1u;
    Slots s = find_slots(head, first_row / group, end_token, false);
    uint most = splits.dequantized != 0u ? splits.dequantized : pass_slots * splits.n_splits;
    uint first_slot = min(pass.first_slot, count_slots(s)),
         count = min(most, count_slots(s) - first_slot);
    uint each = max(n_slots, (count + splits.n_splits - 1u) / splits.n_splits);
    uint begin = first_slot + min(split * each, count),
         end = first_slot + min(split * each + each, count);
    if (begin == end && splits.continues != 0u) return;

    // Pair p of query r is with thread (r % n_sets) * n_pairs + p % n_threads.
    uint set = THREAD / min(n_pairs, n_threads), pair = THREAD % min(n_pairs, n_threads);
    vec2 sum[4];
    [[unroll]] for (uint i = 0u; i < n_each * n_chunks; i++) {
        uint r = i / n_chunks * n_sets + set, d = 2u * (pair + i % n_chunks * n_threads);
        sum[i] = vec2(0.f);
        if (splits.continues == 0u || set >= n_sets || r >= mine || d >= head_dim) continue;
        uint from = partial_of(head, group, first_row + r) + 4u + d;
        // nothing was found, and nothing written
        if (partials[from - 4u - d] < 0.5f * masked_logit) continue;
        sum[i] = vec2(partials[from], d + 1u < head_dim ? partials[from + 1u] : 0.f);
    }
    bool octets = in_codes && mine <= n_few;
    if (octets) begin_octets(head, group, first_row, mine);
    // maxima of numerator and denominator, the denominator; then the numerator
    uint at = partial_of(head, group, first_row + THREAD);
    if (THREAD < n_rows) {
        bool has = splits.continues != 0u && THREAD < mine;
        top[THREAD] = has ? partials[at] : masked_logit;
#ifdef GENERAL
        norm_top[THREAD] = has ? partials[at + 1u] : masked_logit;
#endif
        norm[THREAD] = has ? partials[at + 2u] : 0.f;
    }
    if (begin < end) read_queries(head, group, first_row, mine, s.before);
    for (uint nth = begin; nth < end; nth += n_slots) {
        uint n = min(n_slots, end - nth);
        if (THREAD < n_slots)
            rows[THREAD] = THREAD < n
                               ? row_to_read(s, nth + THREAD, slot_of(s, index_of(s, nth + THREAD)))
                               : unbound;
        barrier();
        reads_values = false;
        take_logits(s, nth, n, first_row, mine, group);
        barrier();
        if (SHARING_THREAD / n_sharing < mine)
            take_row(SHARING_THREAD / n_sharing, SHARING_THREAD % n_sharing);
        barrier();
        reads_values = true;
        if (octets) {
            add_octets(n, mine);
        } else if (set < mine && set < n_sets) {
            [[unroll]] for (uint i = 0u; i < n_each * n_chunks; i++)
                sum[i] *= shrink[min(i / n_chunks * n_sets + set, n_rows - 1u)];
            for (uint octet = 0u; octet < n; octet += 8u) {
                uint row_read[2];
                READ_OCTET(row_read, rows, octet)
                float read[4][2];
                [[unroll]] for (uint i = 0u; i < n_each; i++) {
                    uint from = min(i * n_sets + set, n_rows - 1u) * n_slots + octet;
                    READ_OCTET(read[i], num_logit, from)
                }
                [[unroll]] for (uint slot = 0u; slot < 8u; slot++) {
                    uint r = OCTET_AT(row_read, rows, octet, slot);
                    if (r != unbound) {
                        [[unroll]] for (uint c = 0u; c < n_chunks; c++) {
                            uint d = 2u * (pair + c * n_threads);
                            vec2 values = value_pair(r, min(d, head_dim - 1u));
                            [[unroll]] for (uint i = 0u; i < n_each; i++) {
                                uint from = min(i * n_sets + set, n_rows - 1u) * n_slots + octet;
                                sum[i * n_chunks + c] +=
                                    OCTET_AT(read[i], num_logit, from, slot) * values;
                            }
                        }
                    }
                }
            }
        }
        barrier();
    }
    if (THREAD < mine) {
        partials[at] = top[THREAD];
#ifdef GENERAL
        partials[at + 1u] = norm_top[THREAD];
#else
        partials[at + 1u] = top[THREAD];
#endif
        partials[at + 2u] = norm[THREAD];
    }
    if (splits.continues == 0u && begin == end) return; // attention_combine leaves it out
    if (octets) end_octets(head, group, first_row, mine);
    [[unroll]] for (uint i = 0u; i < n_each * n_chunks; i++) {
        uint r = i / n_chunks * n_sets + set, d = 2u * (pair + i % n_chunks * n_threads);
        if (octets || set >= n_sets || r >= mine || d >= head_dim) continue;
        uint to = partial_of(head, group, first_row + r) + 4u + d;
        partials[to] = sum[i].x;
        if (d + 1u < head_dim) partials[to + 1u] = sum[i].y;
    }
}
