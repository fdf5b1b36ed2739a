// Which slots a step reads: all keys are asked, or the bounds of their pages, or the keys that
// speak for blocks; the best are listed. What the last call left in `state` decides on the device
// whether there is anything to choose.
// twin: a kernel for each step, the shader is one whose steps are dispatches
#include "kernels/cuda/select.cuh"

namespace ks
{

// Value i of the chunk's queries in the mean; where attention turns them, token t as if at index
// n_last + t.
DEVICE float mean_query(const CudaSelect& c, const float* q, uint i)
{
    const AttentionArgs& a = c.a;
    const uint d = i % a.head_dim, head = i - d, half = a.n_rope_on_read / 2u;
    float sum = 0.f;
    for (uint t = 0u; t < a.n_tokens; t++) {
        const float* x = q + uint64_t(t) * a.n_heads * a.head_dim + head;
        if (d >= a.n_rope_on_read) {
            sum += x[d];
            continue;
        }
        const uint pair = a.pairs == rope_interleaved ? d / 2u : d % half,
                   first = first_of_pair(a.pairs, pair);
        const float u = x[first], v = x[second_of_pair(a.pairs, pair, a.n_rope_on_read)];
        const float* angles =
            c.slots.rope_table + uint64_t(c.s.n_last + t) * a.n_rope_on_read + 2u * pair;
        sum += d == first ? u * angles[0] - v * angles[1] : u * angles[1] + v * angles[0];
    }
    return sum / float(a.n_tokens);
}

// One block: the queries in the mean, and whether the last choice is used again.
__global__ void __launch_bounds__(select_threads, 1) select_begin_kernel(CudaSelect c)
{
    begin_kernel();
    KS_SHARED(float, scratch, [3u * select_warps]);
    const SelectArgs& s = c.s;
    const uint n = c.a.n_heads * c.a.head_dim, n_to_refresh = c.to.state[select_tokens],
               n_since_choice = c.to.state[select_n_since] + n_to_refresh;
    float both = 0.f, last = 0.f, now = 0.f;
    for (uint i = threadIdx.x; s.reuse < 1.f && i < n; i += select_threads) {
        const float x = mean_query(c, c.plain != nullptr ? c.plain : c.q, i), y = c.to.query[i];
        c.scratch.plain[i] = x;
        both += x * y;
        last += y * y;
        now += x * x;
    }
    both = block_sum(both, scratch);
    last = block_sum(last, scratch + select_warps);
    now = block_sum(now, scratch + 2u * select_warps);
    const bool again = s.reuse < 1.f && both >= s.reuse * sqrtf(last * now) &&
                       s.must_reselect == 0u && 2u * n_since_choice <= s.n_last;
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
        if (s.reuse < 1.f) c.to.query[i] = c.scratch.plain[i];
        c.scratch.query[i] =
            s.reuse < 1.f && c.plain == nullptr ? c.scratch.plain[i] : mean_query(c, c.q, i);
    }
}

// The bounds of the pages that the last tokens are in: a block's threads share a page's dims, and
// its rows where dims are few.
__global__ void __launch_bounds__(select_threads, 2) select_bounds_kernel(CudaSelect c)
{
    begin_kernel();
    KS_SHARED(float, bounds, [select_threads][2]);
    if (c.scratch.words[0] != 0u) return; // all of the grid
    const uint d = c.a.head_dim, width = min(d, select_threads), n_parts = select_threads / width,
               part = threadIdx.x / width;
    const Head h = find_head(c.a, c.slots, blockIdx.y, 0u, c.a.n_tokens, true);
    const uint first = (h.before - min(h.before, c.scratch.words[1])) / select_page;
    for (uint page = first + blockIdx.x; page * select_page < h.before; page += gridDim.x) {
        uint16_t* low = c.to.bounds + (uint64_t(h.head) * c.to.n_pages + page) * 2u * d;
        const uint end = min(h.before, (page + 1u) * select_page);
        for (uint k = threadIdx.x % width; k - threadIdx.x % width < d; k += width) {
            float least = -masked_logit, most = masked_logit;
            for (uint i = page * select_page + part; k < d && part < n_parts && i < end;
                 i += n_parts) {
                const uint source = source_of(c.a, h, i),
                           row = row_of_slot(c.a, source, slot_of(c.a, c.slots, h, i));
                const float x = cache_value(pool_of(c.slots, source, false), row, k, d);
                least = fminf(least, x);
                most = fmaxf(most, x);
            }
            __syncthreads(); // who read the last ones
            bounds[threadIdx.x][0] = least;
            bounds[threadIdx.x][1] = most;
            __syncthreads();
            if (part != 0u || k >= d) continue;
            for (uint other = 1u; other < n_parts; other++) {
                least = fminf(least, bounds[threadIdx.x + other * width][0]);
                most = fmaxf(most, bounds[threadIdx.x + other * width][1]);
            }
            low[k] = uint16_t(HALF_FLOOR(least));
            low[d + k] = uint16_t(HALF_CEIL(most));
        }
    }
}

