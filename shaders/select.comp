// select: chooses the slots that a step reads. Its steps decide whether the last choice is used
// again, score units, add votes, and list slots. If the last choice is used again, only the first
// step and the last one do something.
// twin: the steps are dispatches of this shader with different buffers; in CUDA each is a kernel
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(constant_id = 0) const uint step = 0u;
layout(constant_id = 1) const uint format = 1u; // of the keys
layout(constant_id = 2) const uint head_dim = 64u;
// 1: log-weights, 2: queries before RoPE are given, 4: rope_neox
layout(constant_id = 3) const uint flags = 0u;
const bool has_weights = (flags & 1u) != 0u;
const uint pairs = (flags & 4u) != 0u ? rope_neox : rope_interleaved;

const uint step_queries = 0u, step_bounds = 1u, step_representatives = 2u, step_logits = 3u;
const uint step_pages = 4u, step_votes = 5u, step_list = 6u, step_chunk = 7u;

layout(push_constant) uniform Block { SelectArgs s; SelectShape a; SelectPass pass; } pushed;
DECLARE_ARGS(SelectArgs, s)
DECLARE_ARGS(SelectShape, a)
DECLARE_ARGS(SelectPass, pass)
// Some buffers differ in some steps.
layout(binding = 0) buffer Scratch { uint scratch[]; };
// (n_kv_heads, layout_words) of the slots. step_queries: the state, (select_words)
layout(binding = 1) buffer HeadLayout { uint head_layout[]; };
// The table of the slots. step_queries: the angles of RoPE
layout(binding = 2) readonly buffer Table { uint table[]; };
layout(binding = 3) buffer ToLayout { uint to_layout[]; }; // (n_kv_heads, layout_words)
// Keys (pass.n_rows, head_dim). step_queries: queries before RoPE. step_representatives: attention
// scores by slot
layout(binding = 4) readonly buffer K { uint w[]; };
// (slots, 2). step_queries: the queries (n_tokens, n_heads * head_dim)
layout(binding = 5) readonly buffer Weights { float weights[]; };
// The table that is written. step_bounds, step_pages: bounds of pages. step_queries: the mean query
// of the last choice
layout(binding = 6) buffer To { uint to[]; };

float x[1]; // unused: this shader encodes no rows
uint row[1];
#include "shaders/cache.glsl"

// Parts of the scratch. Word 0: 1 for a new choice, 0 for one that is used again. Word 1:
// tokens_to_refresh. Then the mean queries (n_heads, head_dim), the mean queries that the next call
// compares with, logits (n_heads, stride), and of (n_kv_heads, stride) each: votes, marks of chosen
// units, and representatives.
const uint header = 64u;
uint query_at(uint h) { return header + h * head_dim; }
uint before_rope_at(uint h) { return header + (a.n_heads + h) * head_dim; }
uint logits_at(uint h) { return header + 2u * a.n_heads * head_dim + h * pass.stride; }
uint votes_at(uint head) { return logits_at(a.n_heads) + head * pass.stride; }
uint marks_at(uint head) { return votes_at(a.n_kv_heads) + head * pass.stride; }
uint representatives_at(uint head) { return marks_at(a.n_kv_heads) + head * pass.stride; }
float scratch_value(uint at) { return uintBitsToFloat(scratch[at]); }

uint before_of(uint head) { return head_layout[head * layout_words + layout_n_held]; }
uint group_size() { return a.n_heads / a.n_kv_heads; }

uint n_units(uint before) { return count_units(before, s.n_read, s.n_first, s.n_last, s.unit); }
uint unit_begin(uint nth, uint before)
{
    return unit_bound(nth, before, s.n_first, s.n_last, s.unit);
}
uint n_representatives(uint nth, uint before)
{
    return count_representatives(unit_begin(nth + 1u, before) - unit_begin(nth, before));
}
// All blocks but the first one and the last one have all representatives.
uint first_representative(uint nth, uint before)
{
    return nth == 0u ? 0u
                     : n_representatives(0u, before) + (nth - 1u) * select_n_representatives;
}

#include "shaders/top_k.glsl"

shared float sums[n_threads];

float sum_of_all(float mine)
{
    barrier();
    sums[THREAD] = mine;
    barrier();
    for (uint n = n_threads / 2u; n > 0u; n >>= 1) {
        if (THREAD < n) sums[THREAD] += sums[THREAD + n];
        barrier();
    }
    return sums[0];
}

float max_of_all(float mine)
{
    barrier();
    sums[THREAD] = mine;
    barrier();
    for (uint n = n_threads / 2u; n > 0u; n >>= 1) {
        if (THREAD < n) sums[THREAD] = max(sums[THREAD], sums[THREAD + n]);
        barrier();
    }
    return sums[0];
}

