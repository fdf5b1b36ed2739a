// Chooses what attention is to read, step by step: are the queries those of the last choice; bounds of pages, or the keys that
// speak for blocks; logits; votes; the list; the chunk's own slots. A step that a choice used again makes needless does nothing.
// twin: the steps are dispatches of one shader, whose buffers are others from step to step
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(constant_id = 0) const uint step = 0u;
layout(constant_id = 1) const uint format = 1u; // of the keys
layout(constant_id = 2) const uint head_dim = 64u;
layout(constant_id = 3) const uint flags = 0u; // 1: log-weights, 2: queries as before RoPE are given
const bool has_weights = (flags & 1u) != 0u;

const uint step_queries = 0u, step_bounds = 1u, step_representatives = 2u, step_logits = 3u, step_pages = 4u, step_votes = 5u, step_list = 6u,
           step_chunk = 7u;

layout(push_constant) uniform Block { SelectArgs s; SelectShape a; SelectPass pass; } pushed;
DECLARE_ARGS(SelectArgs, s)
DECLARE_ARGS(SelectShape, a)
DECLARE_ARGS(SelectPass, pass)
layout(binding = 0) buffer Scratch { uint scratch[]; };      // places below
layout(binding = 1) buffer HeadLayout { uint head_layout[]; };            // (n_kv_heads, layout_words) of the slots; queries: the state, (select_words)
layout(binding = 2) readonly buffer Table { uint table[]; }; // of the slots; queries: the turns
layout(binding = 3) buffer ToView { uint to_layout[]; };       // (n_kv_heads, layout_words)
layout(binding = 4) readonly buffer K { uint w[]; };         // (pass.n_rows, head_dim); queries: those before RoPE; representatives: the signal
layout(binding = 5) readonly buffer Weights { float weights[]; }; // (slots, 2); queries: (n_tokens, n_heads * head_dim)
layout(binding = 6) buffer To { uint to[]; };                // the table that is made; pages: their bounds; queries: those of the last choice

float x[1]; // nothing is encoded here
uint row[1];
#include "shaders/cache.glsl"

// The scratch: 0 whether a choice is made, 1 the tokens that came; then the mean queries (n_heads, head_dim) and those as before RoPE,
// logits (n_heads, stride), votes (n_kv_heads, stride), marks of what is chosen, and representatives, alike.
const uint header = 64u;
uint query_at(uint h) { return header + h * head_dim; }
uint plain_at(uint h) { return header + (a.n_heads + h) * head_dim; }
uint logits_at(uint h) { return header + 2u * a.n_heads * head_dim + h * pass.stride; }
uint votes_at(uint head) { return logits_at(a.n_heads) + head * pass.stride; }
uint marks_at(uint head) { return votes_at(a.n_kv_heads) + head * pass.stride; }
uint representatives_at(uint head) { return marks_at(a.n_kv_heads) + head * pass.stride; }
float scratch_value(uint at) { return uintBitsToFloat(scratch[at]); }

uint before_of(uint head) { return head_layout[head * layout_words + layout_n_held]; }
uint group_size() { return a.n_heads / a.n_kv_heads; }

uint n_units(uint before) { return count_units(before, s.n_read, s.n_first, s.n_last, s.unit); }
uint unit_begin(uint nth, uint before) { return unit_bound(nth, before, s.n_first, s.n_last, s.unit); }
uint n_representatives(uint nth, uint before)
{
    return min(unit_begin(nth + 1u, before) - unit_begin(nth, before), select_n_representatives);
}
uint first_representative(uint nth, uint before) { return nth == 0u ? 0u : n_representatives(0u, before) + (nth - 1u) * select_n_representatives; }

shared float sums[n_threads];
shared uint counts[256], found[4];

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

float most_of_all(float mine)
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

// How many threads before this one, and how many in all, say yes.
uint count_before(bool yes, out uint all)
{
    barrier();
    counts[THREAD] = yes ? 1u : 0u;
    barrier();
    for (uint n = 1u; n < n_threads; n *= 2u) {
        uint below = THREAD >= n ? counts[THREAD - n] : 0u;
        barrier();
        counts[THREAD] += below;
        barrier();
    }
    all = counts[n_threads - 1u];
    return counts[THREAD] - (yes ? 1u : 0u);
}

