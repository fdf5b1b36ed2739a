// select: chooses the slots that a step reads. The first kernel decides whether the last choice is
// used again. If so, all kernels but the last return at once. A new choice scores units
// (select_units.cu), adds the votes of heads, finds the top-k and lists slots.
// twin: each step is a kernel. The steps of the shader are dispatches with different specialisation
#include "kernels/cuda/select.cuh"

namespace ks
{

// Value i of the mean of the chunk's queries. With n_rope_on_read token t gets the RoPE of index
// n_last + t.
DEVICE float mean_query(const CudaSelect& c, const float* q, uint i)
{
    const AttentionArgs& a = c.a;
    const uint d = i % a.head_dim, head = i - d;
    float sum = 0.f;
    for (uint t = 0u; t < a.n_tokens; t++) {
        const float* x = q + uint64_t(t) * a.n_heads * a.head_dim + head;
        if (d >= a.n_rope_on_read) {
            sum += x[d];
            continue;
        }
        const uint pair = pair_of(a.pairs, d, a.n_rope_on_read),
                   first = first_of_pair(a.pairs, pair);
        const float u = x[first], v = x[second_of_pair(a.pairs, pair, a.n_rope_on_read)];
        const float* angles =
            c.slots.rope_table + uint64_t(c.s.n_last + t) * a.n_rope_on_read + 2u * pair;
        sum += d == first ? u * angles[0] - v * angles[1] : u * angles[1] + v * angles[0];
    }
    return sum / float(a.n_tokens);
}

// One block: computes the mean query, and whether the last choice is used again.
__global__ void __launch_bounds__(select_threads, 1) select_begin_kernel(CudaSelect c)
{
    begin_kernel();
    KS_SHARED(float, scratch, [3u * select_warps]);
    const SelectArgs& s = c.s;
    const uint n = c.a.n_heads * c.a.head_dim, n_to_refresh = c.to.state[select_tokens],
               n_since_choice = c.to.state[select_n_since] + n_to_refresh;
    float both = 0.f, last = 0.f, now = 0.f; // products of the last mean query and this one
    for (uint i = threadIdx.x; s.reuse < 1.f && i < n; i += select_threads) {
        const float x = mean_query(c, c.q_before_rope != nullptr ? c.q_before_rope : c.q, i),
                    y = c.to.query[i];
        c.scratch.before_rope[i] = x;
        both += x * y;
        last += y * y;
        now += x * x;
    }
    both = block_sum(both, scratch);
    last = block_sum(last, scratch + select_warps);
    now = block_sum(now, scratch + 2u * select_warps);
    const bool again = may_reuse_choice(s.reuse, s.must_reselect, n_since_choice, s.n_last) &&
                       both >= s.reuse * sqrtf(last * now);
    __syncthreads(); // all have read the state
    if (threadIdx.x == 0u) {
        c.scratch.words[0] = again ? 1u : 0u;
        c.scratch.words[1] =
            again ? n_to_refresh
                  : tokens_to_refresh(s.must_reselect, c.to.state[select_choices], n_since_choice);
        c.to.state[select_tokens] = c.a.n_tokens;
        c.to.state[select_n_since] = again ? n_since_choice : 0u;
        c.to.state[again ? select_reuses : select_choices]++;
    }
    for (uint i = threadIdx.x; !again && i < n; i += select_threads) {
        if (s.reuse < 1.f) c.to.query[i] = c.scratch.before_rope[i];
        c.scratch.query[i] = s.reuse < 1.f && c.q_before_rope == nullptr ? c.scratch.before_rope[i]
                                                                         : mean_query(c, c.q, i);
    }
}

// Counts the next digit of the scores that share the digits found so far.
__global__ void __launch_bounds__(select_threads, 2) select_digits_kernel(CudaSelect c, uint pass)
{
    begin_kernel();
    KS_SHARED(TopKScratch, scratch, [1]);
    if (c.scratch.words[0] != 0u) return;
    const Scores scores = scores_of(c, blockIdx.y);
    const Span share = score_share(scores.n);
    if (!scores.has_choice() || share.begin == share.end) return; // the whole block
    begin_digits(scratch[0]);
    const uint key = find_digit(c.scratch, blockIdx.y, pass, scores.k, scratch[0]).key;
    __syncthreads();
    for (uint i = share.begin + threadIdx.x; i < share.end; i += select_threads)
        count_digit(scratch[0], pass, scores.at[i], key);
    __syncthreads();
    add_digits(c.scratch, blockIdx.y, pass, scratch[0]);
}

// Counts each share's scores above the key and equal to it. Clears the coded range of the new
// lists.
__global__ void __launch_bounds__(select_threads, 2) select_counts_kernel(CudaSelect c)
{
    begin_kernel();
    KS_SHARED(TopKScratch, scratch, [1]);
    KS_SHARED(uint64_t, sums, [select_warps]);
    if (c.scratch.words[0] != 0u) return;
    for (uint h = threadIdx.x; blockIdx.x == 0u && blockIdx.y == 0u && h < c.a.n_kv_heads;
         h += select_threads)
        c.to.head_layout[h * layout_words + layout_coded_begin] =
            c.to.head_layout[h * layout_words + layout_coded_end] = 0u;
    const Scores scores = scores_of(c, blockIdx.y);
    const Span share = score_share(scores.n);
    const TopK best = scores.has_choice()
                          ? find_digit(c.scratch, blockIdx.y, select_passes, scores.k, scratch[0])
                          : top_k_of(c.scratch, blockIdx.y, scores);
    uint above = 0u, equal = 0u;
    for (uint i = share.begin + threadIdx.x; i < share.end; i += select_threads) {
        const uint u = ordered_bits(scores.at[i]);
        above += u > best.key ? 1u : 0u;
        equal += u == best.key ? 1u : 0u;
    }
    const uint64_t both = add_counts(two_counts(above, equal), sums);
    if (threadIdx.x == 0u)
        c.scratch.counts[uint64_t(blockIdx.y) * c.scratch.n_shares + blockIdx.x] = both;
}

constexpr uint max_voters = 64u; // at a time

// The highest logit of each of voters [first, end), and 1 / (the sum of exp(logit - highest)). A
// warp has one voter at a time.
DEVICE void combine_norms(const CudaSelect& c, uint first, uint end, float (*norms)[2])
{
    const uint lane = threadIdx.x % 32u;
    for (uint v = first + threadIdx.x / 32u; v < end; v += select_warps) {
        const float* all = c.scratch.norms + uint64_t(v) * c.scratch.n_shares * 2u;
        float top = masked_logit, sum = 0.f;
        for (uint i = lane; i < c.scratch.n_shares; i += 32u) top = fmaxf(top, all[2u * i]);
        top = warp_max(top);
        for (uint i = lane; i < c.scratch.n_shares; i += 32u)
            sum += all[2u * i + 1u] * expf(all[2u * i] - top);
        sum = warp_sum(sum);
        if (lane < 2u) norms[v - first][lane] = lane == 0u ? top : 1.f / sum;
    }
}

// Adds the votes of the voters of each set, and counts the sums by their first digit. Voters are
// query heads, or KV heads for blocks.
__global__ void __launch_bounds__(select_threads, 2) select_sum_kernel(CudaSelect c, uint n_voters)
{
    begin_kernel();
    KS_SHARED(float, norms, [max_voters][2]);
    KS_SHARED(TopKScratch, scratch, [1]);
    if (c.scratch.words[0] != 0u) return;
    const bool soft = c.s.kind == select_soft;
    const uint set = blockIdx.y, each = n_voters / gridDim.y;
    const Scores votes = scores_of(c, set);
    const Span share = score_share(votes.n);
    if (share.begin == share.end) return; // the whole block
    begin_digits(scratch[0]);
    for (uint first = set * each; first < (set + 1u) * each; first += max_voters) {
        const uint end = min(first + max_voters, (set + 1u) * each);
        __syncthreads(); // all threads have read the earlier norms
        if (soft) combine_norms(c, first, end, norms);
        __syncthreads();
        for (uint i = share.begin + threadIdx.x; i < share.end; i += select_threads) {
            float sum = first == set * each ? 0.f : votes.at[i];
            KS_UNROLL_BY(4)
            for (uint v = first; v < end; v++) {
                const float x = c.scratch.logits[uint64_t(v) * c.scratch.stride + i];
                sum += soft ? expf(x - norms[v - first][0]) * norms[v - first][1] : x;
            }
            votes.at[i] = sum;
            if (end == (set + 1u) * each) count_digit(scratch[0], 0u, sum, 0u);
        }
    }
    __syncthreads();
    add_digits(c.scratch, set, 0u, scratch[0]);
}

// Lists an index at place `at`. counts: the number of places up to the last index before the coded
// range, and up to the last index before its end.
DEVICE void add_index(const CudaSelect& c, const Head& h, uint index, uint at, uint* counts)
{
    c.to.table[h.head * c.s.stride + at] = c.slots.table[h.begin + index];
    if (index < h.coded_begin) atomicMax(&counts[0], at + 1u);
    if (index < max(h.coded_begin, h.coded_end)) atomicMax(&counts[1], at + 1u);
}

// Lists the taken units, one per thread. A unit of several indexes is listed by the whole warp.
DEVICE void add_units(const CudaSelect& c, const Head& h, bool taken, uint begin, uint end, uint at,
                      uint* counts)
{
    if (c.s.unit == 1u) {
        if (taken) add_index(c, h, begin, at, counts);
        return;
    }
    for (uint left = __ballot_sync(all_lanes, taken ? 1 : 0); left != 0u; left &= left - 1u) {
        const int lane = __ffs(int(left)) - 1;
        const uint from = __shfl_sync(all_lanes, begin, lane),
                   to = __shfl_sync(all_lanes, end, lane);
        const uint first = __shfl_sync(all_lanes, at, lane);
        for (uint i = from + threadIdx.x % 32u; i < to; i += 32u)
            add_index(c, h, i, first + i - from, counts);
    }
}

// Lists the first indexes, the chosen units and the last indexes of a head. All of the head's
// blocks take part. Returns the number of listed indexes.
DEVICE uint list_choice(const CudaSelect& c, const Head& h, uint* counts, uint64_t* scratch)
{
    const SelectArgs& s = c.s;
    const uint set = s.shared_across_heads != 0u ? 0u : h.head,
               mine = blockIdx.x * select_threads + threadIdx.x, step = gridDim.x * select_threads;
    const uint n = n_units(s, h.before), first = n != 0u ? s.n_first : h.before;
    for (uint i = mine; i < first; i += step) add_index(c, h, i, i, counts);
    if (n == 0u) return first;
    Scores votes = scores_of(c, set);
    votes.n = n;
    Taking taking = begin_taking(c.scratch, set, votes, scratch);
    const TopK best = taking.best;
    const uint first_vote = ordered_bits(votes.at[0]), last_vote = ordered_bits(votes.at[n - 1u]);
    const bool takes_first = in_top_k(first_vote, best.key, 0u, best.n_left_out);
    // The last unit is the newest, so it is taken if its vote equals the key.
    const bool takes_last = n > 1u && votes.k != 0u && last_vote >= best.key;
    // Indexes that the first unit and the last unit lack, if they are taken.
    const uint n_short = takes_first ? s.unit - (unit_begin(s, h.before, 1u) - s.n_first) : 0u;
    const uint n_missing =
        takes_last ? s.unit - (unit_begin(s, h.before, n) - unit_begin(s, h.before, n - 1u)) : 0u;
    const Span share = score_share(n);
    for (uint base = share.begin; base < share.end; base += select_threads) {
        const uint unit = base + threadIdx.x;
        uint rank;
        const bool taken =
            taking.takes(unit < share.end, unit < share.end ? votes.at[unit] : 0.f, &rank);
        const uint begin = taken ? unit_begin(s, h.before, unit) : 0u,
                   end = taken ? unit_begin(s, h.before, unit + 1u) : 0u;
        add_units(c, h, taken, begin, end, first + rank * s.unit - (unit != 0u ? n_short : 0u),
                  counts);
    }
    const uint listed = first + min(votes.k, n) * s.unit - n_short - n_missing;
    for (uint i = mine; i < s.n_last; i += step)
        add_index(c, h, h.before - s.n_last + i, listed + i, counts);
    return listed + s.n_last;
}

// Lists a head's chosen slots and the slots of the chunk. A choice that is used again keeps its
// list and is extended by the new tokens.
__global__ void __launch_bounds__(select_threads, 2) select_list_kernel(CudaSelect c)
{
    begin_kernel();
    KS_SHARED(uint64_t, scratch, [3u * select_warps]);
    KS_SHARED(uint, counts, [2]); // as in add_index
    const bool again = c.scratch.words[0] != 0u;
    if (again && blockIdx.x != 0u) return; // the whole block
    const Head h = find_head(c.a, c.slots, blockIdx.y, 0u, c.a.n_tokens, true);
    uint* head_layout = c.to.head_layout + h.head * layout_words;
    if (threadIdx.x < 2u) counts[threadIdx.x] = 0u;
    __syncthreads();
    const uint listed = again ? head_layout[layout_n_held] + c.scratch.words[1]
                              : list_choice(c, h, counts, scratch);
    __syncthreads();
    if (threadIdx.x < 2u && counts[threadIdx.x] != 0u)
        atomicMax(&head_layout[threadIdx.x == 0u ? layout_coded_begin : layout_coded_end],
                  counts[threadIdx.x]);
    if (blockIdx.x != 0u) return;
    if (threadIdx.x == 0u) head_layout[layout_n_held] = listed;
    if (threadIdx.x == 0u && !again) head_layout[layout_table_begin] = h.head * c.s.stride;
    for (uint t = threadIdx.x; c.a.chunk_rows == 0u && t < c.a.n_tokens; t += select_threads)
        c.to.table[h.head * c.s.stride + listed + t] = c.slots.table[h.begin + h.before + t];
}

// Finds the key of each set, and how each share's scores compare with it.
static void find_top_k(const CudaSelect& c, uint n_sets, uint first_pass, cudaStream_t stream)
{
    const dim3 grid(c.scratch.n_shares, n_sets);
    for (uint pass = first_pass; pass < select_passes; pass++)
        KS_LAUNCH(select_digits_kernel, grid, select_threads, stream, c, pass);
    KS_LAUNCH(select_counts_kernel, grid, select_threads, stream, c);
}

void select_launch(const CudaSelect& c, cudaStream_t stream)
{
    const uint heads = c.a.n_kv_heads, n_sets = c.s.shared_across_heads != 0u ? 1u : heads;
    const dim3 by_head(c.scratch.n_shares, heads), by_set(c.scratch.n_shares, n_sets);
    KS_LAUNCH(select_begin_kernel, 1u, select_threads, stream, c);
    select_units_launch(c, stream);
    if (c.s.kind == select_pages) {
        find_top_k(c, n_sets, 0u, stream);
    } else {
        // The votes are counted by their first digit as they are added.
        KS_LAUNCH(select_sum_kernel, by_set, select_threads, stream, c,
                  c.s.kind == select_blocks ? heads : c.a.n_heads);
        find_top_k(c, n_sets, 1u, stream);
    }
    KS_LAUNCH(select_list_kernel, by_head, select_threads, stream, c);
}

} // namespace ks
