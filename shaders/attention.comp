// One pass of attention over the slots of one pool. A workgroup has some of a KV head's queries,
// which are (token, head of the group), and some of its slots. It goes over its slots in tiles:
// 1. Logits: a thread has a slot and some of the queries.
// 2. The running maxima of the logits, and the weights of values.
// 3. Values: a thread adds two dims for some of the queries. If there are few queries and values
//    are coded, a thread adds eight dims of some of the slots for all queries.
// The result is a partial result per query and split, which attention_combine combines: the maxima
// of the numerator's and the denominator's logits, the denominator, an unused value, the numerator.
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
// (n_tokens * n_heads, n_splits, 4 + head_dim)
layout(binding = 0) buffer Partials { float partials[]; };
// (n_tokens, n_heads * head_dim), and behind them what slots.glsl says
layout(binding = 1) readonly buffer Q { uint q[]; };
// (pass.n_rows, head_dim), or dequantized (n_kv_heads * splits.dequantized, head_dim)
layout(binding = 2) readonly buffer K { uint k[]; };
layout(binding = 3) readonly buffer V { uint v[]; }; // as K
// Slots. With has_bias, their positions lie behind.
layout(binding = 4) readonly buffer Table { uint table[]; };
// (n_kv_heads, layout_words). With has_weights instead the log-weights of slots, (slots, 2).
layout(binding = 5) readonly buffer HeadLayout { uint head_layout[]; };
#ifdef GENERAL
// The RoPE table of has_rope_on_read, or the phasors of has_bias.
layout(binding = 6) readonly buffer Angles { float angles[]; };
#endif

bool reads_values = false; // whether WORD reads values or keys
float x[1]; // cache.glsl names x and row, but nothing is encoded here
uint row[1];
AS_TEXELS(1, q)
AS_TEXELS(2, k)
AS_TEXELS(3, v)
#undef WORD
#define WORD(i) (reads_values ? FETCH(v, i) : FETCH(k, i))
#define Q_WORD(i) FETCH(q, i)
#include "shaders/cache.glsl"
#include "shaders/octets.glsl"
#include "shaders/slots.glsl"
#include "shaders/logits.glsl"

// Values by pairs of dims: a set of threads has all pairs, for every n_sets-th query.
const uint n_pairs = (head_dim + 1u) / 2u;
const uint n_sets = n_pairs >= n_threads ? 1u : n_threads / n_pairs;
const uint n_chunks = (n_pairs + n_threads - 1u) / n_threads; // pairs of a thread
const uint n_each = (n_rows + n_sets - 1u) / n_sets;          // queries of a thread

// Logits plus log-weights a, in base 2; then the weights of values.
shared float num_logit[n_rows * n_slots];
shared float num_max[n_rows], den[n_rows], rescale[n_rows];
#ifdef GENERAL
// Logits plus log-weights b, and their maxima: the denominator's.
shared float den_logit[n_rows * n_slots], den_max[n_rows];
#endif
shared uint rows[n_slots]; // of the tile's slots, or unbound

const uint unbound = ~0u; // the slot's row is not in this pass's part of the pool

// The row of the pass's nth slot, in the bound buffers.
uint row_to_read(Slots s, uint nth, uint at)
{
    uint r = row_of_slot(at);
    if (r >= pass.n_rows) return unbound;
    return splits.dequantized != 0u ? s.head * splits.dequantized + nth - pass.first_slot : r;
}

// Computes the logits of n slots of the pass, from the nth on.
void compute_logits(Slots s, uint nth, uint n, uint first_row, uint n_queries, uint group)
{
    uint slot = THREAD % n_slots, row0 = THREAD / n_slots * n_queries_each;
    if (row0 >= n_queries) return; // all threads of a subgroup, or none
    uint index = index_of(s, nth + min(slot, n - 1u)), at = slot_of(s, index),
         r = row_to_read(s, nth + min(slot, n - 1u), at);
    bool bound = slot < n && r != unbound;
    float product[4];
    dot_queries(bound ? r : 0u, s, index, row0, n_queries, product);
    [[unroll]] for (uint j = 0u; j < n_queries_each; j++) {
        uint i = (row0 + j) * n_slots + slot, t = (first_row + row0 + j) / group;
        if (row0 + j >= n_rows) continue;
        bool visible = bound && row0 + j < n_queries && sees(s, t, index);
#ifdef GENERAL
        num_logit[i] = visible
                           ? max(masked_logit, (logit_of(product[j]) + log_weight(at, 0u)) * log2e)
                           : masked_logit;
        den_logit[i] = visible
                           ? max(masked_logit, (logit_of(product[j]) + log_weight(at, 1u)) * log2e)
                           : masked_logit;
#else
        num_logit[i] = visible ? max(masked_logit, logit_of(product[j]) * log2e) : masked_logit;
#endif
    }
}

