// The functions that kernels call: barriers, collectives, atomics, arithmetic.
#pragma once

#include "launch.h"

#define CUDASHIM_SITE const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()

inline void __syncthreads(CUDASHIM_SITE)
{
    cudashim::barrier_wait(file_, line_);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, CUDASHIM_SITE)
{
    cudashim::collective(1, mask, nullptr, nullptr, true, file_, line_);
}
namespace cudashim
{
inline int bar_acc_[2][2];
CUDASHIM_NOSAN inline int barrier_reduce(int v, int op, const char* f, int l)
{ // op: 0 count, 1 and, 2 or
    static int acc;
    static uint64_t epoch = ~0ull;
    static int out;
    uint64_t e = stats.barriers + 1;
    if (epoch != e) {
        epoch = e;
        acc = op == 1 ? 1 : 0;
    }
    if (op == 0)
        acc += v != 0;
    else if (op == 1)
        acc &= v != 0;
    else
        acc |= v != 0;
    out = acc;
    (void)out;
    // A second barrier: every thread must read the result before the next reduction starts.
    barrier_wait(f, l);
    int r = acc;
    barrier_wait(f, l);
    return r;
}
} // namespace cudashim
inline int __syncthreads_count(int p, CUDASHIM_SITE)
{
    return cudashim::barrier_reduce(p, 0, file_, line_);
}
inline int __syncthreads_and(int p, CUDASHIM_SITE)
{
    return cudashim::barrier_reduce(p, 1, file_, line_);
}
inline int __syncthreads_or(int p, CUDASHIM_SITE)
{
    return cudashim::barrier_reduce(p, 2, file_, line_);
}
namespace cudashim
{
CUDASHIM_NOSAN inline void fence_hb()
{
#if defined(CUDASHIM_TSAN)
    static char fence_obj;
    __tsan_acquire(&fence_obj);
    __tsan_release(&fence_obj); // orders all fences, which is more than CUDA guarantees
#endif
}
} // namespace cudashim
inline void __threadfence()
{
    __asm__ volatile("" ::: "memory");
    cudashim::fence_hb();
}
inline void __threadfence_block()
{
    __threadfence();
}
inline void __threadfence_system()
{
    __threadfence();
}
// Spin loops must call this, so that the other threads of the block run.
inline void __nanosleep(unsigned)
{
    cudashim::reschedule();
}

