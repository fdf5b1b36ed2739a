// One pass of attention over the slots of one pool, for the few queries of decode. Eight lanes
// share a row, and go over slots eight at a time without the rest of the workgroup. They read keys
// and values once for all queries of the workgroup, and keep their own running maxima. So no lane
// group waits for the workgroup before all slots are done. The result is a partial result
// (attention.comp).
// twin: the kernel goes over all pools at once
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "shaders/util.glsl"

layout(constant_id = 0) const uint k_format = 1u;
layout(constant_id = 1) const uint v_format = 1u;
layout(constant_id = 2) const uint head_dim = 64u;
// Bits 0 to 7: slots.glsl. From bit 8 on: the queries of a workgroup, 1, 2 or 4.
layout(constant_id = 3) const uint flags = 256u;

layout(push_constant) uniform Block { PassArgs a; SlotPass pass; SplitPass splits; } pushed;
DECLARE_ARGS(PassArgs, a)
DECLARE_ARGS(SlotPass, pass)
DECLARE_ARGS(SplitPass, splits)
// (n_tokens * n_heads, n_splits, 4 + head_dim)
layout(binding = 0) buffer Partials { float partials[]; };
layout(binding = 1) readonly buffer Q { float q[]; };        // (n_tokens, n_heads * head_dim)
layout(binding = 2) readonly buffer K { uint k[]; };         // (pass.n_rows, head_dim)
layout(binding = 2) readonly buffer Ks { uvec4 k_fours[]; }; // the same buffer
layout(binding = 3) readonly buffer V { uint v[]; };         // as K
layout(binding = 3) readonly buffer Vs { uvec4 v_fours[]; }; // the same buffer
layout(binding = 4) readonly buffer Table { uint table[]; }; // slots
// (n_kv_heads, layout_words)
layout(binding = 5) readonly buffer HeadLayout { uint head_layout[]; };

bool reads_values = false; // whether WORD reads values or keys
float x[1];                // cache.glsl names x and row, but nothing is encoded here
uint row[1];
#undef WORD
#define WORD(i) (reads_values ? v[i] : k[i])
#define FOUR(i) (reads_values ? v_fours[i] : k_fours[i])
#include "shaders/cache.glsl"
#include "shaders/lane_rows.glsl"
#include "shaders/slots.glsl"

const uint n_rows = flags >> 8u;           // queries of a workgroup
const uint n_lane_groups = n_threads / 8u; // groups of eight lanes that share a row
// Rows whose words are loaded at a time.
const uint n_in_flight = n_octets == 4u ? 2u : 4u;
// The number of a thread by which the lanes of a subgroup are neighbours.
#define LANE_THREAD (gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID)

shared vec4 queries[n_rows * head_dim / 4u]; // per octet: four dims of each lane, then four more
shared uint rows[n_threads];                 // of the lane groups' slots
shared float weights[n_rows * n_threads];    // of the slots' values
shared float scratch[n_lane_groups / 2u * head_dim];
shared float group_max[n_rows * n_lane_groups], group_den[n_rows * n_lane_groups];

const uint unbound = ~0u;

float sum[4][32];

uint partial_of(uint head, uint group, uint query)
{
    return (((query / group) * a.n_heads + head * group + query % group) * splits.n_splits +
            gl_WorkGroupID.z) *
           (4u + head_dim);
}

// Reads the workgroup's queries, scaled to logits in base 2. If it has fewer than n_rows queries,
// the last one is repeated.
void read_queries(uint head, uint group, uint first_row, uint n_queries)
{
    uint plane = plane_of(k_format);
    for (uint i = THREAD; i < n_rows * head_dim / 4u; i += n_threads) {
        uint at = i % (head_dim / 4u), query = first_row + min(i / (head_dim / 4u), n_queries - 1u);
        uint from = ((query / group) * a.n_heads + head * group + query % group) * head_dim;
        vec4 four;
        [[unroll]] for (uint n = 0u; n < 4u; n++)
            four[n] = q[from + dim_of_octet(plane, octet_of_lane(plane, at % 8u, at / 16u),
                                            at / 8u % 2u * 4u + n)];
        queries[i] = four * (a.scale * log2e);
    }
}

// Reduces eight values over the lanes of a lane group. Lane n returns the sum of sums[n].
float reduce_scatter(float sums[8], uint lane)
{
    [[unroll]] for (uint step = 0u; step < 3u; step++)
        [[unroll]] for (uint i = 0u; i < 4u >> step; i++) {
            uint apart = 1u << step;
            bool odd = (lane & apart) != 0u; // a lane keeps one of two sums and sends the other
            float even_sum = sums[2u * i], odd_sum = sums[2u * i + 1u];
            sums[i] =
                (odd ? odd_sum : even_sum) + subgroupShuffleXor(odd ? even_sum : odd_sum, apart);
        }
    return sums[0];
}

