// Which slots a step reads: all keys are asked, or the bounds of their pages, or the keys that speak for blocks; the best are listed.
// What the last call left in `state` decides on the device whether there is anything to choose.
// twin: a kernel for each step, the shader is one whose steps are dispatches
#include "kernels/cuda/slots.cuh"

namespace ks
{

constexpr uint select_threads = 256u; // of blocks that go over all candidates of a head

// Scores as integers of the same order.
DEVICE uint ordered_bits(float score)
{
    uint u = FLOAT_TO_BITS(score);
    return (u & 0x80000000u) != 0u ? ~u : u | 0x80000000u;
}

// How many units a head chooses from; 0: it is read as a whole.
DEVICE uint n_units(const SelectArgs& s, uint before)
{
    return before > s.n_read ? (before - s.n_last + s.unit - 1u) / s.unit - s.n_first / s.unit : 0u;
}

// Units begin at multiples of their size, but for the first.
DEVICE uint unit_begin(const SelectArgs& s, uint before, uint unit)
{
    return unit == 0u ? s.n_first : min((s.n_first / s.unit + unit) * s.unit, before - s.n_last);
}

DEVICE uint before_of(const CudaSelect& c, uint head) { return c.slots.view[head * view_words + view_before]; }

DEVICE float block_sum(float x, float* room) // of select_threads threads; room has one for each warp
{
    x = warp_sum(x);
    __syncthreads(); // who read the last one
    if (threadIdx.x % 32u == 0u) room[threadIdx.x / 32u] = x;
    __syncthreads();
    x = 0.f;
    for (uint i = 0u; i < select_threads / 32u; i++) x += room[i];
    return x;
}

// Value i of the chunk's queries in the mean; where attention turns them, token t as if at index n_last + t.
DEVICE float mean_query(const CudaSelect& c, const float* q, uint i)
{
    const AttentionArgs& a = c.a;
    const uint d = i % a.head_dim, head = i - d, half = a.n_turn / 2u;
    float sum = 0.f;
    for (uint t = 0u; t < a.n_tokens; t++) {
        const float* x = q + uint64_t(t) * a.n_heads * a.head_dim + head;
        if (d >= a.n_turn) {
            sum += x[d];
            continue;
        }
        const uint pair = a.pairs == rope_neighbours ? d / 2u : d % half, first = first_of_pair(a.pairs, pair);
        const float u = x[first], v = x[second_of_pair(a.pairs, pair, a.n_turn)];
        const float* angles = c.slots.turns + uint64_t(c.s.n_last + t) * a.n_turn + 2u * pair;
        sum += d == first ? u * angles[0] - v * angles[1] : u * angles[1] + v * angles[0];
    }
    return sum / float(a.n_tokens);
}

// One block: the queries in the mean, and whether the last choice is used again.
__global__ void __launch_bounds__(select_threads, 1) select_begin_kernel(CudaSelect c)
{
    KS_SHARED(float, room, [select_threads / 32u]);
    const SelectArgs& s = c.s;
    const uint n = c.a.n_heads * c.a.head_dim, came = c.to.state[select_tokens], since = c.to.state[select_since] + came;
    float both = 0.f, last = 0.f, now = 0.f;
    for (uint i = threadIdx.x; s.reuse < 1.f && i < n; i += select_threads) {
        const float x = mean_query(c, c.plain != nullptr ? c.plain : c.q, i), y = c.to.query[i];
        c.room.plain[i] = x;
        both += x * y;
        last += y * y;
        now += x * x;
    }
    both = block_sum(both, room);
    last = block_sum(last, room);
    now = block_sum(now, room);
    const bool again = s.reuse < 1.f && both >= s.reuse * sqrtf(last * now) && s.fresh == 0u && 2u * since <= s.n_last;
    __syncthreads(); // all have read the state
    if (threadIdx.x == 0u) {
        c.room.words[0] = again ? 1u : 0u;
        c.room.words[1] = again ? came : SELECT_CAME(s.fresh, c.to.state[select_choices], since);
        c.to.state[select_tokens] = c.a.n_tokens;
        c.to.state[select_since] = again ? since : 0u;
        c.to.state[again ? select_reuses : select_choices]++;
    }
    for (uint i = threadIdx.x; !again && i < n; i += select_threads) {
        if (s.reuse < 1.f) c.to.query[i] = c.room.plain[i];
        c.room.query[i] = s.reuse < 1.f && c.plain == nullptr ? c.room.plain[i] : mean_query(c, c.q, i);
    }
}

// The bounds of the pages that the last tokens are in: a thread for each dim.
__global__ void __launch_bounds__(n_threads, 2) select_bounds_kernel(CudaSelect c)
{
    if (c.room.words[0] != 0u) return; // all of the grid
    const uint d = c.a.head_dim, head = blockIdx.y;
    const Head h = find_head(c.a, c.slots, head, 0u, c.a.n_tokens, true);
    const uint first = (h.before - min(h.before, c.room.words[1])) / select_page;
    for (uint page = first + blockIdx.x; page * select_page < h.before; page += gridDim.x) {
        uint16_t* low = c.to.bounds + (uint64_t(head) * c.to.n_pages + page) * 2u * d;
        const uint end = min(h.before, (page + 1u) * select_page);
        for (uint k = threadIdx.x; k < d; k += n_threads) {
            float least = 0.f, most = 0.f;
            for (uint i = page * select_page; i < end; i++) {
                const uint source = source_of(c.a, h, i), row = row_of_slot(c.a, source, slot_of(c.a, c.slots, h, i));
                const float x = cache_value(pool_of(c.slots, source, false), row, k, d);
                least = i % select_page == 0u || x < least ? x : least;
                most = i % select_page == 0u || x > most ? x : most;
            }
            low[k] = uint16_t(HALF_BELOW(least));
            low[d + k] = uint16_t(HALF_ABOVE(most));
        }
    }
}

// Votes on pages: a warp for each.
__global__ void __launch_bounds__(n_threads, 2) select_pages_kernel(CudaSelect c)
{
    if (c.room.words[0] != 0u) return;
    const uint d = c.a.head_dim, head = blockIdx.y, group = c.a.n_heads / c.a.n_kv_heads, n = n_units(c.s, before_of(c, head));
    const uint skipped = c.s.n_first / select_page;
    for (uint i = blockIdx.x * (n_threads / 32u) + threadIdx.x / 32u; i < n; i += gridDim.x * (n_threads / 32u)) {
        const uint16_t* low = c.to.bounds + (uint64_t(head) * c.to.n_pages + skipped + i) * 2u * d;
        float most = 0.f;
        for (uint h = 0u; h < group; h++) {
            const float* q = c.room.query + uint64_t(head * group + h) * d;
            float sum = 0.f;
            for (uint k = threadIdx.x % 32u; k < d; k += 32u) sum += fmaxf(q[k] * HALF_TO_FLOAT(low[k]), q[k] * HALF_TO_FLOAT(low[d + k]));
            sum = warp_sum(sum);
            most = h == 0u || sum > most ? sum : most;
        }
        if (threadIdx.x % 32u == 0u) c.room.votes[uint64_t(head) * c.room.stride + i] = most * c.a.scale;
    }
}

// The logit of one key with query head h's mean query, in all lanes of a warp.
DEVICE float ask_key(const CudaSelect& c, const Head& head, uint index, uint h, const float* key)
{
    const float* q = c.room.query + uint64_t(h) * c.a.head_dim;
    float sum = 0.f;
    for (uint k = threadIdx.x % 32u; k < c.a.head_dim; k += 32u) sum += q[k] * key[k];
    const float b = c.slots.weights != nullptr ? c.slots.weights[2u * slot_of(c.a, c.slots, head, index) + 1u] : 0.f;
    return warp_sum(sum) * c.a.scale + b;
}

DEVICE void decode_key(const CudaSelect& c, const Head& head, uint index, float* key)
{
    __syncwarp(); // who read the last one
    const uint source = source_of(c.a, head, index), row = row_of_slot(c.a, source, slot_of(c.a, c.slots, head, index));
    decode_row(pool_of(c.slots, source, false), row, c.a.head_dim, threadIdx.x % 32u, 32u, [&](uint d, float value) { key[d] = value; });
    __syncwarp();
}

// Logits of all candidates: a warp for each.
__global__ void __launch_bounds__(n_threads, 2) select_keys_kernel(CudaSelect c)
{
    KS_SHARED(float, keys, [n_threads / 32u][codec_max_dim]);
    if (c.room.words[0] != 0u) return;
    const uint group = c.a.n_heads / c.a.n_kv_heads;
    const Head head = find_head(c.a, c.slots, blockIdx.y, 0u, c.a.n_tokens, true);
    const uint n = n_units(c.s, head.before);
    float* key = keys[threadIdx.x / 32u];
    for (uint i = blockIdx.x * (n_threads / 32u) + threadIdx.x / 32u; i < n; i += gridDim.x * (n_threads / 32u)) {
        decode_key(c, head, c.s.n_first + i, key);
        for (uint h = head.head * group; h < (head.head + 1u) * group; h++) {
            const float logit = ask_key(c, head, c.s.n_first + i, h, key);
            if (threadIdx.x % 32u == 0u) c.room.logits[uint64_t(h) * c.room.stride + i] = logit;
        }
    }
}

// Votes on blocks, by the keys in each that attention looked at most: a warp for each. They are the KV head's, at its place in logits.
__global__ void __launch_bounds__(n_threads, 2) select_blocks_kernel(CudaSelect c)
{
    KS_SHARED(float, keys, [n_threads / 32u][codec_max_dim]);
    if (c.room.words[0] != 0u) return;
    const uint group = c.a.n_heads / c.a.n_kv_heads, lane = threadIdx.x % 32u;
    const Head head = find_head(c.a, c.slots, blockIdx.y, 0u, c.a.n_tokens, true);
    const uint n = n_units(c.s, head.before);
    const uint* table = c.slots.table + head.begin;
    for (uint unit = blockIdx.x * (n_threads / 32u) + threadIdx.x / 32u; unit < n; unit += gridDim.x * (n_threads / 32u)) {
        const uint begin = unit_begin(c.s, head.before, unit), end = unit_begin(c.s, head.before, unit + 1u), few = min(end - begin, select_few);
        uint64_t last = ~0ull; // the score and the index that were taken before; of equal scores the newer comes first
        float sum = 0.f;
        for (uint k = 0u; k < few; k++) {
            uint64_t best = 0u;
            for (uint i = begin + lane; i < end; i += 32u) {
                const uint64_t mine = uint64_t(ordered_bits(c.to.signal[table[i]])) << 32 | i;
                best = mine < last && mine > best ? mine : best;
            }
            KS_UNROLL
            for (int apart = 16; apart > 0; apart /= 2) {
                const uint64_t other = __shfl_xor_sync(all_lanes, best, apart);
                best = other > best ? other : best;
            }
            last = best;
            decode_key(c, head, uint(best), keys[threadIdx.x / 32u]);
            for (uint h = head.head * group; h < (head.head + 1u) * group; h++)
                sum += ask_key(c, head, uint(best), h, keys[threadIdx.x / 32u]);
        }
        if (lane == 0u) c.room.logits[uint64_t(head.head) * c.room.stride + unit] = sum / float(few);
    }
}

// The k highest of n scores are those above a key, and of those equal to it all but the oldest n_left_out.
struct Highest {
    uint key, n_left_out;
};

struct HighestRoom {
    uint counts[256], sums[select_threads / 32u], found[4];
};

// By digits from the highest on: each pass counts those that share the digits found so far. For all threads of a block.
DEVICE Highest find_highest(const float* score, uint n, uint k, HighestRoom& room)
{
    if (k >= n) return {0u, 0u};
    uint key = 0u, mask = 0u, wanted = k, n_equal = n;
    for (int shift = 24; shift >= 0; shift -= 8) {
        room.counts[threadIdx.x] = 0u;
        __syncthreads();
        for (uint i = threadIdx.x; i < n; i += select_threads) {
            const uint u = ordered_bits(score[i]);
            if ((u & mask) == key) atomicAdd(&room.counts[u >> shift & 255u], 1u);
        }
        __syncthreads();
        // Thread t has digit 255 - t: how many have it or a higher one.
        const uint mine = room.counts[255u - threadIdx.x], lane = threadIdx.x % 32u;
        uint sum = mine;
        KS_UNROLL
        for (uint apart = 1u; apart < 32u; apart *= 2u) {
            const uint other = __shfl_up_sync(all_lanes, sum, apart);
            sum += lane >= apart ? other : 0u;
        }
        if (lane == 31u) room.sums[threadIdx.x / 32u] = sum;
        __syncthreads();
        for (uint w = 0u; w < threadIdx.x / 32u; w++) sum += room.sums[w];
        if (sum >= wanted && sum - mine < wanted) {
            room.found[0] = 255u - threadIdx.x;
            room.found[1] = wanted - (sum - mine);
            room.found[2] = mine;
        }
        __syncthreads();
        key |= room.found[0] << shift;
        mask |= 255u << shift;
        wanted = room.found[1];
        n_equal = room.found[2];
        __syncthreads();
    }
    return {key, n_equal - wanted};
}

// Asked of scores in order, select_threads at a time: whether each thread's is taken, and how many of those before it are.
struct Taking {
    Highest best;
    uint n_equal = 0u, n_taken = 0u; // before this round