namespace cudashim
{
struct ShflP {
    uint64_t v, r;
    int src;
};
CUDASHIM_NOSAN inline void shfl_complete(unsigned part, void** pl)
{
    for (unsigned m = part; m; m &= m - 1) {
        auto* p = (ShflP*)pl[__builtin_ctz(m)];
        if (!(part >> p->src & 1)) {
            fail(vfmt("SHUFFLE: lane %d reads lane %d, which is not in the mask, has exited, or "
                      "does not exist (undefined value)",
                      __builtin_ctz(m), p->src));
            return;
        }
        p->r = ((ShflP*)pl[p->src])->v;
    }
}
template <class T>
inline T shfl_(unsigned mask, T v, int src, int kind, const char* f, int l)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
    ShflP p;
    p.v = 0;
    p.r = 0;
    p.src = src;
    memcpy(&p.v, &v, sizeof(T));
    collective(kind, mask, &p, shfl_complete, false, f, l);
    T r;
    memcpy(&r, &p.r, sizeof(T));
    return r;
}
struct VoteP {
    unsigned v, r;
};
CUDASHIM_NOSAN inline void ballot_complete(unsigned part, void** pl)
{
    unsigned b = 0;
    for (unsigned m = part; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        if (((VoteP*)pl[l])->v) b |= 1u << l;
    }
    for (unsigned m = part; m; m &= m - 1) ((VoteP*)pl[__builtin_ctz(m)])->r = b;
}
CUDASHIM_NOSAN inline void redadd_complete(unsigned part, void** pl)
{
    unsigned s = 0;
    for (unsigned m = part; m; m &= m - 1) s += ((VoteP*)pl[__builtin_ctz(m)])->v;
    for (unsigned m = part; m; m &= m - 1) ((VoteP*)pl[__builtin_ctz(m)])->r = s;
}
CUDASHIM_NOSAN inline void match_complete(unsigned part, void** pl)
{
    for (unsigned m = part; m; m &= m - 1) {
        auto* p = (VoteP*)pl[__builtin_ctz(m)];
        unsigned b = 0;
        for (unsigned q = part; q; q &= q - 1)
            if (((VoteP*)pl[__builtin_ctz(q)])->v == p->v) b |= 1u << __builtin_ctz(q);
        p->r = b;
    }
}
inline unsigned vote_(int kind, unsigned mask, unsigned v, CompleteFn fn, const char* f, int l)
{
    VoteP p{v, 0};
    collective(kind, mask, &p, fn, false, f, l);
    return p.r;
}
} // namespace cudashim
template <class T>
inline T __shfl_sync(unsigned mask, T v, int src, int w = 32, CUDASHIM_SITE)
{
    int l = cudashim::lane_id();
    return cudashim::shfl_(mask, v, (l & ~(w - 1)) | (src & (w - 1)), 2, file_, line_);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T v, int x, int w = 32, CUDASHIM_SITE)
{
    int l = cudashim::lane_id(), j = l ^ x;
    if (j > (l | (w - 1))) j = l;
    return cudashim::shfl_(mask, v, j & 31, 3, file_, line_);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T v, unsigned d, int w = 32, CUDASHIM_SITE)
{
    int l = cudashim::lane_id(), j = l + int(d);
    if (j > (l | (w - 1))) j = l;
    return cudashim::shfl_(mask, v, j, 4, file_, line_);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T v, unsigned d, int w = 32, CUDASHIM_SITE)
{
    int l = cudashim::lane_id(), j = l - int(d);
    if (j < (l & ~(w - 1))) j = l;
    return cudashim::shfl_(mask, v, j, 5, file_, line_);
}
inline unsigned __ballot_sync(unsigned mask, int p, CUDASHIM_SITE)
{
    return cudashim::vote_(6, mask, p != 0, cudashim::ballot_complete, file_, line_);
}
inline int __any_sync(unsigned mask, int p, CUDASHIM_SITE)
{
    return cudashim::vote_(7, mask, p != 0, cudashim::ballot_complete, file_, line_) != 0;
}
inline int __all_sync(unsigned mask, int p, CUDASHIM_SITE)
{
    return cudashim::vote_(8, mask, p == 0, cudashim::ballot_complete, file_, line_) == 0;
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned v, CUDASHIM_SITE)
{
    return cudashim::vote_(9, mask, v, cudashim::redadd_complete, file_, line_);
}
inline unsigned __match_any_sync(unsigned mask, unsigned v, CUDASHIM_SITE)
{
    return cudashim::vote_(10, mask, v, cudashim::match_complete, file_, line_);
}
// There is no __activemask(), because the programming model does not define its value.