// Value d of the mean of the chunk's queries of head h. With n_rope_on_read token t gets the RoPE
// of index n_last + t. before_rope: the queries before RoPE.
float mean_query(uint h, uint d, bool before_rope)
{
    uint pair = pair_of(pairs, d, a.n_rope_on_read);
    uint first = first_of_pair(pairs, pair);
    uint second = second_of_pair(pairs, pair, a.n_rope_on_read);
    float sum = 0.f;
    for (uint t = 0u; t < a.n_tokens; t++) {
        uint at = (t * a.n_heads + h) * head_dim;
        float own = before_rope ? uintBitsToFloat(w[at + d]) : weights[at + d];
        if (d < a.n_rope_on_read) {
            uint other_d = d == first ? second : first;
            float other = before_rope ? uintBitsToFloat(w[at + other_d]) : weights[at + other_d];
            uint angle = (s.n_last + t) * a.n_rope_on_read + 2u * pair;
            float cosine = uintBitsToFloat(table[angle]), sine = uintBitsToFloat(table[angle + 1u]);
            own = d == first ? own * cosine - other * sine : other * sine + own * cosine;
        }
        sum += own;
    }
    return sum / float(a.n_tokens);
}

// Computes the mean query, and whether the last choice is used again.
void queries()
{
    bool has_before_rope = (flags & 2u) != 0u;
    float dot = 0.f, last_square = 0.f, square = 0.f;
    for (uint i = THREAD; i < a.n_heads * head_dim; i += n_threads) {
        uint h = i / head_dim, d = i % head_dim;
        float now = mean_query(h, d, has_before_rope), last = uintBitsToFloat(to[i]);
        scratch[before_rope_at(0u) + i] = floatBitsToUint(now);
        float query = has_before_rope ? mean_query(h, d, false) : now;
        scratch[query_at(0u) + i] = floatBitsToUint(query);
        dot += last * now;
        last_square += last * last;
        square += now * now;
    }
    uint n_to_refresh = head_layout[select_tokens];
    uint n_since_choice = head_layout[select_n_since] + n_to_refresh;
    dot = sum_of_all(dot);
    last_square = sum_of_all(last_square);
    square = sum_of_all(square);
    bool again = may_reuse_choice(s.reuse, s.must_reselect, n_since_choice, s.n_last) &&
                 dot >= s.reuse * sqrt(last_square * square);
    barrier();
    for (uint i = THREAD; !again && s.reuse < 1.f && i < a.n_heads * head_dim; i += n_threads)
        to[i] = scratch[before_rope_at(0u) + i];
    for (uint head = THREAD; again && head < a.n_kv_heads; head += n_threads)
        to_layout[head * layout_words + layout_n_held] += n_to_refresh;
    if (THREAD != 0u) return;
    scratch[0] = again ? 0u : 1u;
    scratch[1] = tokens_to_refresh(s.must_reselect, head_layout[select_choices], n_since_choice);
    head_layout[select_tokens] = a.n_tokens;
    head_layout[select_n_since] = again ? n_since_choice : 0u;
    head_layout[again ? select_reuses : select_choices]++;
}

// The bound row of an index. Of indexes that are not in this pass it is at least pass.n_rows.
uint row_of(uint head, uint index)
{
    uint at = head * layout_words;
    bool coded = in_coded_pool(index, head_layout[at + layout_coded_begin],
                               head_layout[at + layout_coded_end]);
    if (coded != (pass.source == pass_coded)) return ~0u;
    uint slot = table[head_layout[at + layout_table_begin] + index];
    return slot - (coded ? first_coded_slot(a.n_kv_heads, a.n_rows) : 0u) - pass.first_row;
}

float key_value(uint r, uint d)
{
    return row_value(format, r, row_tail(format, pass.pool_rows, r, head_dim), d, head_dim);
}

// Writes the bounds of the pages that hold the last tokens_to_refresh tokens.
void bounds()
{
    uint head = gl_WorkGroupID.y, before = before_of(head);
    uint first = first_page_to_refresh(before, scratch[1]) + gl_WorkGroupID.x;
    for (uint page = first; page * select_page < before; page += gl_NumWorkGroups.x)
        for (uint pair = THREAD; pair < head_dim / 2u; pair += n_threads) {
            uint at = (head * pass.n_pages + page) * head_dim + pair;
            vec2 low = vec2(65504.f), high = vec2(-65504.f);
            bool any = pass.continues != 0u;
            if (any) {
                low = unpackHalf2x16(to[at]);
                high = unpackHalf2x16(to[at + head_dim / 2u]);
            }
            uint end = min(before, (page + 1u) * select_page);
            for (uint i = page * select_page; i < end; i++) {
                uint r = row_of(head, i);
                if (r >= pass.n_rows) continue;
                vec2 v = vec2(key_value(r, 2u * pair), key_value(r, 2u * pair + 1u));
                low = min(low, v);
                high = max(high, v);
            }
            to[at] = HALF_FLOOR(low.x) | HALF_FLOOR(low.y) << 16;
            to[at + head_dim / 2u] = HALF_CEIL(high.x) | HALF_CEIL(high.y) << 16;
        }
}