    DEVICE_MEMBER bool takes(bool has, float score, uint* rank, HighestRoom& room)
    {
        const uint u = ordered_bits(score), warp = threadIdx.x / 32u, lanes_below = (1u << threadIdx.x % 32u) - 1u;
        const bool equal = has && u == best.key;
        const uint equals = __ballot_sync(all_lanes, equal ? 1 : 0);
        if (threadIdx.x % 32u == 0u) room.sums[warp] = uint(__popc(equals));
        __syncthreads();
        uint before = n_equal;
        for (uint w = 0u; w < select_threads / 32u; w++) {
            before += w < warp ? room.sums[w] : 0u;
            n_equal += room.sums[w];
        }
        before += uint(__popc(equals & lanes_below));
        const bool taken = has && (u > best.key || (equal && before >= best.n_left_out));
        const uint takens = __ballot_sync(all_lanes, taken ? 1 : 0);
        __syncthreads();
        if (threadIdx.x % 32u == 0u) room.sums[warp] = uint(__popc(takens));
        __syncthreads();
        *rank = n_taken + uint(__popc(takens & lanes_below));
        for (uint w = 0u; w < select_threads / 32u; w++) {
            *rank += w < warp ? room.sums[w] : 0u;
            n_taken += room.sums[w];
        }
        __syncthreads();
        return taken;
    }
};

// The logits of a query head become its votes: one block for each.
__global__ void __launch_bounds__(select_threads, 1) select_vote_kernel(CudaSelect c)
{
    KS_SHARED(float, room, [select_threads / 32u]);
    KS_SHARED(HighestRoom, highest, [1]);
    if (c.room.words[0] != 0u) return;
    const uint h = blockIdx.x, n = n_units(c.s, before_of(c, h / (c.a.n_heads / c.a.n_kv_heads)));
    float* logits = c.room.logits + uint64_t(h) * c.room.stride;
    if (c.s.kind == select_hard) {
        uint rank;
        Taking taking{find_highest(logits, n, c.s.n_read - c.s.n_first - c.s.n_last, highest[0])};
        for (uint base = 0u; base < n; base += select_threads) {
            const uint i = base + threadIdx.x;
            const bool taken = taking.takes(i < n, i < n ? logits[i] : 0.f, &rank, highest[0]);
            if (i < n) logits[i] = taken ? 1.f : 0.f;
        }
        return;
    }
    float top = none, sum = 0.f;
    for (uint i = threadIdx.x; i < n; i += select_threads) top = fmaxf(top, logits[i]);
    top = warp_max(top);
    if (threadIdx.x % 32u == 0u) room[threadIdx.x / 32u] = top;
    __syncthreads();
    for (uint i = 0u; i < select_threads / 32u; i++) top = fmaxf(top, room[i]);
    for (uint i = threadIdx.x; i < n; i += select_threads) sum += expf(logits[i] - top);
    sum = block_sum(sum, room);
    for (uint i = threadIdx.x; i < n; i += select_threads) logits[i] = expf(logits[i] - top) / sum;
}

// Votes of heads that choose together add up.
__global__ void __launch_bounds__(n_threads, 2) select_sum_kernel(CudaSelect c, uint n_voters)
{
    if (c.room.words[0] != 0u) return;
    const uint n_sets = gridDim.y, set = blockIdx.y, each = n_voters / n_sets, n = n_units(c.s, before_of(c, set));
    for (uint i = blockIdx.x * n_threads + threadIdx.x; i < n; i += gridDim.x * n_threads) {
        float sum = 0.f;
        for (uint v = set * each; v < (set + 1u) * each; v++) sum += c.room.logits[uint64_t(v) * c.room.stride + i];
        c.room.votes[uint64_t(set) * c.room.stride + i] = sum;
    }
}

// How many of the listed indexes are below `border`, all of [0, n_first), the chosen ones and [end, before) being in order.
DEVICE void add_index(const CudaSelect& c, const Head& h, uint index, uint at, uint* counts)
{
    c.to.table[h.head * c.s.stride + at] = c.slots.table[h.begin + index];
    if (index < h.coded_begin) atomicMax(&counts[0], at + 1u);
    if (index < h.coded_end) atomicMax(&counts[1], at + 1u);
}

// A head's list from the votes on its units, and the chunk's own slots after it: one block for each.
__global__ void __launch_bounds__(select_threads, 1) select_list_kernel(CudaSelect c)
{
    KS_SHARED(HighestRoom, room, [1]);
    KS_SHARED(uint, counts, [2]); // listed indexes up to the last one before the coded ones, and up to the last coded one
    const SelectArgs& s = c.s;
    const Head h = find_head(c.a, c.slots, blockIdx.x, 0u, c.a.n_tokens, true);
    uint* view = c.to.view + h.head * view_words;
    const bool again = c.room.words[0] != 0u;
    const uint n = n_units(s, h.before), last = n != 0u ? s.n_last : 0u, first = n != 0u ? s.n_first : h.before;
    uint listed = again ? view[view_before] + c.room.words[1] : first;
    if (threadIdx.x < 2u) counts[threadIdx.x] = 0u;
    __syncthreads();
    for (uint i = threadIdx.x; !again && i < first; i += select_threads) add_index(c, h, i, i, counts);
    if (!again && n != 0u) {
        const float* votes = c.room.votes + uint64_t(s.alike != 0u ? 0u : h.head) * c.room.stride;
        Taking taking{find_highest(votes, n, (s.n_read - s.n_first - s.n_last) / s.unit, room[0])};
        const uint short_by = s.unit - (unit_begin(s, h.before, 1u) - s.n_first); // the first unit
        uint rank, n_short = 0u;
        for (uint base = 0u; base < n; base += select_threads) {
            const uint unit = base + threadIdx.x;
            const bool taken = taking.takes(unit < n, unit < n ? votes[unit] : 0.f, &rank, room[0]);
            if (base == 0u) n_short = __syncthreads_or(taken && unit == 0u) != 0 ? short_by : 0u;
            const uint begin = unit < n ? unit_begin(s, h.before, unit) : 0u, size = taken ? unit_begin(s, h.before, unit + 1u) - begin : 0u;
            const uint at = first + rank * s.unit - (unit != 0u ? n_short : 0u);
            for (uint i = 0u; i < size; i++) add_index(c, h, begin + i, at + i, counts);
            if (base + select_threads >= n) { // the last unit may be short, too
                const uint missing = taken && unit + 1u == n && n > 1u ? s.unit - size : 0u;
                const int lost = __syncthreads_or(missing != 0u);
                if (missing != 0u) room[0].found[3] = missing;
                __syncthreads();
                listed = first + taking.n_taken * s.unit - n_short - (lost != 0 ? room[0].found[3] : 0u);
            }
        }
        for (uint i = threadIdx.x; i < last; i += select_threads) add_index(c, h, h.before - last + i, listed + i, counts);
        listed += last;
    }
    __syncthreads();
    if (threadIdx.x == 0u) view[view_before] = listed;
    if (threadIdx.x == 0u && !again) {
        view[view_begin] = h.head * s.stride;
        view[view_coded_begin] = counts[0];
        view[view_coded_end] = max(counts[0], counts[1]);
    }
    for (uint t = threadIdx.x; c.a.chunk_rows == 0u && t < c.a.n_tokens; t += select_threads)
        c.to.table[h.head * s.stride + listed + t] = c.slots.table[h.begin + h.before + t];
}

void select_launch(const CudaSelect& c, cudaStream_t stream)
{
    constexpr uint blocks_of_head = 64u;
    const uint heads = c.a.n_kv_heads, n_sets = c.s.alike != 0u ? 1u : heads;
    KS_LAUNCH(select_begin_kernel, 1u, select_threads, stream, c);
    if (c.s.kind == select_pages) {
        KS_LAUNCH(select_bounds_kernel, dim3(blocks_of_head, heads), n_threads, stream, c);
        KS_LAUNCH(select_pages_kernel, dim3(blocks_of_head, heads), n_threads, stream, c);
    } else {
        const bool blocks = c.s.kind == select_blocks;
        if (blocks)
            KS_LAUNCH(select_blocks_kernel, dim3(blocks_of_head, heads), n_threads, stream, c);
        else
            KS_LAUNCH(select_keys_kernel, dim3(blocks_of_head, heads), n_threads, stream, c);
        if (c.s.kind == select_soft || c.s.kind == select_hard) KS_LAUNCH(select_vote_kernel, c.a.n_heads, select_threads, stream, c);
        KS_LAUNCH(select_sum_kernel, dim3(blocks_of_head, n_sets), n_threads, stream, c, blocks ? heads : c.a.n_heads);
    }
    KS_LAUNCH(select_list_kernel, heads, select_threads, stream, c);
}

} // namespace ks
