// The units of select: their votes by the bounds of pages, or the logits of their keys, or of their
// representatives.
// twin: none, these are kernels of select
#include "kernels/cuda/select.cuh"

namespace ks
{

// Writes the bounds of the pages that hold the last tokens_to_refresh tokens. The threads of a
// block share a page's dims. With fewer dims than threads they also share its rows.
__global__ void __launch_bounds__(select_threads, 2) select_bounds_kernel(CudaSelect c)
{
    begin_kernel();
    KS_SHARED(float, bounds, [select_threads][2]);
    if (c.scratch.words[0] != 0u) return; // the whole grid
    const uint d = c.a.head_dim, width = min(d, select_threads), n_parts = select_threads / width,
               part = threadIdx.x / width;
    const Head h = find_head(c.a, c.slots, blockIdx.y, 0u, c.a.n_tokens, true);
    const uint first = first_page_to_refresh(h.before, c.scratch.words[1]);
    for (uint page = first + blockIdx.x; page * select_page < h.before; page += gridDim.x) {
        uint16_t* low = c.to.bounds + (uint64_t(h.head) * c.to.n_pages + page) * 2u * d;
        const uint end = min(h.before, (page + 1u) * select_page);
        for (uint k = threadIdx.x % width; k - threadIdx.x % width < d; k += width) {
            float lowest = -masked_logit, highest = masked_logit;
            for (uint i = page * select_page + part; k < d && part < n_parts && i < end;
                 i += n_parts) {
                const uint source = source_of(c.a, h, i),
                           row = row_of_slot(c.a, source, slot_of(c.a, c.slots, h, i));
                const float x = cache_value(pool_of(c.slots, source, false), row, k, d);
                lowest = fminf(lowest, x);
                highest = fmaxf(highest, x);
            }
            __syncthreads(); // all threads have read the earlier bounds
            bounds[threadIdx.x][0] = lowest;
            bounds[threadIdx.x][1] = highest;
            __syncthreads();
            if (part != 0u || k >= d) continue;
            for (uint other = 1u; other < n_parts; other++) {
                lowest = fminf(lowest, bounds[threadIdx.x + other * width][0]);
                highest = fmaxf(highest, bounds[threadIdx.x + other * width][1]);
            }
            low[k] = uint16_t(HALF_FLOOR(lowest));
            low[d + k] = uint16_t(HALF_CEIL(highest));
        }
    }
}

// The votes on pages: the highest logit that a key within the bounds can have. A softcap would not
// change their order. A warp has one page at a time.
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
        float highest = 0.f;
        for (uint h = 0u; h < group; h++) {
            const float* q = c.scratch.query + uint64_t(head * group + h) * d;
            float sum = 0.f;
            for (uint k = threadIdx.x % 32u; k < d; k += 32u)
                sum += fmaxf(q[k] * HALF_TO_FLOAT(low[k]), q[k] * HALF_TO_FLOAT(low[d + k]));
            sum = warp_sum(sum);
            highest = h == 0u || sum > highest ? sum : highest;
        }
        if (threadIdx.x % 32u == 0u)
            c.scratch.votes[uint64_t(head) * c.scratch.stride + i] = highest * c.a.scale;
    }
}

// The logit of one key with the mean query of query head h. All lanes of a warp get it.
DEVICE float key_logit(const CudaSelect& c, const Head& head, uint index, uint h, const float* key)
{
    const float* q = c.scratch.query + uint64_t(h) * c.a.head_dim;
    float sum = 0.f;
    for (uint k = threadIdx.x % 32u; k < c.a.head_dim; k += 32u) sum += q[k] * key[k];
    const float b = c.slots.weights != nullptr
                        ? c.slots.weights[2u * slot_of(c.a, c.slots, head, index) + 1u]
                        : 0.f;
    return logit_of(c.a, warp_sum(sum)) + b;
}

// Decodes the key of an index into the warp's part of shared memory.
DEVICE void decode_key(const CudaSelect& c, const Head& head, uint index, float* key)
{
    __syncwarp(); // all lanes have read the earlier key
    const uint source = source_of(c.a, head, index),
               row = row_of_slot(c.a, source, slot_of(c.a, c.slots, head, index));
    decode_row(pool_of(c.slots, source, false), row, c.a.head_dim, threadIdx.x % 32u, 32u,
               [&](uint d, float value) { key[d] = value; });
    __syncwarp();
}

// The logits of all candidates. A warp has one key at a time.
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

// The votes on blocks: the mean logit of each block's representatives, summed over the query heads.
// A warp has one block at a time. The votes of KV head h are in row h of the logits.
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
                   n_keys = count_representatives(end - begin);
        // The key of a score, then the index: of equal scores the newer is higher. Each round takes
        // the highest one below the last one.
        uint64_t last = ~0ull;
        float sum = 0.f;
        for (uint k = 0u; k < n_keys; k++) {
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
            c.scratch.logits[uint64_t(head.head) * c.scratch.stride + unit] = sum / float(n_keys);
    }
}

void select_units_launch(const CudaSelect& c, cudaStream_t stream)
{
    constexpr uint bound_blocks = 64u;
    const dim3 grid(c.scratch.n_shares, c.a.n_kv_heads);
    if (c.s.kind == select_pages) {
        KS_LAUNCH(select_bounds_kernel, dim3(bound_blocks, c.a.n_kv_heads), select_threads, stream,
                  c);
        KS_LAUNCH(select_pages_kernel, grid, select_threads, stream, c);
    } else if (c.s.kind == select_blocks) {
        KS_LAUNCH(select_blocks_kernel, grid, select_threads, stream, c);
    } else if (select_keys_can(c)) {
        select_keys_launch(c, stream);
    } else {
        KS_LAUNCH(select_keys_kernel, grid, select_threads, stream, c);
    }
}

} // namespace ks
