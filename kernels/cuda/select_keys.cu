// The fast variant of select_keys_kernel (select_units.cu), for heads of 64, 128 and 256 dims:
// logits of all candidates. A warp has 32 keys. Groups of lanes share rows and read several rows at
// once. Each key is multiplied by the queries of all query heads of its KV head.
// twin: none, it is a fast variant of a kernel of select
#include "kernels/cuda/codecs.cuh"
#include "kernels/cuda/select.cuh"

namespace ks
{

// Loads this lane's eight dims of n neighbouring keys. Lane i of the warp knows the source and the
// row of key i. The first key is `first`. Key `last` replaces the keys after it, so that the loads
// need no branch and do not wait for each other.
template <uint d, bool coded, uint n>
DEVICE void load_keys(const CudaSelect& c, uint source, uint row, uint first, uint last,
                      const Levels* levels, float (&keys)[n][8])
{
    KS_UNROLL
    for (uint i = 0u; i < n; i++) {
        const int nth = int(min(first + i, last));
        const uint from = __shfl_sync(all_lanes, source, nth), r = __shfl_sync(all_lanes, row, nth);
        load_octet<coded>(pool_of(c.slots, from, false), r, threadIdx.x % (d / 8u), d,
                          levels[from].k, keys[i]);
    }
}

DEVICE float dot_octet(const float4& a, const float4& b, const float (&x)[8])
{
    return a.x * x[0] + a.y * x[1] + a.z * x[2] + a.w * x[3] + b.x * x[4] + b.y * x[5] +
           b.z * x[6] + b.w * x[7];
}

template <uint d, bool coded>
__global__ void __launch_bounds__(select_threads, coded ? 2 : 3)
    select_representative_keys_kernel(CudaSelect c)
{
    begin_kernel();
    KS_SHARED(Levels, levels, [3]);
    if (c.scratch.words[0] != 0u) return;
    constexpr uint lanes = d / 8u;           // of a key
    constexpr uint n_keys = coded ? 1u : 4u; // that a lane has at once
    const uint lane = threadIdx.x % 32u, j = lane % lanes, group = c.a.n_heads / c.a.n_kv_heads;
    const Head head = find_head(c.a, c.slots, blockIdx.y, 0u, c.a.n_tokens, true);
    const Span share = score_share(n_units(c.s, head.before));
    clear_digits(c.scratch, c.a.n_kv_heads);
    if (coded) fill_levels(levels, c.slots);
    __syncthreads();
    for (uint base = share.begin + (threadIdx.x - lane); base < share.end; base += select_threads) {
        const uint has = min(32u, share.end - base);
        uint source = 0u, row = 0u; // of this lane's own key
        float weight = 0.f;
        if (lane < has) {
            const uint index = c.s.n_first + base + lane, slot = slot_of(c.a, c.slots, head, index);
            source = source_of(c.a, head, index);
            row = row_of_slot(c.a, source, slot);
            if (c.slots.weights != nullptr) weight = c.slots.weights[2u * slot + 1u];
        }
        // A group of lanes has as many keys as lanes.
        for (uint nth = 0u; nth < lanes; nth += n_keys) {
            float keys[n_keys][8] = {};
            load_keys<d, coded>(c, source, row, lane - j + nth, has - 1u, levels, keys);
            for (uint h = head.head * group; h < (head.head + 1u) * group; h++) {
                const float4* q =
                    reinterpret_cast<const float4*>(c.scratch.query + uint64_t(h) * d) + 2u * j;
                const float4 low = __ldg(q), high = __ldg(q + 1);
                float mine = 0.f;
                KS_UNROLL
                for (uint i = 0u; i < n_keys; i++) {
                    const float sum = share_sum<lanes>(dot_octet(low, high, keys[i]));
                    mine = j == nth + i ? sum : mine;
                }
                if (j - nth < n_keys && lane < has)
                    c.scratch.logits[uint64_t(h) * c.scratch.stride + base + lane] =
                        mine * c.a.scale + weight;
            }
        }
    }
    __syncthreads();
    if (c.s.kind == select_soft) note_norms(c, head.head, share);
}

template <uint d>
static void launch_keys(const CudaSelect& c, cudaStream_t stream)
{
    const dim3 grid(c.scratch.n_shares, c.a.n_kv_heads);
    if (all_f16(c.slots))
        KS_LAUNCH((select_representative_keys_kernel<d, false>), grid, select_threads, stream, c);
    else
        KS_LAUNCH((select_representative_keys_kernel<d, true>), grid, select_threads, stream, c);
}

bool select_keys_can(const CudaSelect& c)
{
    return c.a.softcap == 0.f &&
           (c.a.head_dim == 64u || c.a.head_dim == 128u || c.a.head_dim == 256u);
}

void select_keys_launch(const CudaSelect& c, cudaStream_t stream)
{
    if (c.a.head_dim == 64u) launch_keys<64u>(c, stream);
    if (c.a.head_dim == 128u) launch_keys<128u>(c, stream);
    if (c.a.head_dim == 256u) launch_keys<256u>(c, stream);
}

} // namespace ks
