// Shared memory, and the launch of a grid.
#pragma once

#include "engine.h"

namespace cudashim
{

CUDASHIM_COLD inline void poison_fill(char* p, size_t n)
{ // not by memset, which TSan would count as a write of the calling thread
    volatile uint64_t* q = (volatile uint64_t*)p;
    size_t k = (n + 7) / 8;
    for (size_t i = 0; i < k; i++) q[i] = ~0ull; // NaN as f16/bf16/f32/f64, -1 as int
}
CUDASHIM_COLD inline void arena_init()
{ // called by the host, because TSan treats mmap as a write of its caller
    Engine& E = CUDASHIM_E;
    if (!E.arena) {
        E.arena_cap = size_t(1) << 30;
        E.arena = (char*)mmap(nullptr, E.arena_cap, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if ((void*)E.arena == MAP_FAILED) {
            perror("mmap arena");
            abort();
        }
#if defined(CUDASHIM_ASAN)
        __asan_poison_memory_region(E.arena, 8 << 20);
#endif
    }
}
CUDASHIM_COLD inline char* arena_alloc(size_t bytes, size_t align)
{
    Engine& E = CUDASHIM_E;
    if (align < 16) align = 16;
    size_t p =
        (E.arena_pos + 64 + align - 1) / align * align; // a red zone of at least 64 bytes in front
    size_t end = p + (bytes + 7) / 8 * 8;
    if (end + 128 > E.arena_cap)
        fail("internal: shared arena exhausted (too many blocks for a TSan run)");
    E.arena_pos = end;
#if defined(CUDASHIM_ASAN)
    __asan_unpoison_memory_region(E.arena + p, bytes);
#endif
    if (opt().poison) {
#if defined(CUDASHIM_ASAN)
        memset(E.arena + p, 0xff, bytes);
#else
        poison_fill(E.arena + p, bytes);
#endif
    }
    return E.arena + p;
}
CUDASHIM_NOSAN inline void* shared_static(const void* key, size_t bytes, size_t align)
{
    Engine& E = CUDASHIM_E;
    for (int i = 0; i < E.nsv; i++)
        if (E.sv[i].key == key) return E.sv[i].p;
    if (E.nsv == 64) fail("internal: more than 64 shared variables");
    E.static_bytes += bytes;
    if (E.static_bytes > 48 * 1024)
        fail("static shared memory exceeds 48 KiB (nvcc/ptxas would refuse)");
    char* p = arena_alloc(bytes, align);
    E.sv[E.nsv++] = {key, p};
    return p;
}
CUDASHIM_NOSAN inline void* dyn_shared()
{
    Engine& E = CUDASHIM_E;
    if (!E.dyn) {
        E.dyn = arena_alloc(E.dyn_bytes, 128);
    }
    return E.dyn;
}

inline std::map<const void*, size_t>& dyn_optin()
{
    static std::map<const void*, size_t> m;
    return m;
}

CUDASHIM_NOSAN inline void run_block(const dim3& b)
{
    Engine& E = CUDASHIM_E;
    E.n = E.live = int(b.x * b.y * b.z);
    E.bar_count = 0;
    E.ready_warps = 0;
    int t = 0;
    for (unsigned z = 0; z < b.z; z++)
        for (unsigned y = 0; y < b.y; y++)
            for (unsigned x = 0; x < b.x; x++, t++) {
                Thread& h = E.th[t];
                h.tid = {x, y, z};
                h.st = St::New;
                h.stack = nullptr;
            }
    for (int w = 0; w * 32 < E.n; w++) {
        int k = E.n - w * 32;
        uint32_t m = k >= 32 ? ~0u : (1u << k) - 1;
        E.warp[w] = Warp{m, m, 0, 0, 0};
        E.ready_warps |= 1u << w;
    }
#if defined(CUDASHIM_TSAN)
    // One TSan fiber and stack per thread and block modulo 4: two CUDA threads of a block never
    // share a stack. The host creates them. __tsan_create_fiber orders the creator before the
    // fiber, so creation by another CUDA thread would add a false happens-before edge and hide
    // races.
    for (int i = 0; i < E.n; i++) {
        Stack*& s = E.tsan_pool[int(E.block_no % 4) * 1024 + i];
        if (!s) s = stack_new();
    }
    if (opt().tsan_block_order) {
        __tsan_acquire((void*)&E.ctx);
        __tsan_release((void*)&E.thunk);
    }
#else
#if defined(CUDASHIM_ASAN)
    if (E.arena) __asan_poison_memory_region(E.arena, E.arena_pos + 4096);
#endif
    E.arena_pos = 0; // not with TSan: there, every block of a launch gets new addresses
#endif
    E.nsv = 0;
    E.dyn = nullptr;
    E.static_bytes = 0;
    if (E.dyn_bytes) dyn_shared();
    int nx = pick_next();
    activate(nx);
    raw_switch(&E.main_stack, E.th[nx].stack);
    E.block_no++;
}

CUDASHIM_COLD inline void check_launch(const char* name, const void* kfn, dim3 g, dim3 b,
                                       size_t shmem)
{
    if (CUDASHIM_E.in_kernel)
        throw Error("cudashim: launch from inside a kernel (dynamic parallelism) is not supported");
    uint64_t nb = uint64_t(b.x) * b.y * b.z;
    if (!nb || nb > 1024 || b.x > 1024 || b.y > 1024 || b.z > 64)
        throw Error(vfmt("cudashim: kernel '%s': bad block (%u,%u,%u)", name, b.x, b.y, b.z));
    if (!g.x || !g.y || !g.z || g.x > 2147483647u || g.y > 65535 || g.z > 65535)
        throw Error(vfmt("cudashim: kernel '%s': bad grid (%u,%u,%u)", name, g.x, g.y, g.z));
    size_t lim = 48 * 1024;
    auto it = dyn_optin().find(kfn);
    if (it != dyn_optin().end() && it->second > lim) lim = it->second;
    if (shmem > lim)
        throw Error(vfmt("cudashim: kernel '%s': %zu bytes dynamic shared memory without "
                         "cudaFuncSetAttribute opt-in (limit %zu)",
                         name, shmem, lim));
}

CUDASHIM_NOSAN inline void begin_launch()
{
    Engine& E = CUDASHIM_E;
#if defined(CUDASHIM_TSAN)
    E.main_stack.tsan = __tsan_get_current_fiber();
    __tsan_release((void*)&E.thunk);
#endif
    E.main_stack.base = nullptr;
    E.main_stack.size = 0;
#if defined(CUDASHIM_ASAN)
    { // the stack bounds of the launching system thread, for __sanitizer_start_switch_fiber
        static thread_local void* a = nullptr;
        static thread_local size_t s =
            0; // kept, because pthread_getattr_np parses /proc/self/maps and takes about 1 ms
        if (!a) {
            pthread_attr_t at;
            pthread_getattr_np(pthread_self(), &at);
            pthread_attr_getstack(&at, &a, &s);
            pthread_attr_destroy(&at);
        }
        E.main_stack.base = (char*)a;
        E.main_stack.size = s;
    }
#endif
}

CUDASHIM_NOSAN inline void end_launch()
{
    Engine& E = CUDASHIM_E;
#if defined(CUDASHIM_TSAN)
    if (E.failed) { // abandoned fibers have not released
        for (int i = 0; i < E.nall; i++) {
            __tsan_switch_to_fiber(E.all_stacks[i]->tsan, 1);
            __tsan_release((void*)&E.ctx);
        }
        __tsan_switch_to_fiber(E.main_stack.tsan, 1);
    }
    __tsan_acquire((void*)&E.ctx);
#endif
    E.in_kernel = false;
    if (!E.failed) return;
    E.nfree = 0; // fibers were abandoned in the kernel, so every stack is rebuilt
    for (int i = 0; i < E.nall; i++) {
        stack_init(E.all_stacks[i]);
        push_free(E.all_stacks[i]);
    }
    throw Error(E.msg);
}

inline uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

CUDASHIM_NOSAN inline void launch_raw(const char* name, const void* kfn, dim3 g, dim3 b,
                                      size_t shmem, void (*thunk)(void*), void* ctx)
{
    Engine& E = CUDASHIM_E;
    std::lock_guard<std::recursive_mutex> lk(launch_mutex_);
    E.name = name;
    E.n = 0;
    check_launch(name, kfn, g, b, shmem);
    E.thunk = thunk;
    E.ctx = ctx;
    E.dyn_bytes = shmem;
    E.order = opt().order;
    E.rng = opt().seed * 0x9E3779B97F4A7C15ull | 1;
    if (!E.arena) arena_init();
    gridDim = g;
    blockDim = b;
    E.in_kernel = true;
    E.failed = false;
    E.arena_pos = 0;
    const uint64_t total = uint64_t(g.x) * g.y * g.z;
    ++stats.launches;
    stats.blocks += total;
    stats.threads += total * b.x * b.y * b.z;
    begin_launch();
    uint64_t shift = E.order == Order::Random ? (E.rng >> 20) % total : 0,
             step = 1; // random order: an affine permutation of the blocks
    if (E.order == Order::Random) {
        step = (E.rng >> 7) % total | 1;
        while (common_divisor(step, total) != 1) step++;
    }
    for (uint64_t i = 0; i < total && !E.failed; i++) {
        uint64_t j = i;
        if (E.order == Order::Reverse)
            j = total - 1 - i;
        else if (E.order == Order::Random)
            j = (i * step + shift) % total;
        blockIdx = {unsigned(j % g.x), unsigned(j / g.x % g.y), unsigned(j / g.x / g.y)};
        run_block(b);
    }
    end_launch();
}

// The work that a captured stream received. It is done when the graph is launched.
using Work = std::vector<std::function<void()>>;

// Launches a kernel, or adds the launch to `captured`. The arguments are copied, as in a launch on
// a device.
template <class... P, class... A>
void launch(const char* name, void (*k)(P...), dim3 g, dim3 b, size_t shmem, Work* captured,
            A&&... a)
{
    struct Ctx {
        void (*k)(P...);
        std::tuple<std::decay_t<P>...> args;
    } c{k, std::tuple<std::decay_t<P>...>(std::forward<A>(a)...)};
    auto run = [=]() mutable {
        launch_raw(
            name, reinterpret_cast<const void*>(k), g, b, shmem,
            [](void* v) {
                auto* ctx = static_cast<Ctx*>(v);
                std::apply(ctx->k, ctx->args);
            },
            &c);
    };
    if (captured)
        captured->push_back(run);
    else
        run();
}

inline int lane_id()
{
    return CUDASHIM_E.cur & 31;
}
} // namespace cudashim