// The votes on pages: the highest logit that a key within the bounds can have. A softcap would not
// change their order.
void page_votes()
{
    uint head = gl_WorkGroupID.y, before = before_of(head), n = n_units(before);
    for (uint i = gl_WorkGroupID.x * n_threads + THREAD; i < n; i += N_ALL_THREADS) {
        uint at = (head * pass.n_pages + s.n_first / select_page + i) * head_dim;
        float highest = -3e38f;
        for (uint h = head * group_size(); h < (head + 1u) * group_size(); h++) {
            float sum = 0.f;
            for (uint pair = 0u; pair < head_dim / 2u; pair++) {
                uint from = query_at(h) + 2u * pair;
                vec2 q = vec2(scratch_value(from), scratch_value(from + 1u));
                vec2 low = unpackHalf2x16(to[at + pair]);
                vec2 high = unpackHalf2x16(to[at + head_dim / 2u + pair]);
                vec2 best = max(q * low, q * high);
                sum += best.x;
                sum += best.y;
            }
            highest = max(highest, sum);
        }
        scratch[votes_at(head) + i] = floatBitsToUint(highest * a.scale);
    }
}

// Lists the representatives of each block in the order of the text: the keys with the highest
// attention scores. Of equal scores the newer is taken.
void representatives()
{
    uint head = gl_WorkGroupID.y, before = before_of(head), n = n_units(before);
    uint begin = head_layout[head * layout_words + layout_table_begin];
    for (uint nth = gl_WorkGroupID.x * n_threads + THREAD; nth < n; nth += N_ALL_THREADS) {
        uint index[select_n_representatives], score[select_n_representatives], n_kept = 0u;
        for (uint i = unit_begin(nth, before), end = unit_begin(nth + 1u, before); i < end; i++) {
            uint mine = ordered_key(w[table[begin + i]]), lowest = 0u;
            if (n_kept == select_n_representatives) {
                for (uint k = 1u; k < select_n_representatives; k++)
                    lowest = score[k] < score[lowest] ? k : lowest;
                if (mine < score[lowest]) continue;
                n_kept--;
                for (uint k = lowest; k < n_kept; k++) {
                    index[k] = index[k + 1u];
                    score[k] = score[k + 1u];
                }
            }
            index[n_kept] = i;
            score[n_kept] = mine;
            n_kept++;
        }
        uint at = representatives_at(head) + first_representative(nth, before);
        for (uint k = 0u; k < n_kept; k++) scratch[at + k] = index[k];
    }
}

// The logits of a head's candidates or representatives, with the mean query of each query head. A
// thread has one key at a time.
void logits()
{
    uint head = gl_WorkGroupID.y, before = before_of(head), n = n_units(before);
    bool blocks = s.kind == select_blocks;
    if (n == 0u) return;
    n = blocks ? first_representative(n - 1u, before) + n_representatives(n - 1u, before) : n;
    for (uint i = gl_WorkGroupID.x * n_threads + THREAD; i < n; i += N_ALL_THREADS) {
        uint index = blocks ? scratch[representatives_at(head) + i] : s.n_first + i;
        uint r = row_of(head, index);
        if (r >= pass.n_rows) continue;
        uint entry = head_layout[head * layout_words + layout_table_begin] + index;
        float b = has_weights ? max(masked_logit, weights[2u * table[entry] + 1u]) : 0.f;
        for (uint h = head * group_size(); h < (head + 1u) * group_size(); h++) {
            float sum = 0.f;
            for (uint d = 0u; d < head_dim; d++)
                sum += scratch_value(query_at(h) + d) * key_value(r, d);
            float logit = sum * a.scale;
            if (a.softcap != 0.f) logit = softcapped(logit, a.softcap);
            scratch[logits_at(h) + i] = floatBitsToUint(logit + b);
        }
    }
}

// Adds the votes of query head h on n candidates: the softmax of their logits.
void add_votes(uint h, uint votes, uint n)
{
    uint at = logits_at(h);
    float top = -3e38f, sum = 0.f;
    for (uint i = THREAD; i < n; i += n_threads) top = max(top, scratch_value(at + i));
    top = max_of_all(top);
    for (uint i = THREAD; i < n; i += n_threads)
        sum += power_of_two((scratch_value(at + i) - top) * log2e);
    sum = sum_of_all(sum);
    for (uint i = THREAD; i < n; i += n_threads) {
        float vote = power_of_two((scratch_value(at + i) - top) * log2e) / sum;
        scratch[votes + i] = floatBitsToUint(scratch_value(votes + i) + vote);
    }
}

