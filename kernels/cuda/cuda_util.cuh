// Helpers of all kernels.
// In tests a shim replaces the toolkit and the kernels run as C++ (tests/cuda_shim). So kernels
// keep some rules:
//   Shared memory is declared with KS_SHARED. Kernels are launched with KS_LAUNCH.
//   PTX is in mma.cuh only.
//   Lanes communicate by *_sync functions with an explicit mask.
//   __syncwarp comes before a read of another lane's write to memory.
//   No thread returns before a barrier that other threads of the block reach.
//   No block waits for another block.
// The first line of every kernel is begin_kernel().
#pragma once

#include <cuda_runtime.h>

#include "kernels/common/parts.h"

#ifdef __CUDACC__
#define KS_SHARED(T, name, dims) __shared__ __align__(16) T name dims
#define KS_LAUNCH(kernel, grid, block, stream, ...)                                                \
    ::ks::launch((kernel), (grid), (block), (stream), __VA_ARGS__)
#define KS_UNROLL _Pragma("unroll")
#define KS_PRAGMA(text) _Pragma(#text)
#define KS_UNROLL_BY(n) KS_PRAGMA(unroll(n))
#else
#define KS_SHARED CUDASHIM_SHARED
#define KS_LAUNCH(kernel, grid, block, stream, ...)                                                \
    CUDASHIM_LAUNCH(kernel, grid, block, 0, stream, ##__VA_ARGS__)
#define KS_UNROLL
#define KS_UNROLL_BY(n)
#endif
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__

namespace ks
{

constexpr uint n_threads = 128u; // per block, unless a kernel has its own number
constexpr uint all_lanes = 0xffffffffu;

// a masked slot's logit; finite, so that no kernel needs infinities
constexpr float masked_logit = -1e30f;
constexpr float log2e = 1.442695041f;

DEVICE uint first_thread()
{
    return blockIdx.x * n_threads + threadIdx.x;
}
DEVICE uint n_all_threads()
{
    return n_threads * gridDim.x;
}

#ifdef __CUDACC__
// Devices from compute capability 9.0 on start the next kernel while one runs (programmatic
// dependent launch). The next kernel waits in begin_kernel().
static inline bool has_dependent_launch()
{
    int device = 0, major = 0;
    return CUDART_VERSION >= 12030 && cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major >= 9;
}

template <class... P, class... A>
static void launch(void (*kernel)(P...), dim3 grid, dim3 block, cudaStream_t stream,
                   const A&... args)
{
#if CUDART_VERSION >= 12030
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = has_dependent_launch() ? 1u : 0u;
    (void)cudaLaunchKernelEx(&config, kernel, P(args)...); // cudaGetLastError reports an error
#else
    kernel<<<grid, block, 0, stream>>>(args...);
#endif
}
#endif

// Waits until the previous kernel is complete and its writes are visible. Then the next kernel may
// be started.
DEVICE void begin_kernel()
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// 2^x, or 0 where the result is below 2^-126: devices differ in subnormal results.
DEVICE float power_of_two(float x)
{
    return x < -126.f ? 0.f : exp2f(x);
}
DEVICE float sigmoid(float x)
{
    return 1.f / (1.f + expf(-x));
}

// FLOAT_TO_HALF of a finite value.
DEVICE uint to_f16(float x)
{
#ifdef __CUDA_ARCH__
    return __half_as_ushort(__float2half_rn(x));
#else
    return FLOAT_TO_HALF(x);
#endif
}

// x and y as f16 in one word, x in the low half.
DEVICE uint pack_f16(float x, float y)
{
#ifdef __CUDA_ARCH__
    const __half2 both = __floats2half2_rn(x, y);
    uint word;
    memcpy(&word, &both, 4);
    return word;
#else
    return to_f16(x) | to_f16(y) << 16;
#endif
}

// The sum and the maximum over a warp. Every lane and every run gets the same bits.
DEVICE float warp_sum(float x)
{
    KS_UNROLL
    for (int distance = 16; distance > 0; distance /= 2)
        x += __shfl_xor_sync(all_lanes, x, distance);
    return x;
}

DEVICE float warp_max(float x)
{
    KS_UNROLL
    for (int distance = 16; distance > 0; distance /= 2)
        x = fmaxf(x, __shfl_xor_sync(all_lanes, x, distance));
    return x;
}

// The same over a block. The scratch has one float per warp. It may be reused only after another
// block barrier.
DEVICE float block_max(float x, float* scratch)
{
    x = warp_max(x);
    if (threadIdx.x % 32u == 0u) scratch[threadIdx.x / 32u] = x;
    __syncthreads();
    for (uint w = 0u; w < blockDim.x / 32u; w++) x = fmaxf(x, scratch[w]);
    return x;
}

DEVICE float block_sum(float x, float* scratch)
{
    x = warp_sum(x);
    if (threadIdx.x % 32u == 0u) scratch[threadIdx.x / 32u] = x;
    __syncthreads();
    x = 0.f;
    for (uint w = 0u; w < blockDim.x / 32u; w++) x += scratch[w];
    return x;
}

// The number of blocks of n_threads for n items. With the limit of 4096 blocks a thread loops over
// its items.
static inline uint blocks_for(uint64_t n)
{
    const uint64_t blocks = (n + n_threads - 1u) / n_threads;
    return uint(blocks < 4096u ? blocks : 4096u);
}

} // namespace ks
