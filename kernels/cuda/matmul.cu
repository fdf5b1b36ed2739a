// y = scale (x W^T), or y += scale (x W^T).
// Matvec (up to 8 tokens): one block per tile of eight rows, sixteen threads per row.
// Tiled (more tokens), weights in f32, f16 or bf16: one block per 32 rows and 32 tokens, sums in
// f32.
// Tiled, quantised weights: one block per 64 rows and 64 tokens, on the int8 tensor cores.
// twin: one launch covers all weights of one format that are multiplied with the same x
#include "kernels/cuda/matvec.cuh"
#include "kernels/cuda/mma.cuh"

namespace ks
{

// A weight of the launch with its output, and this block's index among that weight's blocks of
// rows.
struct Target {
    float* y;      // (n_tokens, rows)
    const uint* w; // (rows, cols) tiles
    uint rows, block;
    float scale;
};

static inline __host__ __device__ uint blocks_of(uint rows, uint each)
{
    return (rows + each - 1u) / each;
}

// each: rows per block.
DEVICE Target find_target(const MatmulTargets& all, uint each)
{
    Target t = {all.y[0], all.w[0], all.rows[0], blockIdx.x, all.scale[0]};
    KS_UNROLL
    for (uint i = 1u; i < max_targets; i++) {
        const uint before = blocks_of(t.rows, each);
        if (i < all.n && t.block >= before)
            t = {all.y[i], all.w[i], all.rows[i], t.block - before, all.scale[i]};
    }
    return t;
}

DEVICE void put(const MatmulArgs& a, const Target& to, uint t, uint row, float sum)
{
    float* at = to.y + uint64_t(t) * to.rows + row;
    sum *= to.scale;
    *at = a.accumulate != 0u ? *at + sum : sum;
}

template <uint n_vec_tokens>
DEVICE void store_tokens(const MatmulArgs& a, const Target& to, const float (&sum)[n_vec_tokens],
                         float* scratch)
{
    store_vectors(sum, scratch, [&](uint t, uint r, float total) {
        const uint row = to.block * tile_rows + r;
        if (t < a.n_tokens && row < to.rows) put(a, to, t, row, total);
    });
}

// The rows of x of a matvec's tokens; missing tokens repeat the last.
template <uint n_vec_tokens>
DEVICE void all_tokens(const MatmulArgs& a, uint (&rows)[n_vec_tokens])
{
    KS_UNROLL
    for (uint t = 0u; t < n_vec_tokens; t++) rows[t] = min(t, a.n_tokens - 1u);
}

// The matvec in f32.
template <class F, uint n_vec_tokens>
__global__ void __launch_bounds__(n_threads, 2)
    matvec_kernel(MatmulArgs a, MatmulTargets targets, const float* x) // (n_tokens, cols)
{
    begin_kernel();
    KS_SHARED(float, scratch, [n_vec_tokens * n_threads]);
    const Target to = find_target(targets, tile_rows);
    float sum[n_vec_tokens] = {};
    uint rows[n_vec_tokens];
    all_tokens(a, rows);
    add_values<F>(sum, a.cols, to.w, to.block, x, rows);
    store_tokens(a, to, sum, scratch);
}

constexpr uint side = 32u; // rows, tokens and columns of the tiles in shared memory

template <class F>
__global__ void __launch_bounds__(n_threads, 2)
    matmul_tiled_kernel(MatmulArgs a, MatmulTargets targets, const float* x) // (n_tokens, cols)
{
    begin_kernel();
    KS_SHARED(float, ws, [side * (side + 1u)]);
    KS_SHARED(float, xs, [side * (side + 1u)]);
    const Target to = find_target(targets, side);
    uint row0 = to.block * side, t0 = blockIdx.y * side, my_row = threadIdx.x % 16u * 2u,
         my_t = threadIdx.x / 16u * 4u;
    float sum[8];
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++) sum[i] = 0.f;
    for (uint k0 = 0u; k0 < a.cols; k0 += side) {
        for (uint i = threadIdx.x; i < side * side; i += n_threads) {
            uint r = row0 + i % side, k = k0 + i / side, t = t0 + i / side, kx = k0 + i % side;
            bool has = r < to.rows && k < a.cols;
            ws[i / side * (side + 1u) + i % side] =
                has ? F::value(block_at<F>(a.cols, to.w, r / tile_rows, k / F::block), 0u,
                               r % tile_rows, k % F::block)
                    : 0.f;
            xs[i % side * (side + 1u) + i / side] =
                t < a.n_tokens && kx < a.cols ? x[uint64_t(t) * a.cols + kx] : 0.f;
        }
        __syncthreads();
        for (uint k = 0u; k < side; k++) {
            float w0 = ws[k * (side + 1u) + my_row], w1 = ws[k * (side + 1u) + my_row + 1u];
            KS_UNROLL
            for (uint j = 0u; j < 4u; j++) {
                float v = xs[k * (side + 1u) + my_t + j];
                sum[j] += w0 * v;
                sum[4u + j] += w1 * v;
            }
        }
        __syncthreads();
    }
    KS_UNROLL
    for (uint i = 0u; i < 8u; i++)
        if (t0 + my_t + i % 4u < a.n_tokens && row0 + my_row + i / 4u < to.rows)
            put(a, to, t0 + my_t + i % 4u, row0 + my_row + i / 4u, sum[i]);
}

