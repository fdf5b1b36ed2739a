// One pass of attention of a few queries, as decoding has them, over the slots of one pool. Eight lanes share a row, and take eight slots
// at a time by themselves: they read keys and values once for all queries of the workgroup and keep their own maxima, so that nobody waits
// for a workgroup until all slots are seen. What remains is a partial result (attention_combine). twin: the kernel goes over all pools at
// once
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "shaders/util.glsl"

layout(constant_id = 0) const uint k_format = 1u;
layout(constant_id = 1) const uint v_format = 1u;
layout(constant_id = 2) const uint head_dim = 64u;
// slots.glsl; above them the queries of a workgroup: 1, 2 or 4
layout(constant_id = 3) const uint flags = 256u;

layout(push_constant) uniform Block
{
    PassArgs a;
    SlotPass pass;
    SplitPass splits;
}
pushed;
DECLARE_ARGS(PassArgs, a)
DECLARE_ARGS(SlotPass, pass)
DECLARE_ARGS(SplitPass, splits)
layout(binding = 0) buffer Partials
{
    float partials[];
}; // (n_tokens * n_heads, n_splits, 4 + head_dim)
layout(binding = 1) readonly buffer Q
{
    float q[];
}; // (n_tokens, n_heads * head_dim)
layout(binding = 2) readonly buffer K
{
    uint k[];
}; // (pass.n_rows, head_dim)
layout(binding = 2) readonly buffer Ks
{
    uvec4 k_fours[];
}; // the same
layout(binding = 3) readonly buffer V
{
    uint v[];
}; // as K
layout(binding = 3) readonly buffer Vs
{
    uvec4 v_fours[];
};
layout(binding = 4) readonly buffer Table
{
    uint table[];
}; // slots
layout(binding = 5) readonly buffer View
{
    uint head_layout[];
}; // (n_kv_heads, layout_words)

bool reads_values = false; // which of the two caches WORD is of
float x[1];                // nothing is encoded here
uint row[1];
#undef WORD
#define WORD(i) (reads_values ? v[i] : k[i])
#define FOUR(i) (reads_values ? v_fours[i] : k_fours[i])
#include "shaders/cache.glsl"
#include "shaders/lane_rows.glsl"
#include "shaders/slots.glsl"

const uint n_rows = flags >> 8u;                                        // queries of a workgroup
const uint n_lane_groups = n_threads / 8u;                              // of lanes
// rows whose words are on their way at a time
const uint n_in_flight = n_octets == 4u ? 2u : 4u;
#define OWN (gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID) // lanes of a subgroup are neighbours by it

shared vec4 queries[n_rows * head_dim / 4u]; // four dims of each lane, then four more
shared uint rows[n_threads];                 // of the lane groups' slots
shared float shares[n_rows * n_threads];     // weights of their values
shared float scratch[n_lane_groups / 2u * head_dim];
shared float top[n_rows * n_lane_groups], norm[n_rows * n_lane_groups];

const uint unbound = ~0u;

float sum[4][32];

uint partial_of(uint head, uint group, uint query)
{
    return (((query / group) * a.n_heads + head * group + query % group) * splits.n_splits +
            gl_WorkGroupID.z) *
           (4u + head_dim);
}

// Of fewer queries the last one is there again.
void read_queries(uint head, uint group, uint first_row, uint mine)
{
    uint plane = plane_of(k_format);
    for (uint i = THREAD; i < n_rows * head_dim / 4u; i += n_threads) {
        uint at = i % (head_dim / 4u), query = first_row + min(i / (head_dim / 4u), mine - 1u);
        uint from = ((query / group) * a.n_heads + head * group + query % group) * head_dim;
        vec4 four;
        [[unroll]] for (uint n = 0u; n < 4u; n++)
            four[n] = q[from + dim_of_octet(plane, octet_of_lane(plane, at % 8u, at / 16u),
                                            at / 8u % 2u * 4u + n)];
        queries[i] = four * (a.scale * log2e);
    }
}