float octet_max(float x)
{
    [[unroll]] for (uint step = 0u; step < 3u; step++)
        x = max(x, subgroupShuffleXor(x, 1u << step));
    return x;
}

// Adds the products of a lane group's eight keys with the queries, over a lane's dims. first: the
// LANE_THREAD of the lane group's first lane.
void add_keys(uint first, uint lane, inout float product[4][8])
{
    uint words[4][max_words], ranges[max_words], group = unbound;
    reads_values = false;
    [[unroll]] for (uint begin = 0u; begin < 8u; begin += n_in_flight) {
        [[unroll]] for (uint i = 0u; i < n_in_flight; i++)
            fetch_row(k_format, pass.pool_rows, rows[first + begin + i], lane, words[i]);
        [[unroll]] for (uint i = 0u; i < n_in_flight; i++) {
            uint r = rows[first + begin + i];
            if (group_words(k_format, head_dim) != 0u && r / kivi_rows != group)
                fetch_ranges(k_format, r, lane, ranges);
            group = r / kivi_rows;
            [[unroll]] for (uint e = 0u; e < n_octets; e++) {
                LaneOctet key;
                decode_octet(k_format, words[i], ranges, 0u, lane, e, key);
                [[unroll]] for (uint t = 0u; t < n_rows; t++) {
                    vec4 by[2] = {queries[t * head_dim / 4u + 16u * e + lane],
                                  queries[t * head_dim / 4u + 16u * e + 8u + lane]};
                    float part[4];
                    [[unroll]] for (uint f = 0u; f < 4u; f++)
                        part[f] = key.values[2u * f] * by[f / 2u][f % 2u * 2u] +
                                  key.values[2u * f + 1u] * by[f / 2u][f % 2u * 2u + 1u];
                    if (plane_of(k_format) == angle_plane)
                        product[t][begin + i] +=
                            part[0] * key.factors[0] + part[1] * key.factors[1] +
                            part[2] * key.factors[2] + part[3] * key.factors[3];
                    else
                        product[t][begin + i] += (part[0] + part[1]) * key.factors[0] +
                                                 (part[2] + part[3]) * key.factors[2];
                }
            }
        }
    }
}

void add_values(uint first, uint lane)
{
    uint words[4][max_words], ranges[max_words];
    reads_values = true;
    [[unroll]] for (uint begin = 0u; begin < 8u; begin += n_in_flight) {
        [[unroll]] for (uint i = 0u; i < n_in_flight; i++)
            fetch_row(v_format, pass.pool_rows, rows[first + begin + i], lane, words[i]);
        [[unroll]] for (uint i = 0u; i < n_in_flight; i++)
            [[unroll]] for (uint e = 0u; e < n_octets; e++) {
                LaneOctet value;
                decode_octet(v_format, words[i], ranges, 1u, lane, e, value);
                [[unroll]] for (uint t = 0u; t < n_rows; t++) {
                    float weight = weights[t * n_threads + first + begin + i];
                    [[unroll]] for (uint f = 0u; f < 4u; f++) {
                        float p = weight * value.factors[f];
                        sum[t][8u * e + 2u * f] += p * value.values[2u * f];
                        sum[t][8u * e + 2u * f + 1u] += p * value.values[2u * f + 1u];
                    }
                }
            }
    }
}