// Adds a KV head's votes on its blocks: the mean logit of each block's representatives, summed over
// the query heads.
void add_block_votes(uint head, uint votes, uint n, uint before)
{
    for (uint nth = THREAD; nth < n; nth += n_threads) {
        uint n_keys = n_representatives(nth, before), first = first_representative(nth, before);
        float sum = 0.f;
        for (uint h = head * group_size(); h < (head + 1u) * group_size(); h++)
            for (uint k = 0u; k < n_keys; k++) sum += scratch_value(logits_at(h) + first + k);
        scratch[votes + nth] = floatBitsToUint(scratch_value(votes + nth) + sum / float(n_keys));
    }
}

// The votes on keys or blocks. One workgroup per KV head, or one for all if they choose together.
void votes()
{
    bool together = s.shared_across_heads != 0u;
    uint first = together ? 0u : gl_WorkGroupID.x, end = together ? a.n_kv_heads : first + 1u;
    uint at = votes_at(first);
    if (together && gl_WorkGroupID.x != 0u) return;
    for (uint head = first; head < end; head++) {
        uint before = before_of(head), n = n_units(before);
        for (uint i = THREAD; head == first && i < n; i += n_threads) scratch[at + i] = 0u;
        if (n == 0u) continue;
        if (s.kind == select_blocks)
            add_block_votes(head, at, n, before);
        else
            for (uint h = head * group_size(); h < (head + 1u) * group_size(); h++)
                add_votes(h, at, n);
    }
}

// Lists the first indexes of a head, its units with the most votes, and its last indexes.
void list()
{
    uint head = gl_WorkGroupID.x, before = before_of(head), n = n_units(before);
    uint scores = votes_at(s.shared_across_heads != 0u ? 0u : head), marks = marks_at(head);
    if (n > 0u) find_top_k(scores, n, count_taken(s.n_read, s.n_first, s.n_last, s.unit));
    for (uint i = THREAD, n_equal = 0u; i - THREAD < n; i += n_threads) {
        bool taken = takes(scores, i, n, n_equal);
        if (i < n) scratch[marks + i] = taken ? 1u : 0u;
    }
    memoryBarrierBuffer();
    barrier();
    uint at = head * layout_words, begin = head_layout[at + layout_table_begin];
    uint coded_begin = head_layout[at + layout_coded_begin];
    uint coded_end = head_layout[at + layout_coded_end];
    uint n_listed = 0u, n_plain = 0u, n_coded = 0u; // n_plain: before the coded ones
    for (uint i = THREAD; i - THREAD < before; i += n_threads) {
        bool candidate = n > 0u && i >= s.n_first && i < before - s.n_last;
        uint mark = marks + i / s.unit - s.n_first / s.unit;
        bool taken = i < before && (!candidate || scratch[mark] != 0u);
        uint all, place = n_listed + count_before(taken, all);
        if (taken) to[head * s.stride + place] = table[begin + i];
        n_listed += all;
        count_before(taken && i < coded_begin, all);
        n_plain += all;
        count_before(taken && in_coded_pool(i, coded_begin, coded_end), all);
        n_coded += all;
    }
    if (THREAD != 0u) return;
    to_layout[at + layout_n_held] = n_listed;
    to_layout[at + layout_table_begin] = head * s.stride;
    to_layout[at + layout_coded_begin] = n_plain;
    to_layout[at + layout_coded_end] = n_plain + n_coded;
}

// Lists the slots of the chunk behind the chosen ones.
void chunk()
{
    for (uint i = THREAD; a.chunk_rows == 0u && i < a.n_tokens * a.n_kv_heads; i += n_threads) {
        uint head = i / a.n_tokens, t = i % a.n_tokens, at = head * layout_words;
        uint from = head_layout[at + layout_table_begin] + head_layout[at + layout_n_held] + t;
        to[head * s.stride + to_layout[at + layout_n_held] + t] = table[from];
    }
}

void main()
{
    LOAD_ARGS(s)
    LOAD_ARGS(a)
    LOAD_ARGS(pass)
    if (step == step_queries) queries();
    if (step == step_chunk) chunk();
    if (step == step_queries || step == step_chunk || scratch[0] == 0u) return;
    if (step == step_bounds) bounds();
    if (step == step_representatives) representatives();
    if (step == step_logits) logits();
    if (step == step_pages) page_votes();
    if (step == step_votes) votes();
    if (step == step_list) list();
}