// Threads that share a row of num_logit: neighbours in a subgroup, which reduce maxima and sums by
// shuffles.
#ifdef SUMS
const uint n_sharing = 8u;
#define SHARING_THREAD (gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID)
#define SHUFFLE_XOR(x, apart) subgroupShuffleXor(x, apart)
#else
const uint n_sharing = 1u;
#define SHARING_THREAD THREAD
#define SHUFFLE_XOR(x, apart) x
#endif

// Updates the maximum and the denominator of row r. num_logit becomes the weights of values.
#ifdef GENERAL
void update_row(uint r, uint)
{
    float new_num_max = num_max[r], new_den_max = den_max[r];
    for (uint i = r * n_slots; i < (r + 1u) * n_slots; i++) {
        new_num_max = max(new_num_max, num_logit[i]);
        new_den_max = max(new_den_max, den_logit[i]);
    }
    rescale[r] = power_of_two(num_max[r] - new_num_max);
    float sum = den[r] * power_of_two(den_max[r] - new_den_max);
    for (uint i = r * n_slots; i < (r + 1u) * n_slots; i++) {
        num_logit[i] =
            num_logit[i] > 0.5f * masked_logit ? power_of_two(num_logit[i] - new_num_max) : 0.f;
        sum += den_logit[i] > 0.5f * masked_logit ? power_of_two(den_logit[i] - new_den_max) : 0.f;
    }
    num_max[r] = new_num_max;
    den_max[r] = new_den_max;
    den[r] = sum;
}
#else
void update_row(uint r, uint nth)
{
    float new_num_max = num_max[r], sum = 0.f;
    for (uint i = r * n_slots + nth; i < (r + 1u) * n_slots; i += n_sharing)
        new_num_max = max(new_num_max, num_logit[i]);
    [[unroll]] for (uint apart = 1u; apart < n_sharing; apart *= 2u)
        new_num_max = max(new_num_max, SHUFFLE_XOR(new_num_max, apart));
    if (nth == 0u) {
        rescale[r] = power_of_two(num_max[r] - new_num_max);
        sum = den[r] * rescale[r];
    }
    for (uint i = r * n_slots + nth; i < (r + 1u) * n_slots; i += n_sharing) {
        num_logit[i] =
            num_logit[i] > 0.5f * masked_logit ? power_of_two(num_logit[i] - new_num_max) : 0.f;
        sum += num_logit[i];
    }
    [[unroll]] for (uint apart = 1u; apart < n_sharing; apart *= 2u) sum += SHUFFLE_XOR(sum, apart);
    if (nth != 0u) return;
    num_max[r] = new_num_max;
    den[r] = sum;
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

// Values by octets: for few queries and coded values, threads share the slots, and a thread has
// eight dims of all queries. So every code is decoded once. q8, the first codec, is excluded: its
// codes are bytes, which are cheap to read again.
const bool in_codes = v_format > first_codec && head_dim % 64u == 0u;
const uint max_octet_queries = n_rows < 4u ? n_rows : 4u;
const uint n_octets = (head_dim + 7u) / 8u,
           n_sharers = n_octets < n_threads ? n_threads / n_octets : 1u;
float octet_sums[32];

void begin_octets(uint head, uint group, uint first_row, uint n_queries)
{
    [[unroll]] for (uint i = 0u; i < max_octet_queries; i++) {
        uint from = partial_of(head, group, first_row + min(i, n_queries - 1u));
        bool has = splits.continues != 0u && THREAD < n_octets && i < n_queries &&
                   partials[from] > 0.5f * masked_logit;
        [[unroll]] for (uint k = 0u; k < 8u; k++)
            octet_sums[8u * i + k] = has ? partials[from + 4u + 8u * THREAD + k] : 0.f;
    }
}

void add_octets(uint n, uint n_queries)
{
    if (THREAD / n_octets >= n_sharers) return;
    [[unroll]] for (uint i = 0u; i < max_octet_queries; i++)
        if (i < n_queries)
            [[unroll]] for (uint k = 0u; k < 8u; k++) octet_sums[8u * i + k] *= rescale[i];
    for (uint slot = THREAD / n_octets; slot < n; slot += n_sharers) {
        uint r = rows[slot];
        if (r == unbound) continue;
        float values[8];
        row_octet(v_format, r, row_tail(v_format, pass.pool_rows, r, head_dim),
                  8u * (THREAD % n_octets), head_dim, true, values);
        [[unroll]] for (uint i = 0u; i < max_octet_queries; i++)
            if (i < n_queries)
                [[unroll]] for (uint k = 0u; k < 8u; k++)
                    octet_sums[8u * i + k] += num_logit[i * n_slots + slot] * values[k];
    }
}

// Adds the sums of the threads, one query after another. The sums overwrite `queries`.
void end_octets(uint head, uint group, uint first_row, uint n_queries)
{
    [[unroll]] for (uint i = 0u; i < max_octet_queries; i++) {
        if (i >= n_queries) continue;
        barrier();
        [[unroll]] for (uint k = 0u; k < 8u; k++) queries[8u * THREAD + k] = octet_sums[8u * i + k];
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
    uint n_queries = min(n_rows, a.n_tokens * group - first_row),
         end_token = (first_row + n_queries - 1u) / group + 1u;
    Slots s = find_slots(head, first_row / group, end_token, false);
    uint max_slots = splits.dequantized != 0u ? splits.dequantized : pass_slots * splits.n_splits;
    uint first_slot = min(pass.first_slot, count_slots(s)),
         count = min(max_slots, count_slots(s) - first_slot);
    uint each = max(n_slots, (count + splits.n_splits - 1u) / splits.n_splits);
    uint begin = first_slot + min(split * each, count),
         end = first_slot + min(split * each + each, count);
    if (begin == end && splits.continues != 0u) return;

    // Thread (r % n_sets) * n_pairs + p % n_threads has pair p of query r.
    uint set = THREAD / min(n_pairs, n_threads), pair = THREAD % min(n_pairs, n_threads);
    vec2 sum[4];
    [[unroll]] for (uint i = 0u; i < n_each * n_chunks; i++) {
        uint r = i / n_chunks * n_sets + set, d = 2u * (pair + i % n_chunks * n_threads);
        sum[i] = vec2(0.f);
        if (splits.continues == 0u || set >= n_sets || r >= n_queries || d >= head_dim) continue;
        uint from = partial_of(head, group, first_row + r) + 4u + d;
        // Earlier passes saw no slot and wrote no numerator.
        if (partials[from - 4u - d] < 0.5f * masked_logit) continue;
        sum[i] = vec2(partials[from], d + 1u < head_dim ? partials[from + 1u] : 0.f);
    }
    bool by_octets = in_codes && n_queries <= max_octet_queries;
    if (by_octets) begin_octets(head, group, first_row, n_queries);
    uint at = partial_of(head, group, first_row + THREAD);
    if (THREAD < n_rows) {
        bool has = splits.continues != 0u && THREAD < n_queries;
        num_max[THREAD] = has ? partials[at] : masked_logit;
#ifdef GENERAL
        den_max[THREAD] = has ? partials[at + 1u] : masked_logit;
#endif
        den[THREAD] = has ? partials[at + 2u] : 0.f;
    }
    if (begin < end) read_queries(head, group, first_row, n_queries, s.before);
    for (uint nth = begin; nth < end; nth += n_slots) {
        uint n = min(n_slots, end - nth);
        if (THREAD < n_slots)
            rows[THREAD] = THREAD < n
                               ? row_to_read(s, nth + THREAD, slot_of(s, index_of(s, nth + THREAD)))
                               : unbound;
        barrier();
        reads_values = false;
        compute_logits(s, nth, n, first_row, n_queries, group);
        barrier();
        if (SHARING_THREAD / n_sharing < n_queries)
            update_row(SHARING_THREAD / n_sharing, SHARING_THREAD % n_sharing);
        barrier();
        reads_values = true;
        if (by_octets) {
            add_octets(n, n_queries);
        } else if (set < n_queries && set < n_sets) {
            [[unroll]] for (uint i = 0u; i < n_each * n_chunks; i++)
                sum[i] *= rescale[min(i / n_chunks * n_sets + set, n_rows - 1u)];
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
    if (THREAD < n_queries) {
        partials[at] = num_max[THREAD];
#ifdef GENERAL
        partials[at + 1u] = den_max[THREAD];
#else
        partials[at + 1u] = num_max[THREAD];
#endif
        partials[at + 2u] = den[THREAD];
    }
    if (splits.continues == 0u && begin == end) return; // attention_combine skips the split
    if (by_octets) end_octets(head, group, first_row, n_queries);
    [[unroll]] for (uint i = 0u; i < n_each * n_chunks; i++) {
        uint r = i / n_chunks * n_sets + set, d = 2u * (pair + i % n_chunks * n_threads);
        if (by_octets || set >= n_sets || r >= n_queries || d >= head_dim) continue;
        uint to = partial_of(head, group, first_row + r) + 4u + d;
        partials[to] = sum[i].x;
        if (d + 1u < head_dim) partials[to + 1u] = sum[i].y;
    }
}