// Combines the sums of the lane groups and of earlier passes into the partial result.
void end_rows(uint head, uint group, uint first_row, uint n_queries, uint lane, uint lane_group)
{
    uint plane = plane_of(v_format);
    [[unroll]] for (uint t = 0u; t < n_rows; t++) {
        if (t >= n_queries) continue;
        uint at = partial_of(head, group, first_row + t);
        bool has = splits.continues != 0u && partials[at] > 0.5f * masked_logit;
        float max_logit = has ? partials[at] : masked_logit;
        [[unroll]] for (uint i = 0u; i < n_lane_groups; i++)
            max_logit = max(max_logit, group_max[t * n_lane_groups + i]);
        float before = has ? power_of_two(partials[at] - max_logit) : 0.f,
              rescale = power_of_two(group_max[t * n_lane_groups + lane_group] - max_logit);
        // The upper half of the lane groups stores its sums, then the lower half adds its own.
        [[unroll]] for (uint half_of = 0u; half_of < 2u; half_of++) {
            barrier();
            [[unroll]] for (uint i = 0u; i < 8u * n_octets; i++) {
                uint to = lane_group % (n_lane_groups / 2u) * head_dim +
                          dim_of_octet(plane, octet_of_lane(plane, lane, i / 8u), i % 8u);
                if (lane_group / (n_lane_groups / 2u) == 1u - half_of)
                    scratch[to] = sum[t][i] * rescale + (half_of == 0u ? 0.f : scratch[to]);
            }
        }
        barrier();
        for (uint d = THREAD; d < head_dim; d += n_threads) {
            float value = has ? partials[at + 4u + d] * before : 0.f;
            [[unroll]] for (uint i = 0u; i < n_lane_groups / 2u; i++)
                value += scratch[i * head_dim + d];
            partials[at + 4u + d] = value;
        }
        if (THREAD != 0u) continue;
        float all = has ? partials[at + 2u] * before : 0.f;
        [[unroll]] for (uint i = 0u; i < n_lane_groups; i++)
            all += group_den[t * n_lane_groups + i] *
                   power_of_two(group_max[t * n_lane_groups + i] - max_logit);
        partials[at] = partials[at + 1u] = max_logit;
        partials[at + 2u] = all;
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
    uint first_slot = min(pass.first_slot, count_slots(s)),
         count = min(pass_slots * splits.n_splits, count_slots(s) - first_slot);
    uint each = max(n_threads, (count + 8u * splits.n_splits - 1u) / (8u * splits.n_splits) * 8u);
    uint begin = first_slot + min(split * each, count),
         end = first_slot + min(split * each + each, count);
    if (begin == end) {
        if (splits.continues != 0u || THREAD >= n_queries) return;
        uint at = partial_of(head, group, first_row + THREAD);
        partials[at] = partials[at + 1u] = masked_logit; // attention_combine skips the split
        partials[at + 2u] = 0.f;
        return;
    }
    uint lane = LANE_THREAD % 8u, lane_group = LANE_THREAD / 8u;
    float max_logit[4], den[4];
    [[unroll]] for (uint t = 0u; t < 4u; t++) {
        max_logit[t] = masked_logit;
        den[t] = 0.f;
        [[unroll]] for (uint i = 0u; i < 32u; i++) sum[t][i] = 0.f;
    }
    fill_levels(k_format, 0u);
    fill_levels(v_format, 1u);
    read_queries(head, group, first_row, n_queries);
    barrier();
    for (uint nth = begin; nth < end; nth += n_threads) {
        bool has = nth + LANE_THREAD < end;
        uint index = index_of(s, min(nth + LANE_THREAD, end - 1u)), at = slot_of(s, index),
             r = row_of_slot(at);
        has = has && r < pass.n_rows;
        // A row of the lane group, which replaces the rows of its slots that have none here.
        uint some_row = has ? r : unbound;
        [[unroll]] for (uint step = 0u; step < 3u; step++)
            some_row = min(some_row, subgroupShuffleXor(some_row, 1u << step));
        rows[LANE_THREAD] = has ? r : some_row;
        subgroupBarrier();
        float product[4][8];
        [[unroll]] for (uint i = 0u; i < 32u; i++) product[i / 8u][i % 8u] = 0.f;
        if (some_row != unbound) add_keys(LANE_THREAD - lane, lane, product);
        [[unroll]] for (uint t = 0u; t < n_rows; t++) {
            float logit = reduce_scatter(product[t], lane);
            bool visible = has && t < n_queries && sees(s, (first_row + t) / group, index);
            logit = visible ? max(masked_logit, logit) : masked_logit;
            float new_max = max(max_logit[t], octet_max(logit)),
                  rescale = power_of_two(max_logit[t] - new_max);
            float weight = logit > 0.5f * masked_logit ? power_of_two(logit - new_max) : 0.f;
            den[t] = den[t] * rescale + weight;
            max_logit[t] = new_max;
            weights[t * n_threads + LANE_THREAD] = weight;
            [[unroll]] for (uint i = 0u; i < 8u * n_octets; i++) sum[t][i] *= rescale;
        }
        subgroupBarrier();
        if (some_row != unbound) add_values(LANE_THREAD - lane, lane);
        subgroupBarrier();
    }
    [[unroll]] for (uint t = 0u; t < n_rows; t++) {
        [[unroll]] for (uint step = 0u; step < 3u; step++)
            den[t] += subgroupShuffleXor(den[t], 1u << step);
        if (lane != 0u) continue;
        group_max[t * n_lane_groups + lane_group] = max_logit[t];
        group_den[t * n_lane_groups + lane_group] = den[t];
    }
    barrier();
    end_rows(head, group, first_row, n_queries, lane, lane_group);
}