// The k highest of n scores are those above found[0], and of those equal to it all but the oldest found[1]. By digits from the
// highest on: each pass counts those that share the digits found so far.
void find_top_k(uint scores, uint n, uint k)
{
    if (THREAD == 0u) {
        found[0] = found[1] = found[2] = 0u; // the key; those left out; those above
        found[3] = n;                        // equal so far
    }
    barrier();
    if (k >= n) return;
    for (uint shift = 32u; shift > 0u;) {
        uint above = shift == 32u ? 0u : ~0u << shift;
        shift -= 8u;
        for (uint i = THREAD; i < 256u; i += n_threads) counts[i] = 0u;
        barrier();
        for (uint i = THREAD; i < n; i += n_threads) {
            uint u = ordered_key(scratch[scores + i]);
            if ((u & above) == found[0]) atomicAdd(counts[u >> shift & 255u], 1u);
        }
        barrier();
        if (THREAD == 0u) {
            uint digit = 255u;
            while (found[2] + counts[digit] < k && digit > 0u) {
                found[2] += counts[digit];
                digit--;
            }
            found[0] |= digit << shift;
            found[3] = counts[digit];
        }
        barrier();
    }
    if (THREAD == 0u) found[1] = found[3] - (k - found[2]);
    barrier();
}

// Whether score i of n is among the highest; asked by all threads together, of neighbours, from the first on. n_equal: those equal
// to the key so far.
bool takes(uint scores, uint i, uint n, inout uint n_equal)
{
    uint u = i < n ? ordered_key(scratch[scores + i]) : 0u, all;
    bool equal = i < n && u == found[0];
    uint older = n_equal + count_before(equal, all);
    n_equal += all;
    return i < n && (equal ? older >= found[1] : u > found[0]);
}

// Value d of query head h in the mean; of those that are turned, token t as if at index n_last + t. plain: as before RoPE.
float mean_query(uint h, uint d, bool plain)
{
    float sum = 0.f;
    for (uint t = 0u; t < a.n_tokens; t++) {
        uint at = (t * a.n_heads + h) * head_dim;
        float own = plain ? uintBitsToFloat(w[at + d]) : weights[at + d];
        if (d < a.n_rope_on_read) {
            bool halves = a.pairs == rope_neox, second = halves ? d >= a.n_rope_on_read / 2u : (d & 1u) != 0u;
            uint other_d = halves ? (second ? d - a.n_rope_on_read / 2u : d + a.n_rope_on_read / 2u) : d ^ 1u, pair = halves ? d % (a.n_rope_on_read / 2u) : d / 2u;
            float other = plain ? uintBitsToFloat(w[at + other_d]) : weights[at + other_d];
            uint angle = (s.n_last + t) * a.n_rope_on_read + 2u * pair;
            float c = uintBitsToFloat(table[angle]), sine = uintBitsToFloat(table[angle + 1u]);
            own = second ? other * sine + own * c : own * c - other * sine;
        }
        sum += own;
    }
    return sum / float(a.n_tokens);
}

void queries()
{
    bool has_plain = (flags & 2u) != 0u;
    float dot = 0.f, last_square = 0.f, square = 0.f;
    for (uint i = THREAD; i < a.n_heads * head_dim; i += n_threads) {
        float now = mean_query(i / head_dim, i % head_dim, has_plain), last = uintBitsToFloat(to[i]);
        scratch[plain_at(0u) + i] = floatBitsToUint(now);
        scratch[query_at(0u) + i] = floatBitsToUint(has_plain ? mean_query(i / head_dim, i % head_dim, false) : now);
        dot += last * now;
        last_square += last * last;
        square += now * now;
    }
    uint n_to_refresh = head_layout[select_tokens], n_since_choice = head_layout[select_n_since] + n_to_refresh;
    dot = sum_of_all(dot);
    last_square = sum_of_all(last_square);
    square = sum_of_all(square);
    bool again = s.reuse < 1.f && s.must_reselect == 0u && 2u * n_since_choice <= s.n_last && dot >= s.reuse * sqrt(last_square * square);
    barrier();
    for (uint i = THREAD; !again && s.reuse < 1.f && i < a.n_heads * head_dim; i += n_threads) to[i] = scratch[plain_at(0u) + i];
    for (uint head = THREAD; again && head < a.n_kv_heads; head += n_threads) to_layout[head * layout_words + layout_n_held] += n_to_refresh;
    if (THREAD != 0u) return;
    scratch[0] = again ? 0u : 1u;
    scratch[1] = tokens_to_refresh(s.must_reselect, head_layout[select_choices], n_since_choice);
    head_layout[select_tokens] = a.n_tokens;
    head_layout[select_n_since] = again ? n_since_choice : 0u;
    head_layout[again ? select_reuses : select_choices]++;
}