// Each of eight sums over the lanes of a lane group; the nth lane has the nth.
float share_sums(float sums[8], uint lane)
{
    [[unroll]] for (uint step = 0u; step < 3u; step++)
        [[unroll]] for (uint i = 0u; i < 4u >> step; i++) {
            uint apart = 1u << step;
            bool odd =
                (lane & apart) != 0u; // of two sums a lane goes on with one and tells the other
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

// Products of a lane group's eight keys with the queries, over a lane's dims. first: of the lane group's lanes.
void add_keys(uint first, uint lane, inout float product[4][8])
{
    uint words[4][most_words], ranges[most_words], group = unbound;
    reads_values = false;
    [[unroll]] for (uint begin = 0u; begin < 8u; begin += n_in_flight)
    {
        [[unroll]] for (uint i = 0u; i < n_in_flight; i++)
            fetch_row(k_format, pass.pool_rows, rows[first + begin + i], lane, words[i]);
        [[unroll]] for (uint i = 0u; i < n_in_flight; i++)
        {
            uint r = rows[first + begin + i];
            if (group_words(k_format, head_dim) != 0u && r / kivi_rows != group)
                fetch_ranges(k_format, r, lane, ranges);
            group = r / kivi_rows;
            [[unroll]] for (uint e = 0u; e < n_octets; e++)
            {
                LaneOctet key;
                decode_octet(k_format, words[i], ranges, 0u, lane, e, key);
                [[unroll]] for (uint t = 0u; t < n_rows; t++)
                {
                    vec4 by[2] = {queries[t * head_dim / 4u + 16u * e + lane],
                                  queries[t * head_dim / 4u + 16u * e + 8u + lane]};
                    float part[4];
                    [[unroll]] for (uint f = 0u; f < 4u; f++)
                        part[f] = key.values[2u * f] * by[f / 2u][f % 2u * 2u] +
                                  key.values[2u * f + 1u] * by[f / 2u][f % 2u * 2u + 1u];
                    if (plane_of(k_format) == plane_of_angles)
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
    uint words[4][most_words], ranges[most_words];
    reads_values = true;
    [[unroll]] for (uint begin = 0u; begin < 8u; begin += n_in_flight)
    {
        [[unroll]] for (uint i = 0u; i < n_in_flight; i++)
            fetch_row(v_format, pass.pool_rows, rows[first + begin + i], lane, words[i]);
        [[unroll]] for (uint i = 0u; i < n_in_flight; i++)
            [[unroll]] for (uint e = 0u; e < n_octets; e++) {
                LaneOctet value;
                decode_octet(v_format, words[i], ranges, 1u, lane, e, value);
                [[unroll]] for (uint t = 0u; t < n_rows; t++) {
                    float share = shares[t * n_threads + first + begin + i];
                    [[unroll]] for (uint f = 0u; f < 4u; f++) {
                        float p = share * value.factors[f];
                        sum[t][8u * e + 2u * f] += p * value.values[2u * f];
                        sum[t][8u * e + 2u * f + 1u] += p * value.values[2u * f + 1u];
                    }
                }
            }
    }
}

// What the lane groups found, and earlier passes, becomes the partial result.
void end_rows(uint head, uint group, uint first_row, uint mine, uint lane, uint lane_group)
{
    uint plane = plane_of(v_format);
    [[unroll]] for (uint t = 0u; t < n_rows; t++)
    {
        if (t >= mine) continue;
        uint at = partial_of(head, group, first_row + t);
        bool has = splits.continues != 0u && partials[at] > 0.5f * masked_logit;
        float best = has ? partials[at] : masked_logit;
        [[unroll]] for (uint i = 0u; i < n_lane_groups; i++)
            best = max(best, top[t * n_lane_groups + i]);
        float before = has ? power_of_two(partials[at] - best) : 0.f,
              shrink = power_of_two(top[t * n_lane_groups + lane_group] - best);
        // Half of the lane groups tell the others, then these all.
        [[unroll]] for (uint half_of = 0u; half_of < 2u; half_of++)
        {
            barrier();
            [[unroll]] for (uint i = 0u; i < 8u * n_octets; i++)
            {
                uint to = lane_group % (n_lane_groups / 2u) * head_dim +
                          dim_of_octet(plane, octet_of_lane(plane, lane, i / 8u), i % 8u);
                if (lane_group / (n_lane_groups / 2u) == 1u - half_of)
                    scratch[to] = sum[t][i] * shrink + (half_of == 0u ? 0.f : scratch[to]);
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
        [[unroll]] for (uint i = 0u; i < n_lane_groups; i++) all +=
            norm[t * n_lane_groups + i] * power_of_two(top[t * n_lane_groups + i] - best);
        partials[at] = partials[at + 1u] = best;
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
    uint mine = min(n_rows, a.n_tokens * group - first_row),
         end_token = (first_row + mine - 1u) / group + 1u;
    Slots s = find_slots(head, first_row / group, end_token, false);
    uint first_slot = min(pass.first_slot, count_slots(s)),
         count = min(pass_slots * splits.n_splits, count_slots(s) - first_slot);
    uint each = max(n_threads, (count + 8u * splits.n_splits - 1u) / (8u * splits.n_splits) * 8u);
    uint begin = first_slot + min(split * each, count),
         end = first_slot + min(split * each + each, count);
    if (begin == end) {
        if (splits.continues != 0u || THREAD >= mine) return;
        uint at = partial_of(head, group, first_row + THREAD);
        partials[at] = partials[at + 1u] = masked_logit; // attention_combine leaves it out
        partials[at + 2u] = 0.f;
        return;
    }
    uint lane = OWN % 8u, lane_group = OWN / 8u;
    float best[4], norms[4];
    [[unroll]] for (uint t = 0u; t < 4u; t++)
    {
        best[t] = masked_logit;
        norms[t] = 0.f;
        [[unroll]] for (uint i = 0u; i < 32u; i++) sum[t][i] = 0.f;
    }
    fill_levels(k_format, 0u);
    fill_levels(v_format, 1u);
    read_queries(head, group, first_row, mine);
    barrier();
    for (uint nth = begin; nth < end; nth += n_threads) {
        bool has = nth + OWN < end;
        uint index = index_of(s, min(nth + OWN, end - 1u)), at = slot_of(s, index),
             r = row_of_slot(at);
        has = has && r < pass.n_rows;
        // a row of the lane group's, in the place of those that it has not
        uint any = has ? r : unbound;
        [[unroll]] for (uint step = 0u; step < 3u; step++)
            any = min(any, subgroupShuffleXor(any, 1u << step));
        rows[OWN] = has ? r : any;
        subgroupBarrier();
        float product[4][8];
        [[unroll]] for (uint i = 0u; i < 32u; i++) product[i / 8u][i % 8u] = 0.f;
        if (any != unbound) add_keys(OWN - lane, lane, product);
        [[unroll]] for (uint t = 0u; t < n_rows; t++)
        {
            float logit = share_sums(product[t], lane);
            bool there = has && t < mine && sees(s, (first_row + t) / group, index);
            logit = there ? max(masked_logit, logit) : masked_logit;
            float new_best = max(best[t], octet_max(logit)),
                  shrink = power_of_two(best[t] - new_best);
            float share = logit > 0.5f * masked_logit ? power_of_two(logit - new_best) : 0.f;
            norms[t] = norms[t] * shrink + share;
            best[t] = new_best;
            shares[t * n_threads + OWN] = share;
            [[unroll]] for (uint i = 0u; i < 8u * n_octets; i++) sum[t][i] *= shrink;
        }
        subgroupBarrier();
        if (any != unbound) add_values(OWN - lane, lane);
        subgroupBarrier();
    }
    [[unroll]] for (uint t = 0u; t < n_rows; t++)
    {
        [[unroll]] for (uint step = 0u; step < 3u; step++)
            norms[t] += subgroupShuffleXor(norms[t], 1u << step);
        if (lane != 0u) continue;
        top[t * n_lane_groups + lane_group] = best[t];
        norm[t * n_lane_groups + lane_group] = norms[t];
    }
    barrier();
    end_rows(head, group, first_row, mine, lane, lane_group);
}