// Votes on pages: a warp for each.
__global__ void __launch_bounds__(select_threads, 2) select_pages_kernel(CudaSelect c)
{
    begin_kernel();
    if (c.scratch.words[0] != 0u) return;
    clear_digits(c.scratch, c.a.n_kv_heads);
    const uint d = c.a.head_dim, head = blockIdx.y, group = c.a.n_heads / c.a.n_kv_heads,
               n = n_units(c.s, before_of(c, head));
    const uint skipped = c.s.n_first / select_page;
    for (uint i = blockIdx.x * select_warps + threadIdx.x / 32u; i < n;
         i += gridDim.x * select_warps) {
        const uint16_t* low = c.to.bounds + (uint64_t(head) * c.to.n_pages + skipped + i) * 2u * d;
        float most = 0.f;
        for (uint h = 0u; h < group; h++) {
            const float* q = c.scratch.query + uint64_t(head * group + h) * d;
            float sum = 0.f;
            for (uint k = threadIdx.x % 32u; k < d; k += 32u)
                sum += fmaxf(q[k] * HALF_TO_FLOAT(low[k]), q[k] * HALF_TO_FLOAT(low[d + k]));
            sum = warp_sum(sum);
            most = h == 0u || sum > most ? sum : most;
        }
        if (threadIdx.x % 32u == 0u)
            c.scratch.votes[uint64_t(head) * c.scratch.stride + i] = most * c.a.scale;
    }
}

// The logit of one key with query head h's mean query, in all lanes of a warp.
DEVICE float key_logit(const CudaSelect& c, const Head& head, uint index, uint h, const float* key)
{
    const float* q = c.scratch.query + uint64_t(h) * c.a.head_dim;
    float sum = 0.f;
    for (uint k = threadIdx.x % 32u; k < c.a.head_dim; k += 32u) sum += q[k] * key[k];
    const float b = c.slots.weights != nullptr
                        ? c.slots.weights[2u * slot_of(c.a, c.slots, head, index) + 1u]
                        : 0.f;
    return warp_sum(sum) * c.a.scale + b;
}

DEVICE void decode_key(const CudaSelect& c, const Head& head, uint index, float* key)
{
    __syncwarp(); // who read the last one
    const uint source = source_of(c.a, head, index),
               row = row_of_slot(c.a, source, slot_of(c.a, c.slots, head, index));
    decode_row(pool_of(c.slots, source, false), row, c.a.head_dim, threadIdx.x % 32u, 32u,
               [&](uint d, float value) { key[d] = value; });
    __syncwarp();
}

// Logits of all candidates: a warp for each.
__global__ void __launch_bounds__(select_threads, 2) select_keys_kernel(CudaSelect c)
{
    begin_kernel();
    KS_SHARED(float, keys, [select_warps][codec_max_dim]);
    if (c.scratch.words[0] != 0u) return;
    clear_digits(c.scratch, c.a.n_kv_heads);
    const uint group = c.a.n_heads / c.a.n_kv_heads;
    const Head head = find_head(c.a, c.slots, blockIdx.y, 0u, c.a.n_tokens, true);
    const Span share = score_share(n_units(c.s, head.before));
    float* key = keys[threadIdx.x / 32u];
    for (uint i = share.begin + threadIdx.x / 32u; i < share.end; i += select_warps) {
        decode_key(c, head, c.s.n_first + i, key);
        for (uint h = head.head * group; h < (head.head + 1u) * group; h++) {
            const float logit = key_logit(c, head, c.s.n_first + i, h, key);
            if (threadIdx.x % 32u == 0u)
                c.scratch.logits[uint64_t(h) * c.scratch.stride + i] = logit;
        }
    }
    __syncthreads();
    if (c.s.kind == select_soft) note_norms(c, head.head, share);
}

