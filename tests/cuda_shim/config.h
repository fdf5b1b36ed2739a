// Runs CUDA sources as plain C++17 on the CPU. No CUDA toolkit is needed: a test build includes
// this folder's cuda_runtime.h instead of the toolkit's.
//
//  * Every thread of a block is a fiber. Fibers wait for each other in __syncthreads, __syncwarp
//    and the *_sync collectives.
//  * One system thread runs the fibers, each until its next wait. CUDASHIM_ORDER = fwd | rev |
//    rand:SEED sets the order, which is the same in every run.
//  * -fsanitize=address: the sanitizer knows the fibers' stacks. Shared arrays and device buffers
//    have red zones.
//  * -fsanitize=thread: every thread is a fiber of the sanitizer that switches without
//    synchronising. Only barriers, __syncwarp and __threadfence order memory, so every race is
//    found.
//  * Always checked: divergent barriers, masks with lanes that do not arrive, reads of lanes
//    outside the mask, and launches that a device would refuse. Shared and device memory start as
//    NaNs.
// There is one engine per process, and it runs one launch at a time.
#pragma once

#if defined(__CUDACC__)
#error "this folder stands in for the toolkit where there is none"
#endif
#include <cassert>
#include <climits>
#include <cmath>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <tuple>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>
#if !(defined(__x86_64__) || defined(__aarch64__)) || defined(CUDASHIM_UCONTEXT)
#define CUDASHIM_USE_UCONTEXT 1
#include <ucontext.h>
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CUDASHIM_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define CUDASHIM_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(CUDASHIM_ASAN)
#define CUDASHIM_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__) && !defined(CUDASHIM_TSAN)
#define CUDASHIM_TSAN 1
#endif
#if defined(CUDASHIM_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(CUDASHIM_TSAN)
#include <sanitizer/tsan_interface.h>
#endif
#if defined(CUDASHIM_TSAN)
extern "C" void AnnotateIgnoreReadsBegin(const char*, int);
extern "C" void AnnotateIgnoreReadsEnd(const char*, int);
#endif

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) alignas(n)
#define CUDASHIM 1
// engine code must not be instrumented, so it must not be inlined into instrumented kernels
#if defined(CUDASHIM_TSAN)
#define CUDASHIM_NOSAN __attribute__((noinline, no_sanitize("thread")))
#else
#define CUDASHIM_NOSAN
#endif
#define CUDASHIM_COLD __attribute__((noinline, cold, no_sanitize("thread")))

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
#define CUDASHIM_V2(T, N, A)                                                                       \
    struct alignas(A) N##2                                                                         \
    {                                                                                              \
        T x, y;                                                                                    \
    };                                                                                             \
    inline N##2 make_##N##2(T x, T y)                                                              \
    {                                                                                              \
        return {x, y};                                                                             \
    }
#define CUDASHIM_V4(T, N, A)                                                                       \
    struct alignas(A) N##4                                                                         \
    {                                                                                              \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    inline N##4 make_##N##4(T x, T y, T z, T w)                                                    \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }
// clang-format off
CUDASHIM_V2(float, float, 8)
CUDASHIM_V4(float, float, 16)
CUDASHIM_V2(int, int, 8)
CUDASHIM_V4(int, int, 16)
CUDASHIM_V2(unsigned, uint, 8)
CUDASHIM_V4(unsigned, uint, 16)

inline uint3 threadIdx{0, 0, 0};
// clang-format on
inline uint3 blockIdx{0, 0, 0};
inline dim3 blockDim{1, 1, 1};
inline dim3 gridDim{1, 1, 1};
constexpr int warpSize = 32;

namespace cudashim
{

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class Order { Forward, Reverse, Random };
struct Options {
    Order order = Order::Forward;
    uint64_t seed = 1;
    bool strict_sites =
        true; // all threads must use the same source line of __syncthreads / collective
    bool strict_exit =
        true;           // a thread may not exit while others of its block still wait at a barrier
    bool poison = true; // fill shared memory with NaN bytes at block start
    bool tsan_block_order =
        false; // TSan: order blocks one after another (needed for raw static __shared__)
    size_t max_dyn_optin = 163 * 1024; // sm_87: 163 KiB (sm_90: 227 KiB)
    size_t stack_bytes =
#if defined(CUDASHIM_ASAN) || defined(CUDASHIM_TSAN)
        256 * 1024;
#else
        64 * 1024;
#endif
    Options()
    {
        if (const char* e = std::getenv("CUDASHIM_ORDER")) set_order(e);
    }
    void set_order(const std::string& s)
    {
        if (s == "fwd")
            order = Order::Forward;
        else if (s == "rev")
            order = Order::Reverse;
        else if (s.rfind("rand", 0) == 0) {
            order = Order::Random;
            auto p = s.find(':');
            seed = p == std::string::npos ? 1 : std::strtoull(s.c_str() + p + 1, nullptr, 10);
        }
    }
};
inline Options& opt()
{
    static Options o;
    return o;
}

struct Stats {
    uint64_t launches = 0, blocks = 0, threads = 0, switches = 0, barriers = 0, collectives = 0;
};
inline Stats stats;

} // namespace cudashim