// The row of an index among those of this pass; others are not below pass.n_rows.
uint row_of(uint head, uint index)
{
    bool coded = index >= head_layout[head * layout_words + layout_coded_begin] && index < head_layout[head * layout_words + layout_coded_end];
    if (coded != (pass.source == pass_coded)) return ~0u;
    return table[head_layout[head * layout_words + layout_table_begin] + index] - (coded ? a.n_kv_heads * a.n_rows : 0u) - pass.first_row;
}

float key_value(uint r, uint d) { return row_value(format, r, row_tail(format, pass.pool_rows, r, head_dim), d, head_dim); }

// Of the pages that the last tokens are in.
void bounds()
{
    uint head = gl_WorkGroupID.y, before = before_of(head), first = (before - min(before, scratch[1])) / select_page;
    for (uint page = first + gl_WorkGroupID.x; page * select_page < before; page += gl_NumWorkGroups.x)
        for (uint pair = THREAD; pair < head_dim / 2u; pair += n_threads) {
            uint at = (head * pass.n_pages + page) * head_dim + pair;
            vec2 low = vec2(65504.f), high = vec2(-65504.f);
            bool any = pass.continues != 0u;
            if (any) {
                low = unpackHalf2x16(to[at]);
                high = unpackHalf2x16(to[at + head_dim / 2u]);
            }
            for (uint i = page * select_page; i < min(before, (page + 1u) * select_page); i++) {
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

void page_votes()
{
    uint head = gl_WorkGroupID.y, before = before_of(head), n = n_units(before);
    for (uint i = gl_WorkGroupID.x * n_threads + THREAD; i < n; i += N_ALL_THREADS) {
        uint at = (head * pass.n_pages + s.n_first / select_page + i) * head_dim;
        float most = -3e38f;
        for (uint h = head * group_size(); h < (head + 1u) * group_size(); h++) {
            float sum = 0.f;
            for (uint pair = 0u; pair < head_dim / 2u; pair++) {
                vec2 q = vec2(scratch_value(query_at(h) + 2u * pair), scratch_value(query_at(h) + 2u * pair + 1u));
                vec2 best = max(q * unpackHalf2x16(to[at + pair]), q * unpackHalf2x16(to[at + head_dim / 2u + pair]));
                sum += best.x;
                sum += best.y;
            }
            most = max(most, sum);
        }
        scratch[votes_at(head) + i] = floatBitsToUint(most * a.scale);
    }
}

// The highest few of each block by the signal, in the order of the text; of equal ones the newer.
void representatives()
{
    uint head = gl_WorkGroupID.y, before = before_of(head), n = n_units(before), begin = head_layout[head * layout_words + layout_table_begin];
    for (uint nth = gl_WorkGroupID.x * n_threads + THREAD; nth < n; nth += N_ALL_THREADS) {
        uint index[select_n_representatives], score[select_n_representatives], n_few = 0u;
        for (uint i = unit_begin(nth, before), end = unit_begin(nth + 1u, before); i < end; i++) {
            uint mine = ordered_key(w[table[begin + i]]), least = 0u;
            if (n_few == select_n_representatives) {
                for (uint k = 1u; k < select_n_representatives; k++) least = score[k] < score[least] ? k : least;
                if (mine < score[least]) continue;
                n_few--;
                for (uint k = least; k < n_few; k++) {
                    index[k] = index[k + 1u];
                    score[k] = score[k + 1u];
                }
            }
            index[n_few] = i;
            score[n_few] = mine;
            n_few++;
        }
        for (uint k = 0u; k < n_few; k++) scratch[representatives_at(head) + first_representative(nth, before) + k] = index[k];
    }
}

// Of a head's candidates, or of the keys that speak, with the mean query of each of its query heads: a thread has a key.
void logits()
{
    uint head = gl_WorkGroupID.y, before = before_of(head), n = n_units(before);
    bool blocks = s.kind == select_blocks;
    if (n == 0u) return;
    n = blocks ? first_representative(n - 1u, before) + n_representatives(n - 1u, before) : n;
    for (uint i = gl_WorkGroupID.x * n_threads + THREAD; i < n; i += N_ALL_THREADS) {
        uint index = blocks ? scratch[representatives_at(head) + i] : s.n_first + i, r = row_of(head, index);
        if (r >= pass.n_rows) continue;
        float b = has_weights ? max(masked_logit, weights[2u * table[head_layout[head * layout_words + layout_table_begin] + index] + 1u]) : 0.f;
        for (uint h = head * group_size(); h < (head + 1u) * group_size(); h++) {
            float sum = 0.f;
            for (uint d = 0u; d < head_dim; d++) sum += scratch_value(query_at(h) + d) * key_value(r, d);
            scratch[logits_at(h) + i] = floatBitsToUint(sum * a.scale + b);
        }
    }
}

// What query head h says of its n candidates is added to the votes.
void add_votes(uint h, uint votes, uint n)
{
    uint at = logits_at(h);
    float top = -3e38f, sum = 0.f;
    for (uint i = THREAD; i < n; i += n_threads) top = max(top, scratch_value(at + i));
    top = most_of_all(top);
    for (uint i = THREAD; i < n; i += n_threads) sum += power_of_two((scratch_value(at + i) - top) * log2e);
    sum = sum_of_all(sum);
    for (uint i = THREAD; i < n; i += n_threads)
        scratch[votes + i] = floatBitsToUint(scratch_value(votes + i) + power_of_two((scratch_value(at + i) - top) * log2e) / sum);
}

void add_block_votes(uint head, uint votes, uint n, uint before)
{
    for (uint nth = THREAD; nth < n; nth += n_threads) {
        uint n_few = n_representatives(nth, before), first = first_representative(nth, before);
        float sum = 0.f;
        for (uint h = head * group_size(); h < (head + 1u) * group_size(); h++)
            for (uint k = 0u; k < n_few; k++) sum += scratch_value(logits_at(h) + first + k);
        scratch[votes + nth] = floatBitsToUint(scratch_value(votes + nth) + sum / float(n_few));
    }
}

// One workgroup per head, or one for all that choose together.
void votes()
{
    uint first = s.shared_across_heads != 0u ? 0u : gl_WorkGroupID.x, end = s.shared_across_heads != 0u ? a.n_kv_heads : first + 1u, at = votes_at(first);
    if (s.shared_across_heads != 0u && gl_WorkGroupID.x != 0u) return;
    for (uint head = first; head < end; head++) {
        uint before = before_of(head), n = n_units(before);
        for (uint i = THREAD; head == first && i < n; i += n_threads) scratch[at + i] = 0u;
        if (n == 0u) continue;
        if (s.kind == select_blocks)
            add_block_votes(head, at, n, before);
        else
            for (uint h = head * group_size(); h < (head + 1u) * group_size(); h++) add_votes(h, at, n);
    }
}

// A head's list from the votes on its units.
void list()
{
    uint head = gl_WorkGroupID.x, before = before_of(head), n = n_units(before), scores = votes_at(s.shared_across_heads != 0u ? 0u : head), marks = marks_at(head);
    if (n > 0u) find_top_k(scores, n, count_taken(s.n_read, s.n_first, s.n_last, s.unit));
    for (uint i = THREAD, n_equal = 0u; i - THREAD < n; i += n_threads) {
        bool taken = takes(scores, i, n, n_equal);
        if (i < n) scratch[marks + i] = taken ? 1u : 0u;
    }
    memoryBarrierBuffer();
    barrier();
    uint at = head * layout_words, begin = head_layout[at + layout_table_begin], coded_begin = head_layout[at + layout_coded_begin], coded_end = head_layout[at + layout_coded_end];
    uint n_listed = 0u, n_plain = 0u, n_coded = 0u;
    for (uint i = THREAD; i - THREAD < before; i += n_threads) {
        bool middle = n > 0u && i >= s.n_first && i < before - s.n_last;
        bool taken = i < before && (!middle || scratch[marks + i / s.unit - s.n_first / s.unit] != 0u);
        uint all, place = n_listed + count_before(taken, all);
        if (taken) to[head * s.stride + place] = table[begin + i];
        n_listed += all;
        count_before(taken && i < coded_begin, all);
        n_plain += all;
        count_before(taken && i >= coded_begin && i < coded_end, all);
        n_coded += all;
    }
    if (THREAD != 0u) return;
    to_layout[at + layout_n_held] = n_listed;
    to_layout[at + layout_table_begin] = head * s.stride;
    to_layout[at + layout_coded_begin] = n_plain;
    to_layout[at + layout_coded_end] = n_plain + n_coded;
}

// The chunk's own slots follow on the chosen ones.
void chunk()
{
    for (uint i = THREAD; a.chunk_rows == 0u && i < a.n_tokens * a.n_kv_heads; i += n_threads) {
        uint at = i / a.n_tokens * layout_words;
        to[i / a.n_tokens * s.stride + to_layout[at + layout_n_held] + i % a.n_tokens] = table[head_layout[at + layout_table_begin] + head_layout[at + layout_n_held] + i % a.n_tokens];
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