// Votes on blocks, by the keys in each that attention looked at most: a warp for each. They are the
// KV head's, at its place in logits.
__global__ void __launch_bounds__(select_threads, 2) select_blocks_kernel(CudaSelect c)
{
    begin_kernel();
    KS_SHARED(float, keys, [select_warps][codec_max_dim]);
    if (c.scratch.words[0] != 0u) return;
    clear_digits(c.scratch, c.a.n_kv_heads);
    const uint group = c.a.n_heads / c.a.n_kv_heads, lane = threadIdx.x % 32u;
    const Head head = find_head(c.a, c.slots, blockIdx.y, 0u, c.a.n_tokens, true);
    const uint n = n_units(c.s, head.before);
    const uint* table = c.slots.table + head.begin;
    for (uint unit = blockIdx.x * select_warps + threadIdx.x / 32u; unit < n;
         unit += gridDim.x * select_warps) {
        const uint begin = unit_begin(c.s, head.before, unit),
                   end = unit_begin(c.s, head.before, unit + 1u),
                   few = min(end - begin, select_n_representatives);
        uint64_t last = ~0ull; // the score and the index that were taken before; of equal scores
                               // the newer comes first
        float sum = 0.f;
        for (uint k = 0u; k < few; k++) {
            uint64_t best = 0u;
            for (uint i = begin + lane; i < end; i += 32u) {
                const uint64_t mine = uint64_t(ordered_bits(c.to.scores[table[i]])) << 32 | i;
                best = mine < last && mine > best ? mine : best;
            }
            KS_UNROLL
            for (int distance = 16; distance > 0; distance /= 2) {
                const uint64_t other = __shfl_xor_sync(all_lanes, best, distance);
                best = other > best ? other : best;
            }
            last = best;
            decode_key(c, head, uint(best), keys[threadIdx.x / 32u]);
            for (uint h = head.head * group; h < (head.head + 1u) * group; h++)
                sum += key_logit(c, head, uint(best), h, keys[threadIdx.x / 32u]);
        }
        if (lane == 0u)
            c.scratch.logits[uint64_t(head.head) * c.scratch.stride + unit] = sum / float(few);
    }
}

// The next digit of the highest scores: those that have the digits found so far are counted by it.
__global__ void __launch_bounds__(select_threads, 2) select_digits_kernel(CudaSelect c, uint pass)
{
    begin_kernel();
    KS_SHARED(TopKScratch, scratch, [1]);
    if (c.scratch.words[0] != 0u) return;
    const Scores scores = scores_of(c, blockIdx.y);
    const Span share = score_share(scores.n);
    if (!scores.has_choice() || share.begin == share.end) return; // all of the block
    begin_digits(scratch[0]);
    const uint key = find_digit(c.scratch, blockIdx.y, pass, scores.k, scratch[0]).key;
    __syncthreads();
    for (uint i = share.begin + threadIdx.x; i < share.end; i += select_threads)
        count_digit(scratch[0], pass, scores.at[i], key);
    __syncthreads();
    add_digits(c.scratch, blockIdx.y, pass, scratch[0]);
}

// How many of each share's scores are above the key, and equal to it. Here a list begins.
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

constexpr uint most_voters = 64u; // at a time

// The highest logit of voters [first, end), and one by what their powers come to: a warp for each.
DEVICE void fold_norms(const CudaSelect& c, uint first, uint end, float (*norms)[2])
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