// Quantises x to int8 in blocks of 32 values, with one scale per half of a block. One warp per
// block.
// twin: quantize.comp. Shaders with int8 products are in matmul_int8.comp, because not every device
// has integer dot products.
__global__ void __launch_bounds__(n_threads, 2)
    quantize_kernel(MatmulArgs a, ActGroup* acts, // (cols / 32, n_tokens)
                    const float* x)               // (n_tokens, cols)
{
    begin_kernel();
    uint i = blockIdx.x * (n_threads / 32u) + threadIdx.x / 32u, lane = threadIdx.x % 32u,
         n_blocks = a.cols / 32u;
    if (i >= n_blocks * a.n_tokens) return; // the whole warp returns, and no block barrier follows
    uint t = i / n_blocks, b = i % n_blocks;
    store_int8(x[uint64_t(t) * a.cols + 32u * b + lane],
               int8_copy_of(acts, a.n_tokens, t, 32u * b));
}

// The matvec in int8.
template <class F, uint n_vec_tokens>
__global__ void __launch_bounds__(n_threads, 2)
    matvec_int8_kernel(MatmulArgs a, MatmulTargets targets,
                       const ActGroup* __restrict__ acts) // (cols / 32, n_tokens)
{
    begin_kernel();
    KS_SHARED(float, scratch, [n_vec_tokens * n_threads]);
    const Target to = find_target(targets, tile_rows);
    float sum[n_vec_tokens] = {};
    uint rows[n_vec_tokens];
    all_tokens(a, rows);
    add_int8<F>(sum, a.cols, to.w, to.block, acts, a.n_tokens, rows);
    store_tokens(a, to, sum, scratch);
}

constexpr uint gemm_side = 64u;  // rows and tokens of a block
constexpr uint gemm_groups = 2u; // groups of 32 columns in shared memory at a time

// Loads the next groups of weights and activations into shared memory.
// Group and ActGroup are 12 words each, so the lanes of a fragment have no bank conflicts.
template <class F>
DEVICE void load_groups(const MatmulArgs& a, const Target& to, const ActGroup* acts, uint g0,
                        Group* ws, ActGroup* xs)
{
    constexpr uint per_block = F::block / 32u;
    uint i = threadIdx.x % gemm_side, g = g0 + threadIdx.x / gemm_side,
         row = to.block * gemm_side + i, t = blockIdx.y * gemm_side + i;
    bool has = g < a.cols / 32u;
    Group group = {};
    if (has && row < to.rows)
        group = Unpack<F>::group(block_at<F>(a.cols, to.w, row / tile_rows, g / per_block),
                                 row % tile_rows, g % per_block);
    ActGroup act = {};
    if (has && t < a.n_tokens) act = acts[uint64_t(g) * a.n_tokens + t];
    ws[threadIdx.x] = group;
    xs[threadIdx.x] = act;
}

// Adds the products of 16 rows and 8 tokens over one group of 32 columns.
DEVICE void multiply_groups(float (&sum)[4], const Group* ws, const ActGroup* xs)
{
    uint lane = threadIdx.x % 32u, g = lane / 4u, t = lane % 4u;
    const Group &low = ws[g], &high = ws[g + 8u];
    const ActGroup &x0 = xs[2u * t], &x1 = xs[2u * t + 1u];
    KS_UNROLL
    for (uint half = 0u; half < 2u; half++) {
        int d[4] = {0, 0, 0, 0};
        const uint rows[2] = {low.q[4u * half + t], high.q[4u * half + t]};
        mma_m16n8k16_s8(d, rows, uint(xs[g].q[4u * half + t]));
        sum[0] += low.d[half] * x0.scale[half] * float(d[0]) + low.m[half] * x0.sum[half];
        sum[1] += low.d[half] * x1.scale[half] * float(d[1]) + low.m[half] * x1.sum[half];
        sum[2] += high.d[half] * x0.scale[half] * float(d[2]) + high.m[half] * x0.sum[half];
        sum[3] += high.d[half] * x1.scale[half] * float(d[3]) + high.m[half] * x1.sum[half];
    }
}