template <class T>
inline std::enable_if_t<std::is_integral_v<T>, T> atomicAdd(T* p, std::common_type_t<T> v)
{
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
template <class T, class F>
inline T cudashim_cas_loop(T* p, F f)
{
    using U = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    U* u = reinterpret_cast<U*>(p);
    U o = __atomic_load_n(u, __ATOMIC_RELAXED);
    for (;;) {
        T ov;
        memcpy(&ov, &o, sizeof o);
        T nv = f(ov);
        U n;
        memcpy(&n, &nv, sizeof n);
        if (__atomic_compare_exchange_n(u, &o, n, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return ov;
    }
}
inline float atomicAdd(float* p, float v)
{
    return cudashim_cas_loop(p, [=](float o) { return o + v; });
}
inline double atomicAdd(double* p, double v)
{
    return cudashim_cas_loop(p, [=](double o) { return o + v; });
}
template <class T>
inline T atomicMax(T* p, std::common_type_t<T> v)
{
    return cudashim_cas_loop(p, [=](T o) { return o > v ? o : v; });
}
template <class T>
inline T atomicMin(T* p, std::common_type_t<T> v)
{
    return cudashim_cas_loop(p, [=](T o) { return o < v ? o : v; });
}
template <class T>
inline T atomicExch(T* p, std::common_type_t<T> v)
{
    return cudashim_cas_loop(p, [=](T) { return T(v); });
}
template <class T>
inline T atomicOr(T* p, std::common_type_t<T> v)
{
    return __atomic_fetch_or(p, v, __ATOMIC_RELAXED);
}
template <class T>
inline T atomicAnd(T* p, std::common_type_t<T> v)
{
    return __atomic_fetch_and(p, v, __ATOMIC_RELAXED);
}
template <class T>
inline T atomicCAS(T* p, std::common_type_t<T> c, std::common_type_t<T> v)
{
    T e = c;
    __atomic_compare_exchange_n(p, &e, T(v), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return e;
}
inline unsigned atomicInc(unsigned* p, unsigned lim)
{
    return cudashim_cas_loop(p, [=](unsigned o) { return o >= lim ? 0u : o + 1; });
}

namespace cudashim
{
template <class T>
inline const T* aligned_(const T* p)
{
    if (__builtin_expect(uintptr_t(p) % alignof(T), 0))
        fail(vfmt("misaligned %zu-byte vector load at %p, %s", sizeof(T), (const void*)p,
                  where(CUDASHIM_E.cur)));
    return p;
}
} // namespace cudashim
template <class T>
inline T __ldg(const T* p)
{
    return *cudashim::aligned_(p);
}
template <class T>
inline T __ldcs(const T* p)
{
    return *cudashim::aligned_(p);
}
template <class T>
inline T __ldcg(const T* p)
{
    return *cudashim::aligned_(p);
}
template <class T>
inline void __stcs(T* p, T v)
{
    *p = v;
}
inline int min(int a, int b)
{
    return a < b ? a : b;
}
inline int max(int a, int b)
{
    return a > b ? a : b;
}
inline unsigned min(unsigned a, unsigned b)
{
    return a < b ? a : b;
}
inline unsigned max(unsigned a, unsigned b)
{
    return a > b ? a : b;
}
inline long long min(long long a, long long b)
{
    return a < b ? a : b;
}
inline long long max(long long a, long long b)
{
    return a > b ? a : b;
}
inline float min(float a, float b)
{
    return fminf(a, b);
}
inline float max(float a, float b)
{
    return fmaxf(a, b);
}
inline float __expf(float x)
{
    return expf(x);
}
inline float __logf(float x)
{
    return logf(x);
}
inline float __fdividef(float a, float b)
{
    return a / b;
}
inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
inline float __frsqrt_rn(float x)
{
    return 1.0f / sqrtf(x);
}
inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
inline float __fadd_rn(float a, float b)
{
    return a + b;
}
inline float __fmul_rn(float a, float b)
{
    return a * b;
}
inline float __saturatef(float x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}
inline void __sincosf(float x, float* s, float* c)
{
    *s = sinf(x);
    *c = cosf(x);
}
inline void sincospif(float x, float* s, float* c)
{
    *s = float(sin(M_PI * double(x)));
    *c = float(cos(M_PI * double(x)));
}
inline int __float2int_rn(float x)
{
    return int(nearbyintf(x));
}
inline int __float2int_rz(float x)
{
    return int(x);
}
inline float __int2float_rn(int x)
{
    return float(x);
}
template <class To, class From>
To cudashim_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
inline int __float_as_int(float f)
{
    return cudashim_bits<int>(f);
}
inline float __int_as_float(int i)
{
    return cudashim_bits<float>(i);
}
inline unsigned __float_as_uint(float f)
{
    return cudashim_bits<unsigned>(f);
}
inline float __uint_as_float(unsigned i)
{
    return cudashim_bits<float>(i);
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz(x) : 32;
}
inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i);
    return r;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s)
{
    unsigned long long v = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned sel = s >> (4 * i);
        unsigned c = unsigned(v >> (8 * (sel & 7))) & 255;
        if (sel & 8) c = c & 128 ? 255 : 0;
        r |= c << (8 * i);
    }
    return r;
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s)
{
    return unsigned(((unsigned long long)hi << 32 | lo) >> (s & 31));
}
inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; i++)
        c += int((signed char)(a >> (8 * i))) * int((signed char)(b >> (8 * i)));
    return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (int i = 0; i < 4; i++) c += ((a >> (8 * i)) & 255) * ((b >> (8 * i)) & 255);
    return c;
}
inline unsigned __vsubss4(unsigned a, unsigned b)
{
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        int d = int((signed char)(a >> (8 * i))) - int((signed char)(b >> (8 * i)));
        d = d > 127 ? 127 : d < -128 ? -128 : d;
        r |= unsigned(d & 255) << (8 * i);
    }
    return r;
}
inline void __trap()
{
    cudashim::fail(cudashim::vfmt("__trap() called by %s", cudashim::where(CUDASHIM_E.cur)));
}
inline long long clock64()
{
    static long long c;
    return ++c;
}