// Votes of heads that choose together add up, and are counted by their first digit.
__global__ void __launch_bounds__(select_threads, 2) select_sum_kernel(CudaSelect c, uint n_voters)
{
    begin_kernel();
    KS_SHARED(float, norms, [most_voters][2]);
    KS_SHARED(TopKScratch, scratch, [1]);
    if (c.scratch.words[0] != 0u) return;
    const bool soft = c.s.kind == select_soft;
    const uint set = blockIdx.y, each = n_voters / gridDim.y;
    const Scores votes = scores_of(c, set);
    const Span share = score_share(votes.n);
    if (share.begin == share.end) return; // all of the block
    begin_digits(scratch[0]);
    for (uint first = set * each; first < (set + 1u) * each; first += most_voters) {
        const uint end = min(first + most_voters, (set + 1u) * each);
        __syncthreads(); // who read the last ones
        if (soft) fold_norms(c, first, end, norms);
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

// How many of the listed indexes are below `border`, all of [0, n_first), the chosen ones and [end,
// before) being in order.
DEVICE void add_index(const CudaSelect& c, const Head& h, uint index, uint at, uint* counts)
{
    c.to.table[h.head * c.s.stride + at] = c.slots.table[h.begin + index];
    if (index < h.coded_begin) atomicMax(&counts[0], at + 1u);
    if (index < max(h.coded_begin, h.coded_end)) atomicMax(&counts[1], at + 1u);
}

// A share's units that are taken: those of one index by their threads, others by their warps.
DEVICE void add_units(const CudaSelect& c, const Head& h, bool taken, uint begin, uint end, uint at,
                      uint* counts)
{
    if (c.s.unit == 1u) {
        if (taken) add_index(c, h, begin, at, counts);
        return;
    }
    for (uint takens = __ballot_sync(all_lanes, taken ? 1 : 0); takens != 0u;
         takens &= takens - 1u) {
        const int lane = __ffs(int(takens)) - 1;
        const uint from = __shfl_sync(all_lanes, begin, lane),
                   to = __shfl_sync(all_lanes, end, lane);
        const uint first = __shfl_sync(all_lanes, at, lane);
        for (uint i = from + threadIdx.x % 32u; i < to; i += 32u)
            add_index(c, h, i, first + i - from, counts);
    }
}

// A new list of a head: what is first, the chosen units, what is last, by all of its blocks.
// Returns how many there are.
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
    const bool takes_first =
        first_vote > best.key || (first_vote == best.key && best.n_left_out == 0u);
    const bool takes_last =
        n > 1u && votes.k != 0u && last_vote >= best.key; // of equal ones the newest
    const uint n_short =
        takes_first ? s.unit - (unit_begin(s, h.before, 1u) - s.n_first) : 0u; // the first unit
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

// A head's list from the votes on its units, and the chunk's own slots after it.
__global__ void __launch_bounds__(select_threads, 2) select_list_kernel(CudaSelect c)
{
    begin_kernel();
    KS_SHARED(uint64_t, scratch, [3u * select_warps]);
    KS_SHARED(uint, counts, [2]); // listed indexes up to the last one before the coded ones, and up
                                  // to the last coded one
    const bool again = c.scratch.words[0] != 0u;
    if (again && blockIdx.x != 0u) return; // all of the block
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

// The key of each set, and where it lies in the shares.
static void find_top_k(const CudaSelect& c, uint n_sets, uint first_pass, cudaStream_t stream)
{
    const dim3 grid(c.scratch.n_shares, n_sets);
    for (uint pass = first_pass; pass < select_passes; pass++)
        KS_LAUNCH(select_digits_kernel, grid, select_threads, stream, c, pass);
    KS_LAUNCH(select_counts_kernel, grid, select_threads, stream, c);
}

void select_launch(const CudaSelect& c, cudaStream_t stream)
{
    constexpr uint bound_blocks = 64u;
    const uint heads = c.a.n_kv_heads, n_sets = c.s.shared_across_heads != 0u ? 1u : heads;
    const dim3 by_head(c.scratch.n_shares, heads), by_set(c.scratch.n_shares, n_sets);
    KS_LAUNCH(select_begin_kernel, 1u, select_threads, stream, c);
    if (c.s.kind == select_pages) {
        KS_LAUNCH(select_bounds_kernel, dim3(bound_blocks, heads), select_threads, stream, c);
        KS_LAUNCH(select_pages_kernel, by_head, select_threads, stream, c);
        find_top_k(c, n_sets, 0u, stream);
    } else {
        const bool blocks = c.s.kind == select_blocks;
        if (blocks)
            KS_LAUNCH(select_blocks_kernel, by_head, select_threads, stream, c);
        else if (select_keys_can(c))
            select_keys_launch(c, stream);
        else
            KS_LAUNCH(select_keys_kernel, by_head, select_threads, stream, c);
        KS_LAUNCH(select_sum_kernel, by_set, select_threads, stream, c,
                  blocks ? heads : c.a.n_heads);
        find_top_k(c, n_sets, 1u, stream);
    }
    KS_LAUNCH(select_list_kernel, by_head, select_threads, stream, c);
}

} // namespace ks