template <class F>
__global__ void __launch_bounds__(n_threads, 2)
    matmul_tiled_int8_kernel(MatmulArgs a, MatmulTargets targets,
                             const ActGroup* __restrict__ acts) // (cols / 32, n_tokens)
{
    begin_kernel();
    KS_SHARED(Group, ws, [gemm_groups * gemm_side]);
    KS_SHARED(ActGroup, xs, [gemm_groups * gemm_side]);
    const Target to = find_target(targets, gemm_side);
    uint warp = threadIdx.x / 32u, lane = threadIdx.x % 32u, row0 = warp % 2u * 32u,
         t0 = warp / 2u * 32u;
    float sum[2][4][4];
    KS_UNROLL
    for (uint i = 0u; i < 32u; i++) sum[i / 16u][i / 4u % 4u][i % 4u] = 0.f;
    for (uint g0 = 0u; g0 < a.cols / 32u; g0 += gemm_groups) {
        load_groups<F>(a, to, acts, g0, ws, xs);
        __syncthreads();
        KS_UNROLL
        for (uint g = 0u; g < gemm_groups; g++) KS_UNROLL
        for (uint i = 0u; i < 2u; i++) KS_UNROLL
        for (uint j = 0u; j < 4u; j++)
            multiply_groups(sum[i][j], ws + g * gemm_side + row0 + 16u * i,
                            xs + g * gemm_side + t0 + 8u * j);
        __syncthreads();
    }
    row0 += to.block * gemm_side + lane / 4u;
    t0 += blockIdx.y * gemm_side + 2u * (lane % 4u);
    KS_UNROLL
    for (uint n = 0u; n < 32u; n++) {
        uint i = n / 16u, j = n / 4u % 4u, e = n % 4u, row = row0 + 16u * i + 8u * (e / 2u),
             t = t0 + 8u * j + e % 2u;
        if (row < to.rows && t < a.n_tokens) put(a, to, t, row, sum[i][j][e]);
    }
}

// The number of blocks of `each` rows over all targets.
static uint blocks_of(const MatmulTargets& to, uint each)
{
    uint n = 0u;
    for (uint i = 0u; i < to.n; i++) n += blocks_of(to.rows[i], each);
    return n;
}

template <class F>
static void multiply(const MatmulArgs& a, const MatmulTargets& to, const float* x,
                     cudaStream_t stream)
{
    const uint tiles = blocks_of(to, tile_rows);
    if (a.n_tokens == 1u)
        KS_LAUNCH((matvec_kernel<F, 1u>), tiles, n_threads, stream, a, to, x);
    else if (a.n_tokens <= 4u)
        KS_LAUNCH((matvec_kernel<F, 4u>), tiles, n_threads, stream, a, to, x);
    else if (a.n_tokens <= max_matvec_tokens)
        KS_LAUNCH((matvec_kernel<F, 8u>), tiles, n_threads, stream, a, to, x);
    else
        KS_LAUNCH((matmul_tiled_kernel<F>), dim3(blocks_of(to, side), blocks_of(a.n_tokens, side)),
                  n_threads, stream, a, to, x);
}

template <class F>
static void multiply_int8(const MatmulArgs& a, const MatmulTargets& to, const ActGroup* acts,
                          cudaStream_t stream)
{
    const uint tiles = blocks_of(to, tile_rows);
    if (a.n_tokens == 1u)
        KS_LAUNCH((matvec_int8_kernel<F, 1u>), tiles, n_threads, stream, a, to, acts);
    else if (a.n_tokens <= 4u)
        KS_LAUNCH((matvec_int8_kernel<F, 4u>), tiles, n_threads, stream, a, to, acts);
    else if (a.n_tokens <= max_matvec_tokens)
        KS_LAUNCH((matvec_int8_kernel<F, 8u>), tiles, n_threads, stream, a, to, acts);
    else
        KS_LAUNCH((matmul_tiled_int8_kernel<F>),
                  dim3(blocks_of(to, gemm_side), blocks_of(a.n_tokens, gemm_side)), n_threads,
                  stream, a, to, acts);
}

// Formats of single values (f32, f16, bf16) are multiplied in f32, block formats in int8.
template <class F, bool quantised = F::block != 1u>
struct Multiply {
    static void run(const MatmulArgs& a, const MatmulTargets& to, const float* x, const ActGroup*,
                    cudaStream_t stream)
    {
        multiply<F>(a, to, x, stream);
    }
};
template <class F>
struct Multiply<F, true> {
    static void run(const MatmulArgs& a, const MatmulTargets& to, const float*,
                    const ActGroup* acts, cudaStream_t stream)
    {
        multiply_int8<F>(a, to, acts, stream);
    }
};

void matmul_launch(const MatmulArgs& a, uint format, const MatmulTargets& to, const float* x,
                   const ActGroup* acts, cudaStream_t stream)
{
    uint nth = 0u;
#define KS_CASE(name)                                                                              \
    if (format == nth++) return Multiply<format_##name>::run(a, to, x, acts, stream);
    FORMATS(KS_CASE)
#undef KS_CASE
}

bool matmul_uses_int8(uint format)
{
    uint nth = 0u;
#define KS_CASE(name)                                                                              \
    if (format == nth++) return format_##name::block != 1u;
    FORMATS(KS_CASE)
#undef KS_CASE
    return false;
}

void quantize_launch(const MatmulArgs& a, ActGroup* acts, const float* x, cudaStream_t stream)
{
    const uint n_warps = a.n_tokens * (a.cols / 32u);
    KS_LAUNCH(quantize_kernel, (n_warps + n_threads / 32u - 1u) / (n_threads / 32u), n_threads,
              stream, a, acts, x);
}

} // namespace ks
